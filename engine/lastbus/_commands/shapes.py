"""`shapes`: what the guard of a close sees, under each interpreter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastbus._commands.console import err, out

if TYPE_CHECKING:
    from lastbus._kit.shapes.versions import Column

app = typer.Typer()


@app.command(
    help="Play every way to wait for a close under one or more interpreters, which need nothing installed, and say "
    "what the guard sees.\n\nExample: lastbus shapes --python python3.10 --python python3.13 --check\n\n"
    "Exit codes: 0 every row as expected (with --check: and as on the page) · 1 a row differs · "
    "2 usage, or an interpreter could not play."
)
def shapes(
    python: Annotated[
        list[str] | None, typer.Option("--python", help="An interpreter; repeatable. None: the one that runs this.")
    ] = None,
    page: Annotated[Path, typer.Option(help="The page of the shapes.")] = Path("docs/SHAPES.md"),
    check: Annotated[bool, typer.Option("--check", help="Compare the page with what was played.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Write the page anew, with these interpreters.")] = False,
) -> None:
    """Play, print, and compare or write.

    Keeps: SELF-29.
    """
    from lastbus._kit.shapes import versions

    if check and not page.is_file():
        raise typer.BadParameter(f"there is no {page}; name it with --page, or make it with --write")
    try:
        found = [column for each in python or [sys.executable] for column in versions.columns(each)]
    except versions.InterpreterError as error:
        err().print(f"lastbus: {error}")
        raise typer.Exit(2) from None
    _print(found)
    wrong = [each for column in found for each in versions.surprises(column)]
    if check:
        documented = page.read_text(encoding="utf-8")
        wrong += versions.differences(documented, found)
        for title in versions.uncompared(documented, found):
            err().print(f"not compared: {title} was not played; give its interpreter with --python")
    for each in wrong:
        err().print(each)
    if write:
        versions.write(page, found)
    raise typer.Exit(1 if wrong else 0)


def _print(found: list[Column]) -> None:
    """One line for each row, one column for each interpreter."""
    from rich.table import Table

    from lastbus._kit.shapes import versions

    table = Table("shape", *(column.title for column in found), box=None)
    for row, due in versions.expected().items():
        words = (column.words.get(row, versions.NOT_THERE) for column in found)
        table.add_row(f"{row} ({due})", *("ok" if word == due else word for word in words))
    out().print(table)
