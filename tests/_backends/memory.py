"""The memory back end under test."""

from __future__ import annotations

from typing import Any

from lastbus._bus import BaseBus
from lastbus._clock import Clock
from lastbus.memory import (
    InMemoryEventBus,
    InMemoryEventSubscriptionStorage,
    InMemoryProcessingTracker,
    MemoryEventStorage,
)
from tests._backends.base import Backend


class MemoryBackend(Backend):
    """Three stores in memory, shared by the buses of one test; the first clock that is named is theirs."""

    name = "memory"

    def __init__(self) -> None:
        super().__init__()
        self._events: MemoryEventStorage | None = None
        self._subscriptions = InMemoryEventSubscriptionStorage()
        self._tracker: InMemoryProcessingTracker | None = None

    def _make_bus(self, **options: Any) -> BaseBus:
        clock = options.get("clock")
        return InMemoryEventBus(
            event_storage=self.event_storage(clock),
            subscription_storage=self._subscriptions,
            processing_tracker=self.tracker(clock),
            **options,
        )

    def event_storage(self, clock: Clock | None = None, ttl: float | None = None) -> MemoryEventStorage:
        self._events = self._events or MemoryEventStorage(ttl, clock)
        return self._events

    def subscription_storage(self) -> InMemoryEventSubscriptionStorage:
        return self._subscriptions

    def tracker(self, clock: Clock | None = None) -> InMemoryProcessingTracker:
        self._tracker = self._tracker or InMemoryProcessingTracker(clock=clock)
        return self._tracker
