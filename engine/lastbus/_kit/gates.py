"""Gates: handlers that stop where a test wants them, instead of sleeping."""

from __future__ import annotations

import asyncio

from lastbus._model.event import Event


async def everyone_blocked(turns: int = 25) -> None:
    """Give every ready task of this loop `turns` turns: whatever needs neither I/O, a thread nor time has happened."""
    for _ in range(turns):
        await asyncio.sleep(0)


class Gate:
    """A handler that enters, waits until the gate opens, and leaves; it remembers all three."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._moved = asyncio.Condition()
        self.entered: list[Event] = []
        self.left: list[Event] = []
        self.cancelled: list[Event] = []

    async def hold(self, event: Event) -> None:
        """The handler."""
        await self._note(self.entered, event)
        try:
            await self._open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(event)
            raise
        await self._note(self.left, event)

    def open(self) -> None:
        """Let everybody pass, now and from now on."""
        self._open.set()

    async def has_entered(self, count: int = 1) -> None:
        """Return when `count` events have entered."""
        async with self._moved:
            await self._moved.wait_for(lambda: len(self.entered) >= count)

    async def has_left(self, count: int = 1) -> None:
        """Return when `count` events have left."""
        async with self._moved:
            await self._moved.wait_for(lambda: len(self.left) >= count)

    async def _note(self, where: list[Event], event: Event) -> None:
        async with self._moved:
            where.append(event)
            self._moved.notify_all()


class Recorder:
    """A handler that remembers the events it was called with."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._heard = asyncio.Condition()

    async def __call__(self, event: Event) -> None:
        async with self._heard:
            self.events.append(event)
            self._heard.notify_all()

    async def has_heard(self, count: int = 1) -> list[Event]:
        """Return the events when there are at least `count`."""
        async with self._heard:
            await self._heard.wait_for(lambda: len(self.events) >= count)
        return self.events
