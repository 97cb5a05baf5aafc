"""Migration: what consoles of earlier releases left behind becomes what everybody finds; lost index entries come back.

Every record is judged and written in one step at the server, and nothing is ever deleted: wherever a run is cut off,
what is done is done, and the next run does the rest. Without `apply` nothing is written at all.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lastbus._backends.redis.calls import Call, Word
from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.keys import (
    EVENT_PREFIX,
    INDEXED_FIELDS,
    SUBSCRIPTION_PREFIX,
    EventKeys,
    SubscriptionKeys,
    check_prefix,
)
from lastbus._backends.redis.legacy import LegacyRow, are_there, legacy_ids, read_legacy_rows
from lastbus._backends.redis.lifetime import lifetime_ms
from lastbus._backends.redis.scripts import COPY_EVENT, INDEX_EVENT, INDEX_SUBSCRIPTION, Script
from lastbus._errors import EventError
from lastbus._model.event import Event
from lastbus._model.subscription import EventSubscription

logger = logging.getLogger("lastbus.redis")

PAGE_RECORDS: Final = 100
LIFE_MS_MIN: Final = 1000
"""A copy lives at least so long, so that it does not lapse as it is made."""


@dataclass
class Tally:
    """What a run has done; without `apply`, what it would do."""

    found: int = 0
    copied: int = 0
    skipped_existing: int = 0
    index_repaired: int = 0
    reindexed: int = 0
    unreadable: int = 0


class Migration:
    """One run over one server. `begin(total)` and `advance(records)` are told how far it is."""

    def __init__(
        self,
        connection: RedisConnection,
        event_prefix: str = EVENT_PREFIX,
        subscription_prefix: str = SUBSCRIPTION_PREFIX,
        *,
        apply: bool = False,
        begin: Callable[[int], object] = lambda total: None,
        advance: Callable[[int], object] = lambda records: None,
    ) -> None:
        self.tally: Final = Tally()
        self._connection: Final = connection
        self._prefix: Final = check_prefix("event_prefix", event_prefix)
        self._keys: Final = EventKeys(event_prefix)
        self._events: Final = _Events(self._keys)
        self._subscriptions: Final = _Subscriptions(
            SubscriptionKeys(check_prefix("subscription_prefix", subscription_prefix))
        )
        self._apply: Final = apply
        self._begin: Final = begin
        self._advance: Final = advance
        self._ttl_ms: Final = lifetime_ms(None)

    async def copy(self) -> Tally:
        """Copy every event of a console that is not there yet, with the life it has left; repair the index of others.

        Keeps: IDX-31, IDX-32, IDX-33.
        """
        ids = await legacy_ids(self._connection, self._prefix)
        self._begin(len(ids))
        seen: set[str] = set()
        for start in range(0, len(ids), PAGE_RECORDS):
            page = ids[start : start + PAGE_RECORDS]
            await self._copy_page(await read_legacy_rows(self._connection, self._prefix, page), seen)
            self._advance(len(page))
        return self.tally

    async def reindex(self) -> Tally:
        """Restore whatever index entry is missing for an event or a subscription that is there.

        Rows and their lives stay as they are, the life of an index is only ever extended.

        Keeps: IDX-31, IDX-34, IDX-35.
        """
        kinds = (self._events, self._subscriptions)
        ids = [(kind, sorted(await self._connection.scan(kind.rows))) for kind in kinds]
        self._begin(sum(len(each) for _, each in ids))
        for kind, found in ids:
            for start in range(0, len(found), PAGE_RECORDS):
                page = found[start : start + PAGE_RECORDS]
                self.tally.found += len(page)
                self.tally.reindexed += await self._index(kind, page)
                self._advance(len(page))
        return self.tally

    async def _copy_page(self, rows: Sequence[LegacyRow], seen: set[str]) -> None:
        """Keeps: IDX-31, IDX-32, IDX-33."""
        self.tally.found += len(rows)
        self.tally.unreadable += sum(row.event is None for row in rows)
        events = [(row.key, row.event) for row in rows if row.event is not None]
        there = await are_there(self._connection, self._keys, [event for _, event in events])
        new = [(key, event) for key, event in events if event.event_id not in there]
        if self._apply:
            done = await self._connection.run_all(COPY_EVENT, [self._copy_call(*each).words for each in new])
            copied, lapsed = done.count(1), done.count(-1)
        else:
            copied, lapsed = len({event.event_id for _, event in new} - seen), 0
        self.tally.copied += copied
        self.tally.skipped_existing += len(events) - copied - lapsed
        old = [event.event_id.encode() for _, event in events if event.event_id in there]
        self.tally.index_repaired += await self._index(self._events, old)
        seen.update(event.event_id for _, event in events)

    def _copy_call(self, source: bytes, event: Event) -> Call:
        """Keeps: IDX-05, IDX-32."""
        keys = (source, self._keys.row(event.event_id), self._keys.type_index(event.event_type))
        score = repr(float(event.timestamp))
        return Call(COPY_EVENT, keys, (event.model_dump_json(), event.event_id, score, self._ttl_ms, LIFE_MS_MIN))

    async def _index(self, kind: _Kind, ids: Sequence[bytes]) -> int:
        """How many index entries were missing for the rows of these ids; with `apply` they are there now.

        Keeps: IDX-31, IDX-33, IDX-34.
        """
        if not ids:
            return 0
        rows = await self._connection.command("MGET", *(kind.rows.encode() + each for each in ids))
        found = [(each, row, kind.entries(each, row)) for each, row in zip(ids, rows, strict=True) if row is not None]
        self.tally.unreadable += sum(entries is None for _, _, entries in found)
        whole = [(each, row, entries) for each, row, entries in found if entries is not None]
        if self._apply:
            words = [kind.call(each, row, entries, self._ttl_ms).words for each, row, entries in whole]
            return sum(await self._connection.run_all(kind.script, words)) if words else 0
        asked = [(kind.question, key, each) for each, _, entries in whole for key in entries]
        known = await self._connection.commands(asked) if asked else []
        return sum(map(kind.is_missing, known))


class _Kind(ABC):
    """What is indexed: where its rows are, and which indexes have an entry for a row."""

    rows: str
    script: Script
    question: str
    """The command that asks an index about an entry."""

    @abstractmethod
    def read(self, text: bytes) -> dict[str, str]:
        """The score or nothing, by the key of each index that has an entry for the row; ValueError or EventError."""

    @abstractmethod
    def is_missing(self, reply: Any) -> bool:
        """Whether the reply to the question is that there is no entry."""

    @abstractmethod
    def call(self, row_id: bytes, text: bytes, entries: dict[str, str], ttl_ms: int) -> Call:
        """The call that restores the entries of a row."""

    def entries(self, row_id: bytes, text: bytes) -> dict[str, str] | None:
        """Like `read`, or None for a row that cannot be read, which is named."""
        try:
            return self.read(text)
        except (ValueError, EventError, RecursionError) as error:
            logger.warning(
                "row %s%s cannot be read and is skipped: %s", self.rows, row_id.decode(errors="replace"), error
            )
            return None


class _Events(_Kind):
    script = INDEX_EVENT
    question = "ZSCORE"

    def __init__(self, keys: EventKeys) -> None:
        self._keys: Final = keys
        self.rows = keys.rows

    def read(self, text: bytes) -> dict[str, str]:
        event = Event.model_validate_json(text)
        return {self._keys.type_index(event.event_type): repr(float(event.timestamp))}

    def is_missing(self, reply: Any) -> bool:
        return reply is None

    def call(self, row_id: bytes, text: bytes, entries: dict[str, str], ttl_ms: int) -> Call:
        [(index, score)] = entries.items()
        return Call(INDEX_EVENT, (self.rows.encode() + row_id, index), (text, row_id, score, ttl_ms))


class _Subscriptions(_Kind):
    script = INDEX_SUBSCRIPTION
    question = "SISMEMBER"

    def __init__(self, keys: SubscriptionKeys) -> None:
        self._keys: Final = keys
        self.rows = keys.rows

    def read(self, text: bytes) -> dict[str, str]:
        stored = EventSubscription.model_validate(json.loads(text))
        values: dict[str, Any] = {kind: getattr(stored, field) for kind, field in INDEXED_FIELDS.items()}
        return {self._keys.index(kind, value): "" for kind, value in values.items() if value is not None}

    def is_missing(self, reply: Any) -> bool:
        return not reply

    def call(self, row_id: bytes, text: bytes, entries: dict[str, str], ttl_ms: int) -> Call:
        keys: list[str | bytes] = [self.rows.encode() + row_id, *entries]
        arguments: list[Word] = [text, row_id, ttl_ms]
        return Call(INDEX_SUBSCRIPTION, keys, arguments)
