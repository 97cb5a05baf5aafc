"""Waiting for an event: the first that matches, in time, and nothing is left behind."""

from __future__ import annotations

import asyncio
import functools
import math
import threading
import time
from typing import Any

import pytest

from lastbus import BaseBus, BusClosedError, Event, EventError, EventTimeoutError
from lastbus.memory import InMemoryEventBus
from lastbus.testing import ManualClock, Recorder, everyone_blocked
from tests._backends import Backend
from tests.contract.waiting import is_over, settled, until

Waiting = asyncio.Future[Event]


async def begin(bus: BaseBus, *args: Any, **options: Any) -> Waiting:
    """Start a wait, and return when the bus knows of it."""
    before = len(bus._waiters)
    waiting = asyncio.ensure_future(bus.wait_for_event(*args, **options))
    await until(lambda: waiting.done() or len(bus._waiters) > before)
    return waiting


async def heard(backend: Backend, clock: ManualClock) -> BaseBus:
    """A bus that hears type "t" already, so that no wait has to ask its back end on the test's clock."""
    bus = backend.make_bus(clock=clock)
    await bus.register_handler("t", Recorder())
    return bus


@pytest.mark.guarantee("CORE-27")
async def test_the_event_that_was_waited_for_is_returned(bus: BaseBus) -> None:
    waiting = await begin(bus, "t")
    event = Event("t", {"n": 1}, "c", "s")

    await bus.publish(event)

    assert await waiting == event


@pytest.mark.guarantee("CORE-27")
async def test_the_first_of_two_events_is_returned(bus: BaseBus) -> None:
    waiting = await begin(bus, "t")

    await bus.publish("t", n=1)
    await bus.publish("t", n=2)

    assert (await waiting).data == {"n": 1}


@pytest.mark.guarantee("CORE-27")
async def test_other_types_and_patterns_do_not_end_the_wait(bus: BaseBus) -> None:
    waiting, pattern = await begin(bus, "t"), await begin(bus, "*")

    for other in ("tt", "T", "u"):
        await bus.publish(other)
    await everyone_blocked()

    assert not waiting.done()
    assert not pattern.done()
    await bus.publish("t")
    await bus.publish("*")
    assert [(await waiting).event_type, (await pattern).event_type] == ["t", "*"]


@pytest.mark.guarantee("CORE-27")
async def test_an_event_that_does_not_meet_the_condition_is_passed_over(bus: BaseBus) -> None:
    waiting = await begin(bus, "t", condition=lambda event: event.data["n"] == 2)

    await bus.publish("t", n=1)
    await everyone_blocked()
    assert not waiting.done()
    await bus.publish("t", n=2)

    assert (await waiting).data == {"n": 2}


@pytest.mark.guarantee("CORE-27")
async def test_everybody_who_waits_gets_the_event(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("t", recorder)
    waiting = [await begin(bus, "t") for _ in range(3)]

    event_id = await bus.publish("t")

    assert await is_over(*waiting)
    assert [each.result().event_id for each in waiting] == [event_id] * 3
    await recorder.has_heard()


@pytest.mark.guarantee("CORE-27")
async def test_what_was_published_before_is_not_seen(bus: BaseBus) -> None:
    await bus.publish("t", n=1)
    waiting = await begin(bus, "t")
    await everyone_blocked()
    assert not waiting.done()

    await bus.publish("t", n=2)

    assert (await waiting).data == {"n": 2}


@pytest.mark.guarantee("CORE-27")
async def test_an_error_of_a_condition_goes_to_its_own_waiter_alone(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("t", recorder)
    waiting = await begin(bus, "t")
    broken = [await begin(bus, "t", condition=functools.partial(_fail, error)) for error in ERRORS]

    event_id = await bus.publish("t")

    outcomes = await asyncio.gather(*broken, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError, RuntimeError, asyncio.CancelledError, GeneratorExit]
    assert (await waiting).event_id == event_id
    assert len(await recorder.has_heard()) == 1
    assert len(bus._waiters) == 0


ERRORS = (ValueError("mine"), StopIteration(), asyncio.CancelledError(), GeneratorExit())


def _fail(error: BaseException, event: Event) -> bool:
    raise error


@pytest.mark.guarantee("CORE-27")
async def test_a_condition_that_runs_out_of_an_iterator_is_named_with_its_cause() -> None:
    async with InMemoryEventBus() as bus:
        error = StopIteration("mine")
        waiting = await begin(bus, "t", condition=functools.partial(_fail, error))

        await bus.publish("t")

        with pytest.raises(RuntimeError, match=r"^condition raised StopIteration$") as caught:
            await asyncio.wait_for(waiting, 1)
        assert caught.value.__cause__ is error


@pytest.mark.guarantee("CORE-27")
async def test_a_foreign_event_is_handed_to_waiters_as_one_of_its_type_and_not_as_one_for_wildcards(
    backend: Backend,
) -> None:
    bus = backend.make_bus()
    waiting, event = await begin(bus, "t"), Event("t")

    await bus._receive(event, deduplicate=True, wildcard=True)
    await everyone_blocked()
    early = waiting.done()
    await bus._receive(event, deduplicate=True, wildcard=False)

    assert not early
    assert await asyncio.wait_for(waiting, 1) == event


@pytest.mark.guarantee("CORE-27")
async def test_a_waiter_may_wait_again_at_once(bus: BaseBus) -> None:
    seen = []

    async def follow() -> None:
        for _ in range(3):
            seen.append((await bus.wait_for_event("t")).data["n"])

    following = asyncio.ensure_future(follow())
    for n in range(3):
        await until(lambda: len(bus._waiters) == 1)
        await bus.publish("t", n=n)
        await until(lambda n=n: len(seen) > n)  # type: ignore[misc]

    await following
    assert seen == [0, 1, 2]


@pytest.mark.guarantee("CORE-28")
async def test_a_wait_ends_at_its_deadline_with_a_named_error(backend: Backend) -> None:
    clock = ManualClock()
    bus = await heard(backend, clock)
    waiting = await begin(bus, "t", timeout=5)

    clock.advance(4.9)
    await everyone_blocked()
    assert not waiting.done()
    clock.advance(0.2)
    with pytest.raises(EventTimeoutError, match=r"'t'.*5 s") as caught:
        await waiting

    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, EventError)
    assert (caught.value.event_type, caught.value.timeout) == ("t", 5)
    assert len(bus._waiters) == 0


@pytest.mark.guarantee("CORE-28")
async def test_a_condition_that_is_never_met_does_not_move_the_deadline(backend: Backend) -> None:
    clock = ManualClock()
    bus = await heard(backend, clock)
    waiting = await begin(bus, "t", timeout=5, condition=lambda event: False)

    clock.advance(4)
    await bus.publish("t")
    clock.advance(1)

    with pytest.raises(EventTimeoutError):
        await waiting


@pytest.mark.guarantee("CORE-28")
async def test_a_wait_without_a_deadline_waits_for_ever(backend: Backend) -> None:
    clock = ManualClock()
    bus = await heard(backend, clock)
    waiting = await begin(bus, "t")

    clock.advance(10**9)
    await everyone_blocked()
    assert not waiting.done()

    await bus.publish("t")
    assert (await waiting).event_type == "t"


@pytest.mark.guarantee("CORE-28")
async def test_a_wait_of_no_time_fails_at_once(bus: BaseBus) -> None:
    waiting = await begin(bus, "t", timeout=0)

    await is_over(waiting)

    assert waiting.done()
    assert isinstance(waiting.exception(), EventTimeoutError)
    assert len(bus._waiters) == 0


@pytest.mark.guarantee("CORE-28")
async def test_a_wait_of_no_time_still_gets_what_is_delivered_in_the_same_turn() -> None:
    async with InMemoryEventBus() as bus:
        waiting = asyncio.ensure_future(bus.wait_for_event("t", timeout=0))
        event_id = await asyncio.ensure_future(bus.publish("t"))

        assert (await waiting).event_id == event_id


@pytest.mark.guarantee("CORE-28", "CORE-36")
async def test_a_wait_that_cannot_work_is_refused_by_the_name_of_its_argument(bus: BaseBus) -> None:
    for name, bad, error in (
        *(("timeout", bad, ValueError) for bad in (-1, math.nan, math.inf, "5", True, 10**400)),
        ("event_type", "", ValueError),
        ("event_type", None, ValueError),
        ("condition", "yes", TypeError),
    ):
        arguments: dict[str, Any] = {"event_type": "t", "timeout": 0, name: bad}
        with pytest.raises(error, match=name):
            await bus.wait_for_event(**arguments)
    assert len(bus._waiters) == 0


@pytest.mark.guarantee("CORE-28")
async def test_a_cancelled_wait_leaves_nothing_behind(backend: Backend) -> None:
    clock = ManualClock()
    bus = await heard(backend, clock)
    timers = clock.pending
    waiting = await begin(bus, "t", timeout=5)

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    assert waiting.cancelled()
    assert len(bus._waiters) == 0
    assert clock.pending == timers
    await bus.publish("t")


@pytest.mark.guarantee("CORE-28")
async def test_a_wait_that_was_answered_leaves_nothing_behind(backend: Backend) -> None:
    clock = ManualClock()
    bus = await heard(backend, clock)
    timers = clock.pending
    waiting = await begin(bus, "t", timeout=5)

    await bus.publish("t")
    await waiting

    assert len(bus._waiters) == 0
    assert bus._waiters._by_type == {}
    assert clock.pending == timers


@pytest.mark.guarantee("CORE-28")
async def test_an_event_in_the_turn_of_the_deadline_is_one_outcome_and_no_error(clock: ManualClock) -> None:
    async with InMemoryEventBus(clock=clock) as bus:
        late, early = await begin(bus, "t", timeout=5), await begin(bus, "u", timeout=5)
        publishing = asyncio.ensure_future(bus.publish("u"))
        await publishing

        clock.advance(5)
        await bus.publish("t")

        with pytest.raises(EventTimeoutError):
            await late
        assert (await early).event_type == "u"


@pytest.mark.guarantee("CORE-28")
async def test_a_wall_clock_that_jumps_does_not_move_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async with InMemoryEventBus() as bus:
        waiting = await begin(bus, "t", timeout=0.01)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now - 3600)

        await is_over(waiting)

        assert waiting.done()
        assert isinstance(waiting.exception(), EventTimeoutError)


@pytest.mark.guarantee("CORE-28")
async def test_closing_the_bus_ends_every_wait(bus: BaseBus) -> None:
    waiting = await begin(bus, "t")

    await bus.close()

    with pytest.raises(BusClosedError):
        await waiting
    with pytest.raises(BusClosedError):
        await bus.wait_for_event("t")
    assert len(bus._waiters) == 0


@pytest.mark.guarantee("CORE-53")
def test_a_waiter_is_woken_on_its_own_loop_by_a_publisher_on_another() -> None:
    bus, known, outcome = InMemoryEventBus(), threading.Event(), list[Event]()

    async def wait() -> None:
        waiting = asyncio.ensure_future(bus.wait_for_event("t", timeout=1.5))
        await everyone_blocked()
        known.set()
        outcome.append(await waiting)

    waiter = threading.Thread(target=asyncio.run, args=(wait(),))
    waiter.start()
    assert known.wait(5)
    event_id = asyncio.run(bus.publish("t"))
    waiter.join(1)

    assert [event.event_id for event in outcome] == [event_id]
    waiter.join()


@pytest.mark.guarantee("CORE-53")
def test_a_waiter_whose_loop_is_gone_keeps_nobody_from_publishing() -> None:
    bus, recorder = InMemoryEventBus(), Recorder()
    gone = asyncio.new_event_loop()
    waiting = gone.create_task(bus.wait_for_event("t"))
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # That it never ends is the point.
    gone.run_until_complete(everyone_blocked())
    gone.close()

    async def publish() -> None:
        await bus.register_handler("t", recorder)
        await bus.publish("t")
        await settled(bus)

    asyncio.run(publish())

    assert len(recorder.events) == 1
    assert not waiting.done()
    waiting.get_coro().close()
