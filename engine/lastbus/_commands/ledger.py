"""`ledger`: what states, keeps, pins and breaks each guarantee."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lastbus._commands.console import err, out

app = typer.Typer(help="What states, keeps, pins and breaks each guarantee.", invoke_without_command=True)


@app.callback(
    help="The ledger of all guarantees.\n\nExample: lastbus ledger --json, or: lastbus ledger show CLOSE-27\n\n"
    "Exit codes: 0 · 1 an id is cited that no document states (with --check: or a guarantee is unpinned) · "
    "2 usage · 4 invalid mutation."
)
def ledger_all(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print all rows as JSON.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Fail if any guarantee is unpinned.")] = False,
    write_counts: Annotated[
        bool, typer.Option("--write-counts", help="Correct the numbers between count comments first.")
    ] = False,
) -> None:
    """Print the ledger; its errors, and with `--check` what is unpinned, fail."""
    if context.invoked_subcommand is not None:
        return
    from lastbus.proof import ledger
    from lastbus.proof.config import Project
    from lastbus.proof.report import ledger_line

    project = Project.load()
    if write_counts:
        for page in ledger.write_counts(project):
            err().print(f"corrected the counts in {page}")
    book = ledger.read(project)
    if as_json:
        typer.echo(json.dumps([row.to_json() for row in book.rows], indent=1))
    else:
        for row in book.rows:
            why = f": {row.reasons[0]}" if row.reasons else ""
            out().print(f"{row.status:<9} {row.statement.id:<12} {row.statement.title}{why}")
        out().print(ledger_line(book))
    for error in book.errors:
        err().print(error)
    raise typer.Exit(1 if book.errors or (check and book.unpinned) else 0)


@app.command(
    help="One guarantee: sentence, code, tests, mutations, last verdict.\n\nExample: lastbus ledger show CLOSE-27"
)
def show(guarantee: Annotated[str, typer.Argument(help="The id, as in the documents.")]) -> None:
    """Print one guarantee with all that is known about it."""
    from lastbus.proof import ledger
    from lastbus.proof.config import Project
    from lastbus.proof.report import row_lines

    for line in row_lines(ledger.read(Project.load()).row(guarantee)):
        out().print(line)
