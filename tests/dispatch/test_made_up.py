"""Made up: an event that was missed goes to exactly the handlers that missed it, those that are still there."""

from __future__ import annotations

import asyncio

import pytest

from lastbus import BusClosedError, Event
from lastbus._dispatch.claims import Claims
from lastbus._dispatch.registry import Registration
from lastbus.memory import InMemoryEventBus, InMemoryProcessingTracker
from lastbus.testing import Gate, ManualClock, Recorder, everyone_blocked

pytestmark = pytest.mark.usefixtures("hygiene")


def registered(bus: InMemoryEventBus, handler_id: str) -> Registration:
    registration = bus._registry.get(handler_id)
    assert registration is not None
    return registration


@pytest.mark.guarantee("REDIS-21")
async def test_it_goes_to_the_named_handlers_and_each_end_is_told(gate: Gate, recorder: Recorder) -> None:
    bus, bystander = InMemoryEventBus(max_pending_callbacks=1), Recorder()
    await bus.register_handler("t", gate.hold, handler_id="slow")
    await bus.register_handler("t", recorder, handler_id="quick")
    await bus.register_handler("t", bystander)
    event = Event("t")

    ends = await bus._foreign.make_up(event, (registered(bus, "slow"), registered(bus, "quick")))
    await everyone_blocked()
    before = [end.done() for end in ends]
    gate.open()
    await everyone_blocked()

    assert (before, [end.done() for end in ends]) == ([False, False], [True, True])
    assert ([each.event_id for each in gate.left], recorder.events, bystander.events) == ([event.event_id], [event], [])
    assert bus._slots.taken == 0
    await bus.close()


@pytest.mark.guarantee("REDIS-21")
async def test_a_handler_that_has_gone_or_was_registered_anew_is_passed_over(recorder: Recorder) -> None:
    bus, successor = InMemoryEventBus(max_pending_callbacks=1), Recorder()
    for name in ("here", "gone", "anew"):
        await bus.register_handler("t", recorder, handler_id=name)
    missed = tuple(bus._registry)
    for name in ("gone", "anew"):
        await bus.unregister_handler(name)
    await bus.register_handler("t", successor, handler_id="anew")
    event = Event("t")

    await bus._foreign.make_up(event, missed)
    await everyone_blocked()

    assert (recorder.events, successor.events) == ([event], [])
    assert bus._slots.taken == 0
    await bus.close()


@pytest.mark.guarantee("REDIS-20")
async def test_what_was_handled_is_not_made_up_for_again(recorder: Recorder) -> None:
    bus, event = InMemoryEventBus(), Event("t")
    await bus.register_handler("t", recorder)

    for _ in range(2):
        await bus._foreign.make_up(event, tuple(bus._registry))
        await everyone_blocked()

    assert recorder.events == [event]
    await bus.close()


@pytest.mark.guarantee("REDIS-21")
async def test_a_closing_bus_refuses_it_by_name_before_and_after_the_wait_for_a_slot(
    gate: Gate, recorder: Recorder
) -> None:
    bus = InMemoryEventBus(max_pending_callbacks=1)
    await bus.register_handler("t", recorder)
    await bus.register_handler("full", gate.hold)
    await bus.publish("full")
    await everyone_blocked()
    making_up = asyncio.ensure_future(bus._foreign.make_up(Event("t"), tuple(bus._registry)))
    await everyone_blocked()
    [delivery] = bus._pending_tasks
    delivery.add_done_callback(lambda _: bus.request_close())

    gate.open()
    await asyncio.wait({making_up}, timeout=1)
    later = asyncio.ensure_future(bus._foreign.make_up(Event("t"), tuple(bus._registry)))
    errors = await asyncio.gather(making_up, later, return_exceptions=True)
    await bus.close()

    assert [type(each) for each in errors] == [BusClosedError] * 2
    assert [each.verb for each in errors if isinstance(each, BusClosedError)] == ["dispatch"] * 2
    assert (recorder.events, bus._slots.taken) == ([], 0)


@pytest.mark.guarantee("REDIS-20")
def test_a_bus_knows_the_tokens_that_it_has_drawn_itself() -> None:
    tracker, clock = InMemoryProcessingTracker(), ManualClock()
    first, second = (Claims(tracker, clock, name) for name in ("1", "1-1"))

    tokens = [claims.draw("event", "handler")[2] for claims in (first, second)]

    assert [first.is_ours(tokens[0]), second.is_ours(tokens[1])] == [True, True]
    assert [second.is_ours(tokens[0]), second.is_ours("11-0"), second.is_ours("")] == [False, False, False]
