"""Hot path: whatever a bus asks PostgreSQL from the publish of an event to the end of its handlers has an index."""

from __future__ import annotations

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from lastbus import Event, RetryPolicy
from lastbus.sqlalchemy import SqlalchemyEventBus, SqlalchemyEventStorage, SqlalchemyEventSubscriptionStorage
from tests.backends.sqlalchemy.test_plans import crowded, plans
from tests.contract.waiting import settled

__all__ = ["crowded"]  # The fixture: thousands of rows in every table.


async def publish_and_handle(engine: AsyncEngine) -> None:
    """One event that is stored, handled once well and once badly, and looked up; once more, so that it is known."""
    bus = SqlalchemyEventBus(engine)
    failures = iter([True, False])

    async def stumble(event: Event) -> None:
        if next(failures, False):
            raise LookupError("once")

    await bus.register_handler("t7", stumble, retry_policy=RetryPolicy(max_retries=1, initial_delay=0))
    await bus.register_handler("t*", print)
    for _ in range(2):
        event_id = await bus.publish(Event("t7", {"n": 1}, "c7", event_id="fresh"))
        await settled(bus)
    await bus.get_event(event_id)
    await bus.batch_publish(["t7", "t8"])
    await settled(bus)
    await bus.close()


async def subscribe_and_match(engine: AsyncEngine) -> None:
    """A subscription from its registration to its end, with an event that it wants."""
    bus = SqlalchemyEventBus(engine)
    subscription_id = await bus.register_subscription("t7", correlation_id="c7", flow_id="f7", node_id="n7", timeout=5)
    storage = bus.subscription_storage
    found = await storage.find_unprocessed_matching_subscriptions(Event("t7", {}, "c7"))
    assert subscription_id in {each.subscription_id for each in found}
    await storage.batch_mark_processed(subscription_id, ["e1", "e2"])
    await bus.unregister_subscription(subscription_id)
    await bus.close()


async def store_a_batch(engine: AsyncEngine) -> None:
    """What a reconciler or a migration does."""
    storage = SqlalchemyEventStorage(engine)
    await storage.batch_store_events(Event(f"t{number}") for number in range(5))
    await storage.list_events("t7", start_time=100, limit=10)
    await storage.list_events(start_time=100, end_time=4000, limit=10)
    await SqlalchemyEventSubscriptionStorage(engine).list_subscriptions("t7", correlation_id="c7")


@pytest.fixture(params=[publish_and_handle, subscribe_and_match, store_a_batch], ids=lambda each: each.__name__)
async def answered(request: pytest.FixtureRequest, crowded: AsyncEngine) -> list[str]:
    """The plans of all statements of one walk."""
    return await plans(crowded, request.param)


@pytest.mark.guarantee("SQL-03")
async def test_no_statement_of_a_walk_reads_a_whole_table(answered: list[str]) -> None:
    assert len(answered) >= 5
    assert [plan for plan in answered if "Seq Scan" in plan] == []
