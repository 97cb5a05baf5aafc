"""Cancellation: it reaches whoever was cancelled, even where the driver loses it.

redis-py sends every command under `asyncio.wait_for`, which before CPython 3.12 takes a cancellation for granted and
drops it when it comes in the turn in which the sending is done.

Keeps: REDIS-12.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import Any, TypeVar

from lastbus._tasks import spawn

Result = TypeVar("Result")

_working: dict[asyncio.Task[Any], None] = {}


async def heed_in_a_task(work: Awaitable[Result]) -> Result:
    """As `heed`, where a task does not say that it was cancelled: the driver gets one of its own to be wrong about."""

    async def run() -> Result:
        return await work

    task: asyncio.Task[Result] = spawn(
        run(), name="lastbus redis call", owner=_working, label=None, on_done=_working.pop
    )
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        task.cancelled() or task.exception()
        raise
    return task.result()


if sys.version_info >= (3, 11):

    async def heed(work: Awaitable[Result]) -> Result:
        """The result of `work`; `CancelledError` if the caller was cancelled meanwhile, whatever came of `work`."""
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        result = await work
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        return result

else:
    heed = heed_in_a_task
