"""Spawn: a close for which no task can be made has not begun, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from lastbus import BusClosedError, CloseError
from lastbus.memory import InMemoryEventBus
from lastbus.testing import everyone_blocked
from tests.close.rig import Outcome, Rig, State, closed, factory
from tests.contract.waiting import is_over

pytestmark = pytest.mark.usefixtures("hygiene")

RETURNED = Outcome("returned")
REFUSED = Outcome("raised", "teardown-spawn-failed")
UNTOUCHED = State(False, "None", False, 0)
ONCE = [1] * 5


class Barren:
    """A task factory that makes nothing; it remembers what it was asked to run."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.asked: list[Coroutine[Any, Any, None]] = []

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, None]) -> Any:
        self.asked.append(coro)
        raise self.error


@pytest.mark.guarantee("CLOSE-36")
@pytest.mark.parametrize("error", [OSError("no task today"), AttributeError("set_name")], ids=["os", "attribute"])
async def test_a_close_without_a_task_has_not_begun(error: BaseException) -> None:
    rig, barren = Rig(), Barren(error)

    with factory(barren):
        outcomes = [await closed(rig), await closed(rig)]
    after = (rig.state, rig.calls, rig.bound)

    assert outcomes == [REFUSED] * 2
    assert after == (UNTOUCHED, [0] * 5, 0)
    assert [inspect.getcoroutinestate(coro) for coro in barren.asked] == [inspect.CORO_CLOSED] * 2
    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2
    assert (rig.state, rig.calls, rig.bound) == (State(True, "OK", False, 1), ONCE, 1)


@pytest.mark.guarantee("CLOSE-36")
async def test_a_loop_that_is_closed_makes_no_task_either(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()

    def create_task(coro: Coroutine[Any, Any, None], **_: Any) -> Any:
        raise RuntimeError("Event loop is closed")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_task", create_task)
    with pytest.raises(CloseError) as caught:
        rig.request_close()
    after = (rig.state, rig.calls, rig.bound)
    monkeypatch.undo()

    assert caught.value.kind == "teardown-spawn-failed"
    assert "Event loop is closed" in str(caught.value.__cause__)
    assert after == (UNTOUCHED, [0] * 5, 0)
    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2


@pytest.mark.guarantee("CLOSE-36")
async def test_a_second_attempt_without_a_task_leaves_the_bus_as_the_first_left_it() -> None:
    rig = Rig()
    rig.components["pubsub"].error = asyncio.CancelledError()
    assert await closed(rig) == Outcome("raised", "teardown-incomplete")
    rig.components["pubsub"].error = None
    before = rig.state

    with factory(Barren(OSError("no task today"))):
        refused = await closed(rig)

    assert (refused, rig.state, before) == (REFUSED, before, State(True, "None", False, 1))
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-36")
async def test_a_bus_whose_close_has_not_begun_goes_on_working() -> None:
    bus = InMemoryEventBus()
    waiting = asyncio.ensure_future(bus.wait_for_event("job", timeout=30))
    await everyone_blocked()

    with factory(Barren(OSError("no task today"))), pytest.raises(CloseError, match="teardown-spawn-failed"):
        bus.request_close()
    event_id = await bus.publish("job")
    await is_over(waiting)

    assert waiting.result().event_id == event_id
    await bus.close()
    with pytest.raises(BusClosedError):
        await bus.publish("job")
