"""Callers: from where a close may be called, by whom it may be called off, and what becomes of it then."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lastbus import CloseError, Event
from lastbus.memory import InMemoryEventBus
from tests.adversary.stage import ALL, LIMIT, Bus, House, Loop, State, Task, outcome, run, turns

Close = Callable[[InMemoryEventBus], Coroutine[Any, Any, None]]


async def directly(bus: InMemoryEventBus) -> None:
    await bus.close()


async def in_a_task(bus: InMemoryEventBus) -> None:
    await asyncio.create_task(bus.close())


async def in_a_grandchild(bus: InMemoryEventBus) -> None:
    await asyncio.create_task(in_a_task(bus))


async def ensured(bus: InMemoryEventBus) -> None:
    await asyncio.ensure_future(bus.close())


async def shielded(bus: InMemoryEventBus) -> None:
    await asyncio.shield(bus.close())


async def gathered(bus: InMemoryEventBus) -> None:
    await asyncio.gather(bus.close())


async def waited_for(bus: InMemoryEventBus) -> None:
    await asyncio.wait_for(bus.close(), 1)


async def handled(bus: InMemoryEventBus, act: Callable[[Event], Any]) -> None:
    """Let `act` handle one event to its end."""
    await bus.register_handler("job", act)
    await bus.publish("job")
    while bus._pending_tasks:
        await asyncio.wait(set(bus._pending_tasks))


@pytest.mark.parametrize("close", [directly, in_a_task, in_a_grandchild, ensured, shielded, gathered, waited_for])
async def test_a_handler_that_waits_for_a_close_is_refused_and_the_bus_stays_open(close: Close) -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    kinds: list[str] = []

    async def handler(event: Event) -> None:
        try:
            await close(bus)
        except CloseError as error:
            kinds.append(error.kind)

    await handled(bus, handler)

    assert kinds == ["self-close"]
    assert (bus._closing, bus._teardown_runs) == (False, 0)
    await bus.close()


async def test_a_handler_may_have_the_bus_closed_by_a_task_that_it_does_not_wait_for() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    closings: list[asyncio.Task[None]] = []

    async def handler(event: Event) -> None:
        loop = asyncio.get_running_loop()
        closings.append(contextvars.Context().run(loop.create_task, bus.close()))

    await handled(bus, handler)
    await asyncio.wait(closings)

    assert closings[0].exception() is None
    assert bus._teardown_runs == 1


async def test_a_handler_of_one_bus_may_close_another() -> None:
    one, another = InMemoryEventBus(), InMemoryEventBus()

    async def handler(event: Event) -> None:
        await another.close()

    await handled(one, handler)

    assert (one._closing, another._teardown_runs) == (False, 1)
    await one.close()


async def test_a_close_that_is_called_between_two_handlers_returns() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    closings: list[asyncio.Task[None]] = []

    async def handler(event: Event) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, lambda: closings.append(asyncio.ensure_future(bus.close())))

    await handled(bus, handler)
    await turns()
    await asyncio.wait(closings)

    assert closings[0].exception() is None


def test_a_supervisor_that_cancels_everything_leaves_a_close_that_can_be_repeated() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.redis.may_end = bus.curtain  # type: ignore[attr-defined]
        callers = [Task(bus.close()), Task(bus.close())]
        await turns()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        outcomes = [await outcome(each) for each in callers]
        state = bus.state
        bus.curtain.set()
        return outcomes, state, await outcome(Task(bus.close())), bus.calls

    value, found = run(act)

    assert value == (["cancelled"] * 2, State(True, None, False, 1), "returned", [1, 2, 1, 1, 1])
    assert found.residue == []


@pytest.mark.parametrize("begins", [True, False], ids=["the-first-caller", "a-later-caller"])
def test_a_cancelled_caller_does_not_disturb_the_other(begins: bool) -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.dispatch()
        first, second = Task(bus.close()), Task(bus.close())
        await turns(2)
        (first if begins else second).cancel()
        return sorted([await outcome(first), await outcome(second)]), bus.state, bus.calls

    value, found = run(act)

    assert value == (["cancelled", "returned"], State(True, "OK", False, 1), ALL)
    assert found.residue == []
