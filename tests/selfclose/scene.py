"""The scene: a handler that waits for a close of its own bus, and everything that came of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from lastbus import CloseError, Event
from lastbus._close import completion
from lastbus._kit.shapes.play import closes_soon
from lastbus._kit.shapes.shape import Shape, Wait
from lastbus.memory import InMemoryEventBus
from lastbus.testing import Gate
from tests.adversary.stage import LIMIT, House, Loop, run

REFUSED = {"in-graph": "self-close", "incomplete": "wake-graph-incomplete", "clean": "returned"}
"""How a close ends after each word of the guard."""


def slug(shape: Shape) -> str:
    """The name of a shape as the id of a test."""
    return re.sub(r"[^a-z0-9]+", "-", shape.name.lower()).strip("-")


Handler = Callable[[Event], Coroutine[Any, Any, None]]


class Ending(NamedTuple):
    """How the close and the handler ended, whether the bus is closing, its teardowns, and what fell on the floor."""

    close: str
    handler: str
    is_closing: bool
    teardowns: int
    residue: tuple[str, ...] = ()


def refused_as(kind: str) -> Ending:
    """The call was refused and nothing has happened."""
    return Ending(kind, "ended", False, 0)


BOUNDED = Ending("returned", "ended", True, 1)
"""The close was not refused, and both it and the handler came to their end."""


async def how_it_ends(call: Awaitable[Any]) -> str:
    """ "returned", the kind of a close error, or the name of another error."""
    try:
        await call
    except CloseError as error:
        return error.kind
    except BaseException as error:  # Also cancellation and recursion are ends of a handler.
        return type(error).__name__
    return "returned"


async def handled(bus: InMemoryEventBus, act: Handler, times: int = 1) -> None:
    """Let `act` handle `times` events to their end."""
    await bus.register_handler("job", act)
    for _ in range(times):
        await bus.publish("job")
    while bus._pending_tasks:
        await asyncio.wait(set(bus._pending_tasks))


@asynccontextmanager
async def at_work(gate: Gate) -> AsyncIterator[InMemoryEventBus]:
    """A bus with a handler that is held by `gate` inside the block; it is closed at the end."""
    bus = InMemoryEventBus(close_timeout=LIMIT)
    await bus.register_handler("job", gate.hold)
    await bus.publish("job")
    await gate.has_entered()
    yield bus
    gate.open()
    await gate.has_left()
    await bus.close()


def play_handler(act: Callable[[InMemoryEventBus], Coroutine[Any, Any, str]]) -> Ending:
    """Let a handler do `act`, which says how its call of close() ended, and close the bus afterwards."""

    async def scene(loop: Loop, found: House) -> Ending:
        bus = InMemoryEventBus(close_timeout=LIMIT)
        closes: list[str] = []
        ends: list[str] = []

        async def handler(event: Event) -> None:
            async def body() -> None:
                closes.append(await act(bus))

            ends.append((await how_it_ends(body())).replace("returned", "ended"))

        await handled(bus, handler)
        ending = Ending(*(closes or ["never"]), *ends, bus._closing, bus._teardown_runs)
        await bus.close()
        assert bus._teardown_runs == 1
        return ending

    ending, found = run(scene)
    return ending._replace(residue=tuple(found.residue))


def play_wait(wait: Wait) -> Ending:
    """Let a handler wait in this way for a task of no lineage that closes the bus."""

    async def act(bus: InMemoryEventBus) -> str:
        closing = closes_soon(lambda: how_it_ends(bus.close()))
        await wait(closing)
        return str(await closing)

    return play_handler(act)


def switch_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the guard is asked, nobody is refused."""
    monkeypatch.setattr(completion, "refusal", lambda inside, in_flight: None)
