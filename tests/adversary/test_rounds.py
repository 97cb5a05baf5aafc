"""Rounds: what one round of a close does to those who wait on it, to the next one, and to the process it leaves."""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import sys
import weakref
from collections.abc import Sized
from pathlib import Path
from typing import Any

import pytest

import lastbus._close
from lastbus import CloseError
from lastbus._close import adoption, watchdog
from lastbus._close.state import ACCEPTED, is_task
from lastbus.proof.watchdog import hangs
from tests.adversary.stage import (
    ALL,
    NONE,
    TAMPERED,
    TWICE,
    Bus,
    Coro,
    Future,
    House,
    LiesToBe,
    Loop,
    State,
    Task,
    by_hand,
    clean,
    ended,
    factory,
    house,
    kind_of,
    other,
    outcome,
    run,
    turns,
)
from tests.adversary.test_decoys import DECOYS, Unhashable
from tests.adversary.test_factories import Awaitable, Proxy, makes_then_raises, runs_it_then_returns_nothing, wrapped
from tests.adversary.test_tasks import aliased

HOME = Path(lastbus._close.__file__).parent


# -- a task that does not run the teardown --------------------------------------------------------------------------


@pytest.mark.guarantee("CLOSE-45")
def test_a_task_that_has_ended_is_judged_before_the_request_returns() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus, finished = Bus(), Task(other())
        await ended(finished)
        factory(loop, lambda coro: finished)
        future = bus.request_close()
        return future.done(), bus.state, type(future.exception()).__name__

    assert run(act)[0] == (True, State(True, None, False, 0), "CloseError")


@pytest.mark.guarantee("CLOSE-46")
def test_the_verdict_comes_when_the_task_ends_and_not_before() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        closing = Task(bus.close())
        factory(loop, lambda coro: Task(bus.curtain.wait(), loop=loop))
        before = await hangs(closing)
        bus.curtain.set()
        return before, await outcome(closing), bus.calls

    assert run(act)[0] == ("quiescent", "teardown-never-entered", NONE)


@pytest.mark.guarantee("CLOSE-53")
def test_a_teardown_that_nobody_started_is_closed() -> None:
    kept: list[Any] = []

    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        factory(loop, lambda coro: (kept.append(coro), Task(other(), loop=loop))[1])
        return await outcome(Task(bus.close()))

    verdict, found = run(act)

    assert verdict == "teardown-never-entered"
    assert inspect.getcoroutinestate(kept[0]) == inspect.CORO_CLOSED
    assert clean(found)


@pytest.mark.guarantee("CLOSE-50")
def test_the_task_carries_nothing_of_the_round() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus, seen = Bus(), []
        factory(loop, lambda coro: (seen.append(Task(coro, loop=loop)), seen[0])[1])
        future = bus.request_close()
        plain = Task(other())
        return set(dir(seen[0])) - set(dir(plain)), await ended(future)

    assert run(act)[0] == (set(), True)


@pytest.mark.guarantee("CLOSE-52")
def test_nothing_in_the_process_knows_a_round_that_is_over() -> None:
    def holders() -> dict[str, int]:
        names = [name for name in sys.modules if name.startswith("lastbus._close")]
        found = {f"{name}.{key}": value for name in names for key, value in vars(sys.modules[name]).items()}
        values = {name: value for name, value in found.items() if name[-1] != "_" and not isinstance(value, type)}
        return {name: len(value) for name, value in values.items() if isinstance(value, Sized)}

    async def act(loop: Loop, found: House) -> Any:
        for number in range(50):
            bus = Bus()
            loop.set_task_factory(None)
            closing = Task(bus.close())
            if number % 2:
                factory(loop, lambda coro: Task(other(), loop=loop))
            await ended(closing)
            closing.exception()

    gc.collect()
    before = holders()
    _, found = run(act)

    assert holders() == before
    assert clean(found)


# -- adoption -------------------------------------------------------------------------------------------------------


def test_a_loop_that_is_closed_makes_no_task_and_nothing_has_begun() -> None:
    async def make() -> Bus:
        return Bus()

    with house() as found:
        loop = asyncio.new_event_loop()
        bus = loop.run_until_complete(make())
        loop.close()
        asyncio.events._set_running_loop(loop)
        try:
            with pytest.raises(CloseError, match="teardown-spawn-failed") as caught:
                bus.request_close()
        finally:
            asyncio.events._set_running_loop(None)

    assert "closed" in str(caught.value.__cause__)
    assert (bus.state, bus.calls, found.residue) == (State(False, None, False, 0), NONE, [])


def test_a_factory_is_called_with_a_loop_and_a_coroutine() -> None:
    """One that knows no keyword makes the teardown's task too, and the task runs in the bus's context all the same."""

    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        closing = Task(bus.close())
        loop.set_task_factory(lambda loop, coro: Task(coro, loop=loop))
        return await outcome(closing), bus.state, bus.calls

    assert run(act)[0] == ("returned", State(True, "OK", False, 1), ALL)


@pytest.mark.guarantee("CLOSE-60")
def test_a_task_of_uvloop_carries_a_close() -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed: its tasks are asyncio's own")
    loop = uvloop.new_event_loop()

    async def act() -> Any:
        bus = Bus()
        await bus.close()
        return bus.state, bus.calls

    try:
        assert loop.run_until_complete(act()) == (State(True, "OK", False, 1), ALL)
    finally:
        loop.close()


MAKERS = {
    "plain": lambda bus, loop, coro: Task(coro, loop=loop),
    "wrapped": wrapped,
    "raises-late": makes_then_raises,
    "proxy": lambda bus, loop, coro: Proxy(Task(coro, loop=loop)),
    "awaitable": lambda bus, loop, coro: Awaitable(),
    "coroutine": lambda bus, loop, coro: coro,
    "nothing": lambda bus, loop, coro: None,
}


@pytest.mark.guarantee("CLOSE-41")
@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_spawned_is_a_true_task(maker: str) -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus._closing, bus._close_future = True, Future()
        factory(loop, lambda coro: MAKERS[maker](bus, loop, coro))
        spawned = bus._spawn_teardown(loop, bus._close_future)
        return is_task(spawned), await ended(bus._close_future), bus.calls

    assert run(act)[0] == (True, True, ALL)


@pytest.mark.guarantee("CLOSE-41")
def test_a_teardown_that_ran_in_the_factory_has_no_task() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus._closing, bus._close_future = True, Future()
        factory(loop, lambda coro: runs_it_then_returns_nothing(bus, loop, coro))
        return bus._spawn_teardown(loop, bus._close_future), bus._close_future.done(), bus.calls

    assert run(act)[0] == (None, True, ALL)


@pytest.mark.guarantee("CLOSE-40")
def test_a_teardown_runs_where_it_was_asked_for_whatever_loop_the_factory_pretends() -> None:
    elsewhere = asyncio.new_event_loop()

    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        factory(loop, lambda coro: asyncio.events._set_running_loop(elsewhere))
        try:
            future = bus.request_close()
        finally:
            asyncio.events._set_running_loop(loop)
        return await ended(future), bus.calls

    value, found = run(act)
    elsewhere.close()

    assert value == (True, ALL)
    assert clean(found)


@pytest.mark.guarantee("CLOSE-39")
def test_a_started_teardown_is_not_touched_whatever_is_raised() -> None:
    states: list[str] = []

    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()

        def make(coro: Any) -> Any:
            bus.kept.append(Task(coro, loop=loop))
            loop.call_soon(lambda: states.append(inspect.getcoroutinestate(coro)))
            raise OSError("too late")

        bus.dispatch()
        factory(loop, make)
        future = bus.request_close()
        states.append(inspect.getcoroutinestate(bus.kept[0].get_coro()))
        loop.set_task_factory(None)
        await ended(future)
        return bus.state.credential, bus.calls

    assert run(act)[0] == ("OK", ALL)
    assert states == [inspect.CORO_CREATED, inspect.CORO_SUSPENDED]


@pytest.mark.guarantee("CLOSE-42")
@pytest.mark.parametrize("hook", ["criterion", "waiters"])
def test_nothing_that_fails_after_the_acceptance_takes_it_back(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def boom(*_: object) -> Any:
        raise RuntimeError("boom")

    async def act(loop: Loop, found: House) -> Any:
        bus, finished = Bus(), Task(other())
        await ended(finished)
        if hook == "criterion":
            monkeypatch.setattr(watchdog, "is_accepted", boom)
        else:
            bus._on_round_bound = boom  # type: ignore[method-assign]
        closing = Task(bus.close())
        factory(loop, lambda coro: late_decoy(bus, loop, coro))
        first = await outcome(closing)
        return first, bus._closing, bus.calls, await ended(Task(bus.close()))

    def late_decoy(bus: Bus, loop: Loop, coro: Coro) -> Any:
        if hook == "criterion":
            loop.call_soon(lambda: setattr(bus, "_close_future", loop.create_future()))
        return Task(coro, loop=loop)

    value, found = run(act)

    assert value[:3] == ("teardown-never-entered" if hook == "criterion" else "returned", True, ALL)
    assert clean(found)


@pytest.mark.guarantee("CLOSE-57")
def test_even_without_the_check_a_shadowed_task_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "_is_hostile", lambda task: False)

    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        closing = Task(bus.close())
        factory(loop, lambda coro: aliased(bus, loop, other()))
        return await outcome(closing), bus.state

    assert run(act)[0] == ("teardown-never-entered", State(True, None, False, 0))


@pytest.mark.guarantee("CLOSE-61")
def test_no_line_of_the_close_asks_a_task_or_a_future_anything() -> None:
    """Only class functions are used on what a stranger may have made; the fence and the drain look at our own tasks."""
    asked = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name in ("acceptance", "adoption", "completion", "watchdog")
        for function in ast.walk(ast.parse((HOME / f"{name}.py").read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name != "_refuse_other_loop"
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in {"task", "made", "ended", "future", "field", "decoy", "waiter", "each"}
    ]

    assert asked == []


# -- decoys ---------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("CLOSE-65")
def test_whoever_waits_on_a_decoy_gets_the_true_outcome() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus, decoy = Bus(), Future()
        waiting = Task(asyncio.wait({decoy}))

        def make(coro: Any) -> Any:
            bus._close_future = decoy
            return Task(coro, loop=loop)

        closing = Task(bus.close())
        factory(loop, make)
        first = await outcome(closing)
        return first, await ended(waiting), decoy.done() and decoy.exception()

    value, found = run(act)

    assert value == ("returned", True, None)
    assert clean(found)


@pytest.mark.guarantee("CLOSE-65")
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
def test_whoever_waits_on_a_decoy_gets_the_true_error(is_read: bool) -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus, decoy = Bus(), Future()

        def make(coro: Any) -> Any:
            bus._close_future = decoy
            return Task(other(), loop=loop)

        closing = Task(bus.close())
        factory(loop, make)
        first = await outcome(closing)
        return first, decoy.done(), kind_of(decoy.exception()) if is_read else first

    value, found = run(act)

    assert value == ("teardown-never-entered", True, "teardown-never-entered")
    assert clean(found)


@pytest.mark.guarantee("CLOSE-65")
def test_whoever_waits_on_a_decoy_of_a_cancelled_credential_is_cancelled_too() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus, decoy = Bus(), Future()

        def make(coro: Any) -> Any:
            bus._close_future.cancel()  # type: ignore[union-attr]
            bus._close_future = decoy
            return Task(other(), loop=loop)

        closing = Task(bus.close())
        factory(loop, make)
        return await outcome(closing), await ended(decoy), decoy.cancelled()

    value, found = run(act)

    assert value == ("teardown-incomplete", True, True)
    assert clean(found)


@pytest.mark.guarantee("CLOSE-65")
def test_a_decoy_that_has_an_outcome_keeps_the_true_one_from_nobody() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus, over, late = Bus(), Future(), Future()
        over.set_result(None)

        def make(coro: Any) -> Any:
            bus._close_future = over
            loop.call_soon(lambda: setattr(bus, "_close_future", late))
            return Task(other(), loop=loop)

        closing = Task(bus.close())
        factory(loop, make)
        return await outcome(closing), kind_of(late.exception()) if late.done() else "pending"

    value, found = run(act)

    assert value == ("teardown-never-entered", "teardown-never-entered")
    assert clean(found)


@pytest.mark.guarantee("CLOSE-65")
def test_a_close_that_began_on_a_decoy_is_released() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()

        def swap_and_close() -> None:
            bus._close_future = loop.create_future()
            bus.kept.append(Task(bus.close()))

        def make(coro: Any) -> Any:
            bus._close_future.set_result(None)  # type: ignore[union-attr]
            loop.call_soon(swap_and_close)
            return Task(bus.curtain.wait(), loop=loop)

        closing = Task(bus.close())
        factory(loop, make)
        first = await outcome(closing)
        await turns()
        waits = await hangs(bus.kept[0])
        bus.curtain.set()
        return first, waits, await outcome(bus.kept[0])

    value, found = run(act)

    assert value == ("returned", "quiescent", "returned")
    assert clean(found)


@pytest.mark.guarantee("CLOSE-72")
def test_a_decoy_that_is_no_future_keeps_the_outcome_from_nobody() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus, decoy = Bus(), Future()
        waiting = Task(asyncio.wait({decoy}))

        def make(coro: Any) -> Any:
            bus._close_future = "no future"  # type: ignore[assignment]
            loop.call_soon(lambda: setattr(bus, "_close_future", decoy))
            return Task(other(), loop=loop)

        closing = Task(bus.close())
        factory(loop, make)
        return await outcome(closing), await ended(waiting), bus._teardown_error_kind

    value, found = run(act)

    assert value == ("teardown-never-entered", True, None)
    assert clean(found)


class Touchy(asyncio.Future):  # type: ignore[type-arg]
    """A future that cannot be hashed or compared."""

    def __hash__(self) -> int:
        raise RuntimeError("hashed")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")


@pytest.mark.guarantee("CLOSE-66")
@pytest.mark.parametrize("name", [*DECOYS, "touchy"])
def test_the_question_for_a_decoy_is_answered_for_everything_and_asks_nothing(name: str) -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.elsewhere = loop
        bus._close_future = Future()
        field = Touchy() if name == "touchy" else DECOYS[name](bus, loop)
        bus.touched.clear()
        return watchdog._is_decoy(field, bus._close_future), bus.touched

    assert run(act)[0] == (True, [])


@pytest.mark.guarantee("CLOSE-66", "CLOSE-73")
def test_an_empty_field_and_the_rounds_own_future_are_no_decoys() -> None:
    async def act(loop: Loop, found: House) -> Any:
        future = Future()
        return watchdog._is_decoy(None, future), watchdog._is_decoy(future, future)

    assert run(act)[0] == (False, False)


@pytest.mark.guarantee("CLOSE-67")
def test_a_credential_that_cannot_be_hashed_is_recognised() -> None:
    async def act(loop: Loop, found: House) -> Any:
        credential = Touchy()
        ACCEPTED[id(credential)] = credential
        return watchdog._is_decoy(credential, Future()), watchdog._is_decoy(Unhashable(), Future())

    assert run(act)[0] == (False, True)


@pytest.mark.guarantee("CLOSE-68")
def test_a_credential_is_known_by_itself_and_not_by_its_number() -> None:
    async def act(loop: Loop, found: House) -> Any:
        stranger, credential = Future(), Future()
        ACCEPTED[id(stranger)] = credential
        verdict = watchdog._is_decoy(stranger, Future())
        del ACCEPTED[id(stranger)]
        return verdict

    assert run(act)[0] is True


@pytest.mark.guarantee("CLOSE-68")
def test_a_close_keeps_nothing_alive_and_a_decoy_is_never_remembered() -> None:
    before = len(ACCEPTED)

    async def act(loop: Loop, found: House) -> Any:
        dead = []
        for _ in range(20):
            bus, decoy = Bus(), Future()
            loop.set_task_factory(None)
            closing = Task(bus.close())

            def make(coro: Any, bus: Bus = bus, decoy: Any = decoy) -> Any:
                bus._close_future = decoy
                return Task(coro, loop=loop)

            factory(loop, make)
            await ended(closing)
            dead.append(weakref.ref(bus._close_future))
            assert ACCEPTED.get(id(decoy)) is not decoy
        loop.set_task_factory(None)
        return dead

    dead, _ = run(act)

    assert [each() for each in dead] == [None] * 20
    assert len(ACCEPTED) == before


@pytest.mark.guarantee("CLOSE-74")
def test_a_round_that_ends_late_leaves_the_retry_alone() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.event_storage.may_end = asyncio.Event()  # type: ignore[attr-defined]

        def make(coro: Any) -> Any:
            async def wrapper() -> None:
                try:
                    await coro
                except asyncio.CancelledError:
                    await bus.curtain.wait()

            return Task(wrapper(), loop=loop)

        closing = Task(bus.close())
        factory(loop, make)
        await hangs(closing)
        Task.cancel(bus._teardown_task)  # type: ignore[arg-type]
        first = await outcome(closing)
        loop.set_task_factory(None)
        again = Task(bus.close())
        await hangs(again)
        credential, task = bus._close_future, bus._teardown_task
        bus.curtain.set()
        await turns()
        kept = (bus._close_future is credential, bus._teardown_task is task)
        bus.event_storage.may_end.set()  # type: ignore[attr-defined]
        return first, kept, await outcome(again), bus.calls

    value, found = run(act)

    assert value == ("teardown-incomplete from CancelledError", (True, True), "returned", [1, 1, 2, 1, 1])
    assert clean(found)


@pytest.mark.guarantee("CLOSE-29", "CLOSE-74")
def test_a_round_that_fails_late_leaves_the_credential_of_the_retry_alone() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus, errors = Bus(), [ValueError("boom")]
        bus._close_timeout = 30
        bus.dispatch(bus.curtain)

        def fails_once() -> list[Task[Any]]:
            if errors:
                raise errors.pop()
            return []

        def make(coro: Any) -> Any:
            bus.kept.append(Task(coro, loop=loop))
            return Task(other(), loop=loop)

        bus._running_listeners = fails_once  # type: ignore[method-assign]
        closing = Task(bus.close())
        factory(loop, make)
        first = await outcome(closing)
        loop.set_task_factory(None)
        again = Task(bus.close())
        await turns()
        bus.curtain.set()
        second = await outcome(again)
        return first, repr(bus.kept[0].exception()), second, bus.state

    value, found = run(act)

    assert value == ("teardown-never-entered", "ValueError('boom')", "returned", State(True, "OK", False, 2))
    assert clean(found)


# -- the judgment ---------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("CLOSE-75")
@pytest.mark.parametrize("step", ["is_accepted", "_tidy", "_mirror", "_record"])
def test_the_verdict_stands_whatever_fails_after_it(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def boom(*_: object) -> Any:
        raise RuntimeError("boom")

    monkeypatch.setattr(watchdog, step, boom)

    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        closing = Task(bus.close())
        factory(loop, lambda coro: Task(other(), loop=loop))
        return await outcome(closing), await outcome(Task(bus.close()))

    value, found = run(act)

    assert value[0] == "teardown-never-entered"
    assert value[1] == "teardown-never-entered"
    assert clean(found)


@pytest.mark.guarantee("CLOSE-87")
def test_a_tampered_round_is_signalled_once_however_often_it_is_judged() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()

        def make(coro: Any) -> Any:
            bus._close_future.set_result(None)  # type: ignore[union-attr]
            bus.kept.append(Task(other(), loop=loop))
            return bus.kept[0]

        closing = Task(bus.close())
        factory(loop, make)
        first = await outcome(closing)
        callbacks = [callback for callback, _ in bus.kept[0]._callbacks or ()]
        await ended(bus.kept[0])
        for callback in callbacks:
            callback(bus.kept[0])
        return first, len(callbacks) > 0, bus._teardown_error_kind

    value, found = run(act)

    assert value[:2] == ("returned", True)
    assert sum(TAMPERED in each for each in found.signals) == 1


@pytest.mark.guarantee("CLOSE-87")
def test_a_retry_that_is_tampered_with_is_signalled_as_well() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.redis.may_end = bus.curtain  # type: ignore[attr-defined]
        closing = Task(bus.close())
        await hangs(closing)
        Task.cancel(bus._teardown_task)  # type: ignore[arg-type]
        first = await outcome(closing)

        def make(coro: Any) -> Any:
            bus._close_future.set_result(None)  # type: ignore[union-attr]
            bus.kept.append(Task(other(), loop=loop))
            return bus.kept[0]

        again = Task(bus.close())
        factory(loop, make)
        second = await outcome(again)
        await ended(bus.kept[0])
        return first, second, bus._teardown_error_kind, bus.calls

    value, found = run(act)

    assert value == ("teardown-incomplete from CancelledError", "returned", TAMPERED, [1, 1, 0, 0, 0])
    assert sum(TAMPERED in each for each in found.signals) == 1
    assert clean(found)


@pytest.mark.guarantee("CLOSE-85")
@pytest.mark.parametrize("how", ["adopted", "by-hand"])
def test_what_breaks_a_teardown_is_recorded_and_never_left_unread(how: str) -> None:
    async def act(loop: Loop, found: House) -> Any:
        seen = set()
        for _ in range(10):
            bus, error = Bus(), ValueError("broken")

            async def broken(error: Exception = error) -> None:
                raise error

            def make(coro: Any, bus: Bus = bus) -> Any:
                return makes_then_raises(bus, loop, coro) if how == "adopted" else by_hand(coro)

            bus._release = broken  # type: ignore[method-assign]
            loop.set_task_factory(None)
            closing = Task(bus.close())
            factory(loop, make)
            first = await outcome(closing)
            await turns(2)
            seen.add((first, bus._teardown_error_kind, bus._teardown_task_error is error, bus.state))
            gc.collect()
        return seen

    value, found = run(act)

    broken = "teardown-incomplete from ValueError"
    assert value == {(broken, "ValueError", True, State(True, None, False, 1))}
    assert clean(found)


# -- waiting for it -------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("CLOSE-78")
def test_a_caller_that_is_cancelled_leaves_the_shared_future_alone() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.redis.may_end = bus.curtain  # type: ignore[attr-defined]
        callers = [Task(bus.close()), Task(bus.close())]
        await hangs(callers[0])
        callers[0].cancel()
        gone = await outcome(callers[0])
        pending = bus._close_future.done()  # type: ignore[union-attr]
        bus.curtain.set()
        return gone, pending, await outcome(callers[1]), bus.calls

    value, found = run(act)

    assert value == ("cancelled", False, "returned", ALL)
    assert clean(found)


@pytest.mark.guarantee("CLOSE-78")
def test_the_outcome_reaches_every_caller_and_a_late_one_at_once() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        callers = [Task(bus.close()) for _ in range(3)]
        outcomes = [await outcome(each) for each in callers]
        late = bus.close()
        by_hand(late)
        return outcomes

    assert run(act)[0] == ["returned"] * 3


@pytest.mark.guarantee("CLOSE-78")
def test_an_error_that_nobody_waits_for_any_more_is_not_complained_about() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        factory(loop, lambda coro: Task(bus.curtain.wait(), loop=loop))
        caller = Task(bus.close())
        await hangs(caller)
        caller.cancel()
        await ended(caller)
        loop.set_task_factory(None)
        bus.curtain.set()
        await turns()
        return bus.state

    value, found = run(act)

    assert value == State(True, None, False, 0)
    assert clean(found)


@pytest.mark.guarantee("CLOSE-73")
def test_a_retry_after_an_emptied_credential_is_a_real_round() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()

        def make(coro: Any) -> Any:
            bus._close_future = None
            return Task(coro, loop=loop)

        closing = Task(bus.close())
        factory(loop, make)
        first = await outcome(closing)
        loop.set_task_factory(None)
        return first, await outcome(Task(bus.close())), bus.calls, bus.state

    value, found = run(act)

    assert value == ("teardown-never-entered", "returned", TWICE, State(True, "OK", False, 2))
    assert clean(found)


def test_a_liar_in_front_of_the_credential_is_refused_by_name() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus._close_future = LiesToBe(asyncio.Future)  # type: ignore[assignment]
        return await outcome(Task(bus.close())), bus.calls

    assert run(act)[0] == ("credential-replaced", NONE)
