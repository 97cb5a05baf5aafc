"""Teardown: drain, listeners, release; in this order, each in bounds, and a retry where the first attempt broke."""

from __future__ import annotations

import asyncio

import pytest

from lastbus._close import state
from lastbus.testing import everyone_blocked
from tests.close.rig import SLOTS, Outcome, Rig, State, closed


async def test_handlers_then_listeners_then_components() -> None:
    rig = Rig(close_timeout=30)
    may_end = asyncio.Event()

    async def handler() -> None:
        await may_end.wait()
        rig.log.append("handler")

    async def listener() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            rig.log.append("listener")

    rig.run("event", handler)
    rig.listen(listener)
    await everyone_blocked()
    closing = asyncio.ensure_future(rig.close())
    await everyone_blocked()
    assert rig.log == []

    may_end.set()
    await asyncio.wait({closing}, timeout=2)

    assert rig.log == ["handler", "listener", *(f"release {name}" for name in SLOTS)]


async def test_the_two_bounds_hold_against_a_handler_and_a_listener_that_never_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(close_timeout=0.05)
    may_end = asyncio.Event()

    async def deaf() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    handler, listener = rig.run("event-1", may_end.wait), rig.listen(deaf)
    await everyone_blocked()

    assert await closed(rig) == Outcome("returned")

    assert (handler.done(), listener.done(), rig.calls) == (False, False, [1] * 5)
    assert [each.levelname for each in caplog.records] == ["WARNING", "WARNING"]
    assert "event-1" in caplog.records[0].getMessage()
    may_end.set()
    await asyncio.wait({handler, listener}, timeout=2)


def test_the_default_bound_is_five_seconds_and_is_read_when_the_bus_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = state.CloseState()
    assert rig._limit() == state.DISPATCH_DRAIN_TIMEOUT_SECONDS == 5.0

    monkeypatch.setattr(state, "DISPATCH_DRAIN_TIMEOUT_SECONDS", 0.5)

    assert rig._limit() == 0.5


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1, True, "5"], ids=repr)
def test_a_bound_that_is_none_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="close_timeout"):
        state.CloseState(close_timeout=bad)  # type: ignore[arg-type]


def test_an_unknown_treatment_of_late_handlers_is_refused() -> None:
    with pytest.raises(ValueError, match="on_overdue"):
        state.CloseState(on_overdue="shoot")  # type: ignore[arg-type]


async def test_a_component_that_fails_is_named_and_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.components["event_storage"].error = OSError("stuck")

    assert await closed(rig) == Outcome("returned")

    assert rig.calls == [1] * 5
    assert ["event_storage" in each.getMessage() for each in caplog.records] == [True]


async def test_connections_are_let_go_of_and_stores_stay_in_their_slots() -> None:
    rig = Rig()

    await rig.close()

    assert [getattr(rig, name) for name in SLOTS] == [None, None, *(rig.components[name] for name in SLOTS[2:])]


async def test_a_cancelled_teardown_is_a_failure_and_the_next_close_is_a_real_one() -> None:
    rig = Rig(close_timeout=30)
    may_end = asyncio.Event()
    rig.run("event", may_end.wait)
    closing = asyncio.ensure_future(closed(rig))
    await everyone_blocked()
    assert rig._teardown_task is not None

    rig._teardown_task.cancel()

    assert await closing == Outcome("raised", "teardown-incomplete")
    assert (rig.state, rig.calls) == (State(True, "None", False, 1), [0] * 5)
    may_end.set()
    assert await closed(rig) == Outcome("returned")
    assert (rig.state, rig.calls) == (State(True, "OK", False, 2), [1] * 5)


async def test_a_retry_releases_the_stores_again_and_what_was_emptied_only_once() -> None:
    rig = Rig()
    rig.components["subscription_storage"].error = asyncio.CancelledError()
    assert await closed(rig) == Outcome("raised", "teardown-incomplete")
    assert rig.calls == [1, 1, 1, 1, 0]
    rig.components["subscription_storage"].error = None

    assert await closed(rig) == Outcome("returned")

    assert rig.calls == [1, 1, 2, 2, 1]
    assert rig._teardown_runs == 2


async def test_a_step_that_raises_is_a_failure_that_keeps_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()

    def broken() -> list[asyncio.Task[object]]:
        raise RuntimeError("boom-step")

    monkeypatch.setattr(rig, "_running_listeners", broken)
    future = rig.request_close()
    await asyncio.wait({future}, timeout=2)

    error = future.exception()
    assert isinstance(error, Exception)
    assert (getattr(error, "kind", ""), repr(error.__cause__)) == ("teardown-incomplete", "RuntimeError('boom-step')")
    assert (rig._teardown_error_kind, repr(rig._teardown_task_error)) == ("RuntimeError", "RuntimeError('boom-step')")
    monkeypatch.undo()
    assert await closed(rig) == Outcome("returned")
