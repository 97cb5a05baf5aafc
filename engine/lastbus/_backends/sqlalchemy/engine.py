"""Engines: how a database URL becomes connections, without ever showing what the URL keeps secret."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any, Final

from sqlalchemy import URL, event, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool

from lastbus._backends.sqlalchemy.dialects import ASYNC_DRIVERS, check_dialect
from lastbus._errors import MissingExtraError

SQLITE_BUSY_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 10.0
STATEMENT_SECONDS: Final = 60.0


def open_engine(url: str | URL) -> AsyncEngine:
    """An engine of our own for `url`; it connects when it is first used, and no wait for the database is endless.

    Without a driver's name the asyncio driver of the dialect is meant. `ValueError` for what is no URL of a database
    that this back end can use; the text shows at most the dialect, for everything else may be secret.

    Keeps: SQL-04, SQL-11.
    """
    parsed = _parse(url)
    check_dialect(parsed.get_backend_name())
    _refuse_memory(parsed)
    engine = _create(parsed)
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine.sync_engine, "connect", _prefer_write_ahead_log)
    return engine


def check_engine(engine: AsyncEngine) -> AsyncEngine:
    """Return an injected engine if this back end can use it; else `ValueError`.

    Keeps: SQL-11.
    """
    check_dialect(engine.dialect.name)
    _refuse_memory(engine.url)
    return engine


def unpooled(engine: AsyncEngine) -> AsyncEngine:
    """A twin of `engine` that makes each connection for one use: it belongs to no event loop and needs no disposal."""
    pool = engine.sync_engine.pool

    def connect() -> Any:
        # A new pool of the same kind connects as the first one does, with whatever its owner has configured.
        checked_out = pool.recreate().connect()
        connection = checked_out.dbapi_connection
        checked_out.detach()
        return connection

    return create_async_engine(engine.url, pool=NullPool(connect), hide_parameters=True)


def describe(engine: AsyncEngine) -> str:
    """Dialect, host and database of an engine: what a log line may show.

    Keeps: SQL-04.
    """
    url = engine.url
    return URL.create(url.drivername, host=url.host, port=url.port, database=url.database).render_as_string()


def _parse(url: str | URL) -> URL:
    parsed = None
    with contextlib.suppress(SQLAlchemyError, ValueError, TypeError):  # Their texts quote the URL.
        parsed = make_url(url)
    if parsed is None:
        raise ValueError("database_url is not a database URL; it is not shown here, for it may hold a password")
    return parsed.set(drivername=ASYNC_DRIVERS.get(parsed.drivername, parsed.drivername))


def _create(url: URL) -> AsyncEngine:
    # Files too have a pool, which older versions of SQLAlchemy do not make by themselves.
    pool = {"poolclass": AsyncAdaptedQueuePool, "pool_timeout": STATEMENT_SECONDS}
    options: dict[str, Any] = {"hide_parameters": True, **pool}
    if url.get_backend_name() == "postgresql":
        options["pool_pre_ping"] = True  # A restart of the server costs a new connection, not an event.
    if url.drivername == "postgresql+asyncpg":
        options["connect_args"] = {"timeout": CONNECT_SECONDS, "command_timeout": STATEMENT_SECONDS}
    if url.drivername == "sqlite+aiosqlite":
        options["connect_args"] = {"timeout": SQLITE_BUSY_SECONDS}
    try:
        return create_async_engine(url, **options)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"the driver {url.drivername}", "sql") from error
    except SQLAlchemyError as error:
        raise ValueError(f"{url.drivername} is no asyncio driver") from error


def _refuse_memory(url: URL) -> None:
    if url.get_backend_name() == "sqlite" and (url.database in (None, "", ":memory:") or _is_memory_uri(url)):
        raise ValueError("a SQLite database in memory is lost with its first interrupted connection; name a file")


def _is_memory_uri(url: URL) -> bool:
    return url.query.get("mode") == "memory" or str(url.database).startswith("file::memory:")


def _prefer_write_ahead_log(connection: Any, record: object) -> None:
    """Let readers and the writer work at the same time. A database that is busy now keeps its mode until later."""
    cursor = connection.cursor()
    with contextlib.suppress(sqlite3.OperationalError):
        cursor.execute("PRAGMA journal_mode=WAL")
    cursor.close()
