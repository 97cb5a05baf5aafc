"""Capacity: how many handlers run at once, who waits for a slot, and that a slot always comes back."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable

import pytest

from lastbus import BaseBus, BusClosedError, Event
from lastbus.memory import InMemoryEventBus
from lastbus.testing import Gate, Recorder, everyone_blocked
from tests._backends import Backend
from tests.contract.slow_storage import SlowStorage
from tests.contract.waiting import hears, is_over, settled, until


class Crowd:
    """A handler that counts how many of it are inside, now and at most."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self.total = 0
        self.may_leave = asyncio.Event()

    async def __call__(self, event: Event) -> None:
        self.now += 1
        self.total += 1
        self.peak = max(self.peak, self.now)
        await self.may_leave.wait()
        self.now -= 1


def waiting(bus: BaseBus) -> int:
    return len(bus._slots.waiting)


async def fill(bus: BaseBus, gate: Gate) -> None:
    """Take the only slot of `bus` with a handler of `full` that stays until the gate opens."""
    await bus.register_handler("full", gate.hold)
    await bus.publish("full")
    await gate.has_entered()


async def blocked_publish(bus: BaseBus, event: Event | str) -> asyncio.Future[str]:
    """A publish that has come to wait for a slot."""
    before = waiting(bus)
    publishing = asyncio.ensure_future(bus.publish(event))
    await until(lambda: waiting(bus) > before or publishing.done())
    return publishing


async def returns(bus: BaseBus, event: Event | str) -> bool:
    """Whether a publish gets through within the time that a test has."""
    publishing = asyncio.ensure_future(bus.publish(event))
    await is_over(publishing)
    got_through = publishing.done()
    publishing.cancel()
    return got_through


@pytest.mark.guarantee("CAP-05")
async def test_by_default_a_thousand_stuck_handlers_do_not_delay_a_publish() -> None:
    crowd = Crowd()
    async with InMemoryEventBus() as bus:
        await bus.register_handler("job", crowd)

        publishing = asyncio.ensure_future(bus.batch_publish(["job"] * 1000))
        await is_over(publishing, seconds=2)
        returned = publishing.done()
        publishing.cancel()
        await everyone_blocked()
        crowd.may_leave.set()

    assert returned
    assert crowd.peak == 1000


@pytest.mark.guarantee("CAP-06")
async def test_the_bound_counts_the_running_handlers_of_all_types_together(backend: Backend) -> None:
    bus = backend.make_bus(max_pending_callbacks=2)
    crowd = Crowd()
    await bus.register_handler("a", crowd)
    await bus.register_handler("b", crowd)

    publishers = [asyncio.ensure_future(bus.publish(kind)) for kind in "ababa"]
    await until(lambda: crowd.now + waiting(bus) == 5)
    assert (crowd.now, waiting(bus)) == (2, 3)
    crowd.may_leave.set()
    await is_over(*publishers, seconds=5)
    await settled(bus)

    assert (crowd.peak, crowd.total) == (2, 5)


@pytest.mark.guarantee("CAP-06", "CAP-25")
async def test_the_bound_counts_the_handlers_of_one_event_one_by_one(backend: Backend) -> None:
    bus = backend.make_bus(max_pending_callbacks=2)
    crowd = Crowd()
    for _ in range(5):
        await bus.register_handler("job", crowd)

    await bus.publish("job")
    await until(lambda: crowd.now >= 2)
    crowd.may_leave.set()
    await until(lambda: crowd.total == 5)
    await settled(bus)

    assert crowd.peak == 2


@pytest.mark.guarantee("CAP-06")
async def test_a_foreign_event_waits_for_a_slot(backend: Backend, gate: Gate, recorder: Recorder) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    await bus.register_handler("job", recorder)
    await fill(bus, gate)
    event = Event("job")

    receiving = asyncio.ensure_future(bus._receive(event, deduplicate=True, wildcard=False))
    await everyone_blocked()
    early = receiving.done()
    gate.open()
    await is_over(receiving)
    await settled(bus)

    assert not early
    assert recorder.events == [event]


@pytest.mark.guarantee("CAP-06")
@pytest.mark.parametrize("bound", [0, -1, 1.5, True, "2"], ids=repr)
def test_a_bound_that_bounds_nothing_is_refused(bound: object) -> None:
    with pytest.raises(ValueError, match="max_pending_callbacks"):
        InMemoryEventBus(max_pending_callbacks=bound)


@pytest.mark.guarantee("CAP-07")
async def test_at_capacity_publish_waits_before_it_stores_and_drops_nothing(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    recorder = Recorder()
    await bus.register_handler("job", recorder)
    await fill(bus, gate)
    event = Event("job")

    publishing = await blocked_publish(bus, event)
    assert not publishing.done()
    assert await bus.event_storage.get_event(event.event_id) is None
    gate.open()
    assert await asyncio.wait_for(publishing, 1) == event.event_id
    await settled(bus)

    assert recorder.events == [event]
    assert len(gate.left) == 1


@pytest.mark.guarantee("CAP-07")
async def test_slots_go_to_publishers_in_the_order_in_which_they_came(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    recorder = Recorder()
    await bus.register_handler("job", recorder)
    await fill(bus, gate)
    events = [Event("job", {"n": n}) for n in range(4)]
    publishers = [await blocked_publish(bus, event) for event in events]

    gate.open()
    await is_over(*publishers, seconds=5)
    await settled(bus)

    assert recorder.events == events


@pytest.mark.guarantee("CAP-07")
async def test_an_event_that_nobody_handles_needs_no_slot(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    await fill(bus, gate)

    assert await returns(bus, "nobody-cares")
    gate.open()


@pytest.mark.guarantee("CAP-07")
async def test_a_slot_is_not_kept_for_handlers_that_left_during_the_wait(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    recorder = Recorder()
    handler_id = await bus.register_handler("job", recorder)
    await fill(bus, gate)
    publishing = await blocked_publish(bus, "job")

    await bus.unregister_handler(handler_id)
    gate.open()
    await is_over(publishing)
    await settled(bus)

    assert publishing.done()
    assert recorder.events == []
    assert bus._slots.taken == 0


async def succeed(event: Event) -> None:
    return None


async def fail(event: Event) -> None:
    raise ValueError("boom")


async def cancel_itself(event: Event) -> None:
    raise asyncio.CancelledError


@pytest.mark.guarantee("CAP-08")
@pytest.mark.parametrize("handler", [succeed, fail, cancel_itself], ids=["success", "failure", "cancellation"])
async def test_a_slot_comes_back_however_its_handler_ends(backend: Backend, handler: Callable[..., object]) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    await bus.register_handler("job", handler)

    assert [await returns(bus, "job") for _ in range(3)] == [True] * 3
    await settled(bus)

    assert bus._slots.taken == 0


@pytest.mark.guarantee("CAP-08")
async def test_a_slot_comes_back_when_the_store_refuses_the_event(recorder: Recorder) -> None:
    storage = SlowStorage()
    async with InMemoryEventBus(event_storage=storage, max_pending_callbacks=1) as bus:
        await bus.register_handler("job", recorder)
        storage.error = OSError("disk full")
        with pytest.raises(OSError, match="disk full"):
            await bus.publish("job")
        storage.error = None

        assert await returns(bus, "job")
        await settled(bus)

        assert len(recorder.events) == 1


@pytest.mark.guarantee("CAP-09")
async def test_a_publish_that_is_cancelled_while_it_waits_takes_nothing_with_it(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    recorder = Recorder()
    await bus.register_handler("job", recorder)
    await fill(bus, gate)
    event = Event("job")
    publishing = await blocked_publish(bus, event)

    publishing.cancel()
    await is_over(publishing)
    gate.open()
    await settled(bus)

    assert publishing.cancelled()
    assert await bus.event_storage.get_event(event.event_id) is None
    assert recorder.events == []
    assert await returns(bus, "job")
    await settled(bus)
    assert bus._slots.taken == 0


def as_the_slot_comes(bus: BaseBus, act: Callable[[], object]) -> None:
    """Call `act` when the one running delivery has given back its slot, before whoever got it has run again."""
    [delivery] = bus._pending_tasks
    delivery.add_done_callback(lambda _: act())


@pytest.mark.guarantee("CAP-09")
async def test_a_publish_cancelled_as_its_slot_comes_passes_it_to_the_next_publisher(
    backend: Backend, gate: Gate, recorder: Recorder
) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    await bus.register_handler("job", recorder)
    await fill(bus, gate)
    first = await blocked_publish(bus, "job")
    second = await blocked_publish(bus, "job")
    as_the_slot_comes(bus, first.cancel)

    gate.open()
    await is_over(first, second)
    await settled(bus)

    assert first.cancelled()
    assert second.done()
    assert len(recorder.events) == 1
    assert bus._slots.taken == 0


@pytest.mark.guarantee("CAP-09", "CAP-25")
async def test_a_publish_cancelled_as_its_slot_comes_passes_it_to_what_is_queued(
    gate: Gate, recorder: Recorder
) -> None:
    async with InMemoryEventBus(max_pending_callbacks=1, close_timeout=0.2) as bus:
        contexts: list[contextvars.Context] = []

        async def outer(event: Event) -> None:
            contexts.append(contextvars.copy_context())
            await gate.hold(event)

        def publish_from_the_handler() -> None:
            publishing.cancel()
            with contextlib.suppress(StopIteration):
                contexts[0].run(bus.publish("inner").send, None)

        await bus.register_handler("outer", outer)
        await bus.register_handler("inner", recorder)
        await bus.publish("outer")
        await gate.has_entered()
        publishing = await blocked_publish(bus, "inner")
        as_the_slot_comes(bus, publish_from_the_handler)

        gate.open()
        await is_over(publishing)
        await everyone_blocked()

        assert publishing.cancelled()
        assert len(recorder.events) == 1
        assert bus._slots.taken == 0


@pytest.mark.guarantee("CAP-25")
async def test_further_handlers_of_an_event_start_in_order_and_before_any_publisher(
    backend: Backend, gate: Gate
) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    order: list[str] = []

    def noting(name: str) -> Callable[[Event], object]:
        async def note(event: Event) -> None:
            order.append(name)

        return note

    await bus.register_handler("job", gate.hold)
    for name in ("second", "third", "fourth"):
        await bus.register_handler("job", noting(name))
    await bus.register_handler("later", noting("later"))
    await bus.publish("job")
    await gate.has_entered()
    publishing = await blocked_publish(bus, "later")

    gate.open()
    await is_over(publishing)
    await until(lambda: len(order) == 4)

    assert order == ["second", "third", "fourth", "later"]


@pytest.mark.guarantee("CAP-25")
async def test_a_close_in_the_turn_in_which_the_last_slot_comes_free_still_waits_for_the_queue() -> None:
    bus = InMemoryEventBus(max_pending_callbacks=1)
    turn = asyncio.get_running_loop().create_future()
    ran: list[str] = []

    async def first(event: Event) -> None:
        await turn

    async def second(event: Event) -> None:
        await everyone_blocked()
        ran.append(event.event_id)

    await bus.register_handler("job", first)
    await bus.register_handler("job", second)
    published = await bus.publish("job")
    await everyone_blocked()

    turn.set_result(None)
    await bus.close()

    assert ran == [published]


@pytest.mark.guarantee("CAP-26")
async def test_inside_a_handler_publish_does_not_wait_even_at_a_bound_of_one(
    backend: Backend, recorder: Recorder
) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    returned: list[bool] = []
    ended = asyncio.Event()

    async def outer(event: Event) -> None:
        returned.append(await returns(bus, "inner"))
        ended.set()

    await bus.register_handler("outer", outer)
    await bus.register_handler("inner", recorder)
    await bus.publish("outer")
    await ended.wait()

    assert returned == [True]
    await hears(recorder)


@pytest.mark.guarantee("CAP-28")
async def test_a_foreign_event_on_a_closing_bus_is_refused_by_name(
    backend: Backend, gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus = backend.make_bus()
    await bus.register_handler("full", gate.hold)
    ids = [await bus.register_handler("job", recorder) for _ in range(2)]
    await bus.publish("full")
    await gate.has_entered()
    closing = bus.request_close()
    event = Event("job")

    await bus._receive(event, deduplicate=True, wildcard=False)

    messages = [each.getMessage() for each in caplog.records if event.event_id in each.getMessage()]
    assert [handler_id in message for handler_id, message in zip(ids, messages, strict=True)] == [True, True]
    assert len(bus._pending_tasks) == 1
    gate.open()
    await is_over(closing, seconds=5)
    assert recorder.events == []


@pytest.mark.guarantee("CAP-28")
async def test_a_foreign_event_that_waits_for_a_slot_is_refused_when_the_bus_closes(
    backend: Backend, gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    handler_id = await bus.register_handler("job", recorder)
    await fill(bus, gate)
    event = Event("job")
    receiving = asyncio.ensure_future(bus._receive(event, deduplicate=True, wildcard=False))
    await until(lambda: waiting(bus) == 1)

    closing = bus.request_close()
    await is_over(receiving)

    assert receiving.done()
    [message] = [each.getMessage() for each in caplog.records if event.event_id in each.getMessage()]
    assert handler_id in message
    gate.open()
    await is_over(closing, seconds=5)
    assert recorder.events == []
    assert bus._slots.taken == 0


@pytest.mark.guarantee("CAP-28")
async def test_a_foreign_event_refused_as_its_slot_comes_leaves_no_slot_taken(gate: Gate, recorder: Recorder) -> None:
    bus = InMemoryEventBus(max_pending_callbacks=1)
    await bus.register_handler("job", recorder)
    await fill(bus, gate)
    receiving = asyncio.ensure_future(bus._receive(Event("job"), deduplicate=True, wildcard=False))
    await until(lambda: waiting(bus) == 1)
    as_the_slot_comes(bus, bus.request_close)

    gate.open()
    await is_over(receiving)
    await bus.close()

    assert recorder.events == []
    assert bus._slots.taken == 0


@pytest.mark.guarantee("CAP-30")
async def test_a_publish_cancelled_after_the_event_was_stored_still_reaches_its_handlers(recorder: Recorder) -> None:
    storage = SlowStorage()
    async with InMemoryEventBus(event_storage=storage, max_pending_callbacks=1) as bus:
        await bus.register_handler("job", recorder)
        storage.may_return.clear()
        event = Event("job")
        publishing = asyncio.ensure_future(bus.publish(event))
        await everyone_blocked()

        publishing.cancel()
        await is_over(publishing)
        await settled(bus)

        assert publishing.cancelled()
        assert recorder.events == [event]
        assert bus._slots.taken == 0


@pytest.mark.guarantee("CAP-30")
async def test_a_publish_cancelled_before_the_event_was_stored_gives_its_slot_back(recorder: Recorder) -> None:
    storage = SlowStorage()
    async with InMemoryEventBus(event_storage=storage, max_pending_callbacks=1) as bus:
        await bus.register_handler("job", recorder)
        storage.may_store.clear()
        publishing = asyncio.ensure_future(bus.publish("job"))
        await everyone_blocked()

        publishing.cancel()
        await is_over(publishing)
        storage.may_store.set()
        await settled(bus)

        assert publishing.cancelled()
        assert recorder.events == []
        assert await returns(bus, "job")


@pytest.mark.guarantee("CAP-30")
async def test_a_publish_cancelled_in_any_turn_is_whole_or_nothing(backend: Backend, recorder: Recorder) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    await bus.register_handler("job", recorder)
    halves = []

    for turns in range(0, 24, 2):
        event = Event("job")
        publishing = asyncio.ensure_future(bus.publish(event))
        await everyone_blocked(turns)
        publishing.cancel()
        await is_over(publishing, seconds=5)
        await settled(bus)
        is_stored = await bus.event_storage.get_event(event.event_id) is not None
        if is_stored != (event in recorder.events):
            halves.append(turns)

    assert halves == []
    assert bus._slots.taken == 0


@pytest.mark.guarantee("CAP-30")
async def test_a_close_waits_until_a_cancelled_publish_is_decided(recorder: Recorder) -> None:
    storage = SlowStorage()
    bus = InMemoryEventBus(event_storage=storage)
    await bus.register_handler("job", recorder)
    storage.may_return.clear()
    storage.may_read.clear()
    event = Event("job")
    publishing = asyncio.ensure_future(bus.publish(event))
    await everyone_blocked()
    publishing.cancel()
    await everyone_blocked()

    closing = asyncio.ensure_future(bus.close())
    await everyone_blocked()
    early = closing.done()
    storage.may_read.set()
    await is_over(closing)

    assert not early
    assert closing.done()
    assert recorder.events == [event]


@pytest.mark.guarantee("CAP-10")
async def test_publishers_that_wait_are_released_by_a_close_and_store_nothing(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    recorder = Recorder()
    await bus.register_handler("job", recorder)
    await fill(bus, gate)
    events = [Event("job") for _ in range(3)]
    publishers = [await blocked_publish(bus, event) for event in events]

    closing = bus.request_close()
    await is_over(*publishers)

    assert [type(each.exception()) for each in publishers if each.done()] == [BusClosedError] * 3
    gate.open()
    await is_over(closing, seconds=5)
    assert recorder.events == []
    assert [await backend.event_storage().get_event(each.event_id) for each in events] == [None] * 3


@pytest.mark.guarantee("CAP-10")
async def test_a_publisher_handed_its_slot_in_the_turn_of_the_close_does_not_slip_through(
    gate: Gate, recorder: Recorder
) -> None:
    bus = InMemoryEventBus(max_pending_callbacks=1)
    await bus.register_handler("job", recorder)
    await fill(bus, gate)
    publishing = await blocked_publish(bus, "job")
    as_the_slot_comes(bus, bus.request_close)

    gate.open()
    await is_over(publishing)
    await bus.close()

    assert publishing.done()
    error = publishing.exception()
    assert isinstance(error, BusClosedError)
    assert error.verb == "publish"
    assert recorder.events == []
    assert bus._slots.taken == 0


@pytest.mark.guarantee("CAP-07", "CAP-08")
async def test_an_event_that_nobody_handles_gives_back_no_slot_when_the_store_refuses_it() -> None:
    storage = SlowStorage()
    storage.error = OSError("disk full")
    async with InMemoryEventBus(event_storage=storage, max_pending_callbacks=1) as bus:
        with pytest.raises(OSError, match="disk full"):
            await bus.publish("nobody-cares")

        assert bus._slots.taken == 0
