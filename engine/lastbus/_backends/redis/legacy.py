"""Legacy: what consoles of earlier releases have written. It is read here, and nothing writes it any more.

A console kept an event as a text under `{prefix}{event_id}` for a day, where the engine did not look, and announced it
on a channel of its own. `scripts/migrate_console_events.py` copies such events to where everybody looks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.holes import pages
from lastbus._backends.redis.keys import EventKeys
from lastbus._backends.redis.storage import RedisEventStorage
from lastbus._errors import EventError
from lastbus._model.event import Event
from lastbus._model.names import check_optional_name
from lastbus._model.numbers import check_bound, check_count

logger = logging.getLogger("lastbus.redis")


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

    def is_row(self, rest: bytes) -> bool:
        """Whether a legacy row's key can end with `rest` behind the prefix; the rest is then the event's id.

        Keeps: IDX-28.
        """
        canonical = EventKeys("")
        return not rest.startswith(tuple(map(str.encode, (canonical.rows, canonical.types, LegacyKeys("").types))))


class LegacyRow(NamedTuple):
    """One event as a console has left it: its key, and the event, if what is there is one."""

    key: bytes
    event: Event | None


async def legacy_ids(connection: RedisConnection, prefix: str) -> list[bytes]:
    """What comes behind `prefix` in the keys of all legacy rows, in order.

    Keeps: IDX-28.
    """
    keys = LegacyKeys(prefix)
    return sorted(rest for rest in await connection.scan(prefix) if keys.is_row(rest))


async def read_legacy_rows(connection: RedisConnection, prefix: str, ids: Sequence[bytes]) -> list[LegacyRow]:
    """The legacy rows of these ids that are still there, in one round trip; nothing is changed.

    What cannot be read is named in a WARNING.

    Keeps: IDX-28.
    """
    keys = [prefix.encode() + each for each in ids]
    texts = await connection.command("MGET", *keys) if keys else []
    return [LegacyRow(key, _read(each, text)) for key, each, text in zip(keys, ids, texts, strict=True) if text]


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
    for page in pages(await legacy_ids(connection, prefix)):
        events = [row.event for row in await read_legacy_rows(connection, prefix, page) if row.event is not None]
        asked = [event for event in events if _is_within(event, event_type, start, end)]
        there = await are_there(connection, EventKeys(prefix), asked)
        found.update((event.event_id, event) for event in asked if event.event_id not in there)
    found |= {event.event_id: event for event in await storage.list_events(event_type, start, end, limit)}
    return sorted(found.values(), key=lambda event: (event.timestamp, event.event_id))[:limit]


async def are_there(connection: RedisConnection, keys: EventKeys, events: Sequence[Event]) -> set[str]:
    """The ids of those of `events` that the engine has under its own keys, in one round trip."""
    replies = await connection.commands([("EXISTS", keys.row(event.event_id)) for event in events]) if events else []
    return {event.event_id for event, reply in zip(events, replies, strict=True) if reply}


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


def _read(event_id: bytes, text: bytes) -> Event | None:
    shown = event_id.decode(errors="replace")
    try:
        return read_legacy(shown, text)
    except EventError as error:
        logger.warning("legacy event %s cannot be read and is skipped: %s", shown, error)
        return None


def _is_within(event: Event, event_type: str | None, start: float | None, end: float | None) -> bool:
    """Keeps: IDX-28."""
    if event_type not in (None, event.event_type):
        return False
    return (start is None or event.timestamp >= start) and (end is None or event.timestamp <= end)
