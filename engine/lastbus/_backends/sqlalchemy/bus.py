"""The SQL bus: `BaseBus` over three stores in one database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from lastbus._backends.sqlalchemy.database import Database
from lastbus._backends.sqlalchemy.storage import SqlalchemyEventStorage
from lastbus._backends.sqlalchemy.subscriptions import SqlalchemyEventSubscriptionStorage
from lastbus._backends.sqlalchemy.tracker import SqlalchemyEventProcessingTracker
from lastbus._bus import BaseBus
from lastbus._clock import SYSTEM_CLOCK


class SqlalchemyEventBus(BaseBus):
    """An event bus whose events, subscriptions and marks outlive the process, in PostgreSQL or in a SQLite file.

    Give it either an asyncio `engine`, which stays yours and open, or a `database_url`, whose connections are closed
    with the bus. With `create_tables` the tables that are missing are made before the first statement; else call
    `ensure_tables()` once. Handlers hear the events that this bus publishes; those of other processes can be looked up,
    and dedup holds across all of them. `ttl` is the life of an event in seconds; other options are those of every bus.
    """

    def __init__(
        self,
        engine: AsyncEngine | None = None,
        create_tables: bool = False,
        database_url: str | URL | None = None,
        *,
        ttl: float | None = None,
        **options: Any,
    ) -> None:
        self._database: Final = Database.at(_one_of(engine, database_url), create_tables=create_tables)
        clock = options.get("clock") or SYSTEM_CLOCK
        super().__init__(
            event_storage=SqlalchemyEventStorage(self._database, ttl=ttl, clock=clock),
            subscription_storage=SqlalchemyEventSubscriptionStorage(self._database, ttl=ttl, clock=clock),
            processing_tracker=SqlalchemyEventProcessingTracker(self._database, ttl=ttl, clock=clock),
            **options,
        )

    async def ensure_tables(self) -> None:
        """Make the tables that are missing; harmless when repeated, or done by several processes at once."""
        await self._database.ensure_tables()

    @asynccontextmanager
    async def _private_connections(self) -> AsyncIterator[None]:
        self._database.use_private_connections()
        yield


def _one_of(engine: AsyncEngine | None, database_url: str | URL | None) -> AsyncEngine | str | URL:
    if engine is not None and database_url is None:
        return engine
    if database_url is not None and engine is None:
        return database_url
    raise ValueError("a SQL bus needs an engine or a database_url, and not both")
