"""The edge to the database: tables, connections and who closes them, failures and cancellation."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from lastbus import Event, EventStorageError
from lastbus._backends.sqlalchemy.database import Database
from lastbus._backends.sqlalchemy.engine import open_engine
from lastbus._backends.sqlalchemy.tables import metadata
from lastbus._kit.servers import BorrowedPostgres, PostgresServer
from lastbus.sqlalchemy import (
    SqlalchemyEventBus,
    SqlalchemyEventProcessingTracker,
    SqlalchemyEventStorage,
    SqlalchemyEventSubscriptionStorage,
)
from lastbus.testing import everyone_blocked
from tests._backends.eventually import eventually
from tests._backends.sqlalchemy import SqlBackend, opened, sqlite_engine

MAKE_TABLES = """
import asyncio, sys
from lastbus._backends.sqlalchemy.database import Database
async def main():
    database = Database.at(sys.argv[1])
    await database.ensure_tables()
    await database.let_go(database)
print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main())
"""


async def tables(url: str) -> set[str]:
    async with opened(create_async_engine(url)) as engine, engine.connect() as connection:
        return set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))


def indexes_of(connection: Connection) -> set[str]:
    return {str(index["name"]) for table in metadata.tables for index in inspect(connection).get_indexes(table)}


async def sessions(engine: AsyncEngine, url: str) -> int:
    """How many connections the server has to the database of `url`."""
    count = text("SELECT count(*) FROM pg_stat_activity WHERE datname = :name")
    async with engine.connect() as connection:
        return int((await connection.execute(count, {"name": url.rpartition("/")[2]})).scalar_one())


async def no_sessions(server: PostgresServer | BorrowedPostgres, url: str) -> bool:
    """Whether the last session is gone: a server notices a closed connection a moment later."""
    async with opened(create_async_engine(server.url)) as engine:

        async def gone() -> bool:
            return await sessions(engine, url) == 0

        return await eventually(gone)


# Tables -------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("SQL-01")
async def test_tables_and_indexes_are_made_once_and_kept(empty_url: str) -> None:
    database = Database.at(empty_url)
    await database.ensure_tables()
    storage = SqlalchemyEventStorage(database)
    await storage.store_event(Event("tick", event_id="e"))

    await database.ensure_tables()

    assert await storage.get_event("e") is not None
    assert await tables(empty_url) == set(metadata.tables)
    async with opened(create_async_engine(empty_url)) as engine, engine.connect() as connection:
        expected = {index.name for table in metadata.tables.values() for index in table.indexes}
        assert await connection.run_sync(indexes_of) == expected
    await storage.aclose()


@pytest.mark.guarantee("SQL-01")
@pytest.mark.parametrize(
    "kind", [SqlalchemyEventStorage, SqlalchemyEventSubscriptionStorage, SqlalchemyEventProcessingTracker]
)
async def test_each_store_makes_the_tables_when_it_is_asked_to(tmp_path: Path, kind: type[Any]) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}"
    store = kind(url)

    await store.ensure_tables()

    assert await tables(url) == set(metadata.tables)
    await store.aclose()


async def test_names_are_sorted_by_code_point_whatever_the_locale(postgres_url: str) -> None:
    database = Database.at(postgres_url, create_tables=True)
    columns = "SELECT DISTINCT collation_name FROM information_schema.columns WHERE character_maximum_length = 512"

    assert [tuple(row) for row in await database.fetch("look", text(columns))] == [("C",)]

    await database.let_go(database)


@pytest.mark.guarantee("SQL-01")
async def test_a_missing_index_is_added_to_a_table_that_is_there(empty_url: str) -> None:
    database = Database.at(empty_url)
    await database.ensure_tables()
    await database.change("drop", text("DROP INDEX ix_events_time"))

    await database.ensure_tables()

    assert "ix_events_time" in await database.transact("look", lambda connection: connection.run_sync(indexes_of))
    await database.let_go(database)


@pytest.mark.guarantee("SQL-01")
async def test_tasks_and_databases_may_make_the_tables_at_once(empty_url: str) -> None:
    databases = [Database.at(empty_url) for _ in range(4)]

    await asyncio.gather(*(each.ensure_tables() for each in databases * 2))

    assert await tables(empty_url) == set(metadata.tables)
    for each in databases:
        await each.let_go(each)


@pytest.mark.guarantee("SQL-01")
@pytest.mark.slow
async def test_processes_may_make_the_tables_at_once(empty_url: str) -> None:
    """Slow because it starts two interpreters."""
    command = [sys.executable, "-c", MAKE_TABLES, empty_url]
    makers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for maker in makers:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "ready\n"

    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("go\n")
        maker.stdin.flush()

    assert [maker.communicate(timeout=50)[0] for maker in makers] == ["", ""]
    assert [maker.returncode for maker in makers] == [0, 0]
    assert await tables(empty_url) == set(metadata.tables)


@pytest.mark.guarantee("SQL-01")
async def test_nothing_is_made_unless_it_is_asked_for(empty_url: str) -> None:
    storage = SqlalchemyEventStorage(empty_url)

    with pytest.raises(EventStorageError, match="store_event"):
        await storage.store_event(Event("tick"))

    assert await tables(empty_url) == set()
    await storage.aclose()


@pytest.mark.guarantee("SQL-01")
async def test_with_create_tables_the_first_statement_makes_them(empty_url: str) -> None:
    storage = SqlalchemyEventStorage(empty_url, create_tables=True)

    await asyncio.gather(*(storage.store_event(Event("tick", event_id=f"{n}", timestamp=n)) for n in range(5)))

    assert [event.event_id for event in await storage.list_events()] == list("01234")
    await storage.aclose()


# Connections --------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("SQL-05")
async def test_an_engine_of_our_own_is_disposed_with_the_bus(
    postgres_server: PostgresServer | BorrowedPostgres, postgres_url: str
) -> None:
    bus = SqlalchemyEventBus(database_url=postgres_url, create_tables=True)
    await asyncio.gather(*(bus.publish("tick") for _ in range(4)))

    await bus.close()

    assert await no_sessions(postgres_server, postgres_url)


@pytest.mark.guarantee("SQL-05")
async def test_an_injected_engine_stays_open(postgres_url: str) -> None:
    async with opened(create_async_engine(postgres_url)) as engine:
        bus = SqlalchemyEventBus(engine, create_tables=True)
        event_id = await bus.publish("tick")
        before, pool = await sessions(engine, postgres_url), engine.sync_engine.pool

        await bus.close()

        # An engine that was disposed opens again by itself, but with another pool.
        assert engine.sync_engine.pool is pool
        assert await sessions(engine, postgres_url) == before
        assert await SqlalchemyEventStorage(engine).get_event(event_id) is not None


@pytest.mark.guarantee("SQL-05")
async def test_an_engine_of_our_own_lives_as_long_as_somebody_holds_it(tmp_path: Path) -> None:
    database = Database(sqlite_engine(tmp_path / "bus.db"), owned=True, create_tables=True)
    first, second = SqlalchemyEventStorage(database), SqlalchemyEventStorage(database)
    await first.store_event(Event("tick", event_id="e"))
    engine = database._engines.several
    pool = engine.pool

    await first.aclose()
    assert await second.get_event("e") is not None
    assert engine.pool is pool

    await second.aclose()
    assert engine.pool is not pool


@pytest.mark.guarantee("SQL-05")
async def test_who_outlives_the_close_still_records_and_leaves_no_connection(
    postgres_server: PostgresServer | BorrowedPostgres, postgres_url: str
) -> None:
    bus = SqlalchemyEventBus(database_url=postgres_url, create_tables=True)
    await bus.ensure_tables()
    await bus.close()

    assert await bus.processing_tracker.mark_event_processed("e", "h") is True
    assert await bus.processing_tracker.is_event_processed("e", "h") is True

    assert await no_sessions(postgres_server, postgres_url)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_database_moves_from_a_closed_loop_to_the_next_one(empty_url: str) -> None:
    storage = SqlalchemyEventStorage(empty_url, create_tables=True)

    async def look() -> Event | None:
        found = await storage.get_event("e")
        await storage.aclose()
        return found

    asyncio.run(storage.store_event(Event("tick", event_id="e")))

    assert asyncio.run(look()) is not None
    gc.collect()  # What the first loop left open is warned about here, and nowhere else.


# Failures -----------------------------------------------------------------------------------------------------------


async def test_a_restarted_server_costs_a_connection_and_no_event() -> None:
    with PostgresServer() as server:
        storage = SqlalchemyEventStorage(server.url, create_tables=True)
        await storage.store_event(Event("tick", event_id="before"))
        server.stop()
        with pytest.raises(EventStorageError, match=r"store_event\(\) failed on .*127\.0\.0\.1"):
            await storage.store_event(Event("tick", event_id="lost"))
        server.start()

        await storage.store_event(Event("tick", event_id="after"))

        assert {event.event_id for event in await storage.list_events()} == {"before", "after"}
        await storage.aclose()


async def test_a_database_that_does_not_answer_is_not_waited_for_endlessly(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lastbus._backends.sqlalchemy.engine.STATEMENT_SECONDS", 0.1)
    database = Database.at(postgres_url)

    with pytest.raises(EventStorageError, match="Timeout"):
        await database.fetch("sleep", text("SELECT pg_sleep(60)"))

    assert (await database.fetch("look", text("SELECT 7")))[0][0] == 7
    await database.let_go(database)


@pytest.mark.guarantee("SQL-10")
async def test_a_batch_takes_its_rows_in_one_order_so_that_two_cannot_hold_each_other_up(backend: SqlBackend) -> None:
    taken: list[list[str]] = []

    def note(connection: Any, cursor: Any, statement: str, rows: Any, context: Any, many: bool) -> None:
        if statement.startswith("INSERT INTO events"):
            taken.append([row[0] for row in rows])

    event.listen(backend.engine.sync_engine, "before_cursor_execute", note)
    for order in ("cab", "bca"):
        assert await backend.event_storage().batch_store_events(Event("tick", event_id=each) for each in order) == [
            *order
        ]

    assert taken == [["a", "b", "c"], ["a", "b", "c"]]


@pytest.mark.guarantee("SQL-10")
async def test_a_batch_that_fails_on_the_way_leaves_no_trace(backend: SqlBackend) -> None:
    storage = backend.event_storage()
    good, bad = Event("tick"), Event("tick", {"value": {1, 2}})

    with pytest.raises(ValueError, match="JSON"):
        await storage.batch_store_events([good, bad])

    assert await storage.list_events() == []


# Cancellation -------------------------------------------------------------------------------------------------------

SLOW = {
    "postgresql": "SELECT pg_sleep(60)",
    "sqlite": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100000) SELECT max(x) FROM n",
}


@pytest.mark.guarantee("SQL-06")
async def test_a_cancelled_statement_leaves_the_pool_usable(backend: SqlBackend) -> None:
    options = {"poolclass": AsyncAdaptedQueuePool, "pool_size": 1, "max_overflow": 0, "pool_timeout": 5}
    engine = create_async_engine(backend.engine.url, **options)
    started = asyncio.Event()
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *_: started.set())
    async with opened(engine):
        database = Database(engine, owned=False)
        for turns in (0, 1, 5, 25):
            started.clear()
            running = asyncio.ensure_future(database.fetch("sleep", text(SLOW[database.dialect])))
            await started.wait()
            await everyone_blocked(turns)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

            assert (await database.fetch("look", text("SELECT 7")))[0][0] == 7


@pytest.mark.guarantee("SQL-06")
async def test_a_cancelled_store_happened_or_not_and_does_not_change_its_mind(backend: SqlBackend) -> None:
    storage = backend.event_storage()
    for turns in range(24):
        storing = asyncio.ensure_future(storage.store_event(Event("tick", event_id=f"{turns}")))
        await everyone_blocked(turns)
        storing.cancel()
        stored = (await asyncio.gather(storing, return_exceptions=True))[0] == f"{turns}"

        looks = [await storage.get_event(f"{turns}") is not None for _ in range(4)]

        assert looks in ([True] * 4, [False] * 4)
        assert looks[0] or not stored


async def test_an_unknown_driver_of_ours_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    with pytest.raises(ImportError, match=r"lastbus\[sql\]"):
        open_engine("postgresql://host/db")
