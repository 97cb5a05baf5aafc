"""`frozen`: functions whose bodies are pinned to the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastbus._commands.console import out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lastbus.proof.config import Project
    from lastbus.proof.frozen import Numbers

app = typer.Typer(help="Functions whose bodies are pinned to the byte.", no_args_is_help=True)


@app.command(
    help="Compare every frozen body with its numbers, or with itself at revisions, and list the mutations in it.\n\n"
    "Example: lastbus frozen check --rev v0.1.0 --rev HEAD\n\nExit codes: 0 unchanged · 1 changed · 2 usage."
)
def check(
    rev: Annotated[list[str] | None, typer.Option(help="A git revision to compare as well; repeatable.")] = None,
) -> None:
    """Compare every frozen body with its numbers; one that differs fails.

    Keeps: FRZ-05.
    """
    from lastbus.proof import frozen
    from lastbus.proof.config import Project
    from lastbus.proof.mutation import load_all

    project = Project.load()
    entries = frozen.load(project)
    fine = frozen_checked(project, entries)
    for name, ids in frozen.anchored(project, entries, load_all(project) if entries else ()).items():
        out().print(f"{name}: {len(ids)} mutations anchored in it{': ' if ids else ''}{', '.join(ids)}")
    for entry in entries if rev else ():
        found = frozen.history(project, entry, rev or ())
        fine = frozen.identical(list(found.values())) and fine
        for line in _history_lines(found):
            out().print(f"{entry.name} {line}")
    raise typer.Exit(0 if fine else 1)


@app.command(
    help="Write the numbers of today for one body, after a decision to change it, or to freeze one more. The reason is "
    "kept with it, and no other body is touched.\n\n"
    "Example: lastbus frozen update src/shop.py::Shop.add --why 'invoices quote it'\n\nExit codes: 0 · 2 usage."
)
def update(
    name: Annotated[str, typer.Argument(metavar="ID", help="FILE::FUNCTION, or the function of an entry.")],
    why: Annotated[str, typer.Option(help="Why this body must not change; needed.")] = "",
) -> None:
    """Write one frozen body's numbers anew.

    Keeps: FRZ-07.
    """
    from lastbus.proof import frozen
    from lastbus.proof.config import Project

    project = Project.load()
    entry = frozen.decide(project, frozen.load(project), name, why)
    out().print(f"{entry.file}: {entry.name}: {entry.numbers}")


@app.command(
    help="The bytes and lines of one frozen body at git revisions and in the work tree, and whether all agree.\n\n"
    "Example: lastbus frozen history Shop.add v0.1.0 HEAD\n\nExit codes: 0 identical · 1 not · 2 usage."
)
def history(
    name: Annotated[str, typer.Argument(metavar="ID", help="FILE::FUNCTION, or the function of an entry.")],
    rev: Annotated[
        list[str] | None, typer.Argument(help="Git revisions; none: the last commits that touched its file.")
    ] = None,
) -> None:
    """Print how one frozen body came to be what it is.

    Keeps: FRZ-03.
    """
    from lastbus.proof import frozen
    from lastbus.proof.config import Project

    project = Project.load()
    entry = frozen.find(frozen.load(project), name)
    found = frozen.history(project, entry, rev or frozen.commits(project, entry))
    for line in _history_lines(found):
        out().print(line)
    raise typer.Exit(0 if frozen.identical(list(found.values())) else 1)


def _history_lines(found: dict[str, Numbers | None]) -> Iterator[str]:
    """`rev=BYTES/LINES` for each revision and the work tree, then whether all are the same.

    Keeps: FRZ-03.
    """
    from lastbus.proof import frozen

    for revision, numbers in found.items():
        yield f"{revision}={f'{numbers.bytes}/{numbers.lines}' if numbers else 'absent'}"
    yield f"identical: {frozen.identical(list(found.values()))}"


def frozen_checked(project: Project, entries: Sequence[Any]) -> bool:
    """Whether no frozen body changed or moved; what did is printed."""
    from lastbus.proof import frozen
    from lastbus.proof.mutation import load_all

    faults = [*frozen.check(project, entries), *frozen.displaced(project, entries, load_all(project))]
    for fault in faults:
        out().print(fault)
    if not entries:
        out().print("nothing is frozen")
    elif not faults:
        out().print(f"{len(entries)} frozen bodies unchanged")
    return not faults
