"""A store in memory that stops before and after it has stored, for tests of what happens in between."""

from __future__ import annotations

import asyncio

from lastbus import Event
from lastbus.memory import MemoryEventStorage


class SlowStorage(MemoryEventStorage):
    """`store` waits for `may_store`, stores, and waits for `may_return`; both are open at first."""

    def __init__(self) -> None:
        super().__init__()
        self.may_store = asyncio.Event()
        self.may_return = asyncio.Event()
        self.may_store.set()
        self.may_return.set()
        self.error: Exception | None = None

    async def store_encoded(self, event: Event, text: str) -> str:
        await self.may_store.wait()
        if self.error is not None:
            raise self.error
        stored = await super().store_encoded(event, text)
        await self.may_return.wait()
        return stored
