"""Subscription storage in memory."""

from __future__ import annotations

from lastbus._model.names import check_name, check_optional_name
from lastbus._model.subscription import EventSubscription
from lastbus._ports.storage import EventSubscriptionStorage


class InMemoryEventSubscriptionStorage(EventSubscriptionStorage):
    """Keeps subscriptions until they are deleted. Every question reads them all."""

    def __init__(self) -> None:
        self._by_id: dict[str, EventSubscription] = {}

    async def store_subscription(self, subscription: EventSubscription) -> str:
        """Keep a copy; `ValueError` for one that is not valid, however it was made.

        Keeps: MEM-12, SUBS-10, SUBS-12.
        """
        stored = subscription.checked()
        self._by_id[stored.subscription_id] = stored
        return stored.subscription_id

    async def get_subscription(self, subscription_id: str) -> EventSubscription | None:
        """A copy, or None.

        Keeps: MEM-12.
        """
        found = self._by_id.get(check_name("subscription_id", subscription_id))
        return None if found is None else found.model_copy(deep=True)

    async def list_subscriptions(
        self,
        event_type: str | None = None,
        correlation_id: str | None = None,
        flow_id: str | None = None,
        node_id: str | None = None,
    ) -> list[EventSubscription]:
        """Copies of those that are stored under every given value, oldest first.

        Keeps: MEM-12.
        """
        wanted = {
            "event_type": event_type,
            "correlation_id": correlation_id,
            "flow_id": flow_id,
            "node_id": node_id,
        }
        given = {name: value for name, value in wanted.items() if check_optional_name(name, value) is not None}
        found = (
            each for each in self._by_id.values() if all(getattr(each, name) == value for name, value in given.items())
        )
        return [
            each.model_copy(deep=True)
            for each in sorted(found, key=lambda each: (each.created_at, each.subscription_id))
        ]

    async def delete_subscription(self, subscription_id: str) -> bool:
        """Forget it; False if it was not there."""
        return self._by_id.pop(check_name("subscription_id", subscription_id), None) is not None

    async def mark_event_processed(self, subscription_id: str, event_id: str) -> bool:
        """True the first time, False again or if the subscription is unknown."""
        subscription = self._by_id.get(check_name("subscription_id", subscription_id))
        if subscription is None or subscription.is_event_processed(check_name("event_id", event_id)):
            return False
        subscription.mark_event_processed(event_id)
        return True
