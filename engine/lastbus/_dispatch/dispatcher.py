"""Dispatcher: every delivery of a bus is one task, held under (event id, handler id), within the bus's capacity.

A delivery that finds no free slot waits in the backlog, in order; it starts when a slot becomes free, before any
publisher that waits. Only the handlers of one event beyond its first, and what is published inside handlers, ever get
there: a publisher outside waits for its slot before anything is stored.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from lastbus._dispatch.capacity import Slots
from lastbus._dispatch.delivery import Delivery
from lastbus._dispatch.registry import Registration
from lastbus._model.event import Event
from lastbus._tasks import spawn

Label = tuple[str, str]
Enter = Callable[[], object]


class Queued(NamedTuple):
    """A delivery that waits for a slot, with the context that it will run in and a future of its end."""

    context: contextvars.Context
    event: Event
    registration: Registration
    deduplicate: bool
    ended: asyncio.Future[None]


class Dispatcher:
    """Starts deliveries; `pending` (shared with the close contract) holds each of them until it ends."""

    def __init__(
        self, pending: dict[asyncio.Future[Any], Label], slots: Slots, delivery: Delivery, enter: Enter
    ) -> None:
        self._pending = pending
        self._slots = slots
        self._deliver = delivery.deliver
        self._enter = enter
        self._backlog: deque[Queued] = deque()

    def dispatch(
        self, event: Event, handlers: tuple[Registration, ...], deduplicate: bool, holds_slot: bool
    ) -> list[asyncio.Future[Any]]:
        """Start (or queue) one delivery for each handler; return a future of each one's end.

        `holds_slot` says that the caller has taken the slot for the first of them.

        Keeps: CAP-01, CAP-06, MEM-03, MEM-05.
        """
        ends: list[asyncio.Future[Any]] = []
        for registration in handlers:
            if holds_slot or self._slots.try_take():
                holds_slot = False
                ends.append(self._start(event, registration, deduplicate))
            else:
                ends.append(self._queue(event, registration, deduplicate))
        return ends

    def free_slot(self) -> None:
        """Use a slot that has become free: for the backlog, else for whoever waits, else for nobody.

        Keeps: CAP-08.
        """
        if self._backlog:
            queued = self._backlog.popleft()
            queued.context.run(self._start_queued, queued)
        else:
            self._slots.give_back()

    def backlog(self) -> list[Label]:
        """(event id, handler id) of every delivery that waits for a slot."""
        return [(queued.event.event_id, queued.registration.handler_id) for queued in self._backlog]

    def drop_backlog(self) -> None:
        """Forget the deliveries that wait; they never started."""
        dropped, self._backlog = self._backlog, deque()
        for queued in dropped:
            queued.ended.cancel()

    def _queue(self, event: Event, registration: Registration, deduplicate: bool) -> asyncio.Future[None]:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._backlog.append(Queued(contextvars.copy_context(), event, registration, deduplicate, ended))
        return ended

    def _start_queued(self, queued: Queued) -> None:
        def end(_: asyncio.Task[Any]) -> None:
            if not queued.ended.done():
                queued.ended.set_result(None)

        self._start(queued.event, queued.registration, queued.deduplicate).add_done_callback(end)

    def _start(self, event: Event, registration: Registration, deduplicate: bool) -> asyncio.Task[Any]:
        try:
            return spawn(
                self._run(event, registration, deduplicate),
                name=registration.task_name,
                owner=self._pending,
                label=(event.event_id, registration.handler_id),
                on_done=self._on_done,
            )
        except BaseException:
            self.free_slot()
            raise

    async def _run(self, event: Event, registration: Registration, deduplicate: bool) -> None:
        self._enter()
        await self._deliver(event, registration, deduplicate)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        """Let go of a delivery that ended, however it ended.

        Keeps: CAP-03, CAP-08, MEM-05.
        """
        self._pending.pop(task, None)
        self.free_slot()
        if not task.cancelled():
            task.exception()
