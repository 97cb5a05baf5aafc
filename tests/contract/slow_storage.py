"""A store in memory that stops where a test wants it to, for what happens in between."""

from __future__ import annotations

import asyncio

from lastbus import Event
from lastbus.memory import MemoryEventStorage


class SlowStorage(MemoryEventStorage):
    """Storing waits for `may_store`, stores, and waits for `may_return`; reading waits for `may_read`. All are open."""

    def __init__(self) -> None:
        super().__init__()
        self.may_store = asyncio.Event()
        self.may_return = asyncio.Event()
        self.may_read = asyncio.Event()
        for gate in (self.may_store, self.may_return, self.may_read):
            gate.set()
        self.error: Exception | None = None

    async def store_encoded(self, event: Event, text: str) -> str:
        await self.may_store.wait()
        if self.error is not None:
            raise self.error
        stored = await super().store_encoded(event, text)
        await self.may_return.wait()
        return stored

    async def get_event(self, event_id: str) -> Event | None:
        await self.may_read.wait()
        return await super().get_event(event_id)
