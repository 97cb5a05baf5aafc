"""Holes: index entries whose row is gone. Here it is settled how they are judged, dropped, named and counted.

A listing meets holes on its way, the synchronous writer looks for a few as it writes, and the janitor goes through all
indexes: whoever drops an entry does it by a call from here, and hands the reply back to be accounted for.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lastbus._backends.redis.calls import Call
from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.keys import EventKeys, SubscriptionKeys
from lastbus._backends.redis.metrics import EVENT_KIND, SUBSCRIPTION_KINDS, count_pruned
from lastbus._backends.redis.scripts import PRUNE_EVENTS, PRUNE_SUBSCRIPTIONS, Script
from lastbus._clock import Clock

logger = logging.getLogger("lastbus.redis")

PAGE_IDS: Final = 500
"""What one command, or the stack of one script, can take at any time."""


class Index(NamedTuple):
    """One index: its kind as metrics call it, its key, and the value whose ids it holds."""

    kind: str
    key: str | bytes
    value: str


class Holes(ABC):
    """The holes in the indexes of one store, whose rows all begin with `rows`."""

    name: str
    """What the store keeps, for logs."""
    scan: str
    """The command that reads an index bit by bit."""
    script: Script
    """Judges ids and drops those without a row, in one step."""

    def __init__(self, rows: str, prefixes: Mapping[str, str]) -> None:
        self.rows: Final = rows
        self.prefixes: Final = prefixes
        """What the keys of all indexes of each kind begin with."""

    def calls(self, index: Index, ids: Sequence[bytes]) -> Iterator[Call]:
        """The calls that drop what has no row from `index`, and touch nothing else.

        Keeps: IDX-07, IDX-08, IDX-09, IDX-10.
        """
        return (Call(self.script, (index.key,), (self.rows, *page)) for page in pages(ids))

    def account(self, index: Index, gone: Sequence[bytes]) -> int:
        """Count what the reply to one of the calls says is dropped.

        Keeps: IDX-24.
        """
        dropped = self._dropped(index, gone)
        count_pruned(index.kind, dropped)
        return dropped

    @abstractmethod
    def ids(self, found: Sequence[Any]) -> list[bytes]:
        """The ids in what `scan` has found."""

    @abstractmethod
    def _dropped(self, index: Index, gone: Sequence[bytes]) -> int:
        """How many entries a reply is about."""


class EventHoles(Holes):
    """Holes in the sorted sets over events, which live for `ttl_ms` by `clock`."""

    name = "events"
    scan = "ZSCAN"
    script = PRUNE_EVENTS

    def __init__(self, keys: EventKeys, ttl_ms: int, clock: Clock) -> None:
        super().__init__(keys.rows, {EVENT_KIND: keys.types})
        self._keys: Final = keys
        self._ttl_seconds: Final = ttl_ms / 1000
        self._clock: Final = clock

    def index(self, event_type: str) -> Index:
        """The index of one type."""
        return Index(EVENT_KIND, self._keys.type_index(event_type), event_type)

    def ids(self, found: Sequence[Any]) -> list[bytes]:
        """The members without their scores."""
        return [member for member, _ in found]

    def _dropped(self, index: Index, gone: Sequence[bytes]) -> int:
        """A reply has an id and a score in turns. What went before its time is named.

        Keeps: IDX-06.
        """
        for event_id, score in zip(gone[::2], gone[1::2], strict=True):
            if float(score) + self._ttl_seconds > self._clock.time():
                logger.error(
                    "event %s of type %r is gone before its time; its index entry is dropped",
                    event_id.decode(errors="replace"),
                    index.value,
                )
        return len(gone) // 2


class SubscriptionHoles(Holes):
    """Holes in the four kinds of sets over subscriptions."""

    name = "subscriptions"
    scan = "SSCAN"
    script = PRUNE_SUBSCRIPTIONS

    def __init__(self, keys: SubscriptionKeys) -> None:
        """Keeps: IDX-16."""
        super().__init__(keys.rows, {metric: keys.indexes(kind) for kind, metric in SUBSCRIPTION_KINDS.items()})
        self._keys: Final = keys

    def index(self, kind: str, value: str) -> Index:
        """The index of one kind for one value."""
        return Index(SUBSCRIPTION_KINDS[kind], self._keys.index(kind, value), value)

    def ids(self, found: Sequence[Any]) -> list[bytes]:
        """The members as they are."""
        return list(found)

    def _dropped(self, index: Index, gone: Sequence[bytes]) -> int:
        return len(gone)


def pages(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """`ids` in portions that one command, or the stack of one script, can take.

    Keeps: IDX-09.
    """
    return (ids[start : start + PAGE_IDS] for start in range(0, len(ids), PAGE_IDS))


async def close_holes(connection: RedisConnection, holes: Holes, index: Index, ids: Sequence[bytes]) -> int:
    """Drop those of `ids` from `index` that have no row; return how many they were.

    Keeps: IDX-06, IDX-07, IDX-08, IDX-10, IDX-24.
    """
    return sum(
        [
            holes.account(index, await connection.run(each.script, each.keys, *each.arguments))
            for each in holes.calls(index, ids)
        ]
    )
