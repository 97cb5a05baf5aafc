"""Engines: which URLs are taken, and what of them is ever shown."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from lastbus import EventStorageError
from lastbus._backends.sqlalchemy.database import Database
from lastbus._backends.sqlalchemy.engine import open_engine
from lastbus._kit.ports import free_port
from lastbus.sqlalchemy import SqlalchemyEventBus, SqlalchemyEventStorage

SECRET = "hunter2"


@pytest.mark.guarantee("SQL-11")
@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:///bus.db", "sqlite+aiosqlite"),
        ("sqlite+aiosqlite:///bus.db", "sqlite+aiosqlite"),
        ("postgres://host/db", "postgresql+asyncpg"),
        ("postgresql://host/db", "postgresql+asyncpg"),
        ("postgresql+asyncpg://host/db", "postgresql+asyncpg"),
    ],
)
def test_without_a_driver_the_asyncio_one_is_meant(url: str, driver: str) -> None:
    assert open_engine(url).url.drivername == driver


@pytest.mark.guarantee("SQL-04", "SQL-11")
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"mysql+aiomysql://me:{SECRET}@host/db", "postgresql and sqlite, not 'mysql'"),
        (f"postgresql+psycopg2://me:{SECRET}@host/db", "psycopg2"),
        (f"postgresql://me:{SECRET}@host:port/db", "not a database URL"),
        (f"{SECRET} is no URL", "not a database URL"),
        ("", "not a database URL"),
    ],
)
def test_a_url_that_cannot_work_is_refused_without_showing_it(url: str, reason: str) -> None:
    with pytest.raises((ValueError, ImportError), match=reason) as refusal:
        open_engine(url)

    assert SECRET not in "".join(traceback.format_exception(refusal.value))


@pytest.mark.guarantee("SQL-11")
@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file::memory:?uri=true",
        "sqlite:///file:shared?mode=memory&cache=shared&uri=true",
    ],
)
def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="name a file"):
        open_engine(url)


@pytest.mark.guarantee("SQL-11")
@pytest.mark.filterwarnings("ignore:Use of the mode=memory:DeprecationWarning")
def test_an_injected_engine_is_checked_in_the_same_way() -> None:
    with pytest.raises(ValueError, match="name a file"):
        SqlalchemyEventStorage(create_async_engine("sqlite+aiosqlite://"))


async def test_a_file_of_our_own_lets_readers_and_a_writer_work_at_once(tmp_path: Path) -> None:
    database = Database.at(f"sqlite:///{tmp_path / 'bus.db'}")

    assert [tuple(row) for row in await database.fetch("look", text("PRAGMA journal_mode"))] == [("wal",)]

    await database.let_go(database)


def test_a_bus_needs_an_engine_or_a_url_and_not_both(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bus.db'}"
    for arguments in ({}, {"engine": open_engine(url), "database_url": url}):
        with pytest.raises(ValueError, match="not both"):
            SqlalchemyEventBus(**arguments)


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), True, "7"], ids=repr)
def test_a_lifetime_that_is_no_duration_is_refused(tmp_path: Path, ttl: float) -> None:
    with pytest.raises(ValueError, match=r"^ttl must be"):
        SqlalchemyEventStorage(f"sqlite:///{tmp_path / 'bus.db'}", ttl=ttl)


@pytest.mark.guarantee("SQL-04")
async def test_a_failing_connection_shows_neither_password_nor_user(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    url = f"postgresql://hidden-user:{SECRET}@127.0.0.1:{free_port()}/db?application_name={SECRET}"
    storage = SqlalchemyEventStorage(url, create_tables=True)

    with pytest.raises(EventStorageError, match=r"127\.0\.0\.1") as failure:
        await storage.get_event("e")

    shown = "".join(traceback.format_exception(failure.value)) + caplog.text + repr(Database.at(url))
    assert failure.value.__cause__ is not None
    assert SECRET not in shown
    assert "hidden-user" not in shown
    await storage.aclose()


@pytest.mark.guarantee("SQL-04")
async def test_a_failing_statement_shows_no_value(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    storage = SqlalchemyEventStorage(f"sqlite:///{tmp_path / 'no-tables.db'}")

    with pytest.raises(EventStorageError, match="get_event") as failure:
        await storage.get_event(SECRET)

    assert SECRET not in "".join(traceback.format_exception(failure.value))
    await storage.aclose()
