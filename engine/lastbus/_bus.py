"""BaseBus: the one bus. Ports, dispatch and close are wired here once, for every back end.

A back end says where things are stored, how an event is announced to other processes, and what there is to listen to;
what publishing, handling, waiting and closing mean is decided here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._close.closer import Closer
from lastbus._close.selfclose import IN_DISPATCH, descends_from
from lastbus._close.state import OnOverdue
from lastbus._dispatch.attempts import Attempts
from lastbus._dispatch.bridge import Bridge, drain, farewell
from lastbus._dispatch.capacity import Slots
from lastbus._dispatch.claims import Claims
from lastbus._dispatch.delivery import Delivery
from lastbus._dispatch.dispatcher import Dispatcher
from lastbus._dispatch.foreign import ForeignIntake
from lastbus._dispatch.intake import Handlers, Intake
from lastbus._dispatch.pool import HandlerPool
from lastbus._dispatch.registry import HandlerRegistry
from lastbus._dispatch.waiters import Waiters, check_condition
from lastbus._errors import BusClosedError, EventNotFoundError, EventTimeoutError
from lastbus._model.event import Event
from lastbus._model.names import check_name
from lastbus._model.normalize import Publishable, normalize
from lastbus._model.numbers import check_count, check_optional_seconds, check_seconds
from lastbus._model.policy import RetryPolicy
from lastbus._model.subscription import EventSubscription
from lastbus._ports.bus import Condition, EventBus, Handler
from lastbus._ports.storage import EventStorage, EventSubscriptionStorage
from lastbus._ports.tracker import EventProcessingTracker
from lastbus._tasks import spawn

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("lastbus.bus")
PUBLISHING = "(being published)"
CONNECTING = "(none: connecting)"


class BaseBus(Closer, EventBus):
    """A bus over three stores. Use it as `async with bus:`, or just use it and `await bus.close()` at the end.

    `close_timeout` (seconds; None: `DISPATCH_DRAIN_TIMEOUT_SECONDS`, 5.0) and `on_overdue` ("release" or "cancel") say
    how long a close waits for running handlers and what becomes of those that take longer. `max_pending_callbacks`
    bounds the handlers that run at once (None: no bound). `publish_sync_drain_timeout` is in seconds.
    """

    _SLOTS = (*Closer._SLOTS, "_handler_pool")

    def __init__(
        self,
        *,
        event_storage: EventStorage,
        subscription_storage: EventSubscriptionStorage,
        processing_tracker: EventProcessingTracker,
        clock: Clock | None = None,
        close_timeout: float | None = None,
        on_overdue: OnOverdue = "release",
        max_pending_callbacks: int | None = None,
        publish_sync_drain_timeout: float = 5.0,
    ) -> None:
        super().__init__(close_timeout=close_timeout, on_overdue=on_overdue)
        if max_pending_callbacks is not None:
            check_count("max_pending_callbacks", max_pending_callbacks)
        self.publish_sync_drain_timeout = check_seconds("publish_sync_drain_timeout", publish_sync_drain_timeout)
        self.instance_id = str(uuid4())
        self.event_storage = event_storage
        self.subscription_storage = subscription_storage
        self.processing_tracker = processing_tracker
        self._clock = SYSTEM_CLOCK if clock is None else clock
        self._registry = HandlerRegistry()
        self._waiters = Waiters()
        self._slots = Slots(max_pending_callbacks)
        self._handler_pool = HandlerPool()
        self._claims = Claims(processing_tracker, self._clock, self.instance_id)
        attempts = Attempts(processing_tracker, self._clock, self._handler_pool)
        delivery = Delivery(processing_tracker, self._claims, attempts)
        self._dispatcher = Dispatcher(self._pending_tasks, self._slots, delivery, IN_DISPATCH, self)
        self._intake = Intake(self._registry, self._slots, self._refuse_closed, self._is_inside_dispatch)
        self._foreign = ForeignIntake(self._registry, self._waiters, self._slots, self._dispatcher, self._refuse_closed)
        self._bridge = Bridge()
        self._home: asyncio.AbstractEventLoop | None = None
        self._starting: dict[asyncio.Task[Any], None] = {}

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, and return when every registered handler is heard; harmless when called again.

        Every awaited verb starts the bus by itself. A close that begins meanwhile waits for it, in bounds; then this
        raises `BusClosedError`.

        Keeps: CAP-11, CAP-37.
        """
        self._refuse_closed("start")
        loop = asyncio.get_running_loop()
        if self._home is loop:
            return
        self._intake.enter(CONNECTING)
        try:
            await self._open()
        finally:
            self._intake.leave(CONNECTING)
        self._refuse_closed("start")
        self._home = loop

    async def _start_unless(self, future: asyncio.Future[Any]) -> None:
        """Start, but wait for it no longer than until `future` is done.

        Keeps: CORE-28.
        """
        if self._home is asyncio.get_running_loop():
            return
        name = "lastbus start for a waiter"
        starting = spawn(self.start(), name=name, owner=self._starting, label=None, on_done=self._starting.pop)
        try:
            await asyncio.wait({starting, future}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            starting.cancel()
            raise
        if starting.done():
            starting.result()
        else:
            starting.cancel()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- publish ------------------------------------------------------------------------------------------------

    async def publish(self, event: Publishable, prevent_duplicate_consumption: bool = True, **data: Any) -> str:
        """Store and announce one event, start its handlers, and return its id: stored, announced, not yet handled.

        At capacity it waits for a slot before anything is stored; inside a handler it never waits. With
        `prevent_duplicate_consumption` a handler that has succeeded on an event id does not see that id again.
        Handlers run in a copy of the publisher's context. A publish that is cancelled may or may not have happened; if
        the event was stored, its handlers here run. Raises `ValueError` or `TypeError` before anything is stored, and
        `BusClosedError` on a closed bus.

        Keeps: CORE-12, CORE-15, CORE-44, CORE-52, CAP-02, CAP-11, MEM-03, MEM-07.
        """
        self._refuse_closed("publish")
        event = normalize(event, data)
        await self._publish(event, event.model_dump_json(), prevent_duplicate_consumption)
        return event.event_id

    async def batch_publish(
        self, events: Iterable[Publishable], prevent_duplicate_consumption: bool = True
    ) -> list[str]:
        """Publish several events in order and return their ids; a malformed one is refused before any is stored.

        `TypeError` for one event where several are meant: a text is not a batch of its letters.

        Keeps: CORE-42.
        """
        self._refuse_closed("batch_publish")
        if isinstance(events, str | Mapping):
            raise TypeError(f"batch_publish takes several events, got one {type(events).__name__}; use publish()")
        ready = [(event, event.model_dump_json()) for event in (normalize(each, {}) for each in events)]
        for event, text in ready:
            await self._publish(event, text, prevent_duplicate_consumption)
        return [event.event_id for event, _ in ready]

    def publish_sync(self, event: Publishable, prevent_duplicate_consumption: bool = True, **data: Any) -> str:
        """`publish` for code without a running loop; also waits for the handlers that it started, here, in bounds.

        Runs on the bus's own loop if that is alive in another thread, else on a private loop, which cancels what still
        runs when it ends. After `publish_sync_drain_timeout` seconds one WARNING names what is still running.
        `SyncPublishError` inside a running loop.

        Keeps: CORE-22, CORE-23, CORE-24, CORE-25, CORE-26, CORE-41.
        """
        self._refuse_closed("publish_sync")
        event = normalize(event, data)
        text = event.model_dump_json()

        async def run(is_private: bool) -> str:
            if not is_private:
                return await self._publish_and_drain(event, text, prevent_duplicate_consumption)
            loop = self._home = asyncio.get_running_loop()
            try:
                async with self._private_connections(), farewell(self._pending_tasks):
                    return await self._publish_and_drain(event, text, prevent_duplicate_consumption)
            finally:
                if self._home is loop:
                    self._home = None

        return self._bridge.run(self._home, run)

    async def _publish_and_drain(self, event: Event, text: str, deduplicate: bool) -> str:
        ends = await self._publish(event, text, deduplicate)
        late = await drain(ends, self.publish_sync_drain_timeout, self._clock)
        if late:
            logger.warning(
                "publish_sync: %d of %d handlers of event %s (%s) are not done after %g s",
                len(late),
                len(ends),
                event.event_id,
                event.event_type,
                self.publish_sync_drain_timeout,
            )
        return event.event_id

    async def _publish(self, event: Event, text: str, deduplicate: bool) -> list[asyncio.Future[Any]]:
        """Admit, store, resolve waiters, dispatch; a slot that was taken for nothing comes back.

        Keeps: CORE-44, CORE-47, CORE-52, CAP-08, CAP-27, CAP-30, MEM-07.
        """
        if self._home is not asyncio.get_running_loop():
            await self.start()
        handlers, holds_slot = await self._intake.admit(event)
        self._intake.enter(event.event_id)
        try:
            await self._store(event, text, deduplicate)
        except asyncio.CancelledError:
            self._finish_cancelled(event, handlers, deduplicate, holds_slot)
            raise
        except BaseException:
            if holds_slot:
                self._slots.give_back()
            raise
        finally:
            self._intake.leave(event.event_id)
        self._waiters.resolve(event)
        return self._dispatcher.dispatch(event, handlers, deduplicate, holds_slot)

    def _finish_cancelled(self, event: Event, handlers: Handlers, deduplicate: bool, holds_slot: bool) -> None:
        """The publisher is gone in the middle of a store: whether the event exists now, only the storage knows.

        Keeps: CORE-44, CAP-30.
        """
        owed = [holds_slot]

        async def finish() -> None:
            try:
                if await self.event_storage.get_event(event.event_id) is not None:
                    self._waiters.resolve(event)
                    self._dispatcher.dispatch(event, handlers, deduplicate, owed.pop())
            except Exception:
                logger.warning("a cancelled publish of event %s could not be finished", event.event_id, exc_info=True)

        def let_go(task: asyncio.Task[Any] | None) -> None:
            self._pending_tasks.pop(task, None)  # type: ignore[arg-type]
            if any(owed):
                self._slots.give_back()

        name = f"lastbus cancelled publish {event.event_id}"
        label = (event.event_id, PUBLISHING)
        try:
            spawn(finish(), name=name, owner=self._pending_tasks, label=label, on_done=let_go)
        except Exception:  # The loop's task factory is foreign code; the publisher is to get its cancellation.
            logger.warning("a cancelled publish of event %s could not be finished", event.event_id, exc_info=True)
            let_go(None)

    # -- handle -------------------------------------------------------------------------------------------------

    def add_handler(
        self,
        event_type: str | None,
        handler: Handler | None,
        filter_condition: Mapping[str, Any] | None = None,
        retry_policy: RetryPolicy | None = None,
        handler_id: str | None = None,
    ) -> str:
        """Register a handler at once, without awaiting: what this process publishes from now on reaches it.

        Events of other processes are heard as soon as the bus's listener has caught up; `register_handler` waits for
        that. Arguments and errors are those of `register_handler`.

        Keeps: CORE-11, CAP-11.
        """
        self._refuse_closed("register_handler")
        return self._registry.add(event_type, handler, filter_condition, retry_policy, handler_id).handler_id

    async def register_handler(
        self,
        event_type: str | None = None,
        handler: Handler | None = None,
        filter_condition: Mapping[str, Any] | None = None,
        retry_policy: RetryPolicy | None = None,
        handler_id: str | None = None,
    ) -> str:
        """Call `handler` (async or plain) with every event whose type matches, and return the handler's id.

        `event_type` is a shell pattern (None: every type); `filter_condition` names data that must be equal. Your own
        `handler_id` makes deduplication hold across processes and restarts; the default is a fresh uuid. When this
        returns the handler is heard, events of other processes included; if it raises, nothing is registered.

        Keeps: CORE-08, CORE-10, CORE-39, CAP-11.
        """
        added = self.add_handler(event_type, handler, filter_condition, retry_policy, handler_id)
        try:
            await self.start()
            await self._cover(event_type)
        except BaseException:
            self._registry.remove(added)
            raise
        return added

    async def unregister_handler(self, handler_id: str) -> bool:
        """Stop calling a handler: True once, False for an unknown id. A delivery that has started goes on.

        Keeps: CORE-43.
        """
        registration = self._registry.remove(handler_id)
        if registration is None:
            return False
        self._uncover(registration.pattern)
        return True

    async def _receive(self, event: Event, deduplicate: bool, wildcard: bool) -> None:
        """A listener brings an event of another process; returns when the listener may read on."""
        await self._foreign.take(event, deduplicate, wildcard)

    # -- wait and look ------------------------------------------------------------------------------------------

    async def wait_for_event(
        self, event_type: str, timeout: float | None = None, condition: Condition | None = None
    ) -> Event:
        """The next event of exactly this type, published after this call, for which `condition(event)` is true.

        `timeout` (seconds) covers the whole wait, connecting included; None waits for ever, 0 only for what is
        delivered in this loop turn. `condition` is a plain function. `EventTimeoutError` at the deadline; an error of
        `condition` is raised here; `BusClosedError` when the bus closes. Nothing is left behind.

        Keeps: CORE-27, CORE-28, MEM-01.
        """
        self._refuse_closed("wait_for_event")
        check_name("event_type", event_type)
        limit = check_optional_seconds("timeout", timeout)
        check_condition(condition)
        future = self._waiters.add(event_type, condition)

        def expire() -> None:
            if not future.done():
                future.set_exception(EventTimeoutError(event_type, limit or 0.0))

        timer = None if limit is None else self._clock.call_later(limit, expire)
        try:
            await self._start_unless(future)
            if not future.done():
                await self._cover_waiter(event_type, future)
            return await future
        finally:
            self._waiters.discard(event_type, future)
            if timer is not None:
                timer.cancel()
            if future.done() and not future.cancelled():
                future.exception()

    async def get_event(self, event_id: str) -> Event:
        """A stored event; `EventNotFoundError` for an unknown id, `EventError` for one that cannot be read.

        Keeps: CORE-13.
        """
        event = await self.event_storage.get_event(check_name("event_id", event_id))
        if event is None:
            raise EventNotFoundError(event_id)
        return event

    # -- subscribe ----------------------------------------------------------------------------------------------

    async def register_subscription(
        self,
        event_type: str,
        filter_condition: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        flow_id: str | None = None,
        node_id: str | None = None,
        timeout: float | None = None,
    ) -> str:
        """Store a subscription for one exact event type and return its id; it calls nobody by itself.

        `"*"` alone means every type. `ValueError` for a field that cannot be stored; `BusClosedError` on a closed bus.

        Keeps: CORE-29, MEM-02, CAP-11.
        """
        self._refuse_closed("register_subscription")
        subscription = EventSubscription(
            event_type=event_type,
            filter_condition=None if filter_condition is None else dict(filter_condition),
            correlation_id=correlation_id,
            flow_id=flow_id,
            node_id=node_id,
            timeout=timeout,
            created_at=self._clock.time(),
        )
        return await self.subscription_storage.store_subscription(subscription)

    async def unregister_subscription(self, subscription_id: str) -> bool:
        """Delete a stored subscription with every index entry of it; False if the id is unknown.

        Keeps: CORE-29.
        """
        return await self.subscription_storage.delete_subscription(check_name("subscription_id", subscription_id))

    # -- what a back end adds -----------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Connect and listen on the running loop; must be harmless when called again or concurrently."""

    async def _store(self, event: Event, text: str, deduplicate: bool) -> None:
        """Store the event, whose JSON is `text`, and announce it to other processes."""
        await self.event_storage.store_encoded(event, text)

    async def _cover(self, pattern: str | None) -> None:
        """Return when events of other processes that match `pattern` are heard."""

    def _uncover(self, pattern: str | None) -> None:
        """One handler of `pattern`, or one waiter of that type, is gone."""

    async def _cover_waiter(self, event_type: str, future: asyncio.Future[Event]) -> None:
        """Return when events of exactly this type are heard from other processes, or `future` is done."""

    @asynccontextmanager
    async def _private_connections(self) -> AsyncIterator[None]:
        """Connections for a private loop, fresh and gone with it."""
        yield

    # -- what the close contract asks ---------------------------------------------------------------------------

    def _refuse_closed(self, verb: str) -> None:
        """Raise `BusClosedError` if a close has begun.

        Keeps: CAP-11.
        """
        if self._closing:
            raise BusClosedError(verb)

    def _in_flight(self) -> list[asyncio.Future[Any]]:
        """Deliveries that run or wait for a slot, and publishes that are still storing.

        Keeps: CAP-12, CAP-25, CAP-27, CAP-36.
        """
        emptied = self._intake.emptied()
        queued = self._dispatcher.backlog_ends()
        return super()._in_flight() + queued + ([] if emptied is None else [emptied])

    def _waiting(self) -> list[asyncio.Future[Any]]:
        """Keeps: CAP-36."""
        return [*self._slots.waiting, *self._waiters]

    def _name_overdue(self) -> list[tuple[str, str]]:
        """Keeps: CAP-27, CAP-32, CAP-33."""
        storing = [(event_id, PUBLISHING) for event_id in self._intake.storing()]
        return super()._name_overdue() + self._dispatcher.backlog() + storing

    def _cancel_overdue(self, late: set[asyncio.Future[Any]]) -> set[asyncio.Future[Any]]:
        """Keeps: CAP-13, CAP-32."""
        self._dispatcher.stop()
        return super()._cancel_overdue(late)

    def _running_listeners(self) -> list[asyncio.Task[Any]]:
        return super()._running_listeners() + self._claims.renewers()

    def _on_round_bound(self) -> None:
        """Keeps: CAP-10."""
        self._waiters.refuse_all(lambda: BusClosedError("wait_for_event"))
        self._slots.refuse_waiting(lambda: BusClosedError("publish"))

    def _is_inside_dispatch(self) -> bool:
        return descends_from(self) or super()._is_inside_dispatch()
