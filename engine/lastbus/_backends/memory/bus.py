"""The memory bus: `BaseBus` over three stores in memory."""

from __future__ import annotations

from typing import Any

from lastbus._backends.memory.storage import MemoryEventStorage
from lastbus._backends.memory.subscriptions import InMemoryEventSubscriptionStorage
from lastbus._backends.memory.tracker import InMemoryProcessingTracker
from lastbus._bus import BaseBus


class InMemoryEventBus(BaseBus):
    """An event bus within one process. Options are those of every bus: `close_timeout`, `on_overdue`,
    `max_pending_callbacks`, `publish_sync_drain_timeout`, `clock`; `ttl` is the life of an event in seconds.

    Closing the event loop right after a publish, without `close()`, may lose handlers.

    Keeps: MEM-04, MEM-06.
    """

    def __init__(
        self,
        *,
        event_storage: MemoryEventStorage | None = None,
        subscription_storage: InMemoryEventSubscriptionStorage | None = None,
        processing_tracker: InMemoryProcessingTracker | None = None,
        ttl: float | None = None,
        **options: Any,
    ) -> None:
        clock = options.get("clock")
        super().__init__(
            event_storage=event_storage or MemoryEventStorage(ttl, clock),
            subscription_storage=subscription_storage or InMemoryEventSubscriptionStorage(),
            processing_tracker=processing_tracker or InMemoryProcessingTracker(ttl, clock),
            **options,
        )
