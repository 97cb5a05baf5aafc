"""Dispatch: one task per handler, whose failure is its own, on every back end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from lastbus import BaseBus, Event
from lastbus.memory import InMemoryEventBus, InMemoryProcessingTracker
from lastbus.testing import Gate, Recorder, everyone_blocked
from tests._backends import Backend
from tests.contract.waiting import hears, is_over, settled, until

DELIVERY = "Dispatcher._deliver_announced"


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]


async def fail(event: Event) -> None:
    raise ValueError("boom")


class BrokenTracker(InMemoryProcessingTracker):
    """Breaks in a way that no delivery expects."""

    class Broken(BaseException):
        """Nothing that a store may raise."""

    async def claim_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        raise self.Broken


@pytest.mark.guarantee("CAP-01")
async def test_every_matching_handler_runs_in_a_task_of_its_own(bus: BaseBus) -> None:
    tasks: list[object] = []

    async def note(event: Event) -> None:
        tasks.append(asyncio.current_task())

    for _ in range(3):
        await bus.register_handler("job", note)
    await bus.publish("job")
    await settled(bus)

    assert len(tasks) == len(set(tasks)) == 3
    assert asyncio.current_task() not in tasks


@pytest.mark.guarantee("CAP-01")
async def test_a_slow_handler_does_not_delay_the_next(bus: BaseBus, gate: Gate, recorder: Recorder) -> None:
    await bus.register_handler("job", gate.hold)
    await bus.register_handler("job", recorder)

    await bus.publish("job")
    await gate.has_entered()
    await hears(recorder)

    assert gate.left == []
    gate.open()


@pytest.mark.guarantee("MEM-03")
async def test_publish_returns_before_any_handler_has_run(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("job", recorder)

    await bus.publish("job")

    assert recorder.events == []
    assert len(bus._pending_tasks) == 1
    await settled(bus)
    assert len(recorder.events) == 1


@pytest.mark.guarantee("MEM-03")
async def test_publish_does_not_wait_for_a_handler_that_is_stuck(bus: BaseBus, gate: Gate) -> None:
    await bus.register_handler("job", gate.hold)

    publishing = asyncio.ensure_future(bus.publish("job"))
    await is_over(publishing)

    returned = publishing.done()
    gate.open()
    assert returned


@pytest.mark.guarantee("MEM-05")
async def test_a_delivery_that_nobody_else_refers_to_survives_the_collector(bus: BaseBus) -> None:
    waited_on: list[weakref.ref[asyncio.Future[None]]] = []
    finished: list[str] = []

    async def handler(event: Event) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waited_on.append(weakref.ref(future))
        await future
        finished.append(event.event_id)

    await bus.register_handler("job", handler)
    published = await bus.publish("job")
    await until(lambda: bool(waited_on))
    gc.collect()
    future = waited_on[0]()
    assert future is not None
    future.set_result(None)
    await settled(bus)

    assert finished == [published]


@pytest.mark.guarantee("MEM-05")
async def test_a_delivery_that_has_ended_is_let_go_of(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("job", recorder)

    await bus.publish("job")
    delivery = next(iter(bus._pending_tasks))
    await is_over(delivery)
    await asyncio.sleep(0)

    assert delivery.done()
    assert dict(bus._pending_tasks) == {}


@pytest.mark.guarantee("MEM-07")
async def test_a_handler_finds_its_event_in_the_store(bus: BaseBus) -> None:
    found: list[Event | None] = []

    async def look(event: Event) -> None:
        found.append(await bus.event_storage.get_event(event.event_id))

    await bus.register_handler("job", look)
    event = Event("job", {"n": 1})
    await bus.publish(event)
    await settled(bus)

    assert found == [event]


@pytest.mark.guarantee("MEM-07")
async def test_an_event_that_the_store_refuses_reaches_nobody(backend: Backend, recorder: Recorder) -> None:
    class Full(Exception):
        """The store is full."""

    bus = backend.make_bus()

    async def refuse(*_: Any) -> str:
        raise Full

    await bus.register_handler("job", recorder)
    bus._store = refuse  # type: ignore[method-assign,assignment]

    with pytest.raises(Full):
        await bus.publish("job")
    await everyone_blocked()

    assert recorder.events == []
    assert dict(bus._pending_tasks) == {}


@pytest.mark.guarantee("CAP-02", "MEM-08")
async def test_a_failing_handler_costs_neither_the_publisher_nor_its_siblings_anything(
    bus: BaseBus, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    failing = await bus.register_handler("job", fail)
    await bus.register_handler("job", recorder)
    event = Event("job")

    assert await bus.publish(event) == event.event_id
    await settled(bus)

    assert recorder.events == [event]
    [message] = errors(caplog)
    assert failing in message
    assert event.event_id in message


@pytest.mark.guarantee("CAP-03")
async def test_a_failing_handler_leaves_no_exception_for_the_collector(bus: BaseBus) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    await bus.register_handler("job", fail)

    await bus.publish("job")
    await settled(bus)
    gc.collect()
    await everyone_blocked()

    assert complaints == []


@pytest.mark.guarantee("CAP-03", "CAP-08")
async def test_a_delivery_that_breaks_outside_its_handler_is_logged_by_name_and_gives_its_slot_back(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with InMemoryEventBus(processing_tracker=BrokenTracker(), max_pending_callbacks=1) as bus:
        handler_id = await bus.register_handler("job", recorder)
        event = Event("job")

        await bus.publish(event)
        await settled(bus)
        again = asyncio.ensure_future(bus.publish("job", prevent_duplicate_consumption=False))
        await is_over(again)
        returned = again.done()
        again.cancel()
    gc.collect()
    await everyone_blocked()

    assert returned
    assert complaints == []
    [message] = errors(caplog)
    assert event.event_id in message
    assert handler_id in message


@pytest.mark.guarantee("CAP-04")
async def test_a_cancelled_handler_logs_no_error(bus: BaseBus, gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    await bus.register_handler("job", gate.hold)
    await bus.publish("job")
    await gate.has_entered()

    for delivery in list(bus._pending_tasks):
        delivery.cancel()
    await settled(bus)

    assert len(gate.cancelled) == 1
    assert errors(caplog) == []
    assert complaints == []


class Factory:
    """A task factory that treats the first `count` deliveries badly, and everybody else well."""

    def __init__(self, count: int, returns: object = None, error: Exception | None = None) -> None:
        self.count = count
        self.returns = returns
        self.error = error

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        if getattr(coro, "__qualname__", "") != DELIVERY or self.count == 0:
            return asyncio.Task(coro, loop=loop, **options)
        self.count -= 1
        if self.error is not None:
            raise self.error
        if self.returns is not None:
            coro.close()
        return self.returns


@pytest.mark.guarantee("CAP-29")
@pytest.mark.parametrize("error", [OSError("no task today"), None], ids=["raises", "returns-none"])
@pytest.mark.filterwarnings("ignore:Task.set_name")
async def test_a_delivery_for_which_the_loop_makes_no_task_costs_only_itself(
    bus: BaseBus, recorder: Recorder, error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    unlucky = await bus.register_handler("job", recorder)
    await bus.register_handler("job", recorder)
    event = Event("job")
    asyncio.get_running_loop().set_task_factory(Factory(1, error=error))

    try:
        assert await bus.publish(event) == event.event_id
        await settled(bus)
    finally:
        asyncio.get_running_loop().set_task_factory(None)

    assert recorder.events == [event]
    [message] = errors(caplog)
    assert event.event_id in message
    assert unlucky in message


@pytest.mark.guarantee("CAP-29")
async def test_a_task_that_the_loop_returns_for_two_deliveries_frees_the_slots_of_both(
    backend: Backend, gate: Gate, recorder: Recorder
) -> None:
    bus = backend.make_bus(max_pending_callbacks=2)
    await bus.register_handler("job", gate.hold)
    await bus.publish("job")
    await gate.has_entered()
    [twice] = bus._pending_tasks
    asyncio.get_running_loop().set_task_factory(Factory(1, returns=twice))

    try:
        await bus.publish("job")
        gate.open()
        await settled(bus)
    finally:
        asyncio.get_running_loop().set_task_factory(None)

    assert bus._slots.taken == 0


@pytest.mark.guarantee("CAP-29", "CAP-25")
async def test_queued_deliveries_for_which_the_loop_makes_no_task_free_their_slot(
    backend: Backend, gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    await bus.register_handler("job", gate.hold)
    for _ in range(3):
        await bus.register_handler("job", recorder)
    await bus.publish("job")
    await gate.has_entered()
    asyncio.get_running_loop().set_task_factory(Factory(2, error=OSError("no task today")))

    try:
        gate.open()
        await hears(recorder)
        await settled(bus)
    finally:
        asyncio.get_running_loop().set_task_factory(None)

    assert len(recorder.events) == 1
    assert len(errors(caplog)) == 2
    assert bus._slots.taken == 0
