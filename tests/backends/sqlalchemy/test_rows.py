"""Rows: what cannot be read is passed over by name, and what has expired is deleted a bite at a time."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from sqlalchemy import event, func, insert, select, text, update

from lastbus import Event, EventError, EventStorageError, EventSubscription
from lastbus._backends.sqlalchemy.expiry import BITE_ROWS, BITE_SECONDS
from lastbus._backends.sqlalchemy.tables import claims, events, history, subscription_marks, subscriptions
from lastbus.sqlalchemy import SqlalchemyEventProcessingTracker, SqlalchemyEventSubscriptionStorage
from lastbus.testing import ManualClock
from tests._backends.sqlalchemy import SqlBackend

FAR = 1e12


async def execute(backend: SqlBackend, statement: Any, rows: Any = None) -> None:
    async with backend.engine.begin() as connection:
        await connection.execute(statement, rows)


async def count(backend: SqlBackend, table: Any) -> int:
    async with backend.engine.connect() as connection:
        return int((await connection.execute(select(func.count()).select_from(table))).scalar_one())


async def spoil(backend: SqlBackend, *event_ids: str) -> None:
    await execute(backend, update(events).where(events.c.event_id.in_(event_ids)).values(payload="{"))


async def somebody_waits(backend: SqlBackend) -> bool:
    async with backend.engine.connect() as connection:
        return bool((await connection.execute(text("SELECT 1 FROM pg_locks WHERE NOT granted"))).all())


def subscription_row(name: str, event_type: str = "order.paid", **fields: Any) -> dict[str, Any]:
    columns = ("correlation_id", "flow_id", "node_id", "filter_condition", "timeout")
    row = {"subscription_id": name, "event_type": event_type, "created_at": 1.0, "expires_at": FAR}
    return dict.fromkeys(columns) | row | fields


# Unreadable rows ----------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("SQL-02")
async def test_an_unreadable_event_is_passed_over_and_named(
    backend: SqlBackend, caplog: pytest.LogCaptureFixture
) -> None:
    storage = backend.event_storage()
    await storage.batch_store_events(Event("tick", event_id=f"{n}", timestamp=n) for n in range(3))
    await spoil(backend, "1")

    found = [event.event_id for event in await storage.list_events()]

    assert found == ["0", "2"]
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "'1'" in line
    assert "'tick'" in line
    with pytest.raises(EventError):
        await storage.get_event("1")


@pytest.mark.guarantee("SQL-02")
async def test_others_take_the_place_of_unreadable_events(backend: SqlBackend) -> None:
    storage = backend.event_storage()
    await storage.batch_store_events(Event("tick", event_id=f"{n}", timestamp=n // 3) for n in range(9))
    await spoil(backend, "0", "1", "4")

    assert [event.event_id for event in await storage.list_events(limit=4)] == ["2", "3", "5", "6"]
    assert [event.event_id for event in await storage.list_events("tick", 1, 2, 99)] == ["3", "5", "6", "7", "8"]


@pytest.mark.guarantee("SQL-02")
async def test_a_listing_longer_than_a_page_is_complete(backend: SqlBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastbus._backends.sqlalchemy.storage.PAGE_ROWS", 4)
    storage = backend.event_storage()
    await storage.batch_store_events(Event("tick", event_id=f"{n:02}", timestamp=n // 6) for n in range(18))

    assert [event.event_id for event in await storage.list_events()] == [f"{n:02}" for n in range(18)]
    assert [event.event_id for event in await storage.list_events(limit=7)] == [f"{n:02}" for n in range(7)]


@pytest.mark.guarantee("SUBS-14", "SUBS-15")
@pytest.mark.parametrize(
    "dirt",
    [{"event_type": ""}, {"event_type": "  "}, {"filter_condition": "{"}, {"filter_condition": "[1]"}, {"timeout": -1}],
    ids=repr,
)
async def test_a_dirty_subscription_is_passed_over_and_named(
    backend: SqlBackend, caplog: pytest.LogCaptureFixture, dirt: dict[str, Any]
) -> None:
    dirty = subscription_row("dirty", correlation_id="c") | dirt
    await execute(backend, insert(subscriptions), [dirty, subscription_row("clean", correlation_id="c")])
    storage = backend.subscription_storage()

    for filters in ({}, {"correlation_id": "c"}):
        caplog.clear()
        assert [each.subscription_id for each in await storage.list_subscriptions(**filters)] == ["clean"]
        [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert "'dirty'" in line
        assert repr(dirty["event_type"]) in line


@pytest.mark.guarantee("SUBS-14")
async def test_a_dirty_subscription_does_not_keep_others_from_an_event(backend: SqlBackend) -> None:
    rows = [subscription_row("dirty", timeout=-1), subscription_row("clean")]
    await execute(backend, insert(subscriptions), rows)
    storage = backend.subscription_storage()

    found = await storage.find_unprocessed_matching_subscriptions(Event("order.paid"))

    assert [each.subscription_id for each in found] == ["clean"]
    with pytest.raises(EventStorageError, match="dirty"):
        await storage.get_subscription("dirty")


# Refused rows -------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("CORE-37")
@pytest.mark.parametrize("value", [math.nan, [math.inf], object, {1}], ids=repr)
async def test_a_condition_that_json_cannot_carry_is_refused_even_past_validation(
    backend: SqlBackend, value: Any
) -> None:
    subscription = EventSubscription.model_construct(event_type="order.paid", filter_condition={"value": value})

    with pytest.raises(ValueError, match="filter_condition"):
        await backend.subscription_storage().store_subscription(subscription)

    assert await count(backend, subscriptions) == 0


@pytest.mark.guarantee("SUBS-10")
@pytest.mark.parametrize("event_type", ["", "   ", "\t", "nul\0"], ids=ascii)
async def test_a_type_that_is_no_name_is_refused_even_past_validation(backend: SqlBackend, event_type: str) -> None:
    with pytest.raises(ValueError, match="event_type"):
        await backend.subscription_storage().store_subscription(
            EventSubscription.model_construct(event_type=event_type)
        )

    assert await count(backend, subscriptions) == 0


# Races --------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("SQL-08")
@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
async def test_a_mark_waits_for_a_delete_and_then_finds_nobody_to_mark(backend: SqlBackend) -> None:
    storage = backend.subscription_storage()
    await storage.store_subscription(EventSubscription(event_type="a", subscription_id="s"))

    async with backend.engine.begin() as deleting:
        await deleting.execute(subscriptions.delete())
        marking = asyncio.ensure_future(storage.mark_event_processed("s", "e"))
        while not (marking.done() or await somebody_waits(backend)):
            await asyncio.sleep(0)

    assert await marking is False
    assert await count(backend, subscription_marks) == 0


# Two halves of one step ---------------------------------------------------------------------------------------------


async def test_a_success_that_cannot_be_recorded_is_not_marked_either(backend: SqlBackend, clock: ManualClock) -> None:
    tracker = backend.tracker(clock)
    await tracker.claim_event("e", "h", "me")
    await execute(backend, text("ALTER TABLE event_processing_history RENAME TO elsewhere"))

    try:
        with pytest.raises(EventStorageError, match="finish_event"):
            await tracker.finish_event("e", "h", "me")
    finally:
        await execute(backend, text("ALTER TABLE elsewhere RENAME TO event_processing_history"))

    assert await tracker.is_event_processed("e", "h") is False
    assert await tracker.finish_event("e", "h", "me") is True
    assert len(await tracker.get_processing_history("e")) == 1


async def test_finishing_is_one_transaction_and_on_a_server_one_statement(
    backend: SqlBackend, clock: ManualClock
) -> None:
    tracker = backend.tracker(clock)
    await tracker.finish_event("sweeps first", "h", "me")
    done: list[str] = []
    engine = backend.engine.sync_engine
    event.listen(engine, "before_cursor_execute", lambda *facts: done.append(facts[2].split()[0]))
    event.listen(engine, "commit", lambda *_: done.append("COMMIT"))

    await tracker.finish_event("e", "h", "me")

    assert done == {"sqlite": ["INSERT", "INSERT", "COMMIT"], "postgres": ["WITH", "COMMIT"]}[backend.name]


# Lifetimes ----------------------------------------------------------------------------------------------------------


async def test_a_subscription_lives_for_its_ttl_after_its_own_timeout(backend: SqlBackend, clock: ManualClock) -> None:
    storage = SqlalchemyEventSubscriptionStorage(backend.engine, ttl=60, clock=clock)
    now = clock.time()
    await storage.store_subscription(EventSubscription(event_type="a", subscription_id="short", created_at=now))
    await storage.store_subscription(
        EventSubscription(event_type="a", subscription_id="long", created_at=now, timeout=100)
    )

    clock.advance(60)
    assert [each.subscription_id for each in await storage.list_subscriptions()] == ["long"]
    assert await storage.get_subscription("short") is None
    assert await storage.delete_subscription("short") is False
    assert await storage.mark_event_processed("short", "e") is False

    clock.advance(99)
    assert await storage.get_subscription("long") is not None
    clock.advance(1)
    assert await storage.list_subscriptions() == []


async def test_marks_of_a_subscription_live_as_long_as_events(backend: SqlBackend, clock: ManualClock) -> None:
    storage = SqlalchemyEventSubscriptionStorage(backend.engine, ttl=60, clock=clock)
    await storage.store_subscription(EventSubscription(event_type="a", subscription_id="s", created_at=FAR, timeout=1))
    await storage.mark_event_processed("s", "e")

    clock.advance(59)
    assert await storage.mark_event_processed("s", "e") is False

    clock.advance(1)
    assert (await storage.get_subscription("s")).processed_events == set()
    assert await storage.mark_event_processed("s", "e") is True


@pytest.mark.guarantee("SQL-09")
async def test_expired_events_are_deleted_a_bite_at_a_time(backend: SqlBackend, clock: ManualClock) -> None:
    storage = backend.event_storage(clock, ttl=60)
    await storage.batch_store_events(Event("tick", event_id=f"{n}") for n in range(BITE_ROWS + 50))
    clock.advance(60)

    await storage.store_event(Event("tick", event_id="first"))
    assert await count(backend, events) == 51

    await storage.store_event(Event("tick", event_id="second"))
    assert await count(backend, events) == 2


@pytest.mark.guarantee("SQL-09")
async def test_nothing_is_looked_for_more_often_than_needed(backend: SqlBackend, clock: ManualClock) -> None:
    storage = backend.event_storage(clock, ttl=1)
    await storage.store_event(Event("tick", event_id="old"))
    clock.advance(BITE_SECONDS - 1)

    await storage.store_event(Event("tick", event_id="new"))
    assert await count(backend, events) == 2

    clock.advance(1)
    await storage.store_event(Event("tick", event_id="newer"))
    assert await count(backend, events) == 1


@pytest.mark.guarantee("SQL-09")
async def test_every_table_is_swept(backend: SqlBackend, clock: ManualClock) -> None:
    subscribed = SqlalchemyEventSubscriptionStorage(backend.engine, ttl=60, clock=clock)
    tracker = SqlalchemyEventProcessingTracker(backend.engine, ttl=60, clock=clock)

    async def write(name: str) -> None:
        await subscribed.store_subscription(EventSubscription(event_type="a", subscription_id=name, created_at=1))
        await subscribed.mark_event_processed(name, name)
        await tracker.mark_event_processed(name, name)
        await tracker.record_processing_attempt(name, name, "success")

    await write("old")
    clock.advance(60 + 60 + 1)
    await write("new")

    for table in (subscriptions, subscription_marks, claims, history):
        assert await count(backend, table) == 1


@pytest.mark.guarantee("SQL-09")
async def test_a_sweep_that_fails_does_not_fail_the_write(
    backend: SqlBackend, clock: ManualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    impossible = text("DELETE FROM nowhere")
    monkeypatch.setattr("lastbus._backends.sqlalchemy.expiry.bite", lambda *arguments: impossible)
    storage = backend.event_storage(clock)

    assert await storage.store_event(Event("tick", event_id="e")) == "e"

    assert await storage.get_event("e") is not None
    assert "expired rows of events stay" in caplog.text


@pytest.mark.guarantee("SQL-09")
@pytest.mark.parametrize("backend", ["postgres"], indirect=True)
async def test_a_row_that_somebody_holds_is_passed_over(backend: SqlBackend, clock: ManualClock) -> None:
    storage = backend.event_storage(clock, ttl=60)
    await storage.batch_store_events([Event("tick", event_id="held"), Event("tick", event_id="free")])
    clock.advance(60)

    async with backend.engine.begin() as connection:
        await connection.execute(select(events).where(events.c.event_id == "held").with_for_update())
        await storage.store_event(Event("tick", event_id="new"))

    assert await count(backend, events) == 2
