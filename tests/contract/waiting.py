"""What the tests of the verbs share: waiting for what must come, when nothing runs any more, and an eager clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from lastbus import BaseBus, Event
from lastbus.testing import ManualClock, Recorder, everyone_blocked

PATIENCE_SECONDS: Final = 3.0
"""How long a test waits, with nothing to do for anybody, for what must come; only a broken bus makes it that long."""
BUSY_SECONDS_MAX: Final = 7.0
"""How long a test waits while others have something to do: they may go round in circles."""
OWN_FILES: Final = 1
"""How many files a loop watches by itself: the one by which threads wake it."""
GLANCE_SECONDS: Final = 0.001
"""How long a loop sleeps between two looks: what a thread changes does not wake it."""


async def settled(bus: BaseBus, seconds: float = PATIENCE_SECONDS) -> None:
    """Return when no handler of `bus` runs, and none is about to."""
    while bus._pending_tasks:
        done = await soon(lambda: not bus._pending_tasks, seconds)
        assert done, f"still running: {list(bus._pending_tasks.values())}"
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Return in the loop turn in which `condition` has become true; I/O goes on meanwhile."""
    assert await soon(condition), "waited in vain"


async def soon(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether `condition` becomes true before the loop has had nothing to do for so many seconds, all in all.

    The time in which others are busy, or the machine is, does not count; it is bounded too. Where nobody is left who
    could make it true, the answer comes at once.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds + BUSY_SECONDS_MAX
    with _at_rest(loop) as rest:
        looks_max = rest.looks + seconds / GLANCE_SECONDS
        while not condition() and rest.looks < looks_max and not rest.is_for_ever and loop.time() < deadline:
            await asyncio.sleep(0)
    return condition()


async def is_over(*futures: asyncio.Future[Any], seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether all of `futures` end before the loop has had nothing to do for so many seconds, all in all.

    Whoever waits for one of them has been told by then.
    """
    are_done = await soon(lambda: all(each.done() for each in futures), seconds)
    await everyone_blocked(2)
    return are_done


async def hears(recorder: Recorder, count: int = 1) -> list[Event]:
    """The events of `recorder` when there are at least `count`."""
    await until(lambda: len(recorder.events) >= count)
    return recorder.events


class _Rest:
    """Lets a loop sleep for a moment in a turn in which only those are ready who look for a condition in each turn."""

    def __init__(self, loop: Any) -> None:
        self._ready, self._timers, self._files = loop._ready, loop._scheduled, loop._selector.get_map()
        self._select = loop._selector.select
        self.waiting = 0
        self.looks = 0
        """How often the loop has slept and nothing has woken it."""
        self.is_for_ever = False
        """Whether it has slept where no timer, file or thread was left to wake it."""
        loop._selector.select = self._select_restfully

    def _select_restfully(self, timeout: float | None = None) -> Any:
        if timeout != 0 or not self.waiting or len(self._ready) > self.waiting:
            self.is_for_ever = False
            return self._select(timeout)
        has_wakers = len(self._files) > OWN_FILES or bool(self._timers) or threading.active_count() > 1
        events = self._select(GLANCE_SECONDS)
        self.looks += not events
        self.is_for_ever = not (events or has_wakers)
        return events


_RESTS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Rest] = WeakKeyDictionary()


@contextmanager
def _at_rest(loop: asyncio.AbstractEventLoop) -> Iterator[_Rest]:
    rest = _RESTS.get(loop) or _RESTS.setdefault(loop, _Rest(loop))
    rest.waiting += 1
    rest.is_for_ever = False
    try:
        yield rest
    finally:
        rest.waiting -= 1


class EagerClock(ManualClock):
    """Sleeps are noted and take no time."""

    async def sleep(self, delay: float) -> None:
        """One loop turn."""
        self.sleeps.append(delay)
        self.advance(delay)
        await asyncio.sleep(0)
