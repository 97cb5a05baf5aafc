"""Adoption: whatever a task factory does, the teardown runs under a task that the bus knows, or is refused by name."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from lastbus.testing import everyone_blocked
from tests.close.rig import Outcome, Rig, State, closed, factory
from tests.contract.waiting import is_over

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


async def test_a_factory_that_raises_after_it_has_made_a_task_changes_nothing() -> None:
    rig = Rig()

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        asyncio.Task(coro, loop=loop)
        raise OSError("too late")

    with factory(make):
        outcome = await closed(rig)

    assert outcome == Outcome("returned")
    assert (rig.state, rig.calls) == (State(True, "OK", False, 1), [1] * 5)


@pytest.mark.parametrize("returned", [None, object(), "task"], ids=["none", "object", "text"])
@pytest.mark.filterwarnings("ignore:Task.set_name")
async def test_a_factory_that_returns_no_task_gets_the_teardown_taken_out_of_its_hands(returned: object) -> None:
    rig = Rig()

    with factory(lambda loop, coro: returned):
        outcome = await closed(rig)

    assert outcome == Outcome("returned")
    assert (rig.state, rig.calls) == (State(True, "OK", False, 1), [1] * 5)


async def test_a_factory_that_hides_the_real_task_behind_a_future_is_seen_through() -> None:
    rig = Rig()
    made: list[asyncio.Task[Any]] = []

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        made.append(asyncio.Task(coro, loop=loop))
        return loop.create_future()

    with factory(make):
        future = rig.request_close()

    assert rig._teardown_task is made[0]
    await is_over(future)
    assert rig.state == State(True, "OK", False, 1)


def run_to_the_end(loop: asyncio.AbstractEventLoop) -> None:
    """Give every task of `loop` its turns, and close it."""
    loop.run_until_complete(everyone_blocked())
    loop.close()


async def test_a_task_of_another_loop_is_refused_by_name_and_nothing_is_left() -> None:
    rig = Rig()
    other = asyncio.new_event_loop()

    with factory(lambda _, coro: asyncio.Task(coro, loop=other)):
        refused = await closed(rig)
    await asyncio.to_thread(run_to_the_end, other)

    assert refused == Outcome("raised", "teardown-spawn-failed")
    assert rig.state == State(False, "None", False, 0)
    assert await closed(rig) == Outcome("returned")


async def test_a_task_whose_methods_are_not_asyncios_is_refused_by_name() -> None:
    class Liar(asyncio.Task):  # type: ignore[type-arg]
        def done(self) -> bool:
            return True

    rig = Rig()

    with factory(lambda loop, coro: Liar(coro, loop=loop)):
        refused = await closed(rig)

    assert refused == Outcome("raised", "teardown-spawn-failed")
    assert rig.state == State(False, "None", False, 0)
    assert await closed(rig) == Outcome("returned")


class Vain(asyncio.Task):  # type: ignore[type-arg]
    """A task with a method of its own, whatever it runs."""

    def done(self) -> bool:
        return super().done()


@pytest.mark.guarantee("CLOSE-54", "CLOSE-55")
@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["hostile", "elsewhere"])
async def test_a_task_that_is_refused_is_cancelled_on_its_own_loop(is_elsewhere: bool) -> None:
    elsewhere = asyncio.new_event_loop()
    made: list[asyncio.Task[Any]] = []
    calls: list[Any] = []
    call_in = elsewhere.call_soon_threadsafe

    def noted(*call: Any, **options: Any) -> asyncio.Handle:
        calls.append(call)
        return call_in(*call, **options)

    elsewhere.call_soon_threadsafe = noted  # type: ignore[method-assign]

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        waits = asyncio.Event().wait()
        made.append(asyncio.Task(waits, loop=elsewhere) if is_elsewhere else Vain(waits, loop=loop))
        return made[0]

    with factory(make):
        refused = await closed(Rig())
    await everyone_blocked()
    await asyncio.to_thread(run_to_the_end, elsewhere)

    assert refused == Outcome("raised", "teardown-spawn-failed")
    assert made[0].cancelled()
    assert len(calls) == int(is_elsewhere)


async def test_the_teardown_runs_in_the_context_in_which_the_bus_was_built() -> None:
    seen: list[str] = []
    WHO.set("builder")
    rig = Rig()

    class Asks:
        async def aclose(self) -> None:
            seen.append(WHO.get())

    rig.pubsub = Asks()  # type: ignore[attr-defined]
    WHO.set("caller")

    assert await closed(rig) == Outcome("returned")
    assert seen == ["builder"]


async def test_a_task_that_is_cancelled_before_its_first_step_never_entered_and_can_be_repeated() -> None:
    rig = Rig()

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        task = asyncio.Task(coro, loop=loop)
        task.cancel()
        return task

    with factory(make):
        outcome = await closed(rig)

    assert outcome == Outcome("raised", "teardown-never-entered")
    assert rig.state == State(True, "None", False, 0)
    assert await closed(rig) == Outcome("returned")
    assert rig.calls == [1] * 5
