"""Drain: a close waits for handlers and listeners, each in bounds that are read when it begins.

A few tests let a small `close_timeout` pass on the loop's own time, which is the contract there.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus._close import state
from lastbus.testing import everyone_blocked
from tests.close.rig import Outcome, Rig, State, closed

pytestmark = pytest.mark.usefixtures("hygiene")

RETURNED = Outcome("returned")
GOOD = State(True, "OK", False, 1)
ONCE = [1] * 5
SOON = 0.03
SLACK = 0.5


class Deaf:
    """Swallows every cancellation until it may end."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.cancellations = 0

    async def __call__(self) -> None:
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.cancellations += 1


async def timed(rig: Rig) -> tuple[Outcome, float]:
    """How `close()` ended, and how long it took."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    return await closed(rig), loop.time() - begun


@pytest.mark.guarantee("CLOSE-13")
async def test_a_handler_that_never_ends_holds_a_close_up_for_the_bound_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    rig._close_timeout = None
    may_end = asyncio.Event()
    work = rig.run("event-1", may_end.wait)
    monkeypatch.setattr(state, "DISPATCH_DRAIN_TIMEOUT_SECONDS", SOON)

    outcome, seconds = await timed(rig)

    still_runs = not work.done()
    may_end.set()
    assert (outcome, still_runs) == (RETURNED, True)
    assert SOON * 0.9 < seconds < SOON + SLACK
    assert ["event-1" in each.getMessage() for each in caplog.records] == [True]
    assert (rig.state, rig.calls) == (GOOD, ONCE)
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-13")
def test_without_a_bound_of_its_own_a_bus_waits_five_seconds() -> None:
    assert state.CloseState()._limit() == state.DISPATCH_DRAIN_TIMEOUT_SECONDS == 5.0
    assert state.CloseState(close_timeout=0)._limit() == 0


@pytest.mark.guarantee("CLOSE-14")
async def test_a_listener_that_swallows_its_cancellation_is_left_behind_after_a_bound_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig, deaf = Rig(close_timeout=SOON), Deaf()
    listener = rig.listen(deaf)
    await everyone_blocked()

    outcome, seconds = await timed(rig)

    still_runs = not listener.done()
    deaf.may_end.set()
    assert (outcome, still_runs, deaf.cancellations) == (RETURNED, True, 1)
    assert SOON * 0.9 < seconds < SOON + SLACK
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert (rig.state, rig.calls) == (GOOD, ONCE)
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-91")
async def test_a_stuck_handler_and_a_stuck_listener_cost_one_bound_each(caplog: pytest.LogCaptureFixture) -> None:
    rig, deaf = Rig(close_timeout=SOON), Deaf()
    handler, listener = rig.run("event-1", deaf.may_end.wait), rig.listen(deaf)
    await everyone_blocked()

    outcome, seconds = await timed(rig)

    ended = (handler.done(), listener.done())
    deaf.may_end.set()
    assert (outcome, ended) == (RETURNED, (False, False))
    assert 2 * SOON * 0.9 < seconds < 2 * SOON + SLACK
    assert [each.levelname for each in caplog.records] == ["WARNING", "WARNING"]
    assert (rig.state, rig.calls) == (GOOD, ONCE)
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-91")
async def test_where_nothing_is_stuck_nothing_is_waited_for() -> None:
    rig = Rig(close_timeout=30)
    rig.listen(asyncio.Event().wait)
    await everyone_blocked()

    outcome, seconds = await timed(rig)

    assert outcome == RETURNED
    assert seconds < SLACK


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1, True, "5"], ids=repr)
def test_a_bound_that_is_none_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"^close_timeout "):
        state.CloseState(close_timeout=bad)  # type: ignore[arg-type]


def test_an_unknown_treatment_of_late_handlers_is_refused() -> None:
    with pytest.raises(ValueError, match="on_overdue"):
        state.CloseState(on_overdue="shoot")  # type: ignore[arg-type]


@pytest.mark.guarantee("CLOSE-13")
async def test_work_that_follows_on_work_shares_the_bound_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, bounds, wait, may_end = Rig(close_timeout=30), [], asyncio.wait, asyncio.Event()

    async def noted(tasks: Any, *, timeout: float) -> Any:
        bounds.append(timeout)
        if len(bounds) == 2:
            may_end.set()
        return await wait(tasks, timeout=timeout)

    async def first() -> None:
        await asyncio.sleep(0)
        rig.run("second", may_end.wait)

    rig.run("first", first)
    monkeypatch.setattr("lastbus._close.teardown.asyncio.wait", noted)

    await rig.close()

    assert len(bounds) == 2
    assert bounds[1] < bounds[0] <= 30
