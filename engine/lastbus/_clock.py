"""The only reader of time: every wait and every timestamp of the bus goes through one injected clock.

The single exception is the close contract, whose two bounded waits run on the event loop's own time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A pending call that can be called off."""

    def cancel(self) -> object:
        """Call the timer off; calling it off twice is harmless."""


class Clock(Protocol):
    """What the bus needs of time. `lastbus.testing.ManualClock` is the one for tests."""

    def time(self) -> float:
        """Wall time in seconds since the epoch: event timestamps, TTLs, claims."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` once in the running loop after `delay` seconds."""

    async def sleep(self, delay: float) -> None:
        """Return after `delay` seconds."""


class SystemClock:
    """The machine's clock and the running loop's timers."""

    time = staticmethod(time.time)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """A timer of the running loop."""
        return asyncio.get_running_loop().call_later(delay, callback)

    async def sleep(self, delay: float) -> None:
        """`asyncio.sleep`."""
        await asyncio.sleep(delay)


SYSTEM_CLOCK = SystemClock()
wall_time = time.time
