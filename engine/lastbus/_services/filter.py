"""Event filter: hears every event of a bus and queues the resumption of each execution that waits for it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Final

from lastbus._clock import Clock
from lastbus._model.event import Event
from lastbus._model.subscription import EventSubscription
from lastbus._model.task import event_task
from lastbus._ports.queue import TaskQueue
from lastbus._services.bus import StoringBus
from lastbus._services.reconciler import EventReconciler
from lastbus._services.resumptions import Resumptions
from lastbus._services.timeouts import SubscriptionTimeoutChecker

if TYPE_CHECKING:
    from typing_extensions import Self

HANDLER_ID: Final = "lastbus.event-filter"
"""All filters are one handler, so that an event is looked at by one of them."""
CLOCKS_DIFFER_SECONDS: Final = 1.0
"""By how much an event may seem older than the wait and still be an answer."""


class EventFilter:
    """Between `start` and `stop`, events of `event_bus` become tasks in `queue`; so do subscriptions that time out.

    The subscriptions are those of the bus itself. The bus is yours: stopping does not close it.

    Keeps: FLOW-06.
    """

    def __init__(
        self,
        event_bus: StoringBus,
        queue: TaskQueue,
        *,
        reconcile_seconds: float | None = None,
        backfill_seconds: float | None = None,
        timeout_check_seconds: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        self.event_bus: Final = event_bus
        self.subscription_storage: Final = event_bus.subscription_storage
        self._resumptions: Final = Resumptions(queue, event_bus.processing_tracker)
        self.reconciler: Final = EventReconciler(
            event_bus.event_storage,
            self.handle_event,
            interval=reconcile_seconds,
            backfill_seconds=backfill_seconds,
            clock=clock,
        )
        self.timeout_checker: Final = SubscriptionTimeoutChecker(
            event_bus.subscription_storage, self._resumptions, interval=timeout_check_seconds, clock=clock
        )

    async def start(self) -> None:
        """Hear events, check time-outs and look for events that were missed; harmless when called again.

        If it raises, nothing of it goes on. No signal handler is installed: when to stop is for the program to say.

        Keeps: FLOW-04, FLOW-10, FLOW-16, STORE-03.
        """
        if self.reconciler.is_running:
            return
        await self.event_bus.register_handler(None, self.handle_event, handler_id=HANDLER_ID)
        await self.timeout_checker.start()
        await self.reconciler.start()

    async def stop(self) -> None:
        """Return when nothing goes on but what the bus has begun to deliver; harmless when called again."""
        await self.reconciler.stop()
        await self.timeout_checker.stop()
        await self.event_bus.unregister_handler(HANDLER_ID)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def handle_event(self, event: Event) -> int:
        """Queue the resumption of each execution that waits for `event`; return how many were queued now.

        An event that names no execution as its correlation resumes nothing, and neither does one that is older than
        the wait. An error says that not all are queued.

        Keeps: FLOW-04, FLOW-06.
        """
        return await self._queue_all(event, await self._waiting_for(event))

    async def _waiting_for(self, event: Event) -> list[EventSubscription]:
        """Keeps: FLOW-04, FLOW-15."""
        if event.correlation_id is None:
            return []
        stored = await self.subscription_storage.list_subscriptions(correlation_id=event.correlation_id)
        latest = event.timestamp + CLOCKS_DIFFER_SECONDS
        return [each for each in stored if each.matches_event(event) and each.created_at <= latest]

    async def _queue_all(self, event: Event, waiting: list[EventSubscription]) -> int:
        """Keeps: FLOW-12."""
        queued = 0
        for subscription in waiting:
            task = event_task(subscription, event)
            if task is not None:
                queued += await self._resumptions.queue_once((event.event_id, subscription.subscription_id), task)
        return queued
