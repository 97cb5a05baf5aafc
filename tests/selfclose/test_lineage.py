"""Lineage: who descends from a handler is told by the context, and by nothing else."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from lastbus import CloseError, Event
from lastbus._close.selfclose import IN_DISPATCH, descends_from
from lastbus.memory import InMemoryEventBus
from lastbus.testing import Gate
from tests.adversary.stage import LIMIT, NONE, Bus, House, Loop, State, Task, outcome, run, turns
from tests.selfclose.scene import BOUNDED, at_work, handled, how_it_ends, play_handler, refused_as, switch_off

Start = Callable[[InMemoryEventBus], "asyncio.Future[Any]"]


def a_task(bus: InMemoryEventBus) -> asyncio.Future[Any]:
    return asyncio.create_task(bus.close())


def a_grandchild(bus: InMemoryEventBus) -> asyncio.Future[Any]:
    async def child() -> None:
        await asyncio.create_task(bus.close())

    return asyncio.create_task(child())


def ensured(bus: InMemoryEventBus) -> asyncio.Future[Any]:
    return asyncio.ensure_future(bus.close())


def shielded(bus: InMemoryEventBus) -> asyncio.Future[Any]:
    return asyncio.shield(bus.close())


def gathered(bus: InMemoryEventBus) -> asyncio.Future[Any]:
    return asyncio.gather(bus.close())


def grouped(bus: InMemoryEventBus) -> asyncio.Future[Any]:
    async def close_in_a_group() -> None:
        group: Any
        async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]
            closing = group.create_task(how_it_ends(bus.close()))
        if closing.result() != "returned":
            raise CloseError(closing.result())

    return asyncio.create_task(close_in_a_group())


HAS_GROUPS = pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup is of 3.11")
STARTS = [a_task, a_grandchild, ensured, shielded, gathered, pytest.param(grouped, marks=HAS_GROUPS)]


async def directly(bus: InMemoryEventBus, start: Start) -> None:
    await bus.close()


async def awaited(bus: InMemoryEventBus, start: Start) -> None:
    await start(bus)


async def unseen(bus: InMemoryEventBus, start: Start) -> None:
    """Wait in a way that leaves no trace for a walk to find."""
    closing = start(bus)
    while not closing.done():
        await asyncio.sleep(0)
    closing.result()


@pytest.mark.guarantee("SELF-03", "SELF-30")
def test_a_handler_is_refused() -> None:
    assert play_handler(lambda bus: how_it_ends(bus.close())) == refused_as("self-close")


@pytest.mark.guarantee("SELF-04", "SELF-08", "SELF-30")
@pytest.mark.parametrize("wait", [awaited, unseen])
@pytest.mark.parametrize("start", STARTS)
def test_whatever_a_handler_starts_is_refused_however_it_waits_for_it(start: Start, wait: Any) -> None:
    assert play_handler(lambda bus: how_it_ends(wait(bus, start))) == refused_as("self-close")


@pytest.mark.guarantee("SELF-01", "SELF-30")
@pytest.mark.parametrize("wait", [directly, awaited, unseen])
@pytest.mark.parametrize("start", STARTS)
def test_without_the_guard_it_is_bounded(start: Start, wait: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    switch_off(monkeypatch)

    assert play_handler(lambda bus: how_it_ends(wait(bus, start))) == BOUNDED


@pytest.mark.guarantee("SELF-03")
def test_the_task_of_a_handler_is_told_by_its_identity_even_where_its_context_says_nothing() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        handler = Task(bus.close())
        bus._pending_tasks[handler] = ("event", "handler")
        return await outcome(handler), bus.state, bus.calls

    value, found = run(act)

    assert value == ("self-close", State(False, None, False, 0), NONE)
    assert found.residue == []


@pytest.mark.guarantee("SELF-05")
async def test_a_handler_of_one_bus_may_close_another_that_is_at_work(gate: Gate) -> None:
    one = InMemoryEventBus(close_timeout=LIMIT)
    ends: list[str] = []
    async with at_work(gate) as another:

        async def handler(event: Event) -> None:
            ends.append(await how_it_ends(another.close()))

        await handled(one, handler)

        assert (ends, another._teardown_runs, one._closing) == (["returned"], 1, False)
    await one.close()


@pytest.mark.guarantee("SELF-05", "SELF-18")
async def test_a_handler_of_a_bus_that_is_closing_may_close_another_that_is_at_work(gate: Gate) -> None:
    one = InMemoryEventBus(close_timeout=30)
    ends: list[str] = []
    async with at_work(gate) as another:

        async def handler(event: Event) -> None:
            one.request_close()
            await turns(2)
            ends.append(await how_it_ends(another.close()))

        await handled(one, handler)

        assert ends == ["returned"]
    await one.close()


@pytest.mark.guarantee("SELF-06")
async def test_who_delivers_does_not_become_a_descendant_of_its_handlers(gate: Gate) -> None:
    async with at_work(gate) as bus:
        assert not descends_from(bus)
        assert await how_it_ends(bus.close()) == "returned"


@pytest.mark.guarantee("SELF-07", "SELF-30")
async def test_a_task_in_a_fresh_context_that_nobody_waits_for_may_close() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    closings: list[asyncio.Task[None]] = []

    async def handler(event: Event) -> None:
        loop = asyncio.get_running_loop()
        closings.append(contextvars.Context().run(loop.create_task, bus.close()))

    await handled(bus, handler)
    await asyncio.wait(closings)

    assert closings[0].exception() is None
    assert bus._teardown_runs == 1


@pytest.mark.guarantee("SELF-07")
async def test_a_call_in_a_thread_of_an_executor_descends_from_no_handler() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    told: list[tuple[object, str]] = []

    async def handler(event: Event) -> None:
        def call() -> tuple[object, str]:
            return IN_DISPATCH.get(), asyncio.run(how_it_ends(bus.close()))

        told.append(await asyncio.get_running_loop().run_in_executor(None, call))

    await handled(bus, handler)

    assert told == [(None, "cross-loop-close")]
    await bus.close()


@pytest.mark.guarantee("SELF-30")
async def test_a_close_that_takes_the_way_through_a_thread_and_back_is_bounded() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    ends: list[str] = []

    async def handler(event: Event) -> None:
        loop = asyncio.get_running_loop()

        def call() -> Any:
            return asyncio.run_coroutine_threadsafe(how_it_ends(bus.close()), loop)

        across = await loop.run_in_executor(None, call)
        ends.append(await asyncio.wrap_future(across))

    await handled(bus, handler)

    assert (ends, bus._teardown_runs) == (["returned"], 1)


@pytest.mark.guarantee("SELF-09")
@pytest.mark.parametrize("catches", [False, True], ids=["lets-it-escape", "catches-it"])
async def test_a_refusal_leaves_no_line_in_the_log_but_that_of_a_failed_handler(
    catches: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bus = InMemoryEventBus()
    caplog.set_level(logging.DEBUG, "lastbus")

    async def handler(event: Event) -> None:
        call = asyncio.shield(bus.close())
        await (how_it_ends(call) if catches else call)

    await handled(bus, handler)

    assert [record.levelname for record in caplog.records] == ([] if catches else ["ERROR"])
    await bus.close()
