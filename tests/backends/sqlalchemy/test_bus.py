"""The SQL bus: what it shares with other processes, and how it publishes without a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool

from lastbus import Event
from lastbus.sqlalchemy import SqlalchemyEventBus
from lastbus.testing import Gate, ManualClock, Recorder, everyone_blocked
from tests._backends.sqlalchemy import SqlBackend


@pytest.fixture
def engine(empty_url: str) -> Iterator[AsyncEngine]:
    """An engine that a synchronous program has injected; the program must not find connections in it."""
    engine = create_async_engine(empty_url, poolclass=AsyncAdaptedQueuePool)
    asyncio.run(SqlalchemyEventBus(create_async_engine(empty_url, poolclass=NullPool)).ensure_tables())
    yield engine
    assert engine.sync_engine.pool.checkedin() == 0


async def test_what_one_bus_has_stored_another_one_finds(backend: SqlBackend) -> None:
    async with backend.make_bus() as first:
        event_id = await first.publish("order.paid", total=3)
        subscription_id = await first.register_subscription("order.paid", correlation_id="c")

    async with backend.make_bus() as second:
        assert (await second.get_event(event_id)).data == {"total": 3}
        assert await second.unregister_subscription(subscription_id) is True


@pytest.mark.guarantee("SQL-08")
async def test_a_handler_of_a_stable_id_succeeds_once_for_all_buses(backend: SqlBackend, recorder: Recorder) -> None:
    buses = [backend.make_bus() for _ in range(3)]
    for bus in buses:
        await bus.register_handler("tick", recorder, handler_id="stable")
    event = Event("tick")

    await asyncio.gather(*(bus.publish(event) for bus in buses))
    for bus in buses:
        await bus.close()

    assert len(recorder.events) == 1


async def test_a_handler_that_comes_back_is_not_told_of_what_it_missed(backend: SqlBackend, recorder: Recorder) -> None:
    async with backend.make_bus() as before:
        await before.register_handler("tick", Recorder(), handler_id="stable")
    missed = Event("tick")
    async with backend.make_bus() as elsewhere:
        await elsewhere.publish(missed)

    async with backend.make_bus() as after:
        await after.register_handler("tick", recorder, handler_id="stable")
        await after.publish("tick")
        await recorder.has_heard()
        assert missed not in recorder.events
        await after.publish(missed)
        assert missed in await recorder.has_heard(2)


async def test_what_a_handler_did_is_in_the_history(backend: SqlBackend) -> None:
    bus = backend.make_bus()

    def fail(event: Event) -> None:
        raise RuntimeError("boom")

    await bus.register_handler("tick", fail, handler_id="h")
    event_id = await bus.publish("tick")
    await bus.close()

    [attempt] = await backend.tracker().get_processing_history(event_id)
    assert (attempt["handler_id"], attempt["error"]) == ("h", "RuntimeError: boom")
    assert await backend.tracker().is_event_processed(event_id, "h") is False


async def test_a_bus_on_a_url_makes_its_tables_and_closes_twice(empty_url: str, recorder: Recorder) -> None:
    async with SqlalchemyEventBus(database_url=empty_url, create_tables=True) as bus:
        await bus.register_handler("tick", recorder)
        await bus.publish("tick")
    await bus.close()

    assert len(recorder.events) == 1


@pytest.mark.guarantee("CORE-22")
def test_publish_sync_uses_connections_of_its_own(engine: AsyncEngine, recorder: Recorder) -> None:
    bus = SqlalchemyEventBus(engine)
    bus.add_handler("tick", recorder)

    published = [bus.publish_sync("tick", n=n) for n in range(2)]

    assert [event.event_id for event in recorder.events] == published


def test_what_publish_sync_leaves_behind_gives_its_claim_back(
    engine: AsyncEngine, gate: Gate, clock: ManualClock
) -> None:
    bus = SqlalchemyEventBus(engine, clock=clock, publish_sync_drain_timeout=5.0)

    async def outlast_the_drain(event: Event) -> None:
        clock.advance(5)
        await gate.hold(event)

    bus.add_handler("tick", outlast_the_drain, handler_id="h")

    event_id = bus.publish_sync("tick")

    other = SqlalchemyEventBus(create_async_engine(engine.url, poolclass=NullPool), clock=clock)
    assert asyncio.run(other.processing_tracker.claim_event(event_id, "h", "somebody else")) is True
    assert len(gate.cancelled) == 1


async def test_publish_sync_in_a_thread_uses_the_loop_that_the_bus_lives_on(backend: SqlBackend) -> None:
    recorder = Recorder()
    bus = backend.make_bus()
    await bus.register_handler("tick", recorder)

    event_id = await asyncio.to_thread(bus.publish_sync, "tick")

    assert [event.event_id for event in recorder.events] == [event_id]


async def test_a_cancelled_publish_leaves_the_bus_usable(backend: SqlBackend, recorder: Recorder) -> None:
    bus = backend.make_bus()
    await bus.register_handler("tick", recorder)
    for turns in (1, 4, 8, 16):
        publishing = asyncio.ensure_future(bus.publish("tick", turns=turns))
        await everyone_blocked(turns)
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)

    last = await bus.publish("tick")
    await bus.close()

    stored = {event.event_id for event in await backend.event_storage().list_events()}
    assert {event.event_id for event in recorder.events} == stored
    assert last in stored
