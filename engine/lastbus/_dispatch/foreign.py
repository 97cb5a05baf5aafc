"""Foreign events: what another process has published, brought by a listener, goes the way of our own.

An event comes once for the handlers of exactly its type, and for waiters, and once for wildcard handlers. At capacity
it waits for a slot, and so does the listener that brings it: a bus that is full stops reading.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from lastbus._dispatch.capacity import Slots
from lastbus._dispatch.dispatcher import Dispatcher
from lastbus._dispatch.intake import Handlers
from lastbus._dispatch.registry import HandlerRegistry
from lastbus._dispatch.waiters import Waiters
from lastbus._errors import BusClosedError
from lastbus._model.event import Event

logger = logging.getLogger("lastbus.dispatch")


class ForeignIntake:
    """Takes the foreign events of one bus."""

    def __init__(
        self,
        registry: HandlerRegistry,
        waiters: Waiters,
        slots: Slots,
        dispatcher: Dispatcher,
        refuse_closed: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._waiters = waiters
        self._slots = slots
        self._dispatcher = dispatcher
        self._refuse_closed = partial(refuse_closed, "dispatch")

    async def take(self, event: Event, deduplicate: bool, wildcard: bool) -> None:
        """Hand the event to wildcard handlers, or to exact ones and waiters; on a closing bus it is refused by name.

        So is one whose listener is cancelled while it waits for a slot.

        Keeps: CAP-06, CAP-28, DISP-07, DISP-08.
        """
        if not wildcard:
            self._waiters.resolve(event)
        if not self._handlers(event, wildcard):
            return
        try:
            self._refuse_closed()
            await self._slots.take()
        except BusClosedError:
            self._name_refused(event, wildcard)
            return
        except asyncio.CancelledError:
            self._name_cut_off(event, wildcard)
            raise
        self._dispatch(event, deduplicate, wildcard)

    def _dispatch(self, event: Event, deduplicate: bool, wildcard: bool) -> None:
        """Use the slot that was taken, or give it back: the wait for it may have ended in a close.

        Keeps: CAP-28, DISP-07.
        """
        try:
            self._refuse_closed()
        except BusClosedError:
            self._slots.give_back()
            self._name_refused(event, wildcard)
            return
        handlers = self._handlers(event, wildcard)
        if handlers:
            self._dispatcher.dispatch(event, handlers, deduplicate, holds_slot=True)
        else:
            self._slots.give_back()

    async def make_up(self, event: Event, handlers: Handlers) -> list[asyncio.Future[Any]]:
        """Hand an event that was missed to exactly `handlers`, those that are still there; a future of each one's end.

        It waits for a slot like any other event. `BusClosedError`, and nothing has started, once the bus is closing.

        Keeps: REDIS-21.
        """
        self._refuse_closed()
        await self._slots.take()
        try:
            self._refuse_closed()
            present = tuple(each for each in handlers if self._registry.get(each.handler_id) is each)
        except BusClosedError:
            self._slots.give_back()
            raise
        if not present:
            self._slots.give_back()
            return []
        return self._dispatcher.dispatch(event, present, deduplicate=True, holds_slot=True)

    def _handlers(self, event: Event, wildcard: bool) -> Handlers:
        return tuple(each for each in self._registry.matching(event) if each.is_wildcard is wildcard)

    def _name_refused(self, event: Event, wildcard: bool) -> None:
        for each in self._handlers(event, wildcard):
            logger.warning("event %s was not handed to handler %s: the bus is closing", event.event_id, each.handler_id)

    def _name_cut_off(self, event: Event, wildcard: bool) -> None:
        for each in self._handlers(event, wildcard):
            logger.warning("event %s was not handed to handler %s: its listener ended", event.event_id, each.handler_id)
