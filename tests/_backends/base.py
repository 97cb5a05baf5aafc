"""The shape of a back end under test: an empty store of its own, and buses that share it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any

from lastbus._bus import BaseBus
from lastbus._clock import Clock
from lastbus._errors import CloseError
from lastbus._ports.storage import EventStorage, EventSubscriptionStorage
from lastbus._ports.tracker import EventProcessingTracker


class Backend(ABC):
    """An empty store, made on entering; every bus made on it is closed on leaving."""

    name: str

    def __init__(self) -> None:
        self.buses: list[BaseBus] = []

    def make_bus(self, **options: Any) -> BaseBus:
        """A bus on this store; buses of one back end see each other's events and subscriptions."""
        options.setdefault("close_timeout", 1.0)
        bus = self._make_bus(**options)
        self.buses.append(bus)
        return bus

    @abstractmethod
    def _make_bus(self, **options: Any) -> BaseBus: ...

    @abstractmethod
    def event_storage(self, clock: Clock | None = None, ttl: float | None = None) -> EventStorage:
        """An event storage on this store."""

    @abstractmethod
    def subscription_storage(self) -> EventSubscriptionStorage:
        """A subscription storage on this store."""

    @abstractmethod
    def tracker(self, clock: Clock | None = None) -> EventProcessingTracker:
        """A processing tracker on this store."""

    async def __aenter__(self) -> Backend:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for bus in self.buses:
            _end_handlers(bus)
            try:
                await bus.close(timeout=5)
            except CloseError:
                # The test has broken this bus on purpose; its assertions are the test's business.
                continue


def _end_handlers(bus: BaseBus) -> None:
    """What a test has left running is not waited for: a test that failed has left whatever it held."""
    for task in list(bus._pending_tasks):
        if task.get_loop() is asyncio.get_running_loop():
            task.cancel()
