"""Dispatcher: every delivery of a bus is one task, held under (event id, handler id), within the bus's capacity.

A delivery that finds no free slot waits in the backlog, in order; it starts when a slot becomes free, before any
publisher that waits. Only the handlers of one event beyond its first, and what is published inside handlers, ever get
there: a publisher outside waits for its slot before anything is stored.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import deque
from typing import Any, NamedTuple

from lastbus._dispatch.capacity import Slots
from lastbus._dispatch.delivery import Delivery
from lastbus._dispatch.registry import Registration
from lastbus._model.event import Event
from lastbus._tasks import spawn

logger = logging.getLogger("lastbus.dispatch")

Label = tuple[str, str]
Marker = contextvars.ContextVar[object | None]


class Queued(NamedTuple):
    """A delivery that waits for a slot, with the context that it will run in and a future of its end."""

    context: contextvars.Context
    event: Event
    registration: Registration
    deduplicate: bool
    ended: asyncio.Future[Any]

    @property
    def label(self) -> Label:
        """(event id, handler id)."""
        return self.event.event_id, self.registration.handler_id

    def end(self, _: object = None) -> None:
        """It has ended, or will never start."""
        if not self.ended.done():
            self.ended.set_result(None)


class Dispatcher:
    """Starts deliveries; `pending` (shared with the close contract) holds each of them until it ends."""

    def __init__(
        self, pending: dict[asyncio.Future[Any], Label], slots: Slots, delivery: Delivery, marker: Marker, bus: object
    ) -> None:
        self._pending = pending
        self._slots = slots
        self._slots.heir = self._start_next
        self._deliver = delivery.deliver
        self._marker = marker
        self._bus = bus
        self._backlog: deque[Queued] = deque()
        self._stopped = False

    def dispatch(
        self, event: Event, handlers: tuple[Registration, ...], deduplicate: bool, holds_slot: bool
    ) -> list[asyncio.Future[Any]]:
        """Start (or queue, in order) one delivery for each handler; return a future of each one's end.

        `holds_slot` says that the caller has taken the slot for the first of them. It never raises: a delivery that
        cannot be started is named in the log, and the others go on.

        Keeps: CAP-01, CAP-06, CAP-25, CAP-29, CAP-32, DISP-01, MEM-03, MEM-05, SELF-04, SELF-06, SELF-08.
        """
        if self._stopped:
            self._refuse(event, handlers, holds_slot)
            return []
        ends: list[asyncio.Future[Any]] = []
        token = self._marker.set(self._bus)  # A task, and a place in the backlog, copies the context it is made in.
        try:
            for registration in handlers:
                if not (holds_slot or self._slots.try_take()):
                    ends.append(self._queue(event, registration, deduplicate))
                    continue
                holds_slot = False
                task = self._start(event, registration, deduplicate)
                if task is None:
                    self._slots.give_back()
                else:
                    ends.append(task)
        finally:
            self._marker.reset(token)
        return ends

    def backlog(self) -> list[Label]:
        """(event id, handler id) of every delivery that waits for a slot."""
        return [queued.label for queued in self._backlog]

    def backlog_ends(self) -> list[asyncio.Future[Any]]:
        """A future of the end of every delivery that waits for a slot."""
        return [queued.ended for queued in self._backlog]

    def stop(self) -> None:
        """From now on no delivery starts: those that wait are forgotten, further ones are named and refused.

        Keeps: CAP-32.
        """
        self._stopped = True
        dropped, self._backlog = self._backlog, deque()
        for queued in dropped:
            queued.end()

    def _refuse(self, event: Event, handlers: tuple[Registration, ...], holds_slot: bool) -> None:
        for each in handlers:
            logger.warning("event %s was not handed to handler %s: the bus is closed", event.event_id, each.handler_id)
        if holds_slot:
            self._slots.give_back()

    def _queue(self, event: Event, registration: Registration, deduplicate: bool) -> asyncio.Future[Any]:
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._backlog.append(Queued(contextvars.copy_context(), event, registration, deduplicate, ended))
        return ended

    def _start_next(self) -> bool:
        """Use a slot that has become free for the delivery that waits longest; False if none could be started.

        Keeps: CAP-08, CAP-25, CAP-29.
        """
        while self._backlog:
            queued = self._backlog.popleft()
            task = queued.context.run(self._start, queued.event, queued.registration, queued.deduplicate)
            if task is not None:
                task.add_done_callback(queued.end)
                return True
            queued.end()
        return False

    def _start(self, event: Event, registration: Registration, deduplicate: bool) -> asyncio.Task[Any] | None:
        """The delivery's task; None, and one ERROR that names the delivery, if the loop makes none.

        Keeps: CAP-29, DISP-01, DISP-02, MEM-05.
        """
        label = (event.event_id, registration.handler_id)
        has_factory = asyncio.get_running_loop().get_task_factory() is not None
        deliver = self._deliver_announced if has_factory else self._deliver
        try:
            return spawn(
                deliver(event, registration, deduplicate),
                name=registration.task_name,
                owner=self._pending,
                label=label,
                on_done=self._on_done,
            )
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # The loop's task factory is foreign code; the event is stored, its other handlers go on.
            logger.exception("event %s was not handed to handler %s: the loop made no task for it", *label)
            return None

    async def _deliver_announced(self, event: Event, registration: Registration, deduplicate: bool) -> None:
        """A task factory may run a task's first step before `spawn` knows of the task: it is held from that step on.

        Keeps: CAP-29.
        """
        task = asyncio.current_task()
        assert task is not None
        self._pending[task] = (event.event_id, registration.handler_id)
        await self._deliver(event, registration, deduplicate)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        """Let go of a delivery that ended, however it ended; handlers' errors are logged by then.

        Keeps: CAP-03, CAP-04, CAP-08, DISP-01, DISP-03, DISP-12, MEM-05.
        """
        label = self._pending.pop(task, None)
        self._slots.give_back()
        error = None if task.cancelled() else task.exception()
        # A loop's factory may return one task for two deliveries: its end is told once.
        if error is not None and label is not None:
            logger.error("event %s in handler %s: the delivery itself broke", *label, exc_info=error)
