"""Capacity: a bound on the handlers that run at once, and who waits for a free slot.

A slot that becomes free is offered to the heir first (the deliveries that are admitted already), then handed to the
publisher that has waited longest, before anybody new can take it. A wait that is cancelled or refused gives back what
it was handed, on the same path, so the count is exact at any time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class Slots:
    """`limit` slots (None: no limit, and no accounting)."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.taken = 0
        self.heir: Callable[[], bool] = lambda: False
        """Asked first when a slot becomes free: True if it uses the slot, which then stays taken."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> list[asyncio.Future[None]]:
        """A future for each publisher that waits for a slot, the longest wait first."""
        return list(self._waiting)

    def try_take(self) -> bool:
        """Take a slot if one is free and nobody waits for it.

        Keeps: CAP-05, CAP-06.
        """
        if self.limit is None:
            return True
        if self.taken >= self.limit or self._waiting:
            return False
        self.taken += 1
        return True

    async def take(self) -> None:
        """Wait for a slot and take it; whoever is cancelled or refused while waiting holds none.

        Keeps: CAP-07, CAP-09, CAP-25.
        """
        if self.try_take():
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except BaseException:
            if place in self._waiting:
                self._waiting.remove(place)
            elif not place.cancelled() and place.exception() is None:
                self.give_back()
            raise

    def give_back(self) -> None:
        """Hand the slot to the heir, else to whoever waits longest, else free it.

        Keeps: CAP-08, CAP-09.
        """
        if self.limit is None or self.heir():
            return
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.taken -= 1

    def refuse_waiting(self, error: Callable[[], BaseException]) -> None:
        """Fail every publisher that waits.

        Keeps: CAP-10.
        """
        waiting, self._waiting = self._waiting, deque()
        for place in waiting:
            fail(place, error())


def fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """Fail a pending future, on its own loop if that is another one; one that is done, or whose loop is gone, stays."""
    loop = future.get_loop()
    if loop.is_closed():
        return
    if _is_running_here(loop):
        _set_exception(future, error)
    else:
        loop.call_soon_threadsafe(_set_exception, future, error)


def _set_exception(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
