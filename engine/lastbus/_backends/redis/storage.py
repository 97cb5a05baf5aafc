"""Event storage in Redis: one text per event, and one sorted set per type that finds events by time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from redis.asyncio import Redis

from lastbus._backends.redis import calls
from lastbus._backends.redis.announcements import Announcement
from lastbus._backends.redis.connection import RedisBacked, RedisConnection
from lastbus._backends.redis.holes import PAGE_IDS, EventHoles, close_holes, pages
from lastbus._backends.redis.keys import EVENT_PREFIX, EventKeys, check_prefix
from lastbus._backends.redis.lifetime import lifetime_ms
from lastbus._backends.redis.scripts import DELETE_EVENT, STORE_EVENT
from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._errors import EventError
from lastbus._model.event import Event
from lastbus._model.names import check_name, check_optional_name
from lastbus._model.numbers import check_bound, check_count
from lastbus._ports.storage import EventStorage

logger = logging.getLogger("lastbus.redis")

IDS_MAX: Final = 2**31 - 1


class RedisEventStorage(RedisBacked, EventStorage):
    """Keeps events for `ttl` seconds from their storing (default: `PLAITA_EVENT_TTL_SECONDS`).

    Every method raises `EventStorageError` when the server fails. `connection` shares the connection of another store;
    `client` is a redis-py asyncio client of yours, which `aclose` closes.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        key_prefix: str = EVENT_PREFIX,
        ttl: float | None = None,
        client: Redis | None = None,
        clock: Clock | None = None,
        *,
        connection: RedisConnection | None = None,
    ) -> None:
        super().__init__(redis_url, client, connection)
        self._keys: Final = EventKeys(check_prefix("key_prefix", key_prefix))
        self._ttl_ms: Final = lifetime_ms(ttl)
        self.holes: Final = EventHoles(self._keys, self._ttl_ms, SYSTEM_CLOCK if clock is None else clock)

    async def store_event(self, event: Event) -> str:
        """Keep `event`, replacing one of the same id with its index entry, in one round trip. Nothing is announced."""
        return await self.store_encoded(event, event.model_dump_json())

    async def store_encoded(self, event: Event, text: str, announcement: Announcement | None = None) -> str:
        """Like `store_event`, for a caller that already holds the event's JSON; announced, if asked, on the same trip.

        Keeps: STORE-05, STORE-06, IDX-01, IDX-03, IDX-04, REDIS-01.
        """
        call = calls.store_event(self._keys, event, text, self._ttl_ms, announcement)
        await self._connection.run(call.script, call.keys, *call.arguments)
        return event.event_id

    async def batch_store_events(self, events: Iterable[Event]) -> list[str]:
        """Store each event in order, a page of them in each round trip; one without JSON is refused before any.

        Keeps: REDIS-01.
        """
        batch = list(events)
        each = (calls.store_event(self._keys, event, event.model_dump_json(), self._ttl_ms) for event in batch)
        words = [call.words for call in each]
        for start in range(0, len(words), PAGE_IDS):
            await self._connection.run_all(STORE_EVENT, words[start : start + PAGE_IDS])
        return [event.event_id for event in batch]

    async def get_event(self, event_id: str) -> Event | None:
        """The stored event, or None for an unknown id; `EventError` for a row that cannot be read."""
        text = await self._connection.command("GET", self._keys.row(check_name("event_id", event_id)))
        return None if text is None else Event.model_validate_json(text)

    async def list_events(
        self,
        event_type: str | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """At most `limit` events that satisfy every given filter, oldest first (timestamp, then id).

        Rows that cannot be read are named in a WARNING and passed over; others take their place. Index entries whose
        row is gone are dropped; if the row went before its time, an ERROR names it. Without a type, the server is
        scanned for the types that it knows.

        Keeps: STORE-01, STORE-02, STORE-04, STORE-10.
        """
        check_optional_name("event_type", event_type)
        check_count("limit", limit, at_least=0)
        start, end = check_bound("start_time", start_time), check_bound("end_time", end_time)
        if event_type is not None:
            return await self._list_type(event_type, start, end, limit)
        found: dict[str, Event] = {}
        for each in await self._types():
            found.update((event.event_id, event) for event in await self._list_type(each, start, end, limit))
            if len(found) >= limit > 0:
                # What is later than the last of the oldest `limit` cannot get into the list any more.
                oldest = sorted(found.values(), key=_age)[:limit]
                found = {event.event_id: event for event in oldest}
                end = float(oldest[-1].timestamp)
        return sorted(found.values(), key=_age)

    async def delete_event(self, event_id: str) -> bool:
        """Forget an event and its index entry in one step; False if it was not there."""
        keys = [self._keys.row(check_name("event_id", event_id))]
        return bool(await self._connection.run(DELETE_EVENT, keys, event_id, self._keys.types))

    async def _types(self) -> list[str]:
        return sorted(rest.decode(errors="replace") for rest in await self._connection.scan(self._keys.types))

    async def _list_type(self, event_type: str, start: float | None, end: float | None, limit: int) -> list[Event]:
        """The oldest events of one type. Rows are read in pages until enough of them could be.

        Keeps: IDX-06, IDX-36.
        """
        index = self._keys.type_index(event_type)
        bounds = ("-inf" if start is None else repr(start), "+inf" if end is None else repr(end))
        found: list[Event] = []
        gone: list[bytes] = []
        offset = 0
        while len(found) < limit:
            # All that is still missing is asked for at once; where holes were met, a page at least.
            size = min(max(limit - len(found), PAGE_IDS if offset else 1), IDS_MAX)
            ids = await self._connection.command("ZRANGEBYSCORE", index, *bounds, "LIMIT", offset, size)
            for page in pages(ids):
                rows = await self._connection.command("MGET", *(self._keys.rows.encode() + each for each in page))
                gone += [each for each, row in zip(page, rows, strict=True) if row is None]
                found += _read_all(page, rows, event_type)
            offset += len(ids)
            if len(ids) < size:
                break
        await close_holes(self._connection, self.holes, self.holes.index(event_type), gone)
        return found[:limit]


def _age(event: Event) -> tuple[float, str]:
    return event.timestamp, event.event_id


def _read_all(ids: Sequence[bytes], rows: Sequence[bytes | None], event_type: str) -> list[Event]:
    """The events in `rows`; one of another type was replaced, and is listed there."""
    events = (_read(each, row) for each, row in zip(ids, rows, strict=True) if row is not None)
    return [event for event in events if event is not None and event.event_type == event_type]


def _read(event_id: bytes, row: bytes) -> Event | None:
    try:
        return Event.model_validate_json(row)
    except EventError as error:
        logger.warning("event %s cannot be read and is skipped: %s", event_id.decode(errors="replace"), error)
        return None
