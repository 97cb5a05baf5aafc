"""`replay` and `prove`: mutations against the tests, and the exit code that gates on them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastbus._commands.console import err, out, progress
from lastbus._commands.frozen import frozen_checked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lastbus.proof.config import Project
    from lastbus.proof.mutation import Mutation
    from lastbus.proof.replay import Outcome

app = typer.Typer()

Groups = Annotated[
    list[str] | None, typer.Option("--group", "-g", help="A guarantee family (CORE) or a mutation folder; repeatable.")
]
Python = Annotated[str, typer.Option("--python", help="The interpreter to run the tests with.")]
CPUS = os.cpu_count() or 1
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many mutations run at once.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the outcome to this file as JSON.")]
Isolated = Annotated[bool, typer.Option("--isolated", help="A new process per run instead of a fork: slower.")]

EXITS = (
    "\n\nExit codes: 0 all as expected · 1 a survivor or the wrong killer · 2 usage · 3 red baseline · "
    "4 invalid mutation · 5 hang or time-out."
)


@app.command(
    help="Replay mutations: each must make its mapped tests fail.\n\n"
    "Example: lastbus replay --group CORE --jobs 2" + EXITS
)
def replay(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Mutation or guarantee ids; globs allowed. None: all.")
    ] = None,
    group: Groups = None,
    python: Python = sys.executable,
    jobs: Jobs = CPUS,
    json_file: JsonFile = None,
    isolated: Isolated = False,
) -> None:
    """Replay the chosen mutations, or all; the exit code is the verdict."""
    from lastbus.proof.config import Project
    from lastbus.proof.mutation import load_all, select
    from lastbus.proof.report import to_json

    project = Project.load()
    mutations = select(load_all(project), ids or (), group or ())
    outcome = _replayed(project, mutations, python, jobs, isolated)
    if json_file is not None:
        json_file.write_text(json.dumps(to_json(outcome), indent=1) + "\n", encoding="utf-8")
    raise typer.Exit(outcome.exit_code)


@app.command(
    help="Prove everything: replay all mutations, check the ledger and the frozen bodies.\n\n"
    "Example: lastbus prove --jobs 2 --report proof-report" + EXITS
)
def prove(
    python: Python = sys.executable,
    jobs: Jobs = CPUS,
    report: Annotated[Path | None, typer.Option(help="Fill this folder with report.json and the evidence.")] = None,
    isolated: Isolated = False,
) -> None:
    """The replay decides the exit code; after a clean one, so do the ledger and the frozen bodies.

    Keeps: MUT-20, MUT-21.
    """
    from lastbus.proof import frozen, ledger
    from lastbus.proof.config import Project
    from lastbus.proof.mutation import load_all, select
    from lastbus.proof.report import ledger_line, write_evidence

    project = Project.load()
    outcome = _replayed(project, select(load_all(project)), python, jobs, isolated)
    book = ledger.read(project)
    for line in (*book.errors, *(f"{row.statement.id} unpinned: {row.reasons[0]}" for row in book.unpinned)):
        out().print(line)
    out().print(ledger_line(book))
    frozen_ok = frozen_checked(project, frozen.load(project))
    if report is not None:
        write_evidence(report, project, outcome, book)
    honest = frozen_ok and not book.errors and not book.unpinned
    raise typer.Exit(outcome.exit_code or (0 if honest else 1))


def _replayed(project: Project, mutations: Sequence[Mutation], python: str, jobs: int, isolated: bool) -> Outcome:
    """Replay with progress on the terminal, keep the record, print the summary."""
    from lastbus.proof import record
    from lastbus.proof.replay import replay as run
    from lastbus.proof.report import red_lines, summary_line

    with progress(len(mutations)) as tell:
        outcome = run(project, mutations, python, jobs, isolated, tell)
    if outcome.baseline.red:
        for line in red_lines(outcome):
            err().print(line)
    else:
        record.update(project, outcome)
    out().print(summary_line(outcome))
    return outcome
