"""`mutations`: the catalogue itself, checked and extended without replaying it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lastbus._commands.console import out

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
