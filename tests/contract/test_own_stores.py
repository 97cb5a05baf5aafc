"""Stores of somebody else's: what the ports do for a store that has nothing but what it must have."""

from __future__ import annotations

from lastbus import BaseBus, Event
from lastbus._ports.storage import EventStorage
from lastbus._ports.tracker import EventProcessingTracker
from lastbus.memory import InMemoryEventSubscriptionStorage, InMemoryProcessingTracker, MemoryEventStorage
from lastbus.testing import Recorder


class PlainStorage(MemoryEventStorage):
    """Stores events, and knows no quicker way if it is given their JSON."""

    store_encoded = EventStorage.store_encoded

    async def store_event(self, event: Event) -> str:
        return await MemoryEventStorage.store_encoded(self, event, event.model_dump_json())


class PlainTracker(InMemoryProcessingTracker):
    """Marks and records, each by itself."""

    finish_event = EventProcessingTracker.finish_event


async def test_a_bus_on_stores_that_have_only_what_they_must_works_all_the_same(recorder: Recorder) -> None:
    storage, tracker = PlainStorage(), PlainTracker()
    bus = BaseBus(
        event_storage=storage, subscription_storage=InMemoryEventSubscriptionStorage(), processing_tracker=tracker
    )
    await bus.register_handler("job", recorder, handler_id="h")

    event_id = await bus.publish("job", n=1)
    await bus.close()

    stored = await storage.get_event(event_id)
    assert recorder.events == [stored]
    assert await tracker.is_event_processed(event_id, "h")
    assert [line["status"] for line in await tracker.get_processing_history(event_id)] == ["success"]


async def test_what_finishing_returns_is_whether_the_mark_was_the_first() -> None:
    tracker = PlainTracker()
    await tracker.claim_event("e", "h", "me")

    assert [await tracker.finish_event("e", "h", "me") for _ in range(2)] == [True, False]


async def test_what_was_finished_is_told_in_the_history_by_its_handler() -> None:
    tracker = PlainTracker()
    await tracker.claim_event("e", "h", "me")

    await tracker.finish_event("e", "h", "me")

    assert [(line["handler_id"], line["status"]) for line in await tracker.get_processing_history("e")] == [
        ("h", "success")
    ]


async def test_who_has_lost_the_claim_finishes_nothing_for_whoever_holds_it() -> None:
    tracker = PlainTracker()
    await tracker.claim_event("e", "h", "another")

    assert not await tracker.finish_event("e", "h", "me")
    assert not await tracker.is_event_processed("e", "h")


async def test_what_storing_returns_is_the_id() -> None:
    event = Event("job", event_id="e")

    assert await PlainStorage().store_encoded(event, event.model_dump_json()) == "e"
