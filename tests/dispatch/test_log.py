"""Log: what went wrong with a delivery is told once, with event, handler and the error that was met, word for word."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus import Event, RetryPolicy
from lastbus.memory import InMemoryEventBus, InMemoryProcessingTracker
from lastbus.testing import Gate, ManualClock, Recorder, everyone_blocked
from tests.contract.test_dedup import LapsingTracker
from tests.contract.test_dispatch import Factory
from tests.contract.waiting import EagerClock

pytestmark = pytest.mark.usefixtures("hygiene")


class Tracker(InMemoryProcessingTracker):
    """Raises the error that is set for a verb."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, BaseException] = {}

    def _meet(self, verb: str) -> None:
        if verb in self.errors:
            raise self.errors[verb]

    async def claim_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        self._meet("claim")
        return await super().claim_event(event_id, handler_id, owner)

    async def finish_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        self._meet("finish")
        return await super().finish_event(event_id, handler_id, owner)

    async def release_claim(self, event_id: str, handler_id: str, owner: str) -> bool:
        self._meet("release")
        return await super().release_claim(event_id, handler_id, owner)

    async def record_processing_attempt(
        self, event_id: str, handler_id: str, status: str, error: str | None = None
    ) -> None:
        self._meet(status)
        await super().record_processing_attempt(event_id, handler_id, status, error)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, object]]:
    """Level, text and error of each record of the dispatch."""
    return [
        (each.levelname, each.getMessage(), each.exc_info and each.exc_info[1])
        for each in caplog.records
        if each.name == "lastbus.dispatch"
    ]


BOOM = ValueError("boom")
NO_STORE = OSError("no store")


async def fail(event: Event) -> None:
    raise BOOM


@pytest.mark.guarantee("CORE-20", "CORE-21")
@pytest.mark.parametrize("policy", [None, RetryPolicy(max_retries=2)], ids=["once", "retried"])
async def test_a_failed_handler(policy: RetryPolicy | None, caplog: pytest.LogCaptureFixture) -> None:
    bus, event = InMemoryEventBus(clock=EagerClock()), Event("t")
    await bus.register_handler("t", fail, handler_id="h", retry_policy=policy)

    await bus.publish(event)
    await everyone_blocked()

    assert told(caplog) == [("ERROR", f"handler h failed on event {event.event_id} (t)", BOOM)]
    await bus.close()


@pytest.mark.guarantee("CORE-50")
@pytest.mark.parametrize(
    ("status", "policy"), [("success", None), ("error", None), ("failed", RetryPolicy(max_retries=0))]
)
async def test_a_line_of_the_history_that_was_not_recorded(
    status: str, policy: RetryPolicy | None, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    tracker, event = Tracker(), Event("t")
    tracker.errors[status] = NO_STORE
    bus = InMemoryEventBus(processing_tracker=tracker)
    handler = recorder if status == "success" else fail
    await bus.register_handler("t", handler, retry_policy=policy)

    await bus.publish(event, prevent_duplicate_consumption=False)
    await everyone_blocked()

    assert told(caplog)[0] == ("WARNING", f"attempt {status} of event {event.event_id} was not recorded", NO_STORE)
    await bus.close()


@pytest.mark.guarantee("CORE-50")
async def test_a_claim_that_could_not_be_taken(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    tracker, event = Tracker(), Event("t")
    tracker.errors["claim"] = NO_STORE
    bus = InMemoryEventBus(processing_tracker=tracker)
    await bus.register_handler("t", recorder, handler_id="h")

    await bus.publish(event)
    await everyone_blocked()

    text = f"event {event.event_id} was not handed to handler h: its claim could not be taken"
    assert told(caplog) == [("ERROR", text, NO_STORE)]
    assert recorder.events == []
    await bus.close()


@pytest.mark.guarantee("CORE-50")
@pytest.mark.parametrize("verb", ["finish", "release"])
async def test_an_end_that_could_not_be_stored(verb: str, gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    tracker, event = Tracker(), Event("t")
    tracker.errors[verb] = NO_STORE
    bus = InMemoryEventBus(processing_tracker=tracker)
    await bus.register_handler("t", gate.hold, handler_id="h")
    await bus.publish(event)
    await everyone_blocked()

    if verb == "release":
        [delivery] = bus._pending_tasks
        delivery.cancel()
    gate.open()
    await everyone_blocked()

    text = f"event {event.event_id} in handler h: its end could not be stored; it may run again"
    assert told(caplog) == [("ERROR", text, NO_STORE)]
    await bus.close()


@pytest.mark.guarantee("CORE-40")
async def test_a_claim_that_could_not_be_renewed_or_was_lost(
    clock: ManualClock, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    tracker, event = LapsingTracker(clock), Event("t")
    bus = InMemoryEventBus(processing_tracker=tracker, clock=clock)
    await bus.register_handler("t", gate.hold, handler_id="h")
    await bus.publish(event)
    await everyone_blocked()

    tracker.fails = True
    clock.advance(20)
    await everyone_blocked()
    tracker.standing[event.event_id, "h"] = "somebody else", clock.time() + 60
    gate.open()
    await everyone_blocked()
    clock.advance(20)
    await everyone_blocked()

    claim = (event.event_id, "h", f"{bus.instance_id}-0")
    renewal, end = told(caplog)
    assert renewal[:2] == ("WARNING", f"the claim of {claim} could not be renewed")
    assert isinstance(renewal[2], OSError)
    text = f"event {event.event_id} in handler h was handled, but its claim had lapsed to another owner; "
    assert end == ("WARNING", text + "it may run twice", None)
    await bus.close()


@pytest.mark.guarantee("CAP-29")
async def test_a_delivery_for_which_the_loop_made_no_task(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    bus, event = InMemoryEventBus(), Event("t")
    await bus.register_handler("t", recorder, handler_id="h")
    error = OSError("no task today")
    asyncio.get_running_loop().set_task_factory(Factory(1, error=error))

    try:
        await bus.publish(event)
    finally:
        asyncio.get_running_loop().set_task_factory(None)

    text = f"event {event.event_id} was not handed to handler h: the loop made no task for it"
    assert told(caplog) == [("ERROR", text, error)]
    await bus.close()


@pytest.mark.guarantee("CAP-03")
async def test_a_delivery_that_broke_outside_its_handler(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    tracker, event, error = Tracker(), Event("t"), BaseException("deep")
    tracker.errors["claim"] = error
    bus = InMemoryEventBus(processing_tracker=tracker)
    await bus.register_handler("t", recorder, handler_id="h")

    await bus.publish(event)
    await everyone_blocked()

    assert told(caplog) == [("ERROR", f"event {event.event_id} in handler h: the delivery itself broke", error)]
    await bus.close()


@pytest.mark.guarantee("CAP-32")
async def test_what_comes_to_a_dispatcher_that_was_stopped_is_named_and_leaves_no_slot_taken(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus, event = InMemoryEventBus(max_pending_callbacks=1), Event("t")
    await bus.register_handler("t", recorder, handler_id="h")
    await bus._slots.take()
    bus._dispatcher.stop()

    ends = bus._dispatcher.dispatch(event, tuple(bus._registry), deduplicate=True, holds_slot=True)
    await everyone_blocked()

    assert told(caplog) == [("WARNING", f"event {event.event_id} was not handed to handler h: the bus is closed", None)]
    assert (ends, recorder.events, bus._slots.taken) == ([], [], 0)
    await bus.close()


@pytest.mark.guarantee("CAP-28", "DISP-07")
async def test_a_foreign_event_whose_slot_comes_with_the_close(
    gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus, event = InMemoryEventBus(max_pending_callbacks=1), Event("t")
    receiving = await waits_for_the_slot(bus, event, recorder, gate)
    [delivery] = [each for each, (_, name) in bus._pending_tasks.items() if name == "full"]
    delivery.add_done_callback(lambda _: bus.request_close())

    gate.open()
    await asyncio.wait({receiving}, timeout=1)
    await bus.close()

    text = f"event {event.event_id} was not handed to handler h: the bus is closing"
    assert told(caplog) == [("WARNING", text, None)]
    assert (receiving.done(), recorder.events) == (True, [])


@pytest.mark.guarantee("DISP-08")
async def test_a_foreign_event_whose_listener_ends_before_its_slot_comes(
    gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus, event = InMemoryEventBus(max_pending_callbacks=1), Event("t")
    receiving = await waits_for_the_slot(bus, event, recorder, gate)

    receiving.cancel()
    await asyncio.wait({receiving}, timeout=1)
    gate.open()
    await everyone_blocked()

    text = f"event {event.event_id} was not handed to handler h: its listener ended"
    assert told(caplog) == [("WARNING", text, None)]
    assert recorder.events == []
    await bus.close()


async def waits_for_the_slot(
    bus: InMemoryEventBus, event: Event, recorder: Recorder, gate: Gate
) -> asyncio.Future[Any]:
    """A listener that brings `event` for the handler of its type alone, while `gate` holds the only slot."""
    await bus.register_handler("t", recorder, handler_id="h")
    await bus.register_handler("*", recorder, handler_id="of every type")
    await bus.register_handler("full", gate.hold, handler_id="full")
    handlers = tuple(each for each in bus._registry if each.handler_id == "full")
    bus._dispatcher.dispatch(Event("full"), handlers, deduplicate=False, holds_slot=False)
    receiving = asyncio.ensure_future(bus._receive(event, deduplicate=True, wildcard=False))
    await everyone_blocked()
    return receiving
