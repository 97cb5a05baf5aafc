"""Acceptance: a close begins in one synchronous step, and is one request however often it is made."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from lastbus import BusClosedError, CloseError
from lastbus._close.selfclose import IN_DISPATCH
from lastbus.memory import InMemoryEventBus
from lastbus.testing import everyone_blocked
from tests.close.eager import SpawnsByHand, at_once, eagerly
from tests.close.rig import Outcome, Rig, State, closed, factory
from tests.contract.waiting import is_over

pytestmark = pytest.mark.usefixtures("hygiene")

RETURNED = Outcome("returned")
GOOD = State(True, "OK", False, 1)
ONCE = [1] * 5
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


@pytest.mark.guarantee("CLOSE-01")
async def test_every_request_is_the_same_request() -> None:
    rig = Rig()

    first, second = rig.request_close(), rig.request_close()

    assert first is second
    assert rig.state == State(True, "PENDING", True, 0)
    assert await closed(rig) == RETURNED
    assert rig.request_close() is first
    assert (rig.state, rig.calls, rig.bound) == (GOOD, ONCE, 1)


@pytest.mark.guarantee("CLOSE-02")
async def test_concurrent_callers_share_one_teardown_and_its_outcome() -> None:
    rig = Rig()

    outcomes = await asyncio.gather(*(closed(rig) for _ in range(10)))

    assert outcomes == [RETURNED] * 10
    assert (rig.state, rig.calls, rig.bound) == (GOOD, ONCE, 1)


async def cancel_one(rig: Rig, victim: int) -> tuple[bool, bool, Outcome]:
    """Cancel one of two callers: whether it ended cancelled, whether their future did, how the other one ended."""
    may_end = asyncio.Event()
    rig.run("event", may_end.wait)
    callers = [asyncio.ensure_future(rig.close()), asyncio.ensure_future(rig.close())]
    await everyone_blocked()
    shared = rig._close_future
    assert shared is not None

    callers[victim].cancel()
    await everyone_blocked()
    was_cancelled = shared.cancelled()
    may_end.set()
    other = callers[1 - victim]
    await is_over(other)
    word = "hang" if not other.done() else "returned" if not other.cancelled() else "cancelled"
    return callers[victim].cancelled(), was_cancelled, Outcome(word)


@pytest.mark.guarantee("CLOSE-03")
async def test_cancelling_the_caller_that_began_the_close_does_not_reach_the_teardown() -> None:
    rig = Rig(close_timeout=30)

    assert await cancel_one(rig, victim=0) == (True, False, RETURNED)

    assert (rig.state, rig.calls) == (GOOD, ONCE)
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-04")
async def test_cancelling_a_caller_that_joined_the_close_reaches_nobody_else() -> None:
    rig = Rig(close_timeout=30)

    assert await cancel_one(rig, victim=1) == (True, False, RETURNED)

    assert (rig.state, rig.calls) == (GOOD, ONCE)
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-05")
async def test_the_teardown_sees_the_context_of_the_builder_and_nothing_of_the_callers() -> None:
    seen: list[tuple[str, object]] = []
    WHO.set("builder")
    rig = Rig()

    class Asks:
        async def aclose(self) -> None:
            seen.append((WHO.get(), IN_DISPATCH.get()))

    rig.pubsub = Asks()  # type: ignore[attr-defined]
    WHO.set("caller")
    token = IN_DISPATCH.set(rig)

    outcome = await closed(rig)

    IN_DISPATCH.reset(token)
    assert outcome == RETURNED
    assert seen == [("builder", None)]
    assert rig.state == GOOD


@pytest.mark.guarantee("CLOSE-06")
async def test_what_the_teardown_reads_is_stored_before_it_is_spawned() -> None:
    rig = Rig()
    seen: list[State] = []

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        seen.append(rig.state)
        return asyncio.Task(coro, loop=loop)

    with factory(make):
        future = rig.request_close()

    assert seen == [State(True, "PENDING", False, 0)]
    assert rig._close_future is future
    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2
    assert (rig.state, rig.calls) == (GOOD, ONCE)


@pytest.mark.guarantee("CLOSE-07")
@pytest.mark.parametrize("make", [eagerly, at_once])
async def test_an_idle_bus_closes_within_the_very_request_where_tasks_begin_at_once(make: Any) -> None:
    rig = Rig()

    with factory(make):
        future = rig.request_close()
        outcomes = [await closed(rig), await closed(rig)]

    assert future.done()
    assert outcomes == [RETURNED] * 2
    assert (rig.state, rig.calls) == (GOOD, ONCE)


@pytest.mark.guarantee("CLOSE-08")
@pytest.mark.parametrize("make", [eagerly, asyncio.Task], ids=["eager", "lazy"])
@pytest.mark.parametrize("is_idle", [True, False], ids=["idle", "at-work"])
async def test_a_close_ends_whenever_its_task_begins_and_whatever_is_in_flight(make: Any, is_idle: bool) -> None:
    rig = Rig(close_timeout=30)
    may_end = asyncio.Event()
    if not is_idle:
        rig.run("event", may_end.wait)

    with factory(lambda loop, coro: make(coro, loop=loop) if make is asyncio.Task else make(loop, coro)):
        rig.request_close()
    before = rig.state
    may_end.set()

    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2
    begun = make is eagerly
    assert before == (GOOD if begun and is_idle else State(True, "PENDING", True, int(begun)))
    assert (rig.state, rig.calls) == (GOOD, ONCE)


@pytest.mark.guarantee("CLOSE-09", "CLOSE-31")
async def test_a_teardown_that_is_over_before_its_spawn_returns_has_settled_the_close() -> None:
    rig = SpawnsByHand()

    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2

    assert (rig.state, rig.calls) == (GOOD, ONCE)


@pytest.mark.guarantee("CLOSE-10")
async def test_a_teardown_that_failed_within_its_spawn_is_not_kept_as_a_live_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = SpawnsByHand()

    def broken() -> list[asyncio.Task[object]]:
        raise RuntimeError("boom-step")

    monkeypatch.setattr(rig, "_running_listeners", broken)
    failed = await closed(rig)
    after = rig.state
    monkeypatch.undo()

    assert failed == Outcome("raised", "teardown-incomplete")
    assert after == State(True, "None", False, 1)
    assert await closed(rig) == RETURNED
    assert (rig.state, rig.calls) == (State(True, "OK", False, 2), ONCE)


@pytest.mark.guarantee("CLOSE-10")
async def test_a_task_that_is_over_already_is_not_kept_either() -> None:
    rig = Rig()

    with factory(eagerly):
        rig.request_close()

    assert rig.state == GOOD
    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2


@pytest.mark.guarantee("CLOSE-09")
async def test_whoever_waits_is_refused_even_if_the_whole_teardown_ran_within_the_request() -> None:
    bus = InMemoryEventBus()
    waiting = asyncio.ensure_future(bus.wait_for_event("job"))
    await everyone_blocked()

    with factory(at_once):
        future = bus.request_close()
    await is_over(waiting)

    assert future.done()
    assert isinstance(waiting.done() and waiting.exception(), BusClosedError)


@pytest.mark.guarantee("CLOSE-11")
async def test_a_close_after_a_close_does_nothing() -> None:
    rig = Rig()
    first = rig.request_close()
    assert await closed(rig) == RETURNED

    outcomes = [await closed(rig), await closed(rig)]

    assert outcomes == [RETURNED] * 2
    assert rig.request_close() is first
    assert (rig.state, rig.calls, rig.bound) == (GOOD, ONCE, 1)


async def test_something_that_stands_where_the_credential_belongs_is_refused() -> None:
    rig = Rig()
    rig._close_future = "a stranger"  # type: ignore[assignment]

    with pytest.raises(CloseError) as caught:
        rig.request_close()

    assert caught.value.kind == "credential-replaced"
    rig._close_future = None
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-81")
async def test_what_stands_in_front_of_the_futures_loop_is_not_believed() -> None:
    rig = Rig()
    first = rig.request_close()
    first.get_loop = lambda: "no loop"  # type: ignore[assignment, method-assign, return-value]

    assert rig.request_close() is first

    assert await closed(rig) == Outcome("returned")


@pytest.mark.guarantee("CLOSE-01")
async def test_a_request_whose_future_somebody_has_cancelled_is_the_same_request() -> None:
    rig = Rig()

    future = rig.request_close()
    future.cancel()
    await everyone_blocked()

    assert rig.request_close() is future
    assert (rig._teardown_runs, rig.calls, rig.bound) == (1, ONCE, 1)
