"""`mutations`: the catalogue itself, checked and extended without replaying it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lastbus._commands.console import err, out, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lastbus.proof.authoring import Replay
    from lastbus.proof.config import Project
    from lastbus.proof.mutation import Mutation
    from lastbus.proof.replay import Outcome

app = typer.Typer(help="The catalogue of mutations: check it, add to it.", no_args_is_help=True)


@app.command(
    help="Check every mutation as it is written, without running anything: anchors that are lost or ambiguous, edits "
    "that change no code or break its syntax, killers that no file defines, ids that are taken. A lost anchor comes "
    "with the place where it stands now.\n\n"
    "Example: lastbus mutations check --json\n\nExit codes: 0 nothing is wrong · 2 usage · 4 something is."
)
def check(as_json: Annotated[bool, typer.Option("--json", help="Print the faults as JSON.")] = False) -> None:
    """Print what is wrong with the catalogue.

    Keeps: MUT-49.
    """
    from lastbus.proof import anchors
    from lastbus.proof.config import Project
    from lastbus.proof.errors import UsageError

    total, faults = anchors.check(Project.load())
    if not total:
        raise UsageError("there are no mutations: add a file under the mutations folder")
    if as_json:
        typer.echo(json.dumps({"mutations": total, "faults": [fault.to_json() for fault in faults]}, indent=1))
    else:
        for fault in faults:
            for line in fault.lines():
                out().print(line)
        out().print(f"{total} mutations checked: {f'{len(faults)} faults' if faults else 'nothing is wrong'}")
    raise typer.Exit(4 if faults else 0)


@app.command(
    help="Make a mutation of an edit in the work tree: break one file of the code by hand, then run this. It finds an "
    "anchor that stands once, and killers among the tests that are marked with the guarantee; writes the file; and "
    "replays it at once. The edit stays in the work tree, unless --restore takes it back after it was written down.\n\n"
    "Example: lastbus mutations new shop-counts-down --guarantee SUM-01 --restore\n\n"
    "Exit codes: 0 killed · 1 it survived or the wrong test noticed · 2 usage · 3 red baseline · 4 invalid · 5 hang."
)
def new(
    name: Annotated[str, typer.Argument(metavar="ID", help="The mutation's id, which is also its file's name.")],
    guarantee: Annotated[list[str], typer.Option("--guarantee", help="What the edit breaks; repeatable.")],
    summary: Annotated[str, typer.Option(help="What the defect does, in a sentence. Default: its first line.")] = "",
    file: Annotated[str | None, typer.Option(help="The file that was edited, if it is not the only one.")] = None,
    group: Annotated[str, typer.Option(help="The folder of mutations. Default: the guarantee's family.")] = "",
    killer: Annotated[list[str] | None, typer.Option(help="A test that must notice, if not to be found.")] = None,
    index: Annotated[bool, typer.Option("--index", help="Compare with the index instead of HEAD.")] = False,
    restore: Annotated[bool, typer.Option("--restore", help="Take the edit back when it is written down.")] = False,
    python: Annotated[str, typer.Option("--python", help="The interpreter to run the tests with.")] = sys.executable,
) -> None:
    """Write a mutation, find its killers, and judge it.

    Keeps: MUT-52.
    """
    from lastbus.proof import authoring
    from lastbus.proof.config import Project
    from lastbus.proof.report import red_lines

    project = Project.load()
    draft = authoring.draft(project, name, guarantee, file, summary, group, "" if index else "HEAD")
    with authoring.unbroken(project, draft) as copy:
        if killer:
            killers, why = tuple(killer), "as named"
        else:
            err().print(
                f"looking for tests marked with {', '.join(guarantee)} that run {_spot(draft.file, draft.lines)}"
            )
            killers, why = authoring.killers_for(copy, draft, python, _quiet(python))
        mutation = authoring.write(project, draft, killers)
        out().print(f"wrote {mutation.source}")
        for one in mutation.killers:
            out().print(f"  killer {one}")
        out().print(f"  {why}")
        if restore:
            authoring.restore(project, draft)
            out().print(f"{draft.file} is as it was before the edit")
        outcome = authoring.judge(project, copy, mutation, python, _told(python))
    for line in red_lines(outcome) if outcome.baseline.red else ():
        err().print(line)
    for line in authoring.next_steps(draft, outcome, restore):
        out().print(line)
    raise typer.Exit(outcome.exit_code)


def _spot(file: str, lines: set[int]) -> str:
    return f"{file}:{min(lines)}" if lines else file


def _quiet(python: str) -> Replay:
    from lastbus.proof.replay import replay

    return lambda project, mutations: replay(project, mutations, python)


def _told(python: str) -> Replay:
    """A replay that prints its results."""
    from lastbus.proof.replay import replay

    def told(project: Project, mutations: Sequence[Mutation]) -> Outcome:
        with progress(len(mutations)) as tell:
            return replay(project, mutations, python, progress=tell)

    return told
