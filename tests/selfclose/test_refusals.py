"""Refusals: each by a name of its own, before any effect, and only while there is something to refuse for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lastbus import CloseError, Event
from lastbus._close import selfclose
from lastbus._kit.shapes.held import Gate as Stranger
from lastbus.memory import InMemoryEventBus
from lastbus.testing import Gate, Recorder
from tests.adversary.stage import LIMIT, turns
from tests.selfclose.chains import chain
from tests.selfclose.scene import at_work, handled, how_it_ends

FEW = 100
"""How many may be woken where that is tried."""
Close = Callable[[InMemoryEventBus], Coroutine[Any, Any, None]]


async def as_a_descendant(bus: InMemoryEventBus) -> None:
    token = selfclose.IN_DISPATCH.set(bus)
    try:
        await bus.close()
    finally:
        selfclose.IN_DISPATCH.reset(token)


async def with_a_stranger(bus: InMemoryEventBus) -> None:
    closing = asyncio.ensure_future(bus.close())
    closing.add_done_callback(Stranger(asyncio.Future()).open)
    await closing


async def with_too_many_to_wake(bus: InMemoryEventBus) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(selfclose, "MAX_NODES", FEW)
        closing = asyncio.ensure_future(bus.close())
        chain(closing, FEW)
        await closing


async def without_a_book(bus: InMemoryEventBus) -> None:
    kept = list(selfclose._ANSWER)
    selfclose._ANSWER[:] = ["Queue._getters"]
    try:
        await bus.close()
    finally:
        selfclose._ANSWER[:] = kept


async def from_another_loop(bus: InMemoryEventBus) -> None:
    errors: list[CloseError] = []

    def close() -> None:
        try:
            asyncio.run(bus.close())
        except CloseError as error:
            errors.append(error)

    thread = threading.Thread(target=close)
    thread.start()
    await asyncio.to_thread(thread.join)
    raise errors[0]


REFUSALS = {
    "self-close": as_a_descendant,
    "wake-graph-incomplete": with_a_stranger,
    "self-close-budget": with_too_many_to_wake,
    "unsupported-runtime": without_a_book,
    "cross-loop-close": from_another_loop,
}


@pytest.mark.guarantee("SELF-10", "SELF-12", "SELF-21", "SELF-25", "RES-T2.2")
@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_refusal_has_a_name_and_no_effect(kind: str, gate: Gate, recorder: Recorder) -> None:
    async with at_work(gate) as bus:
        await bus.register_handler("news", recorder)
        listener = asyncio.ensure_future(asyncio.Event().wait())
        bus._listeners.append(listener)

        assert await how_it_ends(REFUSALS[kind](bus)) == kind
        state = bus._closing, bus._close_future, bus._teardown_task, bus._teardown_runs
        await bus.publish("news")
        await turns()

        assert state == (False, None, None, 0)
        assert not listener.done()
        assert len(recorder.events) == 1


@pytest.mark.guarantee("SELF-12")
async def test_each_refusal_says_what_was_found_and_the_way_out(gate: Gate) -> None:
    texts: dict[str, str] = {}
    async with at_work(gate) as bus:
        for kind in list(REFUSALS)[:4]:
            with pytest.raises(CloseError) as refused:
                await REFUSALS[kind](bus)
            texts[kind] = str(refused.value)

    assert len(set(texts.values())) == 4
    assert all(f"error_kind={kind}: " in text and "request_close()" in text for kind, text in texts.items())
    assert "handler" in texts["self-close"]
    assert "a Gate holds a waiting" in texts["wake-graph-incomplete"]
    assert f" {FEW} " in texts["self-close-budget"]
    assert "Queue._getters" in texts["unsupported-runtime"]


@pytest.mark.guarantee("SELF-12")
async def test_who_knows_better_may_wait_for_the_request_behind_a_shield(gate: Gate) -> None:
    async with at_work(gate) as bus:

        async def close() -> None:
            await asyncio.shield(bus.request_close())

        closing = asyncio.ensure_future(close())
        closing.add_done_callback(Stranger(asyncio.Future()).open)

        assert await how_it_ends(closing) == "returned"
        assert bus._teardown_runs == 1


@pytest.mark.guarantee("SELF-02")
async def test_a_descendant_may_close_when_nothing_is_in_flight() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)

    assert await how_it_ends(as_a_descendant(bus)) == "returned"


@pytest.mark.guarantee("SELF-25")
async def test_a_runtime_that_lacks_something_may_close_an_idle_bus() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)

    assert await how_it_ends(without_a_book(bus)) == "returned"


@pytest.mark.guarantee("SELF-31")
async def test_a_callback_that_a_handler_has_left_behind_may_close() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    closings: list[asyncio.Future[str]] = []

    async def handler(event: Event) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, lambda: closings.append(asyncio.ensure_future(how_it_ends(bus.close()))))

    await handled(bus, handler)
    await turns()

    assert [await each for each in closings] == ["returned"]


@pytest.mark.guarantee("SELF-31")
async def test_a_task_that_a_handler_has_left_behind_may_close() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    left: list[asyncio.Future[str]] = []
    ended = asyncio.Event()

    async def later() -> str:
        await ended.wait()
        return await how_it_ends(bus.close())

    async def handler(event: Event) -> None:
        left.append(asyncio.ensure_future(later()))

    await handled(bus, handler)
    ended.set()

    assert [await each for each in left] == ["returned"]


@pytest.mark.guarantee("SELF-31")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup is of 3.11")
async def test_a_task_group_whose_only_task_closes_an_idle_bus_is_not_refused() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)

    async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]
        closing = group.create_task(how_it_ends(bus.close()))

    assert closing.result() == "returned"


@pytest.mark.guarantee("SELF-34")
async def test_a_handler_is_refused_also_after_somebody_else_has_begun_the_close(gate: Gate) -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    ends = await a_handler_that_closes_when_let_go(bus, gate)
    closing = asyncio.ensure_future(how_it_ends(bus.close()))
    await turns()
    begun = bus._close_future
    gate.open()

    assert await closing == "returned"
    assert (ends, bus._teardown_runs) == (["self-close"], 1)
    assert bus._close_future is begun


@pytest.mark.guarantee("SELF-34")
async def test_a_late_handler_may_close_once_the_close_has_its_outcome(gate: Gate) -> None:
    bus = InMemoryEventBus(close_timeout=0)
    ends = await a_handler_that_closes_when_let_go(bus, gate)
    over = await how_it_ends(bus.close())
    gate.open()
    await gate.has_left()
    await turns()

    assert [over, *ends] == ["returned", "returned"]
    assert bus._teardown_runs == 1


async def a_handler_that_closes_when_let_go(bus: InMemoryEventBus, gate: Gate) -> list[str]:
    """A handler is held by `gate`, and closes `bus` after it; the list will say how that ended."""
    ends: list[str] = []

    async def handler(event: Event) -> None:
        await gate.hold(event)
        ends.append(await how_it_ends(bus.close()))

    await bus.register_handler("job", handler)
    await bus.publish("job")
    await gate.has_entered()
    return ends


@pytest.mark.guarantee("SELF-35")
async def test_another_thread_may_close_an_idle_bus() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    await bus.publish("job")

    ended = await asyncio.get_running_loop().run_in_executor(None, lambda: asyncio.run(how_it_ends(bus.close())))

    assert (ended, bus._teardown_runs) == ("returned", 1)


PROGRAM = """
import asyncio
from lastbus import CloseError
from lastbus.memory import InMemoryEventBus

async def main():
    bus = InMemoryEventBus()
    refused = asyncio.Queue()

    async def handler(event):
        try:
            await asyncio.shield(bus.close())
        except CloseError as error:
            refused.put_nowait(error.kind)

    await bus.register_handler("job", handler)
    for _ in range(2):
        await bus.publish("job")
        print(await refused.get())
    await bus.close()

asyncio.run(main())
"""


@pytest.mark.guarantee("SELF-11")
def test_a_program_in_which_a_handler_was_refused_ends_as_if_it_had_not_called() -> None:
    ran = subprocess.run([sys.executable, "-X", "dev", "-c", PROGRAM], capture_output=True, text=True, timeout=50)

    assert (ran.returncode, ran.stdout.split(), ran.stderr) == (0, ["self-close"] * 2, "")
