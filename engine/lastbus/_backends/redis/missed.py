"""Missed: what the handlers and waiters of one bus may not have heard. Bookkeeping only; it knows no server."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from lastbus._model.event import Event

RECENT_MAX: Final = 4096

Pair = tuple[str, str]
"""The event's id and the handler's."""
Key = TypeVar("Key")


class Wait(NamedTuple):
    """A waiter's event type, and when it began to wait."""

    event_type: str
    since: float


class Gaps:
    """Since when each handler, and each waiter, may have missed events that are still to be made up for."""

    def __init__(self) -> None:
        self.handlers: Final[dict[str, float]] = {}
        self.waiters: Final[dict[asyncio.Future[Event], Wait]] = {}
        self._waiting: Final[dict[asyncio.Future[Event], Wait]] = {}
        self._deaf_handlers: set[str] = set()
        self._deaf_waiters: set[asyncio.Future[Event]] = set()

    def open(self, handler_id: str, since: float) -> None:
        """The handler has missed what was announced after `since`; a gap that is open already only grows."""
        self.handlers[handler_id] = min(self.handlers.get(handler_id, since), since)

    def forget(self, handler_id: str) -> None:
        """The handler is gone."""
        self.handlers.pop(handler_id, None)
        self._deaf_handlers.discard(handler_id)

    def wait(self, future: asyncio.Future[Event], event_type: str, since: float) -> None:
        """Remember a waiter until its future is done."""
        self._waiting[future] = Wait(event_type, since)
        future.add_done_callback(self._waited)

    def begin(self, handler_ids: Iterable[str]) -> None:
        """From now on neither these handlers nor those who wait already hear anything."""
        self._deaf_handlers.update(handler_ids)
        self._deaf_waiters.update(self._waiting)

    def end(self, since: float) -> None:
        """They hear again; what they missed was announced after `since`, or after a waiter began to wait.

        Keeps: REDIS-17.
        """
        for handler_id in self._deaf_handlers:
            self.open(handler_id, since)
        for future in self._deaf_waiters & set(self._waiting):
            wait = self._waiting[future]
            self.waiters[future] = Wait(wait.event_type, max(wait.since, since))
        self._deaf_handlers, self._deaf_waiters = set(), set()

    def _waited(self, future: asyncio.Future[Event]) -> None:
        self._waiting.pop(future, None)
        self.waiters.pop(future, None)
        self._deaf_waiters.discard(future)


class Recent(Generic[Key]):
    """When each of the latest `RECENT_MAX` keys was noted."""

    def __init__(self) -> None:
        self._times: OrderedDict[Key, float] = OrderedDict()

    def note(self, key: Key, now: float) -> None:
        """Remember `key`, and forget the oldest one if there are too many.

        Keeps: REDIS-19.
        """
        self._times[key] = now
        self._times.move_to_end(key)
        if len(self._times) > RECENT_MAX:
            self._times.popitem(last=False)

    def get(self, key: Key) -> float | None:
        """When `key` was noted; None if it was not, or has been forgotten."""
        return self._times.get(key)

    def forget(self, key: Key) -> None:
        """Forget `key`."""
        self._times.pop(key, None)
