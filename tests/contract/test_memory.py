"""The memory back end: what it promises beyond the verbs that every back end shares."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus import BaseBus, Event, EventNotFoundError, EventSubscription, EventTimeoutError
from lastbus.memory import InMemoryEventBus, InMemoryProcessingTracker, MemoryEventStorage
from lastbus.testing import Gate, ManualClock, Recorder, everyone_blocked
from tests.contract.waiting import is_over, settled, until

TTL = 60.0


@pytest.mark.guarantee("MEM-01")
async def test_a_wait_does_not_see_what_was_published_before_it(clock: ManualClock) -> None:
    async with InMemoryEventBus(clock=clock) as bus:
        await bus.publish("job", n=1)

        waiting = asyncio.ensure_future(bus.wait_for_event("job", timeout=0.1))
        await everyone_blocked()
        clock.advance(0.1)
        await is_over(waiting)

        assert isinstance(waiting.exception(), EventTimeoutError)


@pytest.mark.guarantee("MEM-01")
async def test_a_wait_sees_what_is_published_after_it(bus: BaseBus) -> None:
    await bus.publish("job", n=1)
    waiting = asyncio.ensure_future(bus.wait_for_event("job", timeout=5))
    await until(lambda: len(bus._waiters) == 1)
    await everyone_blocked()

    published = await bus.publish("job", n=2)

    assert (await waiting).event_id == published


@pytest.mark.guarantee("MEM-02")
async def test_a_subscription_is_stored_and_calls_nobody(bus: BaseBus) -> None:
    subscription_id = await bus.register_subscription("job", correlation_id="order-7")

    published = await bus.publish(Event("job", correlation_id="order-7"))
    started = list(bus._pending_tasks.values())

    assert started == []
    [found] = await bus.subscription_storage.list_subscriptions(correlation_id="order-7")
    assert found.subscription_id == subscription_id
    assert not found.is_event_processed(published)


@pytest.mark.guarantee("MEM-04")
def test_a_loop_that_ends_takes_its_handlers_with_it() -> None:
    finished: list[Event] = []

    async def handler(event: Event) -> None:
        await asyncio.Event().wait()
        finished.append(event)

    async def publish() -> str:
        bus = InMemoryEventBus()
        await bus.register_handler("job", handler)
        return await asyncio.wait_for(bus.publish("job"), 1)

    published = asyncio.run(publish())

    assert published
    assert finished == []


@pytest.mark.guarantee("MEM-06")
async def test_a_memory_bus_waits_for_its_handlers_when_it_closes(gate: Gate) -> None:
    bus = InMemoryEventBus(close_timeout=30)
    await bus.register_handler("job", gate.hold)
    await bus.publish("job")
    await gate.has_entered()

    closing = asyncio.ensure_future(bus.close())
    await everyone_blocked()
    early = closing.done()
    gate.open()
    await is_over(closing)

    assert not early
    assert closing.done()
    assert len(gate.left) == 1


@pytest.mark.guarantee("MEM-09")
async def test_an_event_is_there_until_its_ttl_is_over_and_gone_then(clock: ManualClock) -> None:
    async with InMemoryEventBus(ttl=TTL, clock=clock) as bus:
        event = Event("job")
        await bus.publish(event)

        clock.advance(TTL - 1)
        assert await bus.get_event(event.event_id) == event
        clock.advance(1)

        with pytest.raises(EventNotFoundError):
            await bus.get_event(event.event_id)
        assert await bus.event_storage.delete_event(event.event_id) is False
        assert await bus.event_storage.list_events() == []


@pytest.mark.guarantee("MEM-09")
async def test_the_store_holds_no_more_than_one_ttl_of_events(clock: ManualClock) -> None:
    storage = MemoryEventStorage(TTL, clock)

    for _ in range(1000):
        await storage.store_event(Event("job"))
        clock.advance(1)

    assert len(storage._events) == TTL


@pytest.mark.guarantee("MEM-09")
async def test_storing_again_is_a_new_life(clock: ManualClock) -> None:
    storage = MemoryEventStorage(TTL, clock)
    event, other = Event("job"), Event("job")
    await storage.store_event(event)
    await storage.store_event(other)
    clock.advance(TTL - 1)

    await storage.store_event(event)
    clock.advance(1)
    latest = Event("job")
    await storage.store_event(latest)

    assert await storage.get_event(event.event_id) == event
    assert await storage.get_event(other.event_id) is None
    assert set(storage._events) == {event.event_id, latest.event_id}


@pytest.mark.guarantee("MEM-09")
async def test_a_clock_that_is_set_back_keeps_no_event_beyond_its_ttl(clock: ManualClock) -> None:
    storage = MemoryEventStorage(TTL, clock)
    await storage.store_event(Event("job"))
    clock.advance(-1000)
    late = Event("job")
    await storage.store_event(late)

    clock.advance(TTL)

    assert await storage.get_event(late.event_id) is None
    assert late not in await storage.list_events()


@pytest.mark.guarantee("MEM-10")
@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), True, "60"], ids=repr)
@pytest.mark.parametrize("made", [InMemoryEventBus, MemoryEventStorage, InMemoryProcessingTracker])
def test_a_life_that_is_none_is_refused(made: Any, ttl: Any) -> None:
    with pytest.raises(ValueError, match=r"^ttl must be"):
        made(ttl=ttl)


@pytest.mark.guarantee("MEM-11")
async def test_marks_are_forgotten_one_ttl_after_the_last_news(clock: ManualClock) -> None:
    tracker = InMemoryProcessingTracker(TTL, clock)

    for n in range(500):
        assert await tracker.claim_event(f"event-{n}", "handler", "me")
        assert await tracker.mark_event_processed(f"event-{n}", "handler", "me")
        clock.advance(1)

    assert len(tracker._records) == TTL + 1
    assert await tracker.is_event_processed("event-499", "handler")
    assert not await tracker.is_event_processed("event-0", "handler")


@pytest.mark.guarantee("MEM-11")
async def test_a_claim_that_is_held_is_not_forgotten(clock: ManualClock) -> None:
    tracker = InMemoryProcessingTracker(TTL, clock)
    await tracker.claim_event("event", "handler", "me")

    clock.advance(2 * TTL)
    await tracker.claim_event("another", "handler", "me")

    assert not await tracker.claim_event("event", "handler", "you")
    assert await tracker.mark_event_processed("event", "handler", "me")


@pytest.mark.guarantee("MEM-11")
async def test_a_bus_has_a_tracker_that_forgets_when_its_events_are_gone(
    clock: ManualClock, recorder: Recorder
) -> None:
    async with InMemoryEventBus(ttl=TTL, clock=clock) as bus:
        await bus.register_handler("job", recorder, handler_id="h")
        old = await bus.publish("job")
        await settled(bus)
        assert await bus.processing_tracker.is_event_processed(old, "h")

        clock.advance(TTL + 1)
        await bus.publish("job")
        await settled(bus)

        assert not await bus.processing_tracker.is_event_processed(old, "h")


@pytest.mark.guarantee("MEM-12")
async def test_changing_an_event_changes_nothing_for_anybody_else(recorder: Recorder) -> None:
    async with InMemoryEventBus() as bus:
        await bus.register_handler("job", recorder)
        event = Event("job", {"items": [1]})
        await bus.publish(event)
        await settled(bus)

        event.data["items"].append("mine")
        (await bus.get_event(event.event_id)).data["items"].append("yours")

        assert (await bus.get_event(event.event_id)).data == {"items": [1]}


@pytest.mark.guarantee("MEM-12")
async def test_changing_a_subscription_changes_nothing_for_anybody_else() -> None:
    async with InMemoryEventBus() as bus:
        storage = bus.subscription_storage
        subscription = EventSubscription(event_type="job", filter_condition={"a": [1]})
        await storage.store_subscription(subscription)

        assert subscription.filter_condition is not None
        subscription.filter_condition["a"].append(2)
        first = await storage.get_subscription(subscription.subscription_id)
        assert first is not None
        assert first.filter_condition is not None
        first.filter_condition["a"].append(3)
        [listed] = await storage.list_subscriptions()
        assert listed.filter_condition is not None
        listed.filter_condition["a"].append(4)

        last = await storage.get_subscription(subscription.subscription_id)
        assert last is not None
        assert last.filter_condition == {"a": [1]}
