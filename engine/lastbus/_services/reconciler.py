"""Reconciler: looks through stored events for those that no listener has heard, and hands them on.

The cursor is the time up to which everything is settled. It never passes an event that could not be handed on, and
each look begins a little before it, because an event is stored later than it is stamped.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from lastbus._clock import Clock
from lastbus._model.event import Event
from lastbus._model.numbers import check_count, check_seconds
from lastbus._ports.storage import EventStorage
from lastbus._services.periodic import Periodic
from lastbus._settings import RECONCILE_BACKFILL, RECONCILE_INTERVAL

logger = logging.getLogger("lastbus.services")

OVERLAP_SECONDS: Final = 60.0
"""How much later than its own timestamp an event may be stored and still be found."""


class EventReconciler(Periodic):
    """Every `interval` seconds, hands each stored event since the last look to `replay`, which returns what came of it.

    The first look goes `backfill_seconds` back. `replay` is to take the same event again and again: what is settled,
    it passes over.
    """

    name = "event reconciler"

    def __init__(
        self,
        event_storage: EventStorage,
        replay: Callable[[Event], Awaitable[int]],
        *,
        interval: float | None = None,
        backfill_seconds: float | None = None,
        batch_size: int = 200,
        clock: Clock | None = None,
    ) -> None:
        """None: what `PLAITA_EVENT_RECONCILE_INTERVAL` and `PLAITA_EVENT_RECONCILE_BACKFILL` say, 300 and 3600.

        Keeps: FLOW-14.
        """
        super().__init__(RECONCILE_INTERVAL.read() if interval is None else interval, clock)
        self._storage = event_storage
        self._replay = replay
        self._backfill = (
            RECONCILE_BACKFILL.read()
            if backfill_seconds is None
            else check_seconds("backfill_seconds", backfill_seconds)
        )
        self._batch = check_count("batch_size", batch_size)
        self._cursor: float | None = None

    async def _round(self) -> int:
        return await self.scan_once()

    async def scan_once(self) -> int:
        """Hand on every event since the last look; return the sum of what `replay` returned.

        An event whose replay fails is named in a WARNING, stops no other, and is handed on again by the next look. If
        the storage fails, this raises, and the next look begins where this one did.

        Keeps: STORE-03, FLOW-14.
        """
        now = self._clock.time()
        start = now - self._backfill if self._cursor is None else self._cursor - OVERLAP_SECONDS
        failed: list[float] = []
        replayed = 0
        async for event in self._stored(start, now):
            try:
                replayed += await self._replay(event)
            except Exception:
                logger.warning("event %s could not be replayed; it is tried again", event.event_id, exc_info=True)
                failed.append(event.timestamp)
        self._cursor = min(failed, default=now)
        return replayed

    async def _stored(self, start: float, end: float) -> AsyncIterator[Event]:
        """Every stored event between two times, each once; more of one timestamp than a batch are read in one go.

        Keeps: FLOW-14.
        """
        limit = self._batch
        seen: set[str] = set()
        while True:
            page = await self._storage.list_events(start_time=start, end_time=end, limit=limit)
            for event in page:
                if event.event_id not in seen:
                    yield event
            if len(page) < limit:
                return
            limit = limit * 2 if page[-1].timestamp == start else self._batch
            start = page[-1].timestamp
            seen = {event.event_id for event in page}
