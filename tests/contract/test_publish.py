"""Publishing: an event is stored as it was handed in, or refused before anything happened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus import BaseBus, BusClosedError, Event, EventNotFoundError
from lastbus.memory import InMemoryEventBus, MemoryEventStorage
from lastbus.testing import Gate, Recorder, everyone_blocked
from tests._backends import Backend
from tests.contract.waiting import settled


class SlowStorage(MemoryEventStorage):
    """Stores nothing until it is let go. What a cancelled caller was storing lands all the same, or does not."""

    def __init__(self, lands: bool = True) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.asked = asyncio.Event()
        self.lands = lands

    async def store_encoded(self, event: Event, text: str) -> str:
        """Wait, then store."""
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            if self.lands:
                await super().store_encoded(event, text)
            raise
        return await super().store_encoded(event, text)


class FullStorage(MemoryEventStorage):
    """Refuses to store."""

    async def store_encoded(self, event: Event, text: str) -> str:
        """Fail."""
        raise OSError("disk full")


@pytest.mark.guarantee("CORE-12")
async def test_publish_returns_the_id_of_an_event_that_can_be_fetched_at_once(bus: BaseBus) -> None:
    event = Event("order.paid", {"total": 3}, correlation_id="c-1", source="till")

    published = await bus.publish(event)

    assert published == event.event_id
    assert await bus.get_event(published) == event


@pytest.mark.guarantee("CORE-12")
async def test_publish_returns_before_the_handler_is_done(bus: BaseBus, gate: Gate) -> None:
    await bus.register_handler("job", gate.hold)

    event_id = await bus.publish("job")
    await gate.has_entered()

    assert [event.event_id for event in gate.entered] == [event_id]
    assert gate.left == []
    gate.open()


@pytest.mark.guarantee("CORE-12")
async def test_an_id_that_is_published_again_names_the_later_event(bus: BaseBus) -> None:
    await bus.publish(Event("a", {"n": 1}, event_id="same"))
    await bus.publish(Event("b", {"n": 2}, event_id="same"))

    assert (await bus.get_event("same")).data == {"n": 2}
    assert [event.data["n"] for event in await bus.event_storage.list_events()] == [2]


@pytest.mark.guarantee("CORE-13")
async def test_an_unknown_id_is_none_in_storage_and_a_named_error_on_the_bus(bus: BaseBus) -> None:
    assert await bus.event_storage.get_event("nobody") is None
    with pytest.raises(EventNotFoundError, match="nobody") as caught:
        await bus.get_event("nobody")
    assert caught.value.event_id == "nobody"


@pytest.mark.guarantee("CORE-35")
async def test_an_id_that_names_nothing_is_a_value_error(bus: BaseBus) -> None:
    for bad in ("", "  ", "a\0b", "x" * 513, "\ud83d"):
        with pytest.raises(ValueError, match="event_id"):
            await bus.get_event(bad)


@pytest.mark.guarantee("CORE-38")
async def test_an_event_a_mapping_and_a_type_are_published_alike(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("t", recorder)

    await bus.publish(Event("t", {"n": 1}, "c", "s"))
    await bus.publish({"event_type": "t", "correlation_id": "c", "source": "s", "n": 1})
    await bus.publish("t", n=1, correlation_id="c", source="s")

    heard = [
        (event.event_type, event.data, event.correlation_id, event.source) for event in await recorder.has_heard(3)
    ]
    assert heard == [("t", {"n": 1}, "c", "s")] * 3


@pytest.mark.guarantee("CORE-38")
async def test_a_published_mapping_is_not_touched(bus: BaseBus) -> None:
    mapping = {"event_type": "t", "correlation_id": "c", "n": [1]}

    await bus.publish(mapping)

    assert mapping == {"event_type": "t", "correlation_id": "c", "n": [1]}


@pytest.mark.guarantee("CORE-35", "CORE-36", "CORE-37")
async def test_what_cannot_be_stored_is_refused_and_nobody_hears_of_it(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("*", recorder)

    for bad in (
        Event("", event_id="bad"),
        Event("a\0b", event_id="bad"),
        Event("t", event_id="x" * 513),
        Event("t", event_id="bad", correlation_id=" "),
        Event("t", {"v": float("nan")}, event_id="bad"),
        Event("t", {"v": float("inf")}, event_id="bad"),
        Event("t", {"v": b"x"}, event_id="bad"),
        Event("t", {"v": object()}, event_id="bad"),
        Event("t", {1: "v"}, event_id="bad"),  # type: ignore[dict-item]
        Event("t", event_id="bad", timestamp=float("nan")),
        Event("t", event_id="bad", timestamp=10**400),
    ):
        with pytest.raises(ValueError):
            await bus.publish(bad)

    assert not bus._pending_tasks
    assert recorder.events == []
    assert await bus.event_storage.list_events() == []


@pytest.mark.guarantee("CORE-35", "CORE-37")
async def test_any_text_and_any_json_arrive_and_stay_equal(bus: BaseBus, recorder: Recorder) -> None:
    values: list[Any] = ["a\0b", "\ud83d", "😀", 2**60, {"k\0": 1, "": [None, True]}, "x" * 2**16]
    events = [Event("plaita:event:日本", {"v": value}, "%3A:*", event_id=f"a:b {n}") for n, value in enumerate(values)]
    await bus.register_handler("*", recorder)

    for event in events:
        await bus.publish(event)

    assert sorted(await recorder.has_heard(len(events)), key=lambda event: event.event_id) == events
    assert [await bus.get_event(event.event_id) for event in events] == events


@pytest.mark.guarantee("CORE-52")
async def test_what_is_stored_is_the_event_as_it_was_when_publish_was_called(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(max_pending_callbacks=1)
    await bus.register_handler("*", gate.hold)
    await bus.publish("first")
    event = Event("second", {"n": 1})

    waiting = asyncio.ensure_future(bus.publish(event))
    await gate.has_entered()
    await everyone_blocked()
    assert isinstance(event.data, dict)
    event.data["n"] = 2
    gate.open()

    assert (await bus.get_event(await waiting)).data == {"n": 1}


@pytest.mark.guarantee("CORE-44")
async def test_a_cancelled_publish_is_stored_and_handled_or_neither(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("c", recorder)
    events = [Event("c") for _ in range(8)]

    for turns, event in enumerate(events):
        publishing = asyncio.ensure_future(bus.publish(event))
        for _ in range(turns):
            await asyncio.sleep(0)
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
    await settled(bus)

    ids = [event.event_id for event in events]
    stored = [event_id for event_id in ids if await bus.event_storage.get_event(event_id) is not None]
    assert sorted(event.event_id for event in recorder.events) == sorted(stored)


@pytest.mark.guarantee("CORE-44")
async def test_after_cancelled_publishes_the_bus_answers_for_itself(bus: BaseBus) -> None:
    for turns in range(6):
        publishing = asyncio.ensure_future(bus.publish("c", n=turns))
        for _ in range(turns):
            await asyncio.sleep(0)
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)

    event_id = await bus.publish("c", n=99)

    assert (await bus.get_event(event_id)).data == {"n": 99}


@pytest.mark.guarantee("CORE-47")
async def test_what_changes_while_an_event_is_stored_concerns_the_next_event(recorder: Recorder) -> None:
    storage, late = SlowStorage(), Recorder()
    async with InMemoryEventBus(event_storage=storage) as bus:
        await bus.register_handler("t", recorder, handler_id="early")
        publishing = asyncio.ensure_future(bus.publish("t"))
        await storage.asked.wait()

        await bus.unregister_handler("early")
        await bus.register_handler("t", late)
        storage.go.set()
        await publishing
        await settled(bus)

        assert (len(recorder.events), len(late.events)) == (1, 0)


@pytest.mark.guarantee("CORE-44")
async def test_an_event_that_was_stored_for_a_publisher_who_has_gone_reaches_handlers_and_waiters(
    recorder: Recorder,
) -> None:
    storage = SlowStorage()
    async with InMemoryEventBus(event_storage=storage) as bus:
        await bus.register_handler("c", recorder)
        waiter = asyncio.ensure_future(bus.wait_for_event("c"))
        publishing = asyncio.ensure_future(bus.publish("c"))
        await storage.asked.wait()

        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        await everyone_blocked()

        assert publishing.cancelled()
        assert len(recorder.events) == 1
        assert (await waiter) == recorder.events[0]


@pytest.mark.guarantee("CORE-44")
async def test_a_cancelled_publish_that_stored_nothing_gives_its_slot_back(recorder: Recorder) -> None:
    storage = SlowStorage(lands=False)
    async with InMemoryEventBus(event_storage=storage, max_pending_callbacks=1) as bus:
        await bus.register_handler("*", recorder)
        publishing = asyncio.ensure_future(bus.publish("lost"))
        await storage.asked.wait()
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)

        storage.go.set()
        found = asyncio.ensure_future(bus.publish("found"))
        await everyone_blocked()

        assert found.done()
        assert [event.event_type for event in recorder.events] == ["found"]


@pytest.mark.guarantee("CORE-12")
async def test_a_publish_that_could_not_be_stored_raises_the_storages_error_and_is_heard_by_nobody(
    recorder: Recorder,
) -> None:
    async with InMemoryEventBus(event_storage=FullStorage()) as bus:
        await bus.register_handler("*", recorder)

        with pytest.raises(OSError, match="disk full"):
            await bus.publish("lost")
        await everyone_blocked()

        assert recorder.events == []


async def test_a_closed_bus_refuses_to_publish(bus: BaseBus) -> None:
    await bus.close()

    with pytest.raises(BusClosedError, match="publish"):
        await bus.publish("late")
