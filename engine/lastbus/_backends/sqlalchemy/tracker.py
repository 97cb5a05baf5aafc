"""Processing tracker in SQL: a claim or a mark is one row, and who gets it is decided inside one statement."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from sqlalchemy import URL, Table, and_, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.dml import ReturningDelete

from lastbus._backends.sqlalchemy.bites import bite
from lastbus._backends.sqlalchemy.database import COUNTED, Database
from lastbus._backends.sqlalchemy.dialects import Insert, upsert
from lastbus._backends.sqlalchemy.expiry import Expiry
from lastbus._backends.sqlalchemy.tables import claims, history
from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._model.names import check_name, check_optional_name
from lastbus._model.numbers import check_positive_seconds, check_seconds
from lastbus._ports.lifetime import lifetime
from lastbus._ports.tracker import Attempt, EventProcessingTracker

_Row: TypeAlias = dict[str, Any]

CLAIM_TTL_SECONDS: Final = 60.0
CLEANUP_ROWS: Final = 1000

_NOW: Final = bindparam("now", type_=claims.c.expires_at.type)
_PAIR: Final = (claims.c.event_id == bindparam("event"), claims.c.handler_id == bindparam("handler"))
_BY: Final = bindparam("by", type_=claims.c.owner.type)
_THEIRS: Final = (*_PAIR, claims.c.owner == _BY)

_RENEW: Final = update(claims).where(*_THEIRS).values(expires_at=bindparam("until"))
_RELEASE: Final = delete(claims).where(*_THEIRS)
_IS_PROCESSED: Final = select(claims.c.event_id).where(
    *_PAIR, claims.c.processed_at.is_not(None), claims.c.expires_at > _NOW
)
_LINE: Final = ("event_id", "handler_id", "status", "error", "timestamp", "expires_at")
_RECORD: Final = insert(history)
_HISTORY: Final = (
    select(history).where(history.c.event_id == bindparam("event"), history.c.expires_at > _NOW).order_by(history.c.id)
)


class SqlalchemyEventProcessingTracker(EventProcessingTracker):
    """Keeps claims and marks in `event_claims`, attempts in `event_processing_history`.

    A claim lapses `claim_ttl` seconds after its last renewal, by the clock of the process that asks; until somebody
    takes it, its late owner may still renew it. Marks and attempts live for `ttl` seconds (default:
    `PLAITA_EVENT_TTL_SECONDS`), as long as events do.
    """

    def __init__(
        self,
        engine: AsyncEngine | str | URL | Database,
        create_tables: bool = False,
        *,
        claim_ttl: float = CLAIM_TTL_SECONDS,
        ttl: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._database: Final = Database.at(engine, create_tables=create_tables).hold(self)
        self._claim_seconds: Final = check_positive_seconds("claim_ttl", claim_ttl)
        self.claim_ttl = self._claim_seconds
        self._ttl: Final = lifetime(ttl)
        self._clock: Final = clock
        # A lapsed claim is of use to its owner for a while; a mark is not, and takes no harm.
        self._expiry: Final = [
            Expiry(self._database, claims, clock, grace_seconds=self._ttl),
            Expiry(self._database, history, clock),
        ]
        self._claim: Final = _claim(self._database.dialect)
        self._mark: Final = _mark(self._database.dialect)
        self._finish: Final = _finish(self._database.dialect, self._mark)

    async def ensure_tables(self) -> None:
        """Make the tables that are missing; harmless when repeated, or done by several processes at once."""
        await self._database.ensure_tables()

    async def aclose(self) -> None:
        """Let go of the database: connections of our own are closed when its last user has let go."""
        await self._database.let_go(self)

    async def claim_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Take the pair for `owner`, in one step: False if it is processed, or claimed by a claim that stands.

        Keeps: SQL-08.
        """
        check_name("owner", owner)
        now = self._clock.time()
        row = _row(event_id, handler_id, owner) | {"processed_at": None, "expires_at": now + self._claim_seconds}
        return await self._database.change("claim_event", self._claim, {**row, "now": now}) == 1

    async def renew_claim(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Let the claim stand for another `claim_ttl`; False if it is not `owner`'s any more."""
        until = {"until": self._clock.time() + self._claim_seconds}
        return await self._database.change("renew_claim", _RENEW, _theirs(event_id, handler_id, owner) | until) == 1

    async def release_claim(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Give the pair back; False, and no effect, if the claim is not `owner`'s any more."""
        return await self._database.change("release_claim", _RELEASE, _theirs(event_id, handler_id, owner)) == 1

    async def mark_event_processed(self, event_id: str, handler_id: str, owner: str | None = None) -> bool:
        """Record that the handler succeeded, and end `owner`'s claim: True the first time, False again.

        With an `owner` whose claim was lost to another owner: False, and nothing is recorded.

        Keeps: SQL-08.
        """
        mark = self._mark_row(event_id, handler_id, owner)
        marked = await self._database.change("mark_event_processed", self._mark, mark) == 1
        await self._sweep()
        return marked

    async def finish_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Mark the pair and append `success` to the event's history, in one transaction.

        False if the claim was lost to another owner; the handler has succeeded all the same, and history says so.

        Keeps: SQL-08.
        """
        mark = self._mark_row(event_id, handler_id, check_name("owner", owner))
        line = self._line(event_id, handler_id, "success")
        finished = await self._finish(self._database, mark, line) == 1
        await self._sweep()
        return finished

    async def is_event_processed(self, event_id: str, handler_id: str) -> bool:
        """Whether the pair is marked."""
        wanted = _pair(event_id, handler_id) | {"now": self._clock.time()}
        return bool(await self._database.fetch("is_event_processed", _IS_PROCESSED, wanted))

    async def record_processing_attempt(
        self, event_id: str, handler_id: str, status: str, error: str | None = None
    ) -> None:
        """Append one line to the event's history."""
        line = self._line(event_id, handler_id, status, error)
        await self._database.change("record_processing_attempt", _RECORD, line)
        await self._sweep()

    async def get_processing_history(self, event_id: str) -> list[Attempt]:
        """The event's attempts in the order of their recording; unknown id: empty."""
        wanted = {"event": check_name("event_id", event_id), "now": self._clock.time()}
        rows = await self._database.fetch("get_processing_history", _HISTORY, wanted)
        return [
            Attempt(
                event_id=row.event_id,
                handler_id=row.handler_id,
                status=row.status,
                error=None if row.error is None else json.loads(row.error),
                timestamp=row.timestamp,
            )
            for row in rows
        ]

    async def cleanup_old_records(self, max_age_seconds: float = 86400) -> int:
        """Forget marks and history older than `max_age_seconds`; return how many events lost records.

        Claims are left alone. Many rows go in several transactions of `CLEANUP_ROWS`, so that nobody waits long.
        """
        before = self._clock.time() - check_seconds("max_age_seconds", max_age_seconds)
        forgotten: set[str] = set()
        for table, column in ((claims, "processed_at"), (history, "timestamp")):
            bite = _delete_before(table, column)
            while rows := await self._database.fetch("cleanup_old_records", bite, {"before": before}):
                forgotten.update(row.event_id for row in rows)
        return len(forgotten)

    def _mark_row(self, event_id: str, handler_id: str, owner: str | None) -> dict[str, Any]:
        now = self._clock.time()
        row = _row(event_id, handler_id, None) | {"processed_at": now, "expires_at": now + self._ttl}
        return row | {"now": now, "by": check_optional_name("owner", owner)}

    def _line(self, event_id: str, handler_id: str, status: str, error: str | None = None) -> dict[str, Any]:
        now = self._clock.time()
        return {
            "event_id": check_name("event_id", event_id),
            "handler_id": check_name("handler_id", handler_id),
            "status": status,
            "error": None if error is None else json.dumps(error),  # User code wrote it: it may hold any character.
            "timestamp": now,
            "expires_at": now + self._ttl,
        }

    async def _sweep(self) -> None:
        for each in self._expiry:
            await each.after_write()


def _pair(event_id: str, handler_id: str) -> dict[str, Any]:
    return {"event": check_name("event_id", event_id), "handler": check_name("handler_id", handler_id)}


def _theirs(event_id: str, handler_id: str, owner: str) -> dict[str, Any]:
    return _pair(event_id, handler_id) | {"by": check_name("owner", owner)}


def _row(event_id: str, handler_id: str, owner: str | None) -> dict[str, Any]:
    return {
        "event_id": check_name("event_id", event_id),
        "handler_id": check_name("handler_id", handler_id),
        "owner": owner,
    }


def _claim(dialect: str) -> Insert:
    """Insert the claim, or take over a row that has expired: a claim that lapsed, or a mark as old as its event."""
    return upsert(dialect, claims, where=claims.c.expires_at <= _NOW)


def _mark(dialect: str) -> Insert:
    """Insert the mark, or make it of what has expired, or of a claim: anyone's, or only that of a given `by`."""
    claimed = and_(claims.c.processed_at.is_(None), claims.c.owner == func.coalesce(_BY, claims.c.owner))
    return upsert(dialect, claims, where=or_(claims.c.expires_at <= _NOW, claimed))


def _finish(dialect: str, mark: Insert) -> Callable[[Database, _Row, _Row], Awaitable[int]]:
    """Mark and record together, given both rows; returns how many marks were made."""
    verb = "finish_event"
    if dialect == "postgresql":
        # One statement, and so one round trip. Its two halves may not share the names of their parameters.
        line = {column: bindparam(f"line_{column}", type_=history.c[column].type) for column in _LINE}
        both = mark.add_cte(insert(history).values(line).cte("line"))

        def at_once(database: Database, marked: _Row, recorded: _Row) -> Awaitable[int]:
            renamed = {f"line_{column}": value for column, value in recorded.items()}
            return database.change(verb, both, marked | renamed)

        return at_once

    async def in_turn(database: Database, marked: _Row, recorded: _Row) -> int:
        async def finish(connection: AsyncConnection) -> int:
            marks = (await connection.execute(mark, marked, execution_options=COUNTED)).rowcount
            await connection.execute(_RECORD, recorded)
            return marks

        return await database.transact(verb, finish)

    return in_turn


def _delete_before(table: Table, column: str) -> ReturningDelete[tuple[str]]:
    before = table.c[column] < bindparam("before")
    return bite(table, before, CLEANUP_ROWS, table.c[column]).returning(table.c.event_id)
