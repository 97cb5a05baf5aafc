"""Intake: a publish is admitted in one loop turn, and from then on it belongs to the bus.

Admission is closed-check, capacity and the snapshot of the matching handlers, with no wait between them. An admitted
publish that is still being stored counts as in flight: a close waits for it, and for the handlers it starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lastbus._dispatch.capacity import Slots
from lastbus._dispatch.registry import HandlerRegistry, Registration
from lastbus._model.event import Event

Handlers = tuple[Registration, ...]


class Intake:
    """The publishes that one bus has admitted and not yet handed to its handlers."""

    def __init__(
        self,
        registry: HandlerRegistry,
        slots: Slots,
        refuse_closed: Callable[[str], None],
        is_inside_dispatch: Callable[[], bool],
    ) -> None:
        self._registry = registry
        self._slots = slots
        self._refuse_closed = refuse_closed
        self._is_inside_dispatch = is_inside_dispatch
        self._storing: dict[str, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._emptied: asyncio.Future[None] | None = None

    async def admit(self, event: Event) -> tuple[Handlers, bool]:
        """The handlers for `event` and whether a slot is held for the first of them; waits only for that slot.

        An event without handlers needs no slot, and inside a handler there is no waiting. `BusClosedError` if the bus
        is closed before the slot is there.

        Keeps: CAP-07, CAP-10, CAP-11, CAP-26.
        """
        self._refuse_closed("publish")
        handlers = self._registry.matching(event)
        if not handlers:
            return handlers, False
        if self._slots.try_take():
            return handlers, True
        if self._is_inside_dispatch():
            return handlers, False
        await self._slots.take()
        return self._readmit(event)

    def _readmit(self, event: Event) -> tuple[Handlers, bool]:
        """Look again after the wait: the bus may have closed, handlers may have come and gone.

        Keeps: CAP-10.
        """
        try:
            self._refuse_closed("publish")
        except BaseException:
            self._slots.give_back()
            raise
        handlers = self._registry.matching(event)
        if not handlers:
            self._slots.give_back()
        return handlers, bool(handlers)

    def enter(self, event_id: str) -> None:
        """The event is being stored, on the running loop.

        Keeps: CAP-27, CAP-36.
        """
        self._storing[event_id] = self._storing.get(event_id, 0) + 1
        self._loop = asyncio.get_running_loop()

    def leave(self, event_id: str) -> None:
        """The event is stored, or will not be."""
        self._storing[event_id] -= 1
        if not self._storing[event_id]:
            del self._storing[event_id]
        if not self._storing and self._emptied is not None:
            emptied, self._emptied = self._emptied, None
            if not emptied.done():
                emptied.set_result(None)

    def storing(self) -> list[str]:
        """The ids of the events that are being stored now."""
        return list(self._storing)

    def emptied(self) -> asyncio.Future[None] | None:
        """A future, of the loop that stores, of the moment when nothing is being stored; None if nothing is.

        Keeps: CAP-27, CAP-36.
        """
        if not self._storing:
            return None
        if self._emptied is None or self._emptied.done():
            assert self._loop is not None
            self._emptied = self._loop.create_future()
        return self._emptied
