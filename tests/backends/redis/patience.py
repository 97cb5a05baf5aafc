"""Patience: how long these tests wait for what must come; only a broken listener makes it that long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from lastbus import Event
from lastbus.testing import Recorder

PATIENCE_SECONDS: Final = 4.0


async def until(condition: Callable[[], bool]) -> None:
    """Return in the loop turn in which `condition` has become true; I/O goes on meanwhile."""
    assert await soon(condition, PATIENCE_SECONDS), "waited in vain"


async def soon(condition: Callable[[], bool], seconds: float = 1.0) -> bool:
    """Whether `condition` becomes true within so many seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition() and loop.time() < deadline:
        await asyncio.sleep(0)
    return condition()


async def hears(recorder: Recorder, count: int = 1) -> list[Event]:
    """The events of `recorder` when there are at least `count`."""
    return await asyncio.wait_for(recorder.has_heard(count), PATIENCE_SECONDS)
