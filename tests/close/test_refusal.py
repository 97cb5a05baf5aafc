"""Refusals: where a close cannot be, it says so by name and has done nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from lastbus import CloseError, Event
from lastbus.memory import InMemoryEventBus
from lastbus.testing import everyone_blocked
from tests.close.rig import Outcome, Rig, State, closed
from tests.contract.waiting import is_over

pytestmark = pytest.mark.usefixtures("hygiene")

RETURNED = Outcome("returned")
UNTOUCHED = State(False, "None", False, 0)
ONCE = [1] * 5


@pytest.mark.guarantee("CLOSE-32")
def test_outside_a_loop_the_request_is_refused_by_name() -> None:
    rig = asyncio.run(make_rig())

    with pytest.raises(RuntimeError, match="error_kind=no-running-loop"):
        rig.request_close()

    assert (rig.state, rig.calls, rig.bound) == (UNTOUCHED, [0] * 5, 0)
    assert asyncio.run(closed(rig)) == RETURNED


async def make_rig() -> Rig:
    return Rig()


def closes_elsewhere(rig: Rig) -> list[BaseException | None]:
    """What two calls of `close()` raise on a loop of another thread, and None for one that returns."""
    raised: list[BaseException | None] = []

    async def close() -> None:
        try:
            await rig.close(timeout=2)
            raised.append(None)
        except Exception as error:
            raised.append(error)

    def run() -> None:
        asyncio.run(close())
        asyncio.run(close())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    return raised


@pytest.mark.guarantee("CLOSE-33")
async def test_while_work_runs_here_no_other_loop_may_close() -> None:
    rig = Rig()
    may_end = asyncio.Event()
    work = rig.run("event", may_end.wait)

    refused = closes_elsewhere(rig)

    after, held = rig.state, list(rig._pending_tasks)
    may_end.set()
    assert [getattr(error, "kind", error) for error in refused] == ["cross-loop-close"] * 2
    assert "another event loop" in str(refused[0])
    assert "call_soon_threadsafe" in str(refused[0])
    assert (after, held, rig.calls) == (UNTOUCHED, [work], [0] * 5)
    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2


@pytest.mark.guarantee("CLOSE-34")
async def test_a_close_that_is_under_way_here_cannot_be_joined_from_another_loop() -> None:
    rig = Rig(close_timeout=30)
    may_end = asyncio.Event()
    rig.run("event", may_end.wait)
    future = rig.request_close()

    refused = closes_elsewhere(rig)

    after = rig.state
    may_end.set()
    assert [type(error) for error in refused] == [CloseError] * 2
    assert ["error_kind=cross-loop-close" in str(error) for error in refused] == [True] * 2
    assert "call_soon_threadsafe" in str(refused[0])
    assert after == State(True, "PENDING", True, 0)
    await is_over(future)
    assert (rig.state, rig.calls) == (State(True, "OK", False, 1), ONCE)


@pytest.mark.guarantee("CLOSE-35")
async def test_an_idle_bus_may_be_closed_from_another_loop() -> None:
    rig = Rig()
    work = rig.run("event", make_rig)
    await is_over(work)
    rig._pending_tasks[work] = ("event", "of-old")

    assert closes_elsewhere(rig) == [None, None]

    assert (rig.state, rig.calls) == (State(True, "OK", False, 1), ONCE)
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-35")
@pytest.mark.parametrize("on_overdue", ["release", "cancel"])
def test_what_a_closed_loop_has_left_behind_is_named_and_holds_nobody_up(
    on_overdue: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gone, here = asyncio.new_event_loop(), asyncio.new_event_loop()
    rig = Rig(close_timeout=30, on_overdue=on_overdue)
    left: asyncio.Future[None] = gone.create_future()
    rig._pending_tasks[left] = ("event-1", "handler-1")
    listener: Any = gone.create_task(asyncio.Event().wait())
    rig._listeners.append(listener)
    gone.run_until_complete(everyone_blocked())
    gone.close()

    async def close_twice() -> list[Outcome]:
        return [await closed(rig), await closed(rig)]

    try:
        outcomes = here.run_until_complete(close_twice())
    finally:
        here.close()

    assert outcomes == [RETURNED] * 2
    left_behind = "close: event event-1 in handler handler-1 was left behind by an event loop that is closed"
    assert caplog.messages == [left_behind]
    assert (rig.state, rig.calls) == (State(True, "OK", False, 1), ONCE)
    assert (left.done(), listener.done()) == (False, False)
    listener._log_destroy_pending = False


def test_a_bus_whose_loop_ended_without_a_close_can_be_closed_on_the_next(caplog: pytest.LogCaptureFixture) -> None:
    bus = InMemoryEventBus(max_pending_callbacks=1, close_timeout=30)
    held: list[asyncio.Task[Any] | None] = []

    async def handler(event: Event) -> None:
        held.append(asyncio.current_task())
        await asyncio.Event().wait()

    async def leave_without_closing() -> list[str]:
        ids = [await bus.register_handler("job", handler) for _ in range(3)]
        await bus.publish("job", prevent_duplicate_consumption=False)
        await everyone_blocked()
        return ids

    ids = asyncio.run(leave_without_closing())
    asyncio.run(bus.close(timeout=2))

    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [any(handler_id in text for text in told) for handler_id in ids] == [False, True, True]
    for task in held:
        task._log_destroy_pending = False  # type: ignore[union-attr]


@pytest.mark.guarantee("CLOSE-33")
async def test_work_that_ends_while_it_is_listed_for_another_thread_breaks_nothing() -> None:
    rig = await make_rig()

    class Leaving(asyncio.Future[Any]):
        """Is gone as soon as somebody looks, as if its own thread had gone on meanwhile."""

        def done(self) -> bool:
            rig._pending_tasks.pop(self, None)
            return True

    for number in range(3):
        rig._pending_tasks[Leaving()] = (f"event-{number}", "handler")

    assert rig._in_flight() == []
    assert await closed(rig) == RETURNED
