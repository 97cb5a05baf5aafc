"""Publishing several events: in order, or none of them if one is malformed."""

from __future__ import annotations

import asyncio

import pytest

from lastbus import BaseBus, BusClosedError, Event
from lastbus.memory import InMemoryEventBus
from lastbus.testing import Recorder, everyone_blocked
from tests.contract.slow_storage import SlowStorage
from tests.contract.waiting import settled


@pytest.mark.guarantee("CORE-42")
async def test_a_batch_is_published_in_order_and_its_ids_are_returned(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("*", recorder)
    batch = [Event("a"), {"event_type": "b", "n": 1}, "c"]

    ids = await bus.batch_publish(batch)

    heard = {event.event_id: event.event_type for event in await recorder.has_heard(3)}
    assert [heard[event_id] for event_id in ids] == ["a", "b", "c"]
    assert [(await bus.get_event(event_id)).event_type for event_id in ids] == ["a", "b", "c"]


@pytest.mark.guarantee("CORE-42")
async def test_one_malformed_event_keeps_the_whole_batch_out(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("*", recorder)

    for bad in ({"n": 1}, Event("t", {"v": float("nan")}), "", 7):
        with pytest.raises((ValueError, TypeError)):
            await bus.batch_publish(["good", bad])  # type: ignore[list-item]
    await settled(bus)

    assert recorder.events == []
    assert await bus.event_storage.list_events() == []


@pytest.mark.guarantee("CORE-42")
async def test_an_empty_batch_is_nothing(bus: BaseBus) -> None:
    assert await bus.batch_publish([]) == []


@pytest.mark.guarantee("CORE-42", "CORE-15")
async def test_a_batch_is_deduplicated_unless_asked_otherwise(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("t", recorder)
    event = Event("t")

    for deduplicate, runs in ((True, 1), (True, 1), (False, 2)):
        await bus.batch_publish([event], prevent_duplicate_consumption=deduplicate)
        await settled(bus)
        assert len(recorder.events) == runs


@pytest.mark.guarantee("CORE-42")
async def test_a_closed_bus_takes_no_batch(bus: BaseBus) -> None:
    await bus.close()

    with pytest.raises(BusClosedError, match="batch_publish"):
        await bus.batch_publish(["t"])


@pytest.mark.guarantee("CAP-11")
async def test_a_close_in_the_middle_of_a_batch_refuses_what_has_not_been_admitted(recorder: Recorder) -> None:
    storage = SlowStorage()
    bus = InMemoryEventBus(event_storage=storage)
    await bus.register_handler("t", recorder)
    storage.may_return.clear()
    batch = [Event("t"), Event("t")]
    publishing = asyncio.ensure_future(bus.batch_publish(batch))
    await everyone_blocked()

    closing = bus.request_close()
    storage.may_return.set()
    await asyncio.wait({publishing, closing}, timeout=5)

    assert (publishing.done(), closing.done()) == (True, True)
    error = publishing.exception()
    assert isinstance(error, BusClosedError)
    assert error.verb == "publish"
    assert recorder.events == batch[:1]
    assert await storage.get_event(batch[1].event_id) is None
