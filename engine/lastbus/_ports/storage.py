"""Storage ports: what a back end must be able to keep and to find again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from lastbus._model.event import Event
from lastbus._model.patterns import EVERY_TYPE
from lastbus._model.subscription import EventSubscription


class EventStorage(ABC):
    """Keeps events for their TTL. Storing an id again replaces the event: one row, one index entry."""

    @abstractmethod
    async def store_event(self, event: Event) -> str:
        """Keep `event` and return its id. `ValueError` if it cannot be stored as JSON; then nothing is kept."""

    async def store_encoded(self, event: Event, text: str) -> str:
        """Like `store_event`, for a caller that already holds the event's JSON; override it to encode only once."""
        return await self.store_event(event)

    @abstractmethod
    async def get_event(self, event_id: str) -> Event | None:
        """The stored event, or None for an unknown id."""

    @abstractmethod
    async def list_events(
        self,
        event_type: str | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """At most `limit` events that satisfy every given filter, oldest first (timestamp, then id).

        Both bounds are inclusive seconds since the epoch; 0 is a real bound. Entries that cannot be read are skipped
        with a WARNING.
        """

    @abstractmethod
    async def delete_event(self, event_id: str) -> bool:
        """Forget an event and its index entries; False if it was not there."""

    async def aclose(self) -> None:
        """Let go of connections; harmless when called again. Closing does not delete anything."""

    async def batch_store_events(self, events: Iterable[Event]) -> list[str]:
        """Store each event in order and return their ids."""
        return [await self.store_event(event) for event in events]


class EventSubscriptionStorage(ABC):
    """Keeps subscriptions and finds those that an event may concern."""

    @abstractmethod
    async def store_subscription(self, subscription: EventSubscription) -> str:
        """Keep `subscription`, replacing one of the same id, and return its id."""

    @abstractmethod
    async def get_subscription(self, subscription_id: str) -> EventSubscription | None:
        """The stored subscription with its processed events, or None."""

    @abstractmethod
    async def list_subscriptions(
        self,
        event_type: str | None = None,
        correlation_id: str | None = None,
        flow_id: str | None = None,
        node_id: str | None = None,
    ) -> list[EventSubscription]:
        """The subscriptions stored under every given value, oldest first (created_at, then id); none given: all."""

    @abstractmethod
    async def delete_subscription(self, subscription_id: str) -> bool:
        """Forget a subscription with its index entries and marks; False if it was not there."""

    @abstractmethod
    async def mark_event_processed(self, subscription_id: str, event_id: str) -> bool:
        """Note that a subscription has handled an event: True the first time, False again or if it is unknown.

        Of concurrent marks of the same pair, on any number of processes, exactly one returns True.
        """

    async def aclose(self) -> None:
        """Let go of connections; harmless when called again. Closing does not delete anything."""

    async def batch_mark_processed(self, subscription_id: str, event_ids: Iterable[str]) -> bool:
        """Mark each id; True if every one of them was marked for the first time."""
        return all([await self.mark_event_processed(subscription_id, event_id) for event_id in event_ids])

    async def find_matching_subscriptions(
        self, event: Event, context: Mapping[str, Any] | None = None
    ) -> list[EventSubscription]:
        """Every stored subscription that wants `event`: those of its exact type, and those of `"*"`."""
        found = await self.list_subscriptions(event_type=event.event_type)
        if event.event_type != EVERY_TYPE:
            found += await self.list_subscriptions(event_type=EVERY_TYPE)
        wanted = [each for each in found if each.matches_event(event, context)]
        return sorted(wanted, key=lambda each: (each.created_at, each.subscription_id))

    async def find_unprocessed_matching_subscriptions(
        self, event: Event, context: Mapping[str, Any] | None = None
    ) -> list[EventSubscription]:
        """Like `find_matching_subscriptions`, each at most once ever: what is returned is marked first."""
        return [
            each
            for each in await self.find_matching_subscriptions(event, context)
            if await self.mark_event_processed(each.subscription_id, event.event_id)
        ]
