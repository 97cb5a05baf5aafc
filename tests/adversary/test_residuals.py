"""Residuals: what the close does not promise. Each is asserted as bad as it is, so that any change is noticed.

Whoever can run code in the process can do these things; nothing hides them behind a time-out, because a time-out would
report a bus as closed, or as failed, that is still closing.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Any

import pytest

from lastbus import BusClosedError, CloseTimeout, Event
from lastbus._close.selfclose import IN_DISPATCH
from lastbus.memory import InMemoryEventBus
from lastbus.proof.watchdog import hangs
from lastbus.testing import Gate
from tests.adversary.stage import (
    ALL,
    LIMIT,
    NONE,
    TAMPERED,
    Bus,
    Future,
    House,
    Loop,
    Never,
    State,
    Task,
    clean,
    ended,
    factory,
    other,
    outcome,
    run,
    turns,
)


@pytest.mark.guarantee("RES-R1", "RES-TIMER")
def test_a_task_that_neither_runs_the_teardown_nor_ends_hangs_every_close() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        closings = [Task(bus.close()), Task(bus.close())]
        factory(loop, lambda coro: Task(bus.curtain.wait(), loop=loop))
        before = [await hangs(each) for each in closings], bus.state, list(bus.calls)
        bus.curtain.set()
        return before, [await outcome(each) for each in closings], bus.state

    value, found = run(act)

    assert value[0] == (["quiescent"] * 2, State(True, "PENDING", True, 0), NONE)
    assert value[1:] == (["teardown-never-entered"] * 2, State(True, None, False, 0))
    assert clean(found)


@pytest.mark.guarantee("RES-TIMER")
def test_a_callers_own_deadline_is_how_to_live_with_it() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.redis.may_end = bus.curtain  # type: ignore[attr-defined]
        bounded, unbounded = Task(bus.close(timeout=LIMIT)), Task(bus.close())
        named = await outcome(bounded)
        text, waits = str(bounded.exception()), await hangs(unbounded)
        bus.curtain.set()
        return named, isinstance(bounded.exception(), CloseTimeout), "redis" in text, waits, await outcome(unbounded)

    value, found = run(act)

    assert value == ("close-timeout", True, True, "quiescent", "returned")
    assert clean(found)


@pytest.mark.guarantee("RES-R2")
def test_a_teardown_that_somebody_else_drives_is_reported_as_failed_and_closes_all_the_same() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus._close_timeout = 30
        bus.dispatch(bus.curtain)
        closing = Task(bus.close())

        def make(coro: Any) -> Any:
            bus.kept.append(Task(coro, loop=loop))
            return Task(other(), loop=loop)

        factory(loop, make)
        first = await outcome(closing)
        then = list(bus.calls)
        loop.set_task_factory(None)
        again = Task(bus.close())
        bus.curtain.set()
        second = await outcome(again)
        await ended(bus.kept[0])
        return first, then, second, bus.calls, bus._teardown_runs

    value, found = run(act)

    assert value == ("teardown-never-entered", NONE, "returned", [1, 1, 2, 2, 2], 2)
    assert clean(found)


@pytest.mark.guarantee("CLOSE-92")
def test_a_teardown_driven_by_hand_has_no_end_to_wait_for_when_the_shared_future_was_cancelled() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus._close_timeout = 30
        bus.dispatch(bus.curtain)
        factory(loop, lambda coro: step_by_step(coro) or bus.finished)
        shared = bus.request_close()
        loop.set_task_factory(None)
        shared.cancel()
        first = await outcome(Task(bus.close()))
        then = list(bus.calls)
        bus.curtain.set()
        await turns(20)
        return first, then, bus.calls, await outcome(Task(bus.close())), bus._teardown_runs

    value, found = run(act)

    assert value == ("teardown-incomplete", NONE, ALL, "returned", 1)
    assert clean(found)


def step_by_step(coro: Any) -> None:
    """Drive a coroutine without a task: one step now, and one whenever what it waits for is done."""

    def step(_: object = None) -> None:
        try:
            awaited = coro.send(None)
        except StopIteration:
            return
        awaited._asyncio_future_blocking = False
        awaited.add_done_callback(step)

    step()


@pytest.mark.guarantee("RES-R3")
def test_a_refused_task_that_cannot_be_cancelled_is_refused_all_the_same() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        gone = asyncio.new_event_loop()

        def make(coro: Any) -> Any:
            task = Task(coro, loop=gone)
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            bus.kept.append(task)
            gone.close()
            return task

        closing = Task(bus.close())
        factory(loop, make)
        return await outcome(closing), bus.state, Task.done(bus.kept[0])

    value, found = run(act)

    assert value == ("teardown-spawn-failed from teardown-foreign-loop", State(False, None, False, 0), False)
    assert clean(found)


@pytest.mark.guarantee("RES-R4")
@pytest.mark.parametrize("place", range(5))
def test_a_component_that_never_returns_hangs_every_close(place: int) -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        slot = bus._SLOTS[place]
        getattr(bus, slot).may_end = bus.curtain
        closings = [Task(bus.close()), Task(bus.close())]
        before = [await hangs(each) for each in closings], bus.state, list(bus.calls), bus._teardown_error_kind
        bus.curtain.set()
        return before, [await outcome(each) for each in closings], bus.calls

    value, found = run(act)

    assert value[0] == (["quiescent"] * 2, State(True, "PENDING", True, 1), [1] * (place + 1) + [0] * (4 - place), None)
    assert value[1:] == (["returned"] * 2, ALL)
    assert clean(found)


@pytest.mark.guarantee("RES-R12a'")
def test_a_replaced_spawn_is_honoured_and_may_hang() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus, asked = Bus(), []
        bus._spawn_teardown = lambda loop, future: asked.append(future) or object()  # type: ignore
        closing = Task(bus.close())
        verdict = await hangs(closing), bus.calls, len(asked)
        asked[0].set_result(None)
        return verdict, await outcome(closing)

    assert run(act)[0] == (("quiescent", NONE, 1), "returned")


@pytest.mark.guarantee("RES-R13a")
def test_whoever_takes_the_watchdog_off_the_task_makes_the_close_hang() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()

        def make(coro: Any) -> Any:
            task = Task(other(), loop=loop)
            bus.kept.append(coro)
            loop.call_soon(lambda: [task.remove_done_callback(each) for each, _ in task._callbacks or ()])
            return task

        closing = Task(bus.close())
        factory(loop, make)
        verdict = await hangs(closing), bus.state, bus.calls
        bus.kept[0].close()
        bus._close_future.set_result(None)  # type: ignore[union-attr]
        return verdict, await outcome(closing)

    assert run(act)[0] == (("quiescent", State(True, "PENDING", True, 0), NONE), "returned")


@pytest.mark.guarantee("RES-R13a")
def test_whoever_rewrites_the_watchdogs_memory_makes_the_close_hang() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()

        def make(coro: Any) -> Any:
            task = Task(other(), loop=loop)

            def rewrite() -> None:
                judge = task._callbacks[0][0]  # type: ignore[attr-defined]
                place = judge.__code__.co_freevars.index("future")
                judge.__closure__[place].cell_contents = loop.create_future()

            loop.call_soon(rewrite)
            return task

        closing = Task(bus.close())
        factory(loop, make)
        verdict = await hangs(closing), bus.calls
        Future.set_result(bus._close_future, None)
        return verdict, await ended(closing)

    value, _ = run(act)

    assert value[0] == ("quiescent", NONE)


@pytest.mark.guarantee("RES-R13a")
def test_whoever_rewrites_the_fields_of_the_bus_changes_no_verdict() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()

        def rewrite() -> None:
            bus._close_future = loop.create_future()
            bus._teardown_runs = 7
            bus._teardown_task = bus._teardown_entry_task = None  # type: ignore[attr-defined]

        def make(coro: Any) -> Any:
            loop.call_soon(rewrite)
            return Task(other(), loop=loop)

        closing = Task(bus.close())
        factory(loop, make)
        return await outcome(closing), await outcome(Task(bus.close())), bus.calls

    value, found = run(act)

    assert value == ("teardown-never-entered", "teardown-never-entered", NONE)
    assert clean(found)


@pytest.mark.guarantee("RES-R15a")
def test_a_loop_that_breaks_the_wait_of_the_drain_makes_the_close_hang() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.dispatch()
        await asyncio.sleep(0)
        closing = Task(bus.close())
        loop.create_future = lambda: bus.touched.append("asked") or Never()  # type: ignore
        verdict = await hangs(closing), bus.state, list(bus.calls)
        del loop.create_future
        Task.cancel(bus._teardown_task)  # type: ignore[arg-type]
        await turns()
        return verdict, bus.touched

    value, found = run(act)

    assert value == (("quiescent", State(True, "PENDING", True, 1), NONE), ["asked"])
    assert "AttributeError in the loop" in found.residue


@pytest.mark.guarantee("RES-R15a")
def test_a_loop_whose_timer_never_fires_takes_the_bound_off_the_drain() -> None:
    class Silent:
        def cancel(self) -> None:
            pass

    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        stuck = Task(bus.curtain.wait())
        bus._pending_tasks[stuck] = ("event", "handler")
        await asyncio.sleep(0)
        closing = Task(bus.close())
        loop.call_later = lambda *_, **__: Silent()  # type: ignore
        verdict = await hangs(closing), bus.state, list(bus.calls)
        del loop.call_later
        bus.curtain.set()
        return verdict, await outcome(closing), bus.calls

    value, found = run(act)

    assert value == (("quiescent", State(True, "PENDING", True, 1), NONE), "returned", ALL)
    assert clean(found)


@pytest.mark.guarantee("RES-R15b")
def test_a_loop_that_breaks_making_a_future_breaks_the_caller_and_not_the_close() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()

        def once() -> bool:
            del loop.get_debug
            raise RuntimeError("boom")

        def make(coro: Any) -> Any:
            task = Task(coro, loop=loop)
            loop.get_debug = once  # type: ignore[method-assign]
            return task

        closing = Task(bus.close())
        factory(loop, make)
        first = await outcome(closing)
        loop.set_task_factory(None)
        return first, await outcome(Task(bus.close())), bus.calls

    value, found = run(act)

    assert value == ("RuntimeError", "returned", ALL)
    assert clean(found)


@pytest.mark.guarantee("RES-R15b")
def test_a_loop_that_loses_the_news_of_the_settlement_makes_the_waiting_caller_hang() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        schedule = loop.call_soon

        def make(coro: Any) -> Any:
            future = bus._close_future

            def losing(callback: Any, *args: Any, **kwargs: Any) -> Any:
                return None if future in args else schedule(callback, *args, **kwargs)

            loop.call_soon = losing  # type: ignore[method-assign]
            return Task(coro, loop=loop)

        closing = Task(bus.close())
        factory(loop, make)
        verdict = await hangs(closing), bus.calls
        loop.set_task_factory(None)
        del loop.call_soon
        second = await outcome(Task(bus.close()))
        closing.cancel()
        return verdict, second, await outcome(closing)

    value, found = run(act)

    assert value == (("quiescent", ALL), "returned", "cancelled")
    assert clean(found)


@pytest.mark.guarantee("RES-R15c")
@pytest.mark.parametrize("when", ["at-once", "late"])
def test_a_replayed_credential_is_replaced_at_once_and_believed_later(when: str) -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.redis.may_end = bus.curtain  # type: ignore[attr-defined]
        closing = Task(bus.close())
        await hangs(closing)
        old = bus._close_future
        Task.cancel(bus._teardown_task)  # type: ignore[arg-type]
        first = await outcome(closing)
        bus.curtain.set()

        def make(coro: Any) -> Any:
            if when == "at-once":
                bus._close_future = old
            else:
                loop.call_soon(lambda: setattr(bus, "_close_future", old))
            return Task(coro, loop=loop)

        again = Task(bus.close())
        factory(loop, make)
        second = await outcome(again)
        loop.set_task_factory(None)
        third = await outcome(Task(bus.close()))
        return first, second, third, bus.calls

    value, found = run(act)

    broken = "teardown-incomplete from CancelledError"
    assert (
        value
        == {
            "at-once": (broken, "returned", "returned", [1, 2, 1, 1, 1]),
            "late": (broken, "teardown-never-entered", broken, [1, 2, 1, 1, 1]),
        }[when]
    )
    assert clean(found)


@pytest.mark.guarantee("RES-R13c")
def test_a_signal_of_tampering_can_be_suppressed_by_who_tampers() -> None:
    async def act(loop: Loop, found: House) -> Any:
        outcomes = []
        for forged in (0, 1):
            bus = Bus()

            def make(coro: Any, bus: Bus = bus, forged: int = forged) -> Any:
                bus._close_future.set_result(None)  # type: ignore[union-attr]
                bus._teardown_runs += forged
                bus.kept.append(Task(other(), loop=loop))
                return bus.kept[0]

            loop.set_task_factory(None)
            closing = Task(bus.close())
            factory(loop, make)
            outcomes.append((await outcome(closing), await ended(bus.kept[0]), bus._teardown_error_kind))
        return outcomes

    value, found = run(act)

    assert value == [("returned", True, TAMPERED), ("returned", True, None)]
    assert sum(TAMPERED in each for each in found.signals) == 1


# -- where the contract ends ----------------------------------------------------------------------------------------


@pytest.mark.guarantee("RES-T2.4")
async def test_an_idle_bus_may_be_closed_by_whoever_a_handler_has_left_behind() -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    gate = asyncio.Event()
    left: list[asyncio.Task[None]] = []

    async def close_later() -> None:
        await gate.wait()
        assert IN_DISPATCH.get() is bus
        await bus.close()

    async def handler(event: Event) -> None:
        left.append(asyncio.ensure_future(close_later()))

    await bus.register_handler("job", handler)
    await bus.publish("job")
    for task in list(bus._pending_tasks):
        await asyncio.wait({task})
    gate.set()
    await asyncio.wait(left)

    assert left[0].exception() is None
    assert bus._teardown_runs == 1


@pytest.mark.guarantee("RES-T2.3")
def test_an_idle_bus_is_closed_from_another_thread_without_a_question() -> None:
    bus = InMemoryEventBus()
    outcomes: list[Any] = []

    async def publish() -> None:
        await bus.publish("job")
        thread = threading.Thread(target=lambda: outcomes.append(asyncio.run(bus.close())))
        thread.start()
        await asyncio.to_thread(thread.join)

    asyncio.run(publish())

    assert outcomes == [None]


@pytest.mark.guarantee("RES-T2.6")
def test_a_close_installs_no_signal_handler() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    seen: list[Any] = []

    async def act() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler = lambda *args: seen.append(args)  # type: ignore
        async with InMemoryEventBus() as bus:
            await bus.publish("job")
        seen.extend(number for number, held in before.items() if signal.getsignal(number) is not held)

    async def main() -> None:
        await act()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()

    assert seen == []


@pytest.mark.guarantee("RES-MEM")
async def test_the_memory_bus_closes_like_every_other(gate: Gate) -> None:
    bus = InMemoryEventBus(close_timeout=LIMIT)
    await bus.register_handler("job", gate.hold)
    await bus.publish("job")
    await gate.has_entered()

    await bus.close()

    assert (bus._teardown_runs, len(bus._pending_tasks)) == (1, 1)
    with pytest.raises(BusClosedError):
        await bus.publish("job")
    gate.open()
    await gate.has_left()
