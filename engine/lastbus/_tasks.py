"""Tasks: everything that the bus runs beside its caller has one owner, a label and a name until it ends.

Keeps: MEM-05. A task that nobody holds may be collected in the middle of its work, so nothing in this package calls
`create_task` except `spawn` and the adoption of a teardown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Label = TypeVar("Label")


def spawn(
    coro: Coroutine[Any, Any, Any],
    *,
    name: str,
    owner: dict[Any, Label],
    label: Label,
    on_done: Callable[[asyncio.Task[Any]], object],
) -> asyncio.Task[Any]:
    """Run `coro` as a task that `owner` holds under `label`; `on_done` gets it at its end, and lets `owner` go of it.

    If the loop makes no task (its factory raised, or returned something else), the coroutine is closed, nothing is
    held, and an error is raised.

    Keeps: MEM-05.
    """
    try:
        made: object = asyncio.get_running_loop().create_task(coro, name=name)
    except BaseException:
        coro.close()
        raise
    if not isinstance(made, asyncio.Task):
        coro.close()
        raise TypeError(f"the loop's task factory returned {made!r:.80}, which is no task")
    owner[made] = label
    made.add_done_callback(on_done)
    return made
