"""Calls: what each script that stores or deletes is called with, so that everybody who writes, writes the same.

The asynchronous stores, the synchronous writer and the migration only differ in how they send a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lastbus._backends.redis.announcements import Announcement
from lastbus._backends.redis.keys import INDEXED_FIELDS, EventKeys, SubscriptionKeys
from lastbus._backends.redis.scripts import DELETE_SUBSCRIPTION, STORE_EVENT, Script
from lastbus._model.event import Event

UNANNOUNCED: Final = Announcement("", "")

Word = str | bytes | float


class Call(NamedTuple):
    """One script with its keys and arguments."""

    script: Script
    keys: Sequence[str | bytes]
    arguments: Sequence[Word]

    @property
    def words(self) -> tuple[Word, ...]:
        """What follows the script in the command that runs it."""
        return (len(self.keys), *self.keys, *self.arguments)


def store_event(
    keys: EventKeys, event: Event, text: str, ttl_ms: int, announcement: Announcement | None = None, legacy: str = ""
) -> Call:
    """Store and index an event, whose JSON is `text`, and announce it: as asked, and as it is on the channel `legacy`.

    Keeps: STORE-06, STORE-07.
    """
    score = repr(float(event.timestamp))
    arguments = (text, event.event_id, score, ttl_ms, keys.types, *(announcement or UNANNOUNCED), legacy)
    return Call(STORE_EVENT, (keys.row(event.event_id), keys.type_index(event.event_type)), arguments)


def delete_subscription(keys: SubscriptionKeys, subscription_id: str) -> Call:
    """Forget a subscription with its marks and with its entries in all four kinds of index.

    Keeps: IDX-27.
    """
    indexes = map(keys.indexes, INDEXED_FIELDS)
    return Call(
        DELETE_SUBSCRIPTION, (keys.row(subscription_id), keys.processed(subscription_id)), (subscription_id, *indexes)
    )
