"""Work on a database whose caller is cancelled, wherever it is: it happens or not, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from lastbus import Event
from lastbus._backends.sqlalchemy.database import Database
from lastbus._backends.sqlalchemy.work import Workshop
from lastbus._kit.servers import BorrowedPostgres, PostgresServer
from lastbus.sqlalchemy import SqlalchemyEventStorage
from lastbus.testing import everyone_blocked
from tests.backends.sqlalchemy.test_database import no_sessions

LEAVE_SECONDS = "lastbus._backends.sqlalchemy.work.LEAVE_SECONDS"
STATEMENT: Final = text("SELECT 7")


class Door:
    """Where SQLite connections come from: it counts them, and can be shut in front of those who are connecting."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.is_open = threading.Event()
        self.is_open.set()
        self.reached = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def connect(self, *args: Any, **options: Any) -> sqlite3.Connection:
        """A connection, as soon as the door is open."""
        door = self

        class Counted(sqlite3.Connection):
            def close(self) -> None:
                door.closed += 1
                super().close()

        self._loop.call_soon_threadsafe(self.reached.set)
        assert self.is_open.wait(30)
        self.opened += 1
        return Counted(*args, **options)


@pytest.fixture
async def door() -> Door:
    return Door()


@pytest.fixture
def database(door: Door, tmp_path: Path) -> Database:
    return counted(tmp_path, door)


def counted(folder: Path, door: Door) -> Database:
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{folder / 'bus.db'}",
        poolclass=AsyncAdaptedQueuePool,
        connect_args={"factory": door.connect},
    )
    return Database(engine, owned=True, create_tables=True)


async def cancel(running: asyncio.Future[Any]) -> None:
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.guarantee("SQL-06")
async def test_who_is_cancelled_while_connecting_stores_nothing_and_leaves_no_connection(
    database: Database, door: Door
) -> None:
    await database.ensure_tables()
    await database._engines.several.dispose()
    storage = SqlalchemyEventStorage(database)
    door.is_open.clear()
    door.reached.clear()
    storing = asyncio.ensure_future(storage.store_event(Event("tick", event_id="e")))
    await door.reached.wait()

    storing.cancel()
    await everyone_blocked()
    assert not storing.done()
    door.is_open.set()
    with pytest.raises(asyncio.CancelledError):
        await storing

    assert await storage.get_event("e") is None
    await storage.aclose()
    assert door.opened == door.closed == 2


@pytest.mark.guarantee("SQL-06")
async def test_wherever_a_caller_is_cancelled_no_connection_stays_open_on_sqlite(door: Door, tmp_path: Path) -> None:
    for turns in range(40):
        database = counted(tmp_path, door)
        running = asyncio.ensure_future(database.fetch("look", STATEMENT))
        await everyone_blocked(turns)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

        await database.let_go(database)

        assert door.opened == door.closed


@pytest.mark.guarantee("SQL-06")
async def test_wherever_a_caller_is_cancelled_no_connection_stays_open_on_postgres(
    postgres_server: PostgresServer | BorrowedPostgres, postgres_url: str
) -> None:
    for milliseconds in range(12):
        database = Database.at(postgres_url)
        running = asyncio.ensure_future(database.fetch("look", STATEMENT))
        await asyncio.wait({running}, timeout=milliseconds / 1000)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await database.let_go(database)

    assert await no_sessions(postgres_server, postgres_url)


@pytest.mark.guarantee("SQL-06")
async def test_a_second_cancellation_neither_cuts_the_wait_short_nor_gets_lost(database: Database, door: Door) -> None:
    door.is_open.clear()
    running = asyncio.ensure_future(database.fetch("look", STATEMENT))
    await door.reached.wait()

    for _ in range(3):
        running.cancel()
        await everyone_blocked()
        assert not running.done()
    door.is_open.set()
    with pytest.raises(asyncio.CancelledError):
        await running

    await database.let_go(database)
    assert door.opened == door.closed == 1


@pytest.mark.guarantee("SQL-06")
async def test_a_cancelled_caller_does_not_wait_endlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LEAVE_SECONDS, 0.01)
    workshop = Workshop()
    endless = asyncio.Event()
    running = asyncio.ensure_future(workshop.finish("close", endless.wait()))
    await everyone_blocked()

    await cancel(running)

    await workshop.settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_failure_of_work_that_nobody_wants_any_more_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    workshop = Workshop()
    broken = asyncio.Event()

    async def fail() -> None:
        await broken.wait()
        raise OSError("gone")

    running = asyncio.ensure_future(workshop.finish("close", fail()))
    await everyone_blocked()
    asyncio.get_running_loop().call_soon(broken.set)

    await cancel(running)

    assert caplog.records == []


@pytest.mark.guarantee("SQL-05")
async def test_closing_waits_for_the_work_that_is_going_on(database: Database, door: Door) -> None:
    door.is_open.clear()
    running = asyncio.ensure_future(database.fetch("look", STATEMENT))
    await door.reached.wait()

    closing = asyncio.ensure_future(database.let_go(database))
    await everyone_blocked()
    assert not closing.done()
    door.is_open.set()
    await closing

    assert (await running)[0][0] == 7
    assert door.opened == door.closed
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.guarantee("SQL-05")
async def test_closing_names_the_work_that_it_does_not_wait_for_any_longer(
    database: Database, door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(LEAVE_SECONDS, 0.01)
    await database.ensure_tables()
    await database._engines.several.dispose()
    door.is_open.clear()
    door.reached.clear()
    running = asyncio.ensure_future(database.fetch("look", STATEMENT))
    await door.reached.wait()

    with caplog.at_level(logging.WARNING):
        await database.let_go(database)

    assert [record.getMessage() for record in caplog.records] == [
        "look() is still at work on a database that is being closed"
    ]
    door.is_open.set()
    assert (await running)[0][0] == 7
    assert door.opened == door.closed


@pytest.mark.guarantee("SQL-05")
async def test_a_cancelled_close_still_closes_the_connections(database: Database, door: Door) -> None:
    await database.fetch("look", STATEMENT)
    closing = asyncio.ensure_future(database.let_go(database))
    await asyncio.sleep(0)

    await cancel(closing)

    assert door.opened == door.closed == 1
