"""Event storage in SQL: one row per event id, found by id, or by type and time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import URL, ColumnElement, Row, and_, bindparam, delete, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from lastbus._backends.sqlalchemy.database import Database
from lastbus._backends.sqlalchemy.dialects import upsert
from lastbus._backends.sqlalchemy.expiry import Expiry
from lastbus._backends.sqlalchemy.tables import events
from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._errors import EventError
from lastbus._model.event import Event
from lastbus._model.names import check_name, check_optional_name
from lastbus._model.numbers import check_bound, check_count
from lastbus._ports.lifetime import lifetime
from lastbus._ports.storage import EventStorage

logger = logging.getLogger("lastbus.sqlalchemy")

PAGE_ROWS: Final = 500

_ONE: Final = (events.c.event_id == bindparam("id"), events.c.expires_at > bindparam("now"))
_GET: Final = select(events.c.payload).where(*_ONE)
_DELETE: Final = delete(events).where(*_ONE)


class SqlalchemyEventStorage(EventStorage):
    """Keeps events in the table `events` for `ttl` seconds from their storing (default: `PLAITA_EVENT_TTL_SECONDS`).

    An event whose time has passed is found no more, and is deleted by a later write. `engine` may be an asyncio engine,
    which stays yours, or a database URL. Every method raises `EventStorageError` when the database fails.
    """

    def __init__(
        self,
        engine: AsyncEngine | str | URL | Database,
        create_tables: bool = False,
        *,
        ttl: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._database: Final = Database.at(engine, create_tables=create_tables).hold(self)
        self._ttl: Final = lifetime(ttl)
        self._clock: Final = clock
        self._expiry: Final = Expiry(self._database, events, clock)
        self._upsert: Final = upsert(self._database.dialect, events)

    async def ensure_tables(self) -> None:
        """Make the tables that are missing; harmless when repeated, or done by several processes at once."""
        await self._database.ensure_tables()

    async def aclose(self) -> None:
        """Let go of the database: connections of our own are closed when its last user has let go."""
        await self._database.let_go(self)

    async def store_event(self, event: Event) -> str:
        """Keep `event`, replacing one of the same id, and return its id."""
        return await self.store_encoded(event, event.model_dump_json())

    async def store_encoded(self, event: Event, text: str) -> str:
        """Like `store_event`, for a caller that already holds the event's JSON."""
        await self._database.change("store_event", self._upsert, self._row(event, text))
        await self._expiry.after_write()
        return event.event_id

    async def batch_store_events(self, events: Iterable[Event]) -> list[str]:
        """Keep all of these events, or none: one that cannot be stored, or a failure on the way, leaves no trace.

        Keeps: SQL-10.
        """
        rows = [self._row(event, event.model_dump_json()) for event in events]
        if rows:
            # In one order for everybody: two batches with the same ids then wait for each other only once.
            ordered = sorted(rows, key=itemgetter("event_id"))
            await self._database.transact("batch_store_events", lambda at: at.execute(self._upsert, ordered))
            await self._expiry.after_write()
        return [row["event_id"] for row in rows]

    async def get_event(self, event_id: str) -> Event | None:
        """The stored event, or None for an id that is unknown or whose time has passed; `EventError` if unreadable."""
        wanted = {"id": check_name("event_id", event_id), "now": self._clock.time()}
        rows = await self._database.fetch("get_event", _GET, wanted)
        return Event.model_validate_json(rows[0].payload) if rows else None

    async def list_events(
        self,
        event_type: str | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """At most `limit` events that satisfy every given filter, oldest first (timestamp, then id).

        Rows that cannot be read are named in a WARNING and passed over; others take their place.

        Keeps: STORE-04, SQL-02.
        """
        check_count("limit", limit, at_least=0)
        check_optional_name("event_type", event_type)
        wanted = _wanted(event_type, check_bound("start_time", start_time), check_bound("end_time", end_time))
        found: list[Event] = []
        page: list[ColumnElement[bool]] = []
        while len(found) < limit:
            size = min(limit - len(found), PAGE_ROWS)
            rows = await self._page([*wanted, *page], size)
            found += [event for row in rows if (event := _read(row)) is not None]
            if len(rows) < size:
                break
            page = [_after(rows[-1])]
        return found

    async def delete_event(self, event_id: str) -> bool:
        """Forget an event; False if it was not there."""
        wanted = {"id": check_name("event_id", event_id), "now": self._clock.time()}
        return await self._database.change("delete_event", _DELETE, wanted) == 1

    def _row(self, event: Event, text: str) -> dict[str, Any]:
        return {
            "event_id": event.event_id,
            "event_type": event.event_type,
            "timestamp": float(event.timestamp),
            "payload": text,
            "expires_at": self._clock.time() + self._ttl,
        }

    async def _page(self, wanted: list[ColumnElement[bool]], size: int) -> Sequence[Row[Any]]:
        page = (
            select(events.c.event_id, events.c.event_type, events.c.timestamp, events.c.payload)
            .where(*wanted, events.c.expires_at > self._clock.time())
            .order_by(events.c.timestamp, events.c.event_id)
            .limit(size)
        )
        return await self._database.fetch("list_events", page)


def _wanted(event_type: str | None, start: float | None, end: float | None) -> list[ColumnElement[bool]]:
    wanted = []
    if event_type is not None:
        wanted.append(events.c.event_type == event_type)
    if start is not None:
        wanted.append(events.c.timestamp >= start)
    if end is not None:
        wanted.append(events.c.timestamp <= end)
    return wanted


def _after(row: Row[Any]) -> ColumnElement[bool]:
    # Spelled out rather than as a comparison of pairs, whose first member would not limit the index on SQLite.
    later = or_(events.c.timestamp > row.timestamp, events.c.event_id > row.event_id)
    return and_(events.c.timestamp >= row.timestamp, later)


def _read(row: Row[Any]) -> Event | None:
    """The event of a row in a list, or None for one that cannot be read, which is named.

    Keeps: SQL-02.
    """
    try:
        return Event.model_validate_json(row.payload)
    except EventError as error:
        logger.warning("event %r of type %r cannot be read and is skipped: %s", row.event_id, row.event_type, error)
        return None
