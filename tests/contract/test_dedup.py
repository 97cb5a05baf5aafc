"""Deduplication: a handler that has succeeded on an event does not see it again; one that failed does."""

from __future__ import annotations

import asyncio
import logging

import pytest

from lastbus import BaseBus, Event
from lastbus.memory import InMemoryEventBus, InMemoryProcessingTracker
from lastbus.testing import Gate, ManualClock, Recorder, everyone_blocked
from tests._backends import Backend
from tests.contract.waiting import settled, until


class FailsOnce:
    """A handler that fails its first call, and looks at the tracker in every call."""

    def __init__(self, bus: BaseBus, handler_id: str) -> None:
        self.bus = bus
        self.handler_id = handler_id
        self.marked_while_running: list[bool] = []

    async def __call__(self, event: Event) -> None:
        marked = await self.bus.processing_tracker.is_event_processed(event.event_id, self.handler_id)
        self.marked_while_running.append(marked)
        if len(self.marked_while_running) == 1:
            raise RuntimeError("the first time")


class LapsingTracker(InMemoryProcessingTracker):
    """Claims that lapse after a minute of its clock unless they are renewed, as on a store that processes share."""

    claim_ttl = 60.0

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.clock = clock
        self.standing: dict[tuple[str, str], tuple[str, float]] = {}
        self.renewals = 0
        self.fails = False

    def owner_of(self, event_id: str, handler_id: str) -> str | None:
        """Whose claim stands now."""
        owner, until = self.standing.get((event_id, handler_id), (None, 0.0))
        return owner if until > self.clock.time() else None

    async def claim_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        """A claim that has lapsed gives way."""
        if await self.is_event_processed(event_id, handler_id) or self.owner_of(event_id, handler_id) is not None:
            return False
        self.standing[event_id, handler_id] = owner, self.clock.time() + self.claim_ttl
        return True

    async def renew_claim(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Another minute, unless it has lapsed."""
        self.renewals += 1
        if self.fails:
            raise OSError("no store")
        if self.owner_of(event_id, handler_id) != owner:
            return False
        self.standing[event_id, handler_id] = owner, self.clock.time() + self.claim_ttl
        return True

    async def release_claim(self, event_id: str, handler_id: str, owner: str) -> bool:
        """The pair is free."""
        return self.standing.pop((event_id, handler_id), ("", 0.0))[0] == owner

    async def mark_event_processed(self, event_id: str, handler_id: str, owner: str | None = None) -> bool:
        """Refused if somebody else holds the pair."""
        if owner is not None and self.owner_of(event_id, handler_id) not in (None, owner):
            return False
        self.standing.pop((event_id, handler_id), None)
        return await super().mark_event_processed(event_id, handler_id)


async def deliver(bus: BaseBus, event: Event, deduplicate: bool = True) -> None:
    await bus.publish(event, deduplicate)
    await settled(bus)


@pytest.mark.guarantee("CORE-14")
async def test_an_event_counts_as_processed_only_after_its_handler_succeeded(bus: BaseBus) -> None:
    handler, event = FailsOnce(bus, "h"), Event("t")
    is_marked = []
    await bus.register_handler("t", handler, handler_id="h")

    for _ in range(3):
        await deliver(bus, event)
        is_marked.append(await bus.processing_tracker.is_event_processed(event.event_id, "h"))

    assert is_marked == [False, True, True]
    assert handler.marked_while_running == [False, False]


@pytest.mark.guarantee("CORE-14")
async def test_a_handled_event_leaves_one_success_in_its_history(bus: BaseBus, recorder: Recorder) -> None:
    event = Event("t")
    await bus.register_handler("t", recorder, handler_id="h")

    for _ in range(3):
        await deliver(bus, event)

    history = await bus.processing_tracker.get_processing_history(event.event_id)
    assert [(line["handler_id"], line["status"]) for line in history] == [("h", "success")]
    assert len(recorder.events) == 1


@pytest.mark.guarantee("CORE-50")
async def test_a_failed_handler_leaves_no_success_in_the_history(bus: BaseBus) -> None:
    handler, event = FailsOnce(bus, "h"), Event("t")
    await bus.register_handler("t", handler, handler_id="h")

    for _ in range(2):
        await deliver(bus, event)

    history = await bus.processing_tracker.get_processing_history(event.event_id)
    assert [line["status"] for line in history] == ["error", "success"]


@pytest.mark.guarantee("CORE-14")
async def test_a_failed_handler_gives_its_claim_back(bus: BaseBus) -> None:
    handler, event = FailsOnce(bus, "h"), Event("t")
    await bus.register_handler("t", handler, handler_id="h")

    await deliver(bus, event)

    assert await bus.processing_tracker.claim_event(event.event_id, "h", "somebody else")


@pytest.mark.guarantee("CORE-14")
async def test_a_cancelled_handler_gives_its_claim_back(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(close_timeout=0.0, on_overdue="cancel")
    await bus.register_handler("t", gate.hold, handler_id="h")
    event_id = await bus.publish("t")
    await gate.has_entered()

    await asyncio.gather(*_cancel_all(bus), return_exceptions=True)

    assert len(gate.cancelled) == 1
    assert await bus.processing_tracker.claim_event(event_id, "h", "somebody else")


def _cancel_all(bus: BaseBus) -> list[asyncio.Future[None]]:
    running = list(bus._pending_tasks)
    for task in running:
        task.cancel()
    return running


@pytest.mark.guarantee("CORE-15")
async def test_dedup_is_off_when_asked(bus: BaseBus, recorder: Recorder) -> None:
    event = Event("t")
    await bus.register_handler("t", recorder, handler_id="h")

    for _ in range(2):
        await deliver(bus, event, deduplicate=False)

    assert len(recorder.events) == 2
    assert not await bus.processing_tracker.is_event_processed(event.event_id, "h")


@pytest.mark.guarantee("CORE-15")
async def test_a_delivery_without_dedup_runs_even_if_the_event_was_handled(bus: BaseBus, recorder: Recorder) -> None:
    event = Event("t")
    await bus.register_handler("t", recorder)

    for deduplicate, runs in ((True, 1), (False, 2), (True, 2)):
        await deliver(bus, event, deduplicate)
        assert len(recorder.events) == runs


@pytest.mark.guarantee("CORE-16")
async def test_one_handlers_success_does_not_keep_the_event_from_another(bus: BaseBus, recorder: Recorder) -> None:
    failing, event = FailsOnce(bus, "second"), Event("t")
    await bus.register_handler("t", recorder, handler_id="first")
    await bus.register_handler("t", failing, handler_id="second")

    for _ in range(3):
        await deliver(bus, event)

    assert len(recorder.events) == 1
    assert len(failing.marked_while_running) == 2


@pytest.mark.guarantee("CORE-16")
async def test_two_events_do_not_share_their_marks(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("t", recorder)

    await deliver(bus, Event("t", event_id="a:b"))
    await deliver(bus, Event("t", event_id="a"))

    assert len(recorder.events) == 2


@pytest.mark.guarantee("CORE-16")
async def test_a_second_delivery_does_not_run_beside_the_first(bus: BaseBus, gate: Gate) -> None:
    event = Event("t")
    await bus.register_handler("t", gate.hold)
    await bus.publish(event)
    await gate.has_entered()

    await bus.publish(event)
    await everyone_blocked()
    gate.open()
    await settled(bus)

    assert len(gate.entered) == 1


@pytest.mark.guarantee("CORE-15", "CORE-16")
@pytest.mark.parametrize(("deduplicate", "runs"), [(True, 1), (False, 2)])
async def test_a_delivery_that_waits_for_its_slot_is_deduplicated_if_it_is_to_be(
    gate: Gate, recorder: Recorder, deduplicate: bool, runs: int
) -> None:
    event = Event("t")
    async with InMemoryEventBus(max_pending_callbacks=1) as bus:
        await bus.register_handler("t", gate.hold)
        await bus.register_handler("t", recorder)
        gate.open()

        for _ in range(2):
            await deliver(bus, event, deduplicate)

    assert (len(gate.left), len(recorder.events)) == (runs, runs)


@pytest.mark.guarantee("CORE-16")
async def test_of_many_deliveries_at_once_one_runs(bus: BaseBus, recorder: Recorder) -> None:
    event = Event("t")
    await bus.register_handler("t", recorder)

    await asyncio.gather(*(bus.publish(event) for _ in range(10)))
    await settled(bus)

    assert len(recorder.events) == 1


@pytest.mark.guarantee("CORE-40")
async def test_a_claim_stands_for_as_long_as_its_handler_runs(clock: ManualClock, gate: Gate) -> None:
    tracker = LapsingTracker(clock)
    async with InMemoryEventBus(processing_tracker=tracker, clock=clock, close_timeout=0) as bus:
        await bus.register_handler("t", gate.hold, handler_id="h")
        event_id = await bus.publish("t")
        await gate.has_entered()

        for _ in range(10):
            clock.advance(20)
            await everyone_blocked()

        assert not await tracker.claim_event(event_id, "h", "somebody else")
        gate.open()
        await settled(bus)
        assert await tracker.is_event_processed(event_id, "h")


@pytest.mark.guarantee("CORE-40")
async def test_every_store_that_lets_claims_lapse_has_them_renewed(backend: Backend, gate: Gate) -> None:
    clock = ManualClock()
    bus = backend.make_bus(clock=clock)
    await bus.register_handler("t", gate.hold, handler_id="h")
    event_id = await bus.publish("t")
    await gate.has_entered()

    if bus.processing_tracker.claim_ttl is not None:
        for turn in range(4):
            clock.advance(bus.processing_tracker.claim_ttl / 3)
            await until(lambda turn=turn: len(clock.sleeps) > turn + 1)  # type: ignore[misc]

    assert not await bus.processing_tracker.claim_event(event_id, "h", "somebody else")
    gate.open()
    await settled(bus)
    assert await bus.processing_tracker.is_event_processed(event_id, "h")


@pytest.mark.guarantee("CORE-40")
async def test_a_claim_that_nobody_renews_lapses(backend: Backend) -> None:
    clock = ManualClock()
    tracker = backend.tracker(clock)
    assert await tracker.claim_event("e", "h", "a process that died")

    clock.advance(61)

    assert await tracker.claim_event("e", "h", "somebody else") is (tracker.claim_ttl is not None)


@pytest.mark.guarantee("CORE-40")
async def test_one_renewer_serves_all_claims_and_ends_with_the_last(clock: ManualClock, gate: Gate) -> None:
    tracker = LapsingTracker(clock)
    async with InMemoryEventBus(processing_tracker=tracker, clock=clock, close_timeout=0) as bus:
        await bus.register_handler("t", gate.hold)
        await bus.publish("t")
        await bus.publish("t")
        await gate.has_entered(2)

        clock.advance(20)
        await everyone_blocked()
        assert tracker.renewals == 2
        gate.open()
        await settled(bus)
        clock.advance(20)
        await everyone_blocked()

        assert tracker.renewals == 2
        assert clock.pending == 0


@pytest.mark.guarantee("CORE-40")
async def test_a_store_that_refuses_a_renewal_is_asked_again(
    clock: ManualClock, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = LapsingTracker(clock)
    async with InMemoryEventBus(processing_tracker=tracker, clock=clock, close_timeout=0) as bus:
        await bus.register_handler("t", gate.hold, handler_id="h")
        event_id = await bus.publish("t")
        await gate.has_entered()

        for tracker.fails in (True, False, False):
            clock.advance(20)
            await everyone_blocked()
        clock.advance(10)

        assert not await tracker.claim_event(event_id, "h", "somebody else")
        assert [event_id in record.getMessage() for record in caplog.records] == [True]
        gate.open()


@pytest.mark.guarantee("CORE-40")
async def test_a_handler_that_lost_its_claim_says_that_its_event_may_run_twice(
    clock: ManualClock, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = LapsingTracker(clock)
    async with InMemoryEventBus(processing_tracker=tracker, clock=clock, close_timeout=0) as bus:
        await bus.register_handler("t", gate.hold, handler_id="h")
        event_id = await bus.publish("t")
        await gate.has_entered()
        tracker.standing.clear()
        assert await tracker.claim_event(event_id, "h", "somebody else")

        gate.open()
        await settled(bus)

        assert not await tracker.is_event_processed(event_id, "h")
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert all(part in record.getMessage() for part in (event_id, "h", "twice"))
