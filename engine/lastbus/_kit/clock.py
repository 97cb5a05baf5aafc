"""Manual clock: time that moves only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable


class ManualTimer:
    """A pending call of a `ManualClock`."""

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Call the timer off."""
        self.cancelled = True


class ManualClock:
    """A clock that starts at `start` (seconds since the epoch) and stands still until `advance`.

    `sleeps` lists every duration that somebody slept for, in order, so that a test can assert on waits.
    """

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start
        self._serial = itertools.count()
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self.sleeps: list[float] = []

    def time(self) -> float:
        """The time that the test has set."""
        return self._now

    @property
    def pending(self) -> int:
        """How many timers have neither fired nor been called off."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def call_later(self, delay: float, callback: Callable[[], object]) -> ManualTimer:
        """Call `callback` when the time has advanced by `delay` seconds."""
        timer = ManualTimer(self._now + delay, callback)
        heapq.heappush(self._timers, (timer.due, next(self._serial), timer))
        return timer

    async def sleep(self, delay: float) -> None:
        """Return when the time has advanced by `delay` seconds; note the sleep."""
        self.sleeps.append(delay)
        awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not awake.done():
                awake.set_result(None)

        timer = self.call_later(delay, wake)
        try:
            await awake
        finally:
            timer.cancel()

    def advance(self, seconds: float) -> None:
        """Move the time, and fire what is due on the way, in order of its time."""
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, due)
            if not timer.cancelled:
                timer.callback()
        self._now = end
