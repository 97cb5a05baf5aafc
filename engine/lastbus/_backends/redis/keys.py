"""Keys: every key and channel that this back end uses. They are only ever built; nothing takes one apart at a colon.

A prefix may hold any character, and so may the names behind it: where a name has to be found again in a key, exactly
the known prefix is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lastbus._model.names import check_name

EVENT_PREFIX: Final = "plaita:event:"
SUBSCRIPTION_PREFIX: Final = "plaita:subscription:"
TRACKER_PREFIX: Final = "plaita:processed:"
CHANNEL_PREFIX: Final = "plaita:events:"

INDEXED_FIELDS: Final = {
    "correlation": "correlation_id",
    "type": "event_type",
    "flow": "flow_id",
    "node": "node_id",
}
"""The kinds of index over subscriptions, each with the field it finds; the most selective comes first."""


@dataclass(frozen=True)
class EventKeys:
    """Where events are: the row of each, and one index of each type.

    Keeps: STORE-05.
    """

    prefix: str

    @property
    def rows(self) -> str:
        """What the keys of all rows begin with."""
        return f"{self.prefix}events:"

    @property
    def types(self) -> str:
        """What the keys of all type indexes begin with."""
        return f"{self.prefix}types:"

    def row(self, event_id: str) -> str:
        """The key of one event's JSON text."""
        return self.rows + event_id

    def type_index(self, event_type: str) -> str:
        """The key of the sorted set of one type's event ids, by timestamp."""
        return self.types + event_type


@dataclass(frozen=True)
class SubscriptionKeys:
    """Where subscriptions are: the row of each, the events it has handled, and four kinds of index."""

    prefix: str

    @property
    def rows(self) -> str:
        """What the keys of all rows begin with."""
        return f"{self.prefix}data:"

    def row(self, subscription_id: str) -> str:
        """The key of one subscription's JSON text."""
        return self.rows + subscription_id

    def processed(self, subscription_id: str) -> str:
        """The key of the hash of events that one subscription has handled."""
        return f"{self.prefix}processed:{subscription_id}"

    def indexes(self, kind: str) -> str:
        """What the keys of all indexes of one kind begin with."""
        return f"{self.prefix}{kind}:"

    def index(self, kind: str, value: str) -> str:
        """The key of the set of subscription ids that are stored under one value."""
        return self.indexes(kind) + value


@dataclass(frozen=True)
class TrackerKeys:
    """Where the marks, claims and attempts of each event are; handlers are fields inside, never part of a key."""

    prefix: str

    @property
    def all_marks(self) -> str:
        """What the keys of all marks begin with."""
        return f"{self.prefix}events:"

    @property
    def all_attempts(self) -> str:
        """What the keys of all attempts begin with."""
        return f"{self.prefix}attempts:"

    def marks(self, event_id: str) -> str:
        """The key of the hash of handlers that have handled one event."""
        return self.all_marks + event_id

    def claims(self, event_id: str) -> str:
        """The key of the hash of handlers whose pair with one event is claimed."""
        return f"{self.prefix}claims:{event_id}"

    def attempts(self, event_id: str) -> str:
        """The key of the list of one event's attempts."""
        return self.all_attempts + event_id

    def handler(self, handler_id: str) -> str:
        """The key of the time when a handler's own id was first known."""
        return f"{self.prefix}handlers:{handler_id}"


@dataclass(frozen=True)
class Channels:
    """Where events are announced: one channel for each type, and one pattern that covers them all."""

    prefix: str

    @classmethod
    def beside(cls, event_prefix: str, channel_prefix: str | None) -> Channels:
        """The channels of a bus: those asked for, else the well-known ones, moved along with a custom event prefix.

        Keeps: REDIS-02.
        """
        if channel_prefix is not None:
            return cls(channel_prefix)
        return cls(CHANNEL_PREFIX if event_prefix == EVENT_PREFIX else f"{event_prefix}channel:")

    @property
    def pattern(self) -> str:
        """The PSUBSCRIBE pattern of every channel under the prefix, and of nothing else."""
        return f"{glob_escape(self.prefix)}*"

    def channel(self, event_type: str) -> str:
        """The channel on which events of one type are announced."""
        return self.prefix + event_type


def glob_escape(text: str) -> str:
    """`text` as a Redis glob pattern that matches only itself.

    Keeps: REDIS-14.
    """
    return "".join(f"\\{character}" if character in "\\*?[]^" else character for character in text)


def check_prefix(field: str, prefix: object) -> str:
    """Return `prefix` if keys can begin with it; else raise `ValueError` naming `field`."""
    return check_name(field, prefix)
