"""Load: the same events for every contender, published one by one or all at once, and counted by the handlers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from lastbus._model.event import Event

EVENT_TYPES: Final = tuple(f"bench.{number}" for number in range(8))

Handle = Callable[[Any], Awaitable[None]]


class Contender(ABC):
    """Something that brings events to handlers."""

    @abstractmethod
    async def open(self, handlers: Sequence[Handle]) -> None:
        """Register every handler for every type."""

    @abstractmethod
    async def publish(self, number: int) -> None:
        """Publish the event of this number; its type is the next in turn."""

    async def close(self) -> None:
        """Let go of everything."""


class Tally:
    """Counts handled events, and the most that were in hands at once; wakes whoever waits for a count."""

    def __init__(self) -> None:
        self.handled = 0
        self.running = 0
        self.running_max = 0
        self._target = 0
        self._reached: asyncio.Future[None] | None = None

    async def reaches(self, count: int) -> None:
        """Return when `count` events have been handled."""
        if self.handled < count:
            self._target = count
            self._reached = asyncio.get_running_loop().create_future()
            await self._reached

    def count(self) -> None:
        """One more is handled."""
        self.handled += 1
        if self.handled == self._target and self._reached is not None and not self._reached.done():
            self._reached.set_result(None)

    def handlers(self, count: int) -> list[Handle]:
        """Handlers that only count, each a function of its own name."""
        return [self._counting(f"count_{number}") for number in range(count)]

    def _counting(self, name: str) -> Handle:
        async def handle(_: Any) -> None:
            self.count()

        handle.__name__ = handle.__qualname__ = name
        return handle

    async def watch(self, _: Any) -> None:
        """A handler that gives way to others before it leaves, so that several are in hands at once."""
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        self.count()


def make_event(number: int) -> Event:
    """The event that lastbus and the bare tasks carry."""
    return Event(EVENT_TYPES[number % len(EVENT_TYPES)], {"order": number, "state": "paid"})


async def steady(contender: Contender, tally: Tally, events: int, handlers: int) -> None:
    """Publish, let the handlers run, repeat."""
    for number in range(events):
        target = tally.handled + handlers
        await contender.publish(number)
        await tally.reaches(target)


async def burst(contender: Contender, tally: Tally, events: int, handlers: int) -> None:
    """Publish everything, then let the handlers run."""
    target = tally.handled + events * handlers
    for number in range(events):
        await contender.publish(number)
    await tally.reaches(target)
