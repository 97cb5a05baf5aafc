"""The SQL back end under test: a SQLite file of its own, or an emptied PostgreSQL database of this process."""

from __future__ import annotations

import atexit
import contextlib
import functools
import tempfile
from abc import abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from lastbus._backends.sqlalchemy.tables import metadata
from lastbus._bus import BaseBus
from lastbus._clock import Clock
from lastbus._kit.servers import BorrowedPostgres, PostgresServer
from lastbus.sqlalchemy import (
    SqlalchemyEventBus,
    SqlalchemyEventProcessingTracker,
    SqlalchemyEventStorage,
    SqlalchemyEventSubscriptionStorage,
)
from tests._backends.base import Backend


class SqlBackend(Backend):
    """Tables in a database; every bus and every storage of one test shares one engine, which the test owns."""

    engine: AsyncEngine

    @abstractmethod
    async def _open(self) -> AsyncEngine:
        """An engine on empty tables."""

    async def __aenter__(self) -> SqlBackend:
        self.engine = await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            await self.engine.dispose()

    def _make_bus(self, **options: Any) -> BaseBus:
        return SqlalchemyEventBus(self.engine, **options)

    def event_storage(self, clock: Clock | None = None, ttl: float | None = None) -> SqlalchemyEventStorage:
        return SqlalchemyEventStorage(self.engine, ttl=ttl, **_given(clock))

    def subscription_storage(self) -> SqlalchemyEventSubscriptionStorage:
        return SqlalchemyEventSubscriptionStorage(self.engine)

    def tracker(self, clock: Clock | None = None) -> SqlalchemyEventProcessingTracker:
        return SqlalchemyEventProcessingTracker(self.engine, **_given(clock))


class SqliteBackend(SqlBackend):
    """A file, copied from one that holds the empty tables. Nothing waits for the disk."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / "lastbus.db"

    async def _open(self) -> AsyncEngine:
        self._file.write_bytes(_empty_sqlite_database())
        return sqlite_engine(self._file)


class PostgresBackend(SqlBackend):
    """One database per process and server, emptied for each test."""

    name = "postgres"

    def __init__(self, server: PostgresServer | BorrowedPostgres) -> None:
        super().__init__()
        self._server = server

    async def _open(self) -> AsyncEngine:
        url = _database_of_this_process(self._server)
        engine = create_async_engine(url)
        async with engine.begin() as connection:
            if url not in _prepared:
                await connection.run_sync(metadata.create_all)
                _prepared.add(url)
            for table in metadata.sorted_tables:
                await connection.execute(table.delete())
        return engine


def sqlite_engine(file: Path, **options: Any) -> AsyncEngine:
    """An engine on a file that need not survive a power failure."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}", connect_args={"timeout": 30}, **options)

    @event.listens_for(engine.sync_engine, "connect")
    def _be_quick(connection: Any, record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=OFF")
        cursor.close()

    return engine


@contextlib.asynccontextmanager
async def opened(engine: AsyncEngine) -> AsyncIterator[AsyncEngine]:
    """Dispose the engine on leaving."""
    try:
        yield engine
    finally:
        await engine.dispose()


_prepared: set[str] = set()


@functools.cache
def _database_of_this_process(server: PostgresServer | BorrowedPostgres) -> str:
    url = server.create_database()
    if not server.owned:
        atexit.register(server.drop_database, url)
    return url


@functools.cache
def _empty_sqlite_database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "empty.db"
        engine = create_engine(f"sqlite:///{file}")
        metadata.create_all(engine)
        engine.dispose()
        return file.read_bytes()


def _given(clock: Clock | None) -> dict[str, Clock]:
    return {} if clock is None else {"clock": clock}
