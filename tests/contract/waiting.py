"""What the tests of the verbs share: when nothing runs any more, and a clock that does not let anybody wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lastbus import BaseBus
from lastbus.testing import ManualClock

PATIENCE_SECONDS = 10.0
"""How long a test waits for what must come; only a broken bus makes it that long."""


async def settled(bus: BaseBus) -> None:
    """Return when no handler of `bus` runs, and none is about to."""
    while bus._pending_tasks:
        done, _ = await asyncio.wait(bus._pending_tasks, timeout=PATIENCE_SECONDS)
        assert done, f"still running: {list(bus._pending_tasks.values())}"
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Return in the loop turn in which `condition` has become true; I/O goes on meanwhile."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "waited in vain"
        await asyncio.sleep(0)


class EagerClock(ManualClock):
    """Sleeps are noted and take no time."""

    async def sleep(self, delay: float) -> None:
        """One loop turn."""
        self.sleeps.append(delay)
        self.advance(delay)
        await asyncio.sleep(0)
