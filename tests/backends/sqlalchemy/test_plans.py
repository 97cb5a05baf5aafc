"""Plans: PostgreSQL answers every frequent question from an index, however many rows there are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from lastbus import Event
from lastbus._backends.sqlalchemy.bites import bite
from lastbus._backends.sqlalchemy.database import Database
from lastbus._backends.sqlalchemy.tables import events
from lastbus.sqlalchemy import (
    SqlalchemyEventBus,
    SqlalchemyEventProcessingTracker,
    SqlalchemyEventStorage,
    SqlalchemyEventSubscriptionStorage,
)
from lastbus.testing import ManualClock
from tests._backends.sqlalchemy import opened

ROWS = "FROM generate_series(1, 5000) n"
FEW_ROWS = "FROM generate_series(1, 500) n"
CROWD = f"""
INSERT INTO events
    SELECT 'e' || n, 't' || n % 500, n, json_build_object(
        'event_id', 'e' || n, 'event_type', 't' || n % 500, 'timestamp', n, 'data', json_build_object()
    ), 1e12 {ROWS};
INSERT INTO event_subscriptions
    SELECT 's' || n, 't' || n % 500, 'c' || n % 500, 'f' || n % 500, 'n' || n % 500, NULL, n, NULL, 1e12 {ROWS};
INSERT INTO processed_events SELECT 's' || n, 'e' || n, 1e12 {ROWS};
INSERT INTO event_claims SELECT 'e' || n, 'h', NULL, n, 1e12 {ROWS};
INSERT INTO event_processing_history (event_id, handler_id, status, timestamp, expires_at)
    SELECT 'e' || n, 'h', 'success', n, 1e12 {ROWS};
ANALYZE
"""
QUESTIONS: dict[str, Any] = {
    # The one that has no index, which proves that the test would see another.
    "by payload": lambda e: Database.at(e).fetch("look", text("SELECT * FROM events WHERE payload = ''")),
    "get_event": lambda e: SqlalchemyEventStorage(e).get_event("e7"),
    "list_events by type": lambda e: SqlalchemyEventStorage(e).list_events("t7"),
    "list_events by type and time": lambda e: SqlalchemyEventStorage(e).list_events("t7", 100, 4000, 10),
    "list_events by time": lambda e: SqlalchemyEventStorage(e).list_events(None, 4000, None, 10),
    "list_events": lambda e: SqlalchemyEventStorage(e).list_events(limit=10),
    "delete_event": lambda e: SqlalchemyEventStorage(e).delete_event("e7"),
    "sweep after a store": lambda e: SqlalchemyEventStorage(e).store_event(Event("tick")),
    "get_subscription": lambda e: SqlalchemyEventSubscriptionStorage(e).get_subscription("s7"),
    "subscriptions by type": lambda e: SqlalchemyEventSubscriptionStorage(e).list_subscriptions("t7"),
    "by correlation": lambda e: SqlalchemyEventSubscriptionStorage(e).list_subscriptions(correlation_id="c7"),
    "by flow": lambda e: SqlalchemyEventSubscriptionStorage(e).list_subscriptions(flow_id="f7"),
    "by node": lambda e: SqlalchemyEventSubscriptionStorage(e).list_subscriptions(node_id="n7"),
    "by all": lambda e: SqlalchemyEventSubscriptionStorage(e).list_subscriptions("t7", "c7", "f7", "n7"),
    "matching": lambda e: SqlalchemyEventSubscriptionStorage(e).find_matching_subscriptions(Event("t7", {}, "c7")),
    "mark of a subscription": lambda e: SqlalchemyEventSubscriptionStorage(e).mark_event_processed("s7", "e"),
    "delete_subscription": lambda e: SqlalchemyEventSubscriptionStorage(e).delete_subscription("s7"),
    "claim": lambda e: SqlalchemyEventProcessingTracker(e).claim_event("e", "h", "me"),
    "renew": lambda e: SqlalchemyEventProcessingTracker(e).renew_claim("e7", "h", "me"),
    "release": lambda e: SqlalchemyEventProcessingTracker(e).release_claim("e7", "h", "me"),
    "mark": lambda e: SqlalchemyEventProcessingTracker(e).mark_event_processed("e", "h", "me"),
    "is processed": lambda e: SqlalchemyEventProcessingTracker(e).is_event_processed("e7", "h"),
    "history": lambda e: SqlalchemyEventProcessingTracker(e).get_processing_history("e7"),
    "cleanup": lambda e: SqlalchemyEventProcessingTracker(e, clock=ManualClock(100)).cleanup_old_records(50),
    "record": lambda e: SqlalchemyEventProcessingTracker(e).record_processing_attempt("e", "h", "success"),
}


@pytest.fixture
async def crowded(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    """Thousands of rows in every table."""
    async with opened(create_async_engine(postgres_url)) as engine:
        await SqlalchemyEventBus(engine).ensure_tables()
        async with engine.begin() as connection:
            for statement in CROWD.split(";"):
                await connection.execute(text(statement))
        yield engine


async def plans(engine: AsyncEngine, question: Any) -> list[str]:
    """How PostgreSQL goes about each statement of a question."""
    asked: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        # Of many rows at once, one shows the plan.
        asked.append((statement, parameters[0] if many else parameters))

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    await question(engine)
    event.remove(engine.sync_engine, "before_cursor_execute", note)
    async with engine.connect() as connection:
        explained = [await connection.exec_driver_sql(f"EXPLAIN {each}", values) for each, values in asked]
    return ["\n".join(row[0] for row in plan) for plan in explained]


@pytest.mark.guarantee("SQL-03")
async def test_no_frequent_question_reads_a_whole_table(crowded: AsyncEngine) -> None:
    answered = {name: await plans(crowded, question) for name, question in QUESTIONS.items()}

    assert all(answered.values())
    assert [name for name, found in answered.items() if any("Seq Scan" in plan for plan in found)] == ["by payload"]


@pytest.mark.guarantee("SQL-09")
async def test_a_bite_is_no_larger_when_the_planner_joins_by_nested_loops(postgres_url: str) -> None:
    planner = ("enable_hashagg", "enable_hashjoin", "enable_mergejoin", "enable_material", "enable_sort")
    over = events.c.expires_at <= 1.0
    async with opened(create_async_engine(postgres_url)) as engine:
        await SqlalchemyEventBus(engine).ensure_tables()
        async with engine.begin() as connection:
            await connection.execute(text(f"INSERT INTO events SELECT 'e' || n, 't', n, '', 0 {FEW_ROWS}"))
            for setting in planner:
                await connection.execute(text(f"SET LOCAL {setting} = off"))

            eaten = await connection.execute(bite(events, over, 100, events.c.expires_at))

    assert eaten.rowcount == 100
