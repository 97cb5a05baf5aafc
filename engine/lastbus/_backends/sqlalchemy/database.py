"""One database: the edge where statements leave this package and the driver's errors come back in.

All components of a bus share one `Database`, and the last of them to let go of it disposes an engine that is ours; an
engine that was handed in stays open. A handler that outlives the close may still record its outcome: then it gets a
connection for that one statement. Whatever a driver raises arrives as `EventStorageError` from it; cancellation
arrives as itself, and the connection that it hit is thrown away rather than used again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import URL, Executable, Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.schema import CreateIndex, CreateTable

from lastbus._backends.sqlalchemy.engine import check_engine, describe, open_engine, unpooled
from lastbus._backends.sqlalchemy.tables import metadata
from lastbus._backends.sqlalchemy.work import Workshop
from lastbus._errors import EventError, EventStorageError

Result = TypeVar("Result")
Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]

COUNTED: Final = {"preserve_rowcount": True}

# Any number that no other program on the server is likely to lock: the letters "lastbus".
_TABLES_LOCK: Final = int.from_bytes(b"lastbus", "big")


class _Engines(NamedTuple):
    """One pool of connections, for several statements in a transaction, or for one that is a transaction by itself."""

    several: AsyncEngine
    one: AsyncEngine

    @classmethod
    def of(cls, engine: AsyncEngine) -> _Engines:
        # PostgreSQL needs no BEGIN and COMMIT around one statement, which saves two round trips.
        is_postgres = engine.dialect.name == "postgresql"
        return cls(engine, engine.execution_options(isolation_level="AUTOCOMMIT") if is_postgres else engine)


class Database:
    """Runs statements, makes the tables, and knows who still needs the connections."""

    def __init__(self, engine: AsyncEngine, *, owned: bool, create_tables: bool = False) -> None:
        self._engines = _Engines.of(check_engine(engine))
        self._owned: Final = owned
        self._create_tables: Final = create_tables
        self._tables_ready = False
        self._holders: Final[WeakSet[object]] = WeakSet()
        self._workshop: Final = Workshop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._private: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Engines]] = WeakKeyDictionary()

    @classmethod
    def at(cls, where: AsyncEngine | str | URL | Database, *, create_tables: bool = False) -> Database:
        """The database behind an engine (which stays yours), or behind a URL (with an engine of our own).

        Keeps: SQL-05.
        """
        if isinstance(where, Database):
            return where
        if isinstance(where, AsyncEngine):
            return cls(where, owned=False, create_tables=create_tables)
        return cls(open_engine(where), owned=True, create_tables=create_tables)

    @property
    def dialect(self) -> str:
        """`postgresql` or `sqlite`."""
        return self._engines.several.dialect.name

    def __repr__(self) -> str:
        return f"Database({describe(self._engines.several)})"

    async def fetch(self, verb: str, statement: Executable, parameters: Parameters | None = None) -> Sequence[Row[Any]]:
        """All rows that one statement returns."""

        async def ask(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(statement, parameters)).all()

        return await self._run(verb, self._here().one, ask)

    async def change(self, verb: str, statement: Executable, parameters: Parameters | None = None) -> int:
        """How many rows one statement inserted, updated or deleted; it took effect as a whole or not at all."""

        async def tell(connection: AsyncConnection) -> int:
            return (await connection.execute(statement, parameters, execution_options=COUNTED)).rowcount

        return await self._run(verb, self._here().one, tell)

    async def transact(self, verb: str, statements: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        """What `statements` returns: those that it executes take effect together at its end, or not at all.

        Begin with a statement that writes: SQLite cannot turn a reader into a writer while somebody else writes.
        """
        return await self._run(verb, self._here().several, statements)

    async def ensure_tables(self) -> None:
        """Make the tables and indexes that are missing. Harmless when repeated, or done by several at once.

        Keeps: SQL-01.
        """
        with translated("ensure_tables", self):
            await self._workshop.run("ensure_tables", self._here().several, _make_tables)
        self._tables_ready = True

    def hold(self, component: object) -> Database:
        """Note that `component` needs the connections until it calls `let_go`."""
        self._holders.add(component)
        return self

    async def let_go(self, component: object) -> None:
        """Note that `component` is done. The last one waits for what is at work, and disposes an engine of our own.

        Keeps: SQL-05.
        """
        self._holders.discard(component)
        if self._holders:
            return
        await self._workshop.settle()
        if self._owned:
            with translated("close", self):
                await self._workshop.finish("close", self._engines.several.dispose())
            self._engines = _Engines.of(unpooled(self._engines.several))

    def use_private_connections(self) -> None:
        """Give the running loop connections of its own, each for one statement, for as long as the loop lives."""
        self._private[asyncio.get_running_loop()] = _Engines.of(unpooled(self._engines.several))

    def _here(self) -> _Engines:
        loop = asyncio.get_running_loop()
        if loop in self._private:
            return self._private[loop]
        if self._loop is not loop:
            self._move_to(loop)
        return self._engines

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Forget the connections of a loop that is closed: they can be neither used nor closed from another one."""
        if self._owned and self._loop is not None and self._loop.is_closed():
            self._engines.several.sync_engine.dispose(close=False)
        self._loop = loop

    async def _run(
        self, verb: str, engine: AsyncEngine, statements: Callable[[AsyncConnection], Awaitable[Result]]
    ) -> Result:
        """Run `statements` within one transaction; the first one finds the tables made, if that was asked for.

        Keeps: SQL-01.
        """
        if self._create_tables and not self._tables_ready:
            await self.ensure_tables()
        with translated(verb, self):
            return await self._workshop.run(verb, engine, statements)


@contextlib.contextmanager
def translated(verb: str, database: Database) -> Iterator[None]:
    """Raise an `EventStorageError` for whatever a driver raises; it names the verb and the database, never a value.

    Keeps: SQL-04, SQL-06.
    """
    try:
        yield
    except EventError:
        raise
    except Exception as error:  # Drivers raise OSError, errors of their own and SQLAlchemy's: they share no other base.
        cause = getattr(error, "orig", None) or error
        raise EventStorageError(f"{verb}() failed on {database!r}: {type(cause).__name__}") from error


async def _make_tables(connection: AsyncConnection) -> None:
    if connection.dialect.name == "postgresql":
        # Two IF NOT EXISTS at the same time can still collide in PostgreSQL's catalogue.
        await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _TABLES_LOCK})
    for table in metadata.sorted_tables:
        await connection.execute(CreateTable(table, if_not_exists=True))
        for index in sorted(table.indexes, key=lambda each: str(each.name)):
            await connection.execute(CreateIndex(index, if_not_exists=True))
