"""Failure: a teardown that broke is never shown as a success, and the next close is a real second attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lastbus.testing import everyone_blocked
from tests.close.rig import Outcome, Rig, State, closed
from tests.contract.waiting import is_over

pytestmark = pytest.mark.usefixtures("hygiene")

RETURNED = Outcome("returned")
INCOMPLETE = Outcome("raised", "teardown-incomplete")
ONCE = [1] * 5


def cancel_the_teardown(rig: Rig) -> None:
    assert rig._teardown_task is not None
    rig._teardown_task.cancel()


def cancel_all_tasks(rig: Rig) -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def interrupted(rig: Rig, interrupt: Callable[[Rig], None]) -> Outcome:
    """Interrupt the drain of a close; the outcome of that close."""
    rig.run("event", asyncio.Event().wait)
    future = rig.request_close()
    await everyone_blocked()
    interrupt(rig)
    await is_over(future)
    if not future.done():
        return Outcome("hang")
    error = future.exception()
    return RETURNED if error is None else Outcome("raised", str(getattr(error, "kind", error)))


@pytest.mark.guarantee("CLOSE-27")
@pytest.mark.parametrize("interrupt", [cancel_the_teardown, cancel_all_tasks])
async def test_a_cancelled_teardown_is_a_failure(interrupt: Callable[[Rig], None]) -> None:
    rig = Rig(close_timeout=30)

    assert await interrupted(rig, interrupt) == INCOMPLETE

    await everyone_blocked()
    assert (rig.state, rig.calls) == (State(True, "None", False, 1), [0] * 5)
    for task in rig._pending_tasks:
        task.cancel()
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-27")
async def test_every_caller_of_a_cancelled_teardown_is_told() -> None:
    rig = Rig(close_timeout=30)
    work = rig.run("event", asyncio.Event().wait)
    callers = [asyncio.ensure_future(closed(rig)) for _ in range(3)]
    await everyone_blocked()

    cancel_the_teardown(rig)

    assert await asyncio.gather(*callers) == [INCOMPLETE] * 3
    assert (rig.state, rig.calls) == (State(True, "None", False, 1), [0] * 5)
    work.cancel()
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-28")
async def test_a_step_that_raises_is_a_failure_that_keeps_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    boom = RuntimeError("boom-step")

    def broken() -> list[asyncio.Task[object]]:
        raise boom

    monkeypatch.setattr(rig, "_running_listeners", broken)
    future = rig.request_close()
    await is_over(future)

    error: Any = future.exception()
    assert error is not None
    assert (error.kind, error.__cause__) == ("teardown-incomplete", boom)
    assert "error_kind=teardown-incomplete" in str(error)
    await everyone_blocked()
    assert (rig._teardown_error_kind, rig._teardown_task_error) == ("RuntimeError", boom)
    assert (rig.state, rig.calls) == (State(True, "None", False, 1), [0] * 5)
    monkeypatch.undo()
    assert await closed(rig) == RETURNED
    assert rig.state == State(True, "OK", False, 2)


@pytest.mark.guarantee("CLOSE-29")
async def test_after_a_failure_the_next_close_is_a_real_one() -> None:
    rig = Rig(close_timeout=30)
    assert await interrupted(rig, cancel_all_tasks) == INCOMPLETE

    outcomes = [await closed(rig), await closed(rig)]

    assert outcomes == [RETURNED] * 2
    assert (rig.state, rig.calls, rig.bound) == (State(True, "OK", False, 2), ONCE, 2)


@pytest.mark.guarantee("CLOSE-30")
async def test_a_second_attempt_releases_stores_again_and_what_was_let_go_of_not_again() -> None:
    rig = Rig()
    rig.components["processing_tracker"].error = asyncio.CancelledError()
    assert await closed(rig) == INCOMPLETE
    assert (rig.state, rig.calls) == (State(True, "None", False, 1), ONCE)
    rig.components["processing_tracker"].error = None

    outcomes = [await closed(rig), await closed(rig)]

    assert outcomes == [RETURNED] * 2
    assert (rig.state, rig.calls) == (State(True, "OK", False, 2), [1, 1, 2, 2, 2])


@pytest.mark.guarantee("CLOSE-30")
async def test_a_connection_whose_release_was_interrupted_is_released_again() -> None:
    rig = Rig()
    slow = rig.components["redis"].may_end
    slow.clear()
    closing = asyncio.ensure_future(closed(rig))
    await everyone_blocked()

    cancel_the_teardown(rig)
    failed = await closing
    slow.set()

    assert (failed, rig.calls) == (INCOMPLETE, [1, 1, 0, 0, 0])
    assert await closed(rig) == RETURNED
    assert (rig.state, rig.calls) == (State(True, "OK", False, 2), [1, 2, 1, 1, 1])
