"""Subscription storage in SQL: one row per subscription, one row per mark, every question one or two statements."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import URL, ColumnElement, Row, bindparam, delete, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from lastbus._backends.sqlalchemy.database import Database
from lastbus._backends.sqlalchemy.dialects import Insert, insert_into, upsert
from lastbus._backends.sqlalchemy.expiry import Expiry
from lastbus._backends.sqlalchemy.tables import subscription_marks, subscriptions
from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._errors import EventStorageError
from lastbus._model.event import Event
from lastbus._model.names import check_name, check_optional_name
from lastbus._model.patterns import EVERY_TYPE
from lastbus._model.subscription import EventSubscription
from lastbus._ports.lifetime import lifetime
from lastbus._ports.storage import EventSubscriptionStorage

logger = logging.getLogger("lastbus.sqlalchemy")

_DELETE: Final = delete(subscriptions).where(
    subscriptions.c.subscription_id == bindparam("id"), subscriptions.c.expires_at > bindparam("now")
)
_DELETE_MARKS: Final = delete(subscription_marks).where(subscription_marks.c.subscription_id == bindparam("id"))


class SqlalchemyEventSubscriptionStorage(EventSubscriptionStorage):
    """Keeps subscriptions in `event_subscriptions`, and which events they have had in `processed_events`.

    A subscription lives for `ttl` seconds (default: `PLAITA_EVENT_TTL_SECONDS`) from its storing, or from the end of
    its own `timeout` if that is later, so that whoever reports timeouts has time to see it. A mark lives for `ttl`, as
    the event does. What has expired is found no more, and is deleted by a later write.
    """

    def __init__(
        self,
        engine: AsyncEngine | str | URL | Database,
        create_tables: bool = False,
        *,
        ttl: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._database: Final = Database.at(engine, create_tables=create_tables).hold(self)
        self._ttl: Final = lifetime(ttl)
        self._clock: Final = clock
        self._expiry: Final = [Expiry(self._database, table, clock) for table in (subscriptions, subscription_marks)]
        self._upsert: Final = upsert(self._database.dialect, subscriptions)
        self._upsert_mark: Final = upsert(self._database.dialect, subscription_marks)
        self._mark: Final = _mark_once(self._database.dialect)

    async def ensure_tables(self) -> None:
        """Make the tables that are missing; harmless when repeated, or done by several processes at once."""
        await self._database.ensure_tables()

    async def aclose(self) -> None:
        """Let go of the database: connections of our own are closed when its last user has let go."""
        await self._database.let_go(self)

    async def store_subscription(self, subscription: EventSubscription) -> str:
        """Keep `subscription` and its marks, replacing one of the same id and its marks, and return its id.

        Keeps: SQL-07.
        """
        now = self._clock.time()
        row = _encode(subscription) | {"expires_at": max(now, _ends_at(subscription)) + self._ttl}
        marks = [self._mark_row(subscription.subscription_id, each, now) for each in subscription.processed_events]

        async def store(connection: AsyncConnection) -> None:
            await connection.execute(self._upsert, row)
            await connection.execute(_DELETE_MARKS, {"id": subscription.subscription_id})
            if marks:
                await connection.execute(self._upsert_mark, marks)

        await self._database.transact("store_subscription", store)
        await self._sweep()
        return subscription.subscription_id

    async def get_subscription(self, subscription_id: str) -> EventSubscription | None:
        """The stored subscription with its processed events, or None; `EventStorageError` if it cannot be read.

        Keeps: SUBS-14.
        """
        check_name("subscription_id", subscription_id)
        rows, marks = await self._select("get_subscription", [subscriptions.c.subscription_id == subscription_id])
        if not rows:
            return None
        try:
            return _decode(rows[0], marks[subscription_id])
        except ValueError as error:
            raise EventStorageError(f"subscription {subscription_id!r} cannot be read: {error}") from error

    async def list_subscriptions(
        self,
        event_type: str | None = None,
        correlation_id: str | None = None,
        flow_id: str | None = None,
        node_id: str | None = None,
    ) -> list[EventSubscription]:
        """The subscriptions stored under every given value, oldest first (created_at, then id); none given: all.

        Rows that make no valid subscription are named in a WARNING and passed over.

        Keeps: SUBS-02, SUBS-03, SUBS-14, SUBS-15, SUBS-18.
        """
        given = {"event_type": event_type, "correlation_id": correlation_id, "flow_id": flow_id, "node_id": node_id}
        wanted = {column: value for column, value in given.items() if check_optional_name(column, value) is not None}
        conditions: list[ColumnElement[bool]] = [subscriptions.c[column] == value for column, value in wanted.items()]
        return await self._list("list_subscriptions", conditions)

    async def find_matching_subscriptions(
        self, event: Event, context: Mapping[str, Any] | None = None
    ) -> list[EventSubscription]:
        """Every stored subscription that wants `event`: those of its exact type, and those of `"*"`."""
        types = {check_name("event_type", event.event_type), EVERY_TYPE}
        correlation = check_optional_name("correlation_id", event.correlation_id)
        conditions = [
            subscriptions.c.event_type.in_(types),
            or_(subscriptions.c.correlation_id.is_(None), subscriptions.c.correlation_id == correlation),
        ]
        found = await self._list("find_matching_subscriptions", conditions)
        return [each for each in found if each.matches_event(event, context)]

    async def delete_subscription(self, subscription_id: str) -> bool:
        """Forget a subscription with its marks; False if it was not there."""
        wanted = {"id": check_name("subscription_id", subscription_id), "now": self._clock.time()}

        async def forget(connection: AsyncConnection) -> bool:
            # The row first: whoever is marking holds it, and the marks are complete once it is ours.
            deleted = (await connection.execute(_DELETE, wanted)).rowcount == 1
            if deleted:
                await connection.execute(_DELETE_MARKS, {"id": subscription_id})
            return deleted

        return await self._database.transact("delete_subscription", forget)

    async def mark_event_processed(self, subscription_id: str, event_id: str) -> bool:
        """Note that a subscription has handled an event: True the first time, False again or if it is unknown."""
        now = self._clock.time()
        row = self._mark_row(check_name("subscription_id", subscription_id), event_id, now)
        marked = await self._database.change("mark_event_processed", self._mark, {**row, "now": now}) == 1
        await self._sweep()
        return marked

    async def _list(self, verb: str, conditions: list[ColumnElement[bool]]) -> list[EventSubscription]:
        rows, marks = await self._select(verb, conditions)
        found = (_decode_or_skip(row, marks[row.subscription_id]) for row in rows)
        return [each for each in found if each is not None]

    async def _select(
        self, verb: str, conditions: list[ColumnElement[bool]]
    ) -> tuple[Sequence[Row[Any]], Mapping[str, set[str]]]:
        """The rows that satisfy all conditions, oldest first, and the marks of each of them by subscription id."""
        now = self._clock.time()
        wanted = [*conditions, subscriptions.c.expires_at > now]
        oldest_first = (subscriptions.c.created_at, subscriptions.c.subscription_id)
        rows = await self._database.fetch(verb, select(subscriptions).where(*wanted).order_by(*oldest_first))
        marks: defaultdict[str, set[str]] = defaultdict(set)
        if rows:
            theirs = subscription_marks.c.subscription_id == subscriptions.c.subscription_id
            alive = subscription_marks.c.expires_at > now
            statement = select(subscription_marks).join(subscriptions, theirs).where(*wanted, alive)
            for mark in await self._database.fetch(verb, statement):
                marks[mark.subscription_id].add(mark.event_id)
        return rows, marks

    def _mark_row(self, subscription_id: str, event_id: str, now: float) -> dict[str, Any]:
        check_name("event_id", event_id)
        return {"subscription_id": subscription_id, "event_id": event_id, "expires_at": now + self._ttl}

    async def _sweep(self) -> None:
        for each in self._expiry:
            await each.after_write()


def _mark_once(dialect: str) -> Insert:
    """Insert a mark if the subscription is there and the mark is not. A delete waits for the row until that is done.

    Keeps: SQL-08.
    """
    insert = insert_into(dialect, subscription_marks)
    present = (
        select(
            subscriptions.c.subscription_id,
            bindparam("event_id", type_=subscription_marks.c.event_id.type),
            bindparam("expires_at", type_=subscription_marks.c.expires_at.type),
        )
        .where(subscriptions.c.subscription_id == bindparam("subscription_id"))
        .where(subscriptions.c.expires_at > bindparam("now"))
        .with_for_update(read=True, key_share=True)
    )
    return insert.from_select(["subscription_id", "event_id", "expires_at"], present).on_conflict_do_update(
        index_elements=["subscription_id", "event_id"],
        set_={"expires_at": insert.excluded.expires_at},
        where=subscription_marks.c.expires_at <= bindparam("now"),
    )


def _ends_at(subscription: EventSubscription) -> float:
    return subscription.created_at + (subscription.timeout or 0.0)


def _encode(subscription: EventSubscription) -> dict[str, Any]:
    """The row of a subscription; `ValueError` for one that was built past its own validation, or is not JSON.

    Keeps: SUBS-10, SUBS-12.
    """
    row = subscription.checked().model_dump(exclude={"filter_condition", "processed_events"})
    return row | {"filter_condition": _condition_text(subscription)}


def _condition_text(subscription: EventSubscription) -> str | None:
    if subscription.filter_condition is None:
        return None
    try:
        return json.dumps(subscription.filter_condition, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        name = subscription.subscription_id
        raise ValueError(f"filter_condition of subscription {name!r} cannot be stored as JSON: {error}") from error


def _decode(row: Row[Any], processed: set[str]) -> EventSubscription:
    """The subscription of a row; `ValueError` (pydantic's is one) if it makes none."""
    fields = {**row._mapping, "processed_events": processed}
    if row.filter_condition is not None:
        fields["filter_condition"] = json.loads(row.filter_condition)
    return EventSubscription.model_validate(fields)


def _decode_or_skip(row: Row[Any], processed: set[str]) -> EventSubscription | None:
    """The subscription of a row in a list, or None for one that makes none, which is named.

    Keeps: SUBS-14, SUBS-15.
    """
    try:
        return _decode(row, processed)
    except ValueError as error:
        logger.warning(
            "subscription %r to event type %r cannot be read and is skipped: %s",
            row.subscription_id,
            row.event_type,
            error,
        )
        return None
