"""Event storage in memory: the events' JSON text, for their TTL."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import NamedTuple, TypeGuard

from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._model.event import Event
from lastbus._model.names import check_name, check_optional_name
from lastbus._model.numbers import check_bound, check_count
from lastbus._ports.lifetime import lifetime
from lastbus._ports.storage import EventStorage


class _Stored(NamedTuple):
    expires_at: float
    timestamp: float
    event_id: str
    event_type: str
    text: str


class MemoryEventStorage(EventStorage):
    """Keeps events for `ttl` seconds (None: `PLAITA_EVENT_TTL_SECONDS`, 7 days) after they were stored."""

    def __init__(self, ttl: float | None = None, clock: Clock | None = None) -> None:
        """`ValueError` for a `ttl` that is no finite number of more than 0.

        Keeps: MEM-10.
        """
        self._ttl = lifetime(ttl)
        self._clock = SYSTEM_CLOCK if clock is None else clock
        self._events: OrderedDict[str, _Stored] = OrderedDict()

    async def store_event(self, event: Event) -> str:
        """Keep the event's JSON; `ValueError` if it has none."""
        return await self.store_encoded(event, event.model_dump_json())

    async def store_encoded(self, event: Event, text: str) -> str:
        """Keep `text` under the event's id, in place of an older one.

        Keeps: MEM-07, MEM-09.
        """
        now = self._clock.time()
        self._forget_expired(now)
        event_id = event.event_id
        self._events[event_id] = _Stored(now + self._ttl, event.timestamp, event_id, event.event_type, text)
        self._events.move_to_end(event_id)
        return event_id

    async def get_event(self, event_id: str) -> Event | None:
        """The stored event as a new object, or None.

        Keeps: MEM-09, MEM-12.
        """
        stored = self._events.get(check_name("event_id", event_id))
        return Event.model_validate_json(stored.text) if self._is_live(stored) else None

    async def list_events(
        self,
        event_type: str | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """The oldest `limit` events within the filters. Reads every stored event.

        Keeps: MEM-09.
        """
        check_optional_name("event_type", event_type)
        start, end = check_bound("start_time", start_time), check_bound("end_time", end_time)
        check_count("limit", limit, at_least=0)
        now = self._clock.time()
        found = (
            stored
            for stored in self._events.values()
            if stored.expires_at > now
            and (event_type is None or stored.event_type == event_type)
            and (start is None or stored.timestamp >= start)
            and (end is None or stored.timestamp <= end)
        )
        oldest = heapq.nsmallest(limit, found, key=lambda stored: (stored.timestamp, stored.event_id))
        return [Event.model_validate_json(stored.text) for stored in oldest]

    async def delete_event(self, event_id: str) -> bool:
        """Forget the event; False if it was not there."""
        return self._is_live(self._events.pop(check_name("event_id", event_id), None))

    def _is_live(self, stored: _Stored | None) -> TypeGuard[_Stored]:
        """Whether there is such an event and its time is not over.

        Keeps: MEM-09.
        """
        return stored is not None and stored.expires_at > self._clock.time()

    def _forget_expired(self, now: float) -> None:
        """Make room: events expire in the order in which they were stored, so only the oldest need a look.

        After the clock was set back some may stay longer; nobody sees them.

        Keeps: MEM-09.
        """
        while self._events:
            oldest = next(iter(self._events.values()))
            if oldest.expires_at > now:
                return
            self._events.popitem(last=False)
