"""Held: each delivery is a task that the bus holds, under the ids of event and handler, until it ends by itself."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from lastbus import Event
from lastbus.memory import InMemoryEventBus
from lastbus.testing import Gate, Recorder, everyone_blocked

pytestmark = pytest.mark.usefixtures("hygiene")


async def bring(bus: InMemoryEventBus, event: Event, origin: str) -> None:
    """Let `event` come to `bus`: published here, or brought by a listener."""
    if origin == "here":
        await bus.publish(event)
    else:
        await bus._receive(event, deduplicate=True, wildcard=False)
    await everyone_blocked()


@pytest.mark.guarantee("DISP-01")
@pytest.mark.parametrize("origin", ["here", "elsewhere"])
async def test_each_delivery_is_a_task_that_is_held_under_both_ids_until_it_ends(origin: str) -> None:
    bus = InMemoryEventBus()
    gates = [Gate(), Gate()]
    ids = [await bus.register_handler("job", gate.hold) for gate in gates]
    event = Event("job")

    await bring(bus, event, origin)
    held = dict(bus._pending_tasks)
    gates[0].open()
    await everyone_blocked()
    left = dict(bus._pending_tasks)
    gates[1].open()
    await everyone_blocked()

    assert list(held.values()) == [(event.event_id, ids[0]), (event.event_id, ids[1])]
    assert [isinstance(task, asyncio.Task) for task in held] == [True, True]
    assert list(left.values()) == [(event.event_id, ids[1])]
    assert bus._pending_tasks == {}
    await bus.close()


@pytest.mark.guarantee("DISP-01", "CAP-29")
async def test_under_a_task_factory_a_delivery_is_held_from_its_own_first_step_on() -> None:
    bus, event, held = InMemoryEventBus(), Event("job"), list[object]()

    async def handler(event: Event) -> None:
        task = asyncio.current_task()
        assert task is not None
        held.append(bus._pending_tasks[task])

    await bus.register_handler("job", handler, handler_id="h")

    for _ in range(2):  # As a factory that begins a task at once does it: nobody else knows of the task.
        await asyncio.ensure_future(bus._dispatcher._deliver_announced(event, *bus._registry, True))

    assert held == [(event.event_id, "h")]
    assert await bus.processing_tracker.is_event_processed(event.event_id, "h")
    bus._pending_tasks.clear()
    await bus.close()


@pytest.mark.guarantee("DISP-02")
@pytest.mark.parametrize("origin", ["here", "elsewhere"])
async def test_a_delivery_that_nobody_else_refers_to_survives_the_collector(origin: str) -> None:
    bus = InMemoryEventBus()
    waits_for: list[weakref.ref[asyncio.Future[None]]] = []
    finished: list[str] = []

    async def handler(event: Event) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waits_for.append(weakref.ref(future))
        await future
        finished.append(event.event_id)

    await bus.register_handler("job", handler)
    event = Event("job")

    await bring(bus, event, origin)
    gc.collect()
    future = waits_for[0]()
    assert future is not None
    future.set_result(None)
    await everyone_blocked()

    assert finished == [event.event_id]
    await bus.close()


@pytest.mark.guarantee("DISP-03")
async def test_while_nobody_closes_every_delivery_runs_to_its_end(gate: Gate, recorder: Recorder) -> None:
    bus = InMemoryEventBus()
    await bus.register_handler("job", gate.hold)
    await bus.register_handler("job", recorder)
    ids = [await bus.publish("job") for _ in range(10)]
    await everyone_blocked()
    quick, slow = len(recorder.events), len(gate.left)

    gate.open()
    await everyone_blocked(100)

    assert (quick, slow) == (10, 0)
    assert [event.event_id for event in gate.left] == ids
    assert gate.cancelled == []
    assert bus._pending_tasks == {}
    await bus.close()


@pytest.mark.guarantee("DISP-12")
@pytest.mark.parametrize("origin", ["here", "elsewhere"])
@pytest.mark.parametrize("error", [ValueError("boom"), BaseException("deep")], ids=["ordinary", "unusual"])
async def test_a_failing_handler_is_logged_once_and_its_delivery_ends_well(
    origin: str, error: BaseException, hygiene: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    bus = InMemoryEventBus()
    deliveries: list[asyncio.Task[None] | None] = []

    async def handler(event: Event) -> None:
        deliveries.append(asyncio.current_task())
        raise error

    handler_id = await bus.register_handler("job", handler)
    event = Event("job")

    await bring(bus, event, origin)

    [delivery] = deliveries
    assert delivery is not None
    assert (delivery.done(), delivery.cancelled(), delivery.exception()) == (True, False, None)
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert event.event_id in record.getMessage()
    assert handler_id in record.getMessage()
    assert hygiene == []
    await bus.close()
