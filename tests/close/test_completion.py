"""Completion: each caller waits on a future of its own, and nothing that happens to one reaches another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus import CloseError, CloseTimeout
from lastbus.testing import everyone_blocked
from tests.close.rig import Outcome, Rig, closed
from tests.contract.waiting import is_over

pytestmark = pytest.mark.usefixtures("hygiene")


@pytest.mark.parametrize("step", ["release of redis", "listeners", "running handlers"])
async def test_a_callers_own_deadline_names_the_step_that_is_out_and_leaves_the_close_alone(step: str) -> None:
    rig = Rig(close_timeout=30)
    may_end = asyncio.Event()

    async def deaf() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    if step == "release of redis":
        rig.components["redis"].may_end = may_end
    elif step == "listeners":
        rig.listen(deaf)
    else:
        rig.run("event", may_end.wait)
    await everyone_blocked()

    with pytest.raises(CloseTimeout, match=step) as caught:
        await rig.close(timeout=0.02)

    assert isinstance(caught.value, TimeoutError)
    may_end.set()
    assert await closed(rig) == Outcome("returned")
    assert (rig._teardown_runs, rig.calls) == (1, [1] * 5)


async def test_a_deadline_leaves_no_timer_and_no_callback_behind() -> None:
    rig = Rig(close_timeout=30)
    may_end = asyncio.Event()
    rig.run("event", may_end.wait)
    future = rig.request_close()
    before = len(future._callbacks or ())  # type: ignore[attr-defined]

    with pytest.raises(CloseTimeout):
        await rig.close(timeout=0)

    assert len(future._callbacks or ()) == before  # type: ignore[attr-defined]
    may_end.set()
    assert await closed(rig) == Outcome("returned")


async def test_a_close_that_is_over_needs_no_time() -> None:
    rig = Rig()
    await rig.close()

    await rig.close(timeout=0)

    assert rig._teardown_runs == 1


async def test_a_failure_is_raised_to_every_caller_of_its_round() -> None:
    rig = Rig(close_timeout=30)
    may_end = asyncio.Event()
    rig.run("event", may_end.wait)
    callers = [asyncio.ensure_future(closed(rig)) for _ in range(3)]
    await everyone_blocked()
    assert rig._teardown_task is not None

    rig._teardown_task.cancel()

    assert await asyncio.gather(*callers) == [Outcome("raised", "teardown-incomplete")] * 3
    may_end.set()
    assert await closed(rig) == Outcome("returned")


@pytest.mark.guarantee("CLOSE-15")
async def test_a_deadline_that_was_not_needed_leaves_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, loop, timers = Rig(), asyncio.get_running_loop(), []
    call_later = loop.call_later

    def noted(*call: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append(call_later(*call, **options))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", noted)

    await rig.close(timeout=3600)

    assert [timer.cancelled() for timer in timers] == [True]


@pytest.mark.parametrize("bad", [float("nan"), -1, True], ids=repr)
async def test_a_deadline_that_is_none_is_refused_by_its_name_and_nothing_has_begun(bad: float) -> None:
    rig = Rig()

    with pytest.raises(ValueError, match=r"^timeout "):
        await rig.close(timeout=bad)

    assert (rig._closing, rig.calls) == (False, [0] * 5)


@pytest.mark.guarantee("CLOSE-92")
@pytest.mark.parametrize("is_waiting", [False, True], ids=["before", "meanwhile"])
async def test_a_caller_outlasts_the_shared_future_that_somebody_has_cancelled(is_waiting: bool) -> None:
    rig = Rig(close_timeout=30)
    may_end = asyncio.Event()
    rig.run("event", may_end.wait)
    future = rig.request_close()
    callers = [asyncio.ensure_future(closed(rig))] if is_waiting else []
    await everyone_blocked()

    future.cancel()
    callers.append(asyncio.ensure_future(closed(rig)))
    await everyone_blocked()
    early = [caller.done() for caller in callers]
    may_end.set()

    assert True not in early
    assert {await caller for caller in callers} == {Outcome("returned")}
    assert await closed(rig) == Outcome("returned")
    assert (rig._teardown_runs, rig.calls) == (1, [1] * 5)


@pytest.mark.guarantee("CLOSE-92")
async def test_a_caller_keeps_its_deadline_when_the_shared_future_was_cancelled() -> None:
    rig = Rig(close_timeout=30)
    may_end = asyncio.Event()
    rig.run("event", may_end.wait)

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(rig.request_close(), 0)
    with pytest.raises(CloseTimeout, match="running handlers"):
        await rig.close(timeout=0)

    may_end.set()
    assert await closed(rig) == Outcome("returned")


@pytest.mark.guarantee("CLOSE-92")
async def test_a_deadline_does_not_begin_anew_when_the_shared_future_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(close_timeout=300)
    may_end = asyncio.Event()
    rig.run("event", may_end.wait)
    waiting = asyncio.ensure_future(rig.close(timeout=60))
    await everyone_blocked()
    loop = asyncio.get_running_loop()
    now = loop.time()

    monkeypatch.setattr(loop, "time", lambda: now + 61)
    rig.request_close().cancel()

    assert await is_over(waiting, seconds=0.5)
    with pytest.raises(CloseTimeout, match="running handlers"):
        await waiting
    may_end.set()
    assert await closed(rig) == Outcome("returned")


@pytest.mark.guarantee("CLOSE-92")
async def test_a_teardown_that_broke_is_told_although_the_shared_future_was_cancelled() -> None:
    rig = Rig(close_timeout=30)
    may_end = asyncio.Event()
    rig.run("event", may_end.wait)
    rig.request_close().cancel()
    await everyone_blocked()

    waiting = asyncio.ensure_future(closed(rig))
    await everyone_blocked()
    assert rig._teardown_task is not None
    rig._teardown_task.cancel()

    assert await waiting == Outcome("raised", "teardown-incomplete")
    may_end.set()
    assert await closed(rig) == Outcome("returned")


@pytest.mark.guarantee("CLOSE-92")
async def test_a_cancelled_future_is_no_way_to_close_from_inside_a_handler() -> None:
    rig = Rig(close_timeout=30)

    async def handler() -> None:
        rig.request_close().cancel()
        await rig.close(timeout=0.05)

    running = rig.run("event", handler)

    with pytest.raises(CloseError, match="self-close"):
        await running
    assert await closed(rig) == Outcome("returned")
