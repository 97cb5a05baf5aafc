"""How every command speaks: plain lines that a terminal may wrap, and the progress of long work."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lastbus.proof.replay import Result


def out() -> Console:
    """Where results go."""
    return Console(soft_wrap=True, highlight=False, markup=False)


def err() -> Console:
    """Where complaints go."""
    return Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


@contextmanager
def progress(total: int) -> Iterator[Any]:
    """A bar on a terminal, plain lines elsewhere."""
    from rich.progress import Progress

    from lastbus.proof.report import result_line

    console = out()
    if not sys.stdout.isatty():
        yield lambda result: console.print(result_line(result))
        return
    with Progress(console=console) as bar:
        task = bar.add_task("replay", total=total)

        def tell(result: Result) -> None:
            bar.advance(task)
            if not result.as_expected or result.disagreement:
                console.print(result_line(result))

        yield tell
