"""The ``lastbus`` command: one verb per question, each with documented exit codes.

The verbs live in `_commands`. Every one imports what it needs when it runs, so that ``lastbus --help`` stays quick
and a missing extra only disables the commands that need it.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from lastbus._commands import bench, frozen, ledger, mutations, proving, services, shapes
from lastbus._commands.console import err

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

app = typer.Typer(
    name="lastbus",
    help="An event bus that proves what it promises: the ledger of its guarantees and the mutations that test it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(proving.app)
app.add_typer(shapes.app)
app.add_typer(services.app)
app.add_typer(bench.app, name="bench")
app.add_typer(ledger.app, name="ledger")
app.add_typer(frozen.app, name="frozen")
app.add_typer(mutations.app, name="mutations")


@contextmanager
def _signals_leave() -> Iterator[None]:
    """Inside the block an interrupt or a termination ends the program by way of its cleanup.

    Keeps: MUT-15.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.signal(number, _leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _leave(signum: int, _frame: object) -> None:
    # An exception instead of sudden death: the runner then ends its processes and removes its copies.
    raise SystemExit(128 + signum)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; errors of the proof become one line and an exit code."""
    from lastbus.proof.errors import ProofError

    try:
        with _signals_leave():
            app(args=None if argv is None else list(argv))
    except ProofError as error:
        err().print(f"lastbus: {error}")
        sys.exit(error.exit_code)
