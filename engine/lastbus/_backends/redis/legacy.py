"""Legacy: what consoles of earlier releases have written. It is read here, and nothing writes it any more.

A console kept an event as a text under `{prefix}{event_id}` for a day, where the engine did not look, and announced it
on a channel of its own. `scripts/migrate_console_events.py` copies such events to where everybody looks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lastbus._backends.redis.connection import SCAN_COUNT, RedisConnection
from lastbus._backends.redis.holes import pages
from lastbus._backends.redis.keys import EventKeys, glob_escape
from lastbus._backends.redis.storage import RedisEventStorage
from lastbus._errors import EventError
from lastbus._model.event import Event
from lastbus._model.names import check_optional_name
from lastbus._model.numbers import check_bound, check_count

logger = logging.getLogger("lastbus.redis")

SECONDS: Final = 86_400
"""How long a console kept an event."""


@dataclass(frozen=True)
class LegacyKeys:
    """Where consoles kept events, under the same prefix as those of the engine."""

    prefix: str

    @property
    def types(self) -> str:
        """What the keys of a console's own indexes begin with."""
        return f"{self.prefix}type:"

    def channel(self, event_type: str) -> str:
        """The channel on which a console announced events of one type: deprecated, for one more release."""
        return f"{self.prefix}channel:{event_type}"

    def id_of(self, key: bytes) -> str | None:
        """What takes the place of the id in a legacy row's key; None for the key of anything else.

        Keeps: IDX-28.
        """
        canonical = EventKeys(self.prefix)
        if key.startswith(tuple(map(str.encode, (canonical.rows, canonical.types, self.types)))):
            return None
        return key[len(self.prefix.encode()) :].decode(errors="replace")


class LegacyRow(NamedTuple):
    """One event as a console has left it: its key, its text, and the event, if the text is one."""

    key: bytes
    text: bytes
    event: Event | None


async def legacy_rows(connection: RedisConnection, prefix: str) -> AsyncIterator[list[LegacyRow]]:
    """Every event that consoles have left under `prefix`, in portions; nothing is changed.

    What cannot be read is named in a WARNING.

    Keeps: IDX-28.
    """
    keys, cursor = LegacyKeys(prefix), 0
    while True:
        words = ("SCAN", cursor, "MATCH", f"{glob_escape(prefix)}*", "COUNT", SCAN_COUNT, "TYPE", "string")
        cursor, found = await connection.command(*words)
        for page in pages([key for key in found if keys.id_of(key) is not None]):
            texts = await connection.command("MGET", *page)
            yield [_row(keys, key, text) for key, text in zip(page, texts, strict=True) if text is not None]
        if int(cursor) == 0:
            return


async def list_events_of_consoles_too(
    storage: RedisEventStorage,
    connection: RedisConnection,
    prefix: str,
    event_type: str | None = None,
    start_time: float | None = None,
    end_time: float | None = None,
    limit: int = 100,
) -> list[Event]:
    """`storage.list_events`, with what consoles of earlier releases have left; an event that is in both is listed once.

    It is then the engine's. Every key of the server is looked at: this is for a console, not for a hot path.

    Keeps: IDX-28.
    """
    check_optional_name("event_type", event_type)
    check_count("limit", limit, at_least=0)
    start, end = check_bound("start_time", start_time), check_bound("end_time", end_time)
    found: dict[str, Event] = {}
    async for page in legacy_rows(connection, prefix):
        for event in (row.event for row in page if row.event is not None):
            if _is_within(event, event_type, start, end) and await storage.get_event(event.event_id) is None:
                found[event.event_id] = event
    found |= {event.event_id: event for event in await storage.list_events(event_type, start, end, limit)}
    return sorted(found.values(), key=lambda event: (event.timestamp, event.event_id))[:limit]


def read_legacy(event_id: str, text: bytes) -> Event:
    """The event in a legacy row; one that does not say its id has that of its key. `EventError` if it is none.

    Keeps: IDX-32.
    """
    try:
        fields: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EventError(f"not an event of a console ({type(error).__name__}): {text[:80]!r}") from error
    if not isinstance(fields, dict):
        raise EventError(f"not an event of a console: {text[:80]!r}")
    known = {name: value for name, value in fields.items() if value is not None}
    return Event.model_validate_json(json.dumps({"event_id": event_id, "data": {}, **known}))


def _row(keys: LegacyKeys, key: bytes, text: bytes) -> LegacyRow:
    event_id = keys.id_of(key)
    assert event_id is not None
    try:
        return LegacyRow(key, text, read_legacy(event_id, text))
    except EventError as error:
        logger.warning("legacy event %s cannot be read and is skipped: %s", event_id, error)
        return LegacyRow(key, text, None)


def _is_within(event: Event, event_type: str | None, start: float | None, end: float | None) -> bool:
    """Keeps: IDX-28."""
    if event_type not in (None, event.event_type):
        return False
    return (start is None or event.timestamp >= start) and (end is None or event.timestamp <= end)
