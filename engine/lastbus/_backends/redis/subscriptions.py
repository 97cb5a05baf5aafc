"""Subscription storage in Redis: one text per subscription, and four sets of ids that find it."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

from redis.asyncio import Redis

from lastbus._backends.redis import calls
from lastbus._backends.redis.connection import RedisBacked, RedisConnection
from lastbus._backends.redis.holes import Index, SubscriptionHoles, close_holes, pages
from lastbus._backends.redis.keys import INDEXED_FIELDS, SUBSCRIPTION_PREFIX, SubscriptionKeys, check_prefix
from lastbus._backends.redis.lifetime import lifetime_ms
from lastbus._backends.redis.scripts import MARK_SUBSCRIPTION, READ_MARKS, STORE_SUBSCRIPTION
from lastbus._errors import EventError
from lastbus._model.names import check_name, check_optional_name
from lastbus._model.subscription import EventSubscription
from lastbus._ports.storage import EventSubscriptionStorage

logger = logging.getLogger("lastbus.redis")


class RedisEventSubscriptionStorage(RedisBacked, EventSubscriptionStorage):
    """Keeps subscriptions for `ttl` seconds (default: `PLAITA_EVENT_TTL_SECONDS`) beyond their own timeout, if any.

    Every method raises `EventStorageError` when the server fails. `connection` shares the connection of another store;
    `client` is a redis-py asyncio client of yours, which `aclose` closes.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        key_prefix: str = SUBSCRIPTION_PREFIX,
        ttl: float | None = None,
        client: Redis | None = None,
        *,
        connection: RedisConnection | None = None,
    ) -> None:
        super().__init__(redis_url, client, connection)
        self._keys: Final = SubscriptionKeys(check_prefix("key_prefix", key_prefix))
        self._ttl_ms: Final = lifetime_ms(ttl)
        self.holes: Final = SubscriptionHoles(self._keys)
        self._all_indexes: Final = tuple(map(self._keys.indexes, INDEXED_FIELDS))

    async def store_subscription(self, subscription: EventSubscription) -> str:
        """Keep `subscription` and index it in one step, replacing one of the same id, its index entries and its marks.

        `ValueError`, and nothing is stored, if it is not valid or JSON cannot carry its filter.

        Keeps: SUBS-10, SUBS-16, IDX-02.
        """
        subscription_id, text = subscription.subscription_id, _encode(subscription)
        indexes = [self._keys.index(kind, value) for kind, value in _indexed(subscription).items() if value is not None]
        await self._connection.run(
            STORE_SUBSCRIPTION,
            [self._keys.row(subscription_id), self._keys.processed(subscription_id), *indexes],
            text,
            subscription_id,
            self._ttl_ms + (0 if subscription.timeout is None else round(subscription.timeout * 1000)),
            *self._all_indexes,
        )
        return subscription_id

    async def get_subscription(self, subscription_id: str) -> EventSubscription | None:
        """The stored subscription with its processed events, or None; `EventError` for a row that cannot be read.

        Keeps: SUBS-13.
        """
        check_name("subscription_id", subscription_id)
        row, marks = await self._connection.commands(
            [("GET", self._keys.row(subscription_id)), ("HKEYS", self._keys.processed(subscription_id))]
        )
        return None if row is None else _decode(row, marks)

    async def list_subscriptions(
        self,
        event_type: str | None = None,
        correlation_id: str | None = None,
        flow_id: str | None = None,
        node_id: str | None = None,
    ) -> list[EventSubscription]:
        """The subscriptions stored under every given value, oldest first (created_at, then id); none given: all.

        One index says which rows to read: the first given of correlation, type, flow and node. Rows that cannot be
        read are named in a WARNING and passed over; index entries whose row is gone are dropped from that index.

        Keeps: SUBS-01, SUBS-02, SUBS-03, SUBS-04, SUBS-05, SUBS-06, SUBS-08, SUBS-18,
        IDX-07.
        """
        fields = {"event_type": event_type, "correlation_id": correlation_id, "flow_id": flow_id, "node_id": node_id}
        named = {kind: check_optional_name(field, fields[field]) for kind, field in INDEXED_FIELDS.items()}
        given = {kind: value for kind, value in named.items() if value is not None}
        index = next((self.holes.index(kind, value) for kind, value in given.items()), None)
        ids = sorted(await self._candidates(index))
        rows = await self._rows(ids)
        if index is not None:
            gone = [each for each, (row, _) in zip(ids, rows, strict=True) if row is None]
            await close_holes(self._connection, self.holes, index, gone)
        found = [_read(each, row, marks) for each, (row, marks) in zip(ids, rows, strict=True) if row is not None]
        chosen = [each for each in found if each is not None and given.items() <= _indexed(each).items()]
        return sorted(chosen, key=lambda each: (each.created_at, each.subscription_id))

    async def delete_subscription(self, subscription_id: str) -> bool:
        """Forget a subscription with its index entries and marks in one step; False if it was not there.

        Keeps: SUBS-16.
        """
        check_name("subscription_id", subscription_id)
        call = calls.delete_subscription(self._keys, subscription_id)
        return bool(await self._connection.run(call.script, call.keys, *call.arguments))

    async def mark_event_processed(self, subscription_id: str, event_id: str) -> bool:
        """Note that a subscription has handled an event: True the first time, False again or if it is unknown.

        Judged and noted in one step at the server; of concurrent marks exactly one returns True, even when the reply
        is lost and the driver asks again. The subscription's lifetime stays as it is.

        Keeps: REDIS-10.
        """
        check_name("subscription_id", subscription_id)
        check_name("event_id", event_id)
        keys = [self._keys.row(subscription_id), self._keys.processed(subscription_id)]
        # The server keeps this call's own mark, so that it recognises the call when it is sent again.
        return bool(await self._connection.run(MARK_SUBSCRIPTION, keys, event_id, uuid4().hex))

    async def _candidates(self, index: Index | None) -> set[bytes]:
        if index is None:
            return await self._connection.scan(self._keys.rows)
        return set(await self._connection.command("SMEMBERS", index.key))

    async def _rows(self, ids: Sequence[bytes]) -> list[tuple[bytes | None, list[bytes]]]:
        """The row and the marks of every id, in one round trip: one MGET, and one call for the marks of each page.

        Keeps: SUBS-05, SUBS-07, SUBS-17.
        """
        if not ids:
            return []
        rows, processed = self._keys.rows.encode(), self._keys.processed("")
        marks: list[tuple[str | bytes | float, ...]] = [
            ("EVALSHA", READ_MARKS.digest, 0, processed, *page) for page in pages(ids)
        ]
        mget: tuple[str | bytes, ...] = ("MGET", *(rows + each for each in ids))
        texts, *marked = await self._connection.run_beside(READ_MARKS, [mget, *marks])
        return list(zip(texts, itertools.chain.from_iterable(marked), strict=True))


def _indexed(subscription: EventSubscription) -> dict[str, str | None]:
    return {kind: getattr(subscription, field) for kind, field in INDEXED_FIELDS.items()}


def _encode(subscription: EventSubscription) -> str:
    """The subscription as ASCII JSON text, checked again: a model can be made without validation.

    Keeps: SUBS-10, SUBS-12.
    """
    fields: dict[str, Any] = subscription.checked().model_dump()
    fields["processed_events"] = sorted(fields["processed_events"])
    try:
        return json.dumps(fields, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"subscription {subscription.subscription_id!r} cannot be stored as JSON: {error}") from error


def _decode(row: bytes, marks: Sequence[bytes]) -> EventSubscription:
    try:
        # Not `model_validate_json`: pydantic's own reader refuses lone surrogates, which JSON can carry.
        subscription = EventSubscription.model_validate(json.loads(row))
        subscription.processed_events |= {mark.decode() for mark in marks}
    except (ValueError, RecursionError) as error:
        raise EventError(f"not a stored subscription ({type(error).__name__}): {row[:80]!r}") from error
    return subscription


def _read(subscription_id: bytes, row: bytes, marks: Sequence[bytes]) -> EventSubscription | None:
    """The subscription of a row in a list, or None for one that cannot be read, which is named.

    Keeps: SUBS-13.
    """
    try:
        return _decode(row, marks)
    except EventError as error:
        shown = subscription_id.decode(errors="replace")
        logger.warning("subscription %s cannot be read and is skipped: %s", shown, error)
        return None
