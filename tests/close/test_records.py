"""Records: what a bus remembers about its teardowns is true, and nothing that failed is left unread."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus.testing import everyone_blocked
from tests.close.eager import SpawnsByHand, at_once, eagerly
from tests.close.hygiene import collected
from tests.close.rig import Outcome, Rig, State, closed, factory
from tests.contract.waiting import is_over, soon

pytestmark = pytest.mark.usefixtures("hygiene")

RETURNED = Outcome("returned")
INCOMPLETE = Outcome("raised", "teardown-incomplete")
REFUSED = Outcome("raised", "teardown-spawn-failed")
NEVER_ENTERED = Outcome("raised", "teardown-never-entered")
TAMPERED = "teardown-settlement-tampered"
ONCE = [1] * 5
NEVER = [0] * 5


async def other() -> None:
    await asyncio.sleep(0)


def lazily(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
    return asyncio.Task(coro, loop=loop)


def and_raises(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
    lazily(loop, coro)
    raise OSError("too late")


def something_else(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
    return asyncio.Task(other(), loop=loop)


def nothing(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
    raise OSError("no task today")


def break_step(rig: Rig, error: BaseException | None) -> None:
    """Let the middle step of the next teardowns raise `error`; None mends it."""

    def broken() -> list[asyncio.Task[Any]]:
        if error is not None:
            raise error
        return []

    rig._running_listeners = broken  # type: ignore[method-assign]


@pytest.mark.guarantee("CLOSE-84")
async def test_kind_and_error_of_the_last_teardown_are_recorded_together() -> None:
    rig = Rig(close_timeout=30)
    pairs = [(rig._teardown_error_kind, rig._teardown_task_error)]
    boom = ValueError("boom")

    break_step(rig, boom)
    outcomes = [await closed(rig)]
    await everyone_blocked()
    pairs.append((rig._teardown_error_kind, rig._teardown_task_error))
    work = rig.run("event", asyncio.Event().wait)
    closing = asyncio.ensure_future(closed(rig))
    await everyone_blocked()
    assert rig._teardown_task is not None
    rig._teardown_task.cancel()
    outcomes.append(await closing)
    await everyone_blocked()
    pairs.append((rig._teardown_error_kind, rig._teardown_task_error))
    work.cancel()
    break_step(rig, None)
    outcomes.append(await closed(rig))
    await everyone_blocked()
    pairs.append((rig._teardown_error_kind, rig._teardown_task_error))

    assert outcomes == [INCOMPLETE, INCOMPLETE, RETURNED]
    assert pairs == [(None, None), ("ValueError", boom), ("cancelled", None), (None, None)]
    assert (rig.state, rig.calls) == (State(True, "OK", False, 3), ONCE)


@pytest.mark.guarantee("CLOSE-85")
async def test_the_error_of_a_teardowns_task_is_always_read(hygiene: list[str]) -> None:
    outcomes = set()
    for make in (lazily, and_raises, eagerly):
        for _ in range(14):
            rig = Rig()
            break_step(rig, RuntimeError("boom-step"))
            with factory(make):
                outcomes.add(await closed(rig))
                outcomes.add(await closed(rig))
            outcomes.add(Outcome(str(rig._teardown_error_kind)))
            assert rig.state == State(True, "None", False, 2)
    del rig

    assert outcomes == {INCOMPLETE, Outcome("RuntimeError")}
    assert collected(hygiene) == []


@pytest.mark.guarantee("CLOSE-86")
@pytest.mark.parametrize("kind", [Rig, SpawnsByHand])
async def test_the_error_of_a_close_that_nobody_waits_for_is_read(kind: type[Rig], hygiene: list[str]) -> None:
    rig = kind()
    break_step(rig, RuntimeError("boom-step"))

    rig.request_close()
    await everyone_blocked()

    failed = rig.state
    break_step(rig, None)
    rig._teardown_task_error = None

    assert failed == State(True, "None", False, 1)
    assert collected(hygiene) == []
    assert await closed(rig) == RETURNED


def settles_it_itself(rig: Rig, made: list[asyncio.Task[None]]) -> Any:
    """A factory that settles the credential in the teardown's place, and runs something else."""

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        assert rig._close_future is not None
        rig._close_future.set_result(None)
        made.append(asyncio.Task(other(), loop=loop))
        return made[-1]

    return make


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.levelname for each in caplog.records if TAMPERED in each.getMessage()]


@pytest.mark.guarantee("CLOSE-87")
async def test_a_close_that_somebody_else_settled_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    made: list[asyncio.Task[None]] = []

    with factory(settles_it_itself(rig, made)):
        future = rig.request_close()
        accepted = rig.state
        outcomes = [await closed(rig), await closed(rig)]
    await soon(lambda: all(each.done() for each in made))
    await everyone_blocked()

    assert future.done()
    assert accepted == State(True, "OK", True, 0)
    assert outcomes == [RETURNED] * 2
    assert (rig.state, rig.calls) == (State(True, "OK", False, 0), NEVER)
    assert told(caplog) == ["WARNING"]
    assert rig._teardown_error_kind == TAMPERED


@pytest.mark.guarantee("CLOSE-87")
@pytest.mark.parametrize("make", [lazily, and_raises, eagerly, something_else])
async def test_an_honest_round_is_not_taken_for_one_that_somebody_else_settled(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()

    with factory(make):
        outcomes = [await closed(rig), await closed(rig)]
    await everyone_blocked()

    assert outcomes == [NEVER_ENTERED if make is something_else else RETURNED] * 2
    assert told(caplog) == []
    assert rig._teardown_error_kind is None


@pytest.mark.guarantee("CLOSE-88")
async def test_nothing_that_is_forged_on_the_bus_keeps_that_from_being_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    made: list[asyncio.Task[None]] = []
    settle = settles_it_itself(rig, made)

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        task = settle(loop, coro)
        rig._teardown_error_kind, rig._teardown_task_error = TAMPERED, None
        rig._outstanding_step = "nothing"
        rig.tampered = rig.judged = rig.first = True  # type: ignore[attr-defined]
        task.tampered = task.judged = task.first = True
        return task

    with factory(make):
        outcomes = [await closed(rig), await closed(rig)]
    await soon(lambda: all(each.done() for each in made))
    await everyone_blocked()

    assert outcomes == [RETURNED] * 2
    assert told(caplog) == ["WARNING"]
    assert (rig._teardown_error_kind, rig.state.runs) == (TAMPERED, 0)


@pytest.mark.guarantee("CLOSE-89")
async def test_only_teardowns_that_have_begun_are_counted() -> None:
    rig = Rig()
    seen = []

    for make in (nothing, something_else):
        with factory(make):
            seen.append((await closed(rig), rig.state.runs))
    rig.components["pubsub"].error = asyncio.CancelledError()
    future = rig.request_close()
    accepted = rig.state
    await is_over(future)
    seen.append((Outcome("waited"), rig.state.runs))
    rig.components["pubsub"].error = None
    seen += [(await closed(rig), rig.state.runs), (await closed(rig), rig.state.runs)]

    assert accepted == State(True, "PENDING", True, 0)
    assert seen == [(REFUSED, 0), (NEVER_ENTERED, 0), (Outcome("waited"), 1), (RETURNED, 2), (RETURNED, 2)]
    assert (rig.state, rig.calls) == (State(True, "OK", False, 2), [2, 1, 1, 1, 1])


@pytest.mark.guarantee("CLOSE-90")
@pytest.mark.parametrize("slot", ["_teardown_entry_task", "_teardown_task"])
@pytest.mark.parametrize("is_finished", [False, True], ids=["running", "finished"])
async def test_a_stranger_in_a_slot_of_the_bus_is_never_taken_for_the_teardown(slot: str, is_finished: bool) -> None:
    rig, may_end = Rig(), asyncio.Event()
    stranger = asyncio.ensure_future(may_end.wait())
    if is_finished:
        may_end.set()
        await stranger

    def plant(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        setattr(rig, slot, stranger)
        raise OSError("no task today")

    def plant_and_raise(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        lazily(loop, coro)
        return plant(loop, coro)

    with factory(plant):
        refused = await closed(rig)
        untouched = rig.state
    with factory(plant_and_raise):
        outcomes = [await closed(rig), await closed(rig)]
    may_end.set()
    await stranger

    assert (refused, untouched) == (REFUSED, State(False, "None", False, 0))
    assert outcomes == [RETURNED] * 2
    assert (rig.state, rig.calls) == (State(True, "OK", False, 1), ONCE)


class Observed(Rig):
    """A bus that notes for which tasks a round was judged, and what was recorded by then."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[asyncio.Task[None], str | None]] = []

    def _on_teardown_done(self, task: asyncio.Task[None]) -> None:
        self.seen.append((task, self._teardown_error_kind))


@pytest.mark.guarantee("CLOSE-84")
async def test_an_observer_is_told_of_the_task_once_its_end_is_recorded() -> None:
    rig = Observed()
    break_step(rig, ValueError("boom"))

    rig.request_close()
    task = rig._teardown_task
    await everyone_blocked()

    assert rig.seen == [(task, "ValueError")]
    break_step(rig, None)
    rig._teardown_task_error = None
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-45", "CLOSE-84")
async def test_a_task_that_has_ended_before_it_was_handed_over_is_recorded_as_it_ended() -> None:
    rig = Observed()
    ended = asyncio.ensure_future(other())
    ended.cancel()
    await asyncio.wait({ended}, timeout=2)

    with factory(lambda loop, coro: ended):
        future = rig.request_close()

    assert future.done()
    assert rig.seen == [(ended, "cancelled")]
    assert rig._teardown_task is None
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-84")
async def test_a_round_that_no_task_of_ours_ran_is_recorded_as_it_ended_and_shown_to_nobody() -> None:
    rig = Observed()
    kinds = []

    for error in (ValueError("boom"), None):
        break_step(rig, error)
        with factory(at_once):
            rig.request_close()
        kinds.append(rig._teardown_error_kind)

    assert kinds == ["ValueError", None]
    assert rig.seen == []
    assert rig.state == State(True, "OK", False, 2)


@pytest.mark.guarantee("CLOSE-84")
@pytest.mark.parametrize("is_by_hand", [False, True], ids=["by-a-task", "by-hand"])
async def test_a_credential_that_somebody_has_cancelled_keeps_nothing_from_being_recorded(is_by_hand: bool) -> None:
    rig = Observed()
    break_step(rig, ValueError("boom"))
    kept: list[Any] = []

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        assert rig._close_future is not None
        rig._close_future.cancel()
        if is_by_hand:
            return at_once(loop, coro)
        kept.append(lazily(loop, coro))
        return kept[0]

    with factory(make):
        rig.request_close()
    await everyone_blocked()

    assert rig._teardown_error_kind == (None if is_by_hand else "ValueError")
    assert rig.seen == [(task, "ValueError") for task in kept]
    break_step(rig, None)
    rig._teardown_task_error = None
    assert await closed(rig) == RETURNED
