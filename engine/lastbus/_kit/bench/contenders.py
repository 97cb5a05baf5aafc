"""Contenders: bare tasks, lastbus, and other buses as their documentation says they are used."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import ModuleType
from typing import Any, Final
from uuid import uuid4

from lastbus._bus import BaseBus
from lastbus._kit.bench.cost import Unusable
from lastbus._kit.bench.load import EVENT_TYPES, Contender, Handle, make_event

RAW: Final = "raw create_task"
LASTBUS: Final = "lastbus"

MakeBus = Callable[..., BaseBus]


class Raw(Contender):
    """No bus: a task for each handler, held strongly, on the same event object."""

    def __init__(self) -> None:
        self._handlers: Sequence[Any] = ()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, handlers: Sequence[Handle]) -> None:
        self._handlers = handlers

    async def publish(self, number: int) -> None:
        event = make_event(number)
        for handler in self._handlers:
            task = asyncio.create_task(handler(event))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class Lastbus(Contender):
    """A bus of this package with its defaults: events stored, deliveries deduplicated and recorded."""

    def __init__(self, make_bus: MakeBus, **options: Any) -> None:
        self.bus = make_bus(**options)
        self._exits = AsyncExitStack()

    async def open(self, handlers: Sequence[Handle]) -> None:
        await self._exits.enter_async_context(self.bus)
        for event_type in EVENT_TYPES:
            for handler in handlers:
                await self.bus.register_handler(event_type, handler)

    async def publish(self, number: int) -> None:
        await self.bus.publish(make_event(number))

    async def close(self) -> None:
        await self._exits.aclose()


class Pyee(Contender):
    """pyee's `AsyncIOEventEmitter`."""

    def __init__(self) -> None:
        self._emitter: Any = _module("pyee.asyncio", "pyee").AsyncIOEventEmitter()

    async def open(self, handlers: Sequence[Handle]) -> None:
        for event_type in EVENT_TYPES:
            for handler in handlers:
                self._emitter.on(event_type, handler)

    async def publish(self, number: int) -> None:
        event = make_event(number)
        self._emitter.emit(event.event_type, event)

    async def close(self) -> None:
        await self._emitter.wait_for_complete()


class Bubus(Contender):
    """bubus' `EventBus`. Its history is unlimited: with the default it refuses more than 50 events in its queue."""

    def __init__(self) -> None:
        bubus = _module("bubus", "bubus")
        logging.getLogger("bubus").setLevel(logging.ERROR)
        self._bus: Any = bubus.EventBus(max_history_size=None)
        annotations = {"order": int, "state": str}
        self._types = [
            type(f"Bench{number}", (bubus.BaseEvent,), {"__annotations__": annotations, "__module__": __name__})
            for number in range(len(EVENT_TYPES))
        ]

    async def open(self, handlers: Sequence[Handle]) -> None:
        for event_type in self._types:
            for handler in handlers:
                self._bus.on(event_type, handler)

    async def publish(self, number: int) -> None:
        self._bus.dispatch(self._types[number % len(self._types)](order=number, state="paid"))

    async def close(self) -> None:
        await self._bus.stop(clear=True)


class EventSource(Contender):
    """eventsource-py's `InMemoryEventBus`, publishing in the background and without tracing."""

    def __init__(self) -> None:
        eventsource = _module("eventsource", "eventsource-py")
        logging.getLogger("eventsource").setLevel(logging.ERROR)
        self._bus: Any = eventsource.InMemoryEventBus(enable_tracing=False)
        self._aggregate = uuid4()
        self._types = [_event_class(eventsource.DomainEvent, f"Bench{number}") for number in range(len(EVENT_TYPES))]

    async def open(self, handlers: Sequence[Handle]) -> None:
        for event_type in self._types:
            for handler in handlers:
                self._bus.subscribe(event_type, handler)

    async def publish(self, number: int) -> None:
        event_type = self._types[number % len(self._types)]
        event = event_type(aggregate_id=self._aggregate, order=number, state="paid")
        await self._bus.publish([event], background=True)

    async def close(self) -> None:
        await self._bus.shutdown()


RIVALS: Final[Mapping[str, Callable[[], Contender]]] = {
    "pyee": Pyee,
    "bubus": Bubus,
    "eventsource-py": EventSource,
}


def _event_class(base: Any, name: str) -> Any:
    annotations = {"event_type": str, "aggregate_type": str, "order": int, "state": str}
    defaults = {"event_type": name, "aggregate_type": "Bench"}
    return type(name, (base,), {"__annotations__": annotations, "__module__": __name__, **defaults})


def _module(name: str, distribution: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unusable(f"not installed here (pip install {distribution}): {error}") from error
