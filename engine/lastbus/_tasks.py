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
    """Run `coro` as a task that `owner` holds under `label`; `on_done` must let go of it with `release`.

    If the loop refuses to make a task, the coroutine is closed, nothing is held, and the loop's error is raised.

    Keeps: MEM-05.
    """
    try:
        task = asyncio.get_running_loop().create_task(coro, name=name)
    except BaseException:
        coro.close()
        raise
    owner[task] = label
    task.add_done_callback(on_done)
    return task
