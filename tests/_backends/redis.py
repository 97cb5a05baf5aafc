"""The Redis back end under test: on fakeredis, quick and private, and on a real server, under a prefix of its own."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from types import TracebackType
from typing import Any

import fakeredis
from redis.asyncio import Redis

from lastbus._backends.redis.connection import RedisConnection, make_client
from lastbus._bus import BaseBus
from lastbus._clock import Clock
from lastbus.redis import (
    RedisEventStorage,
    RedisEventSubscriptionStorage,
    RedisProcessingTracker,
)
from tests._backends.base import Backend


class RedisBackend(Backend):
    """Keys and channels under one fresh prefix. Each storage and each bus has a connection of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.prefix = f"lastbus-test:{uuid.uuid4().hex}:"
        self._connections: list[RedisConnection] = []

    @abstractmethod
    def client(self, **options: Any) -> Redis:
        """A fresh client on this server."""

    def connection(self, **options: Any) -> RedisConnection:
        """A fresh connection, closed with the back end."""
        connection = RedisConnection(client=self.client(**options))
        self._connections.append(connection)
        return connection

    def _make_bus(self, **options: Any) -> BaseBus:
        raise NotImplementedError

    def event_storage(self, clock: Clock | None = None, ttl: float | None = None) -> RedisEventStorage:
        return RedisEventStorage(key_prefix=f"{self.prefix}event:", ttl=ttl, clock=clock, connection=self.connection())

    def subscription_storage(self) -> RedisEventSubscriptionStorage:
        return RedisEventSubscriptionStorage(key_prefix=f"{self.prefix}subscription:", connection=self.connection())

    def tracker(self, clock: Clock | None = None) -> RedisProcessingTracker:
        return RedisProcessingTracker(key_prefix=f"{self.prefix}processed:", clock=clock, connection=self.connection())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        for connection in self._connections:
            await connection.aclose()


class FakeRedisBackend(RedisBackend):
    """A server within this process, gone with the test."""

    name = "fakeredis"

    def __init__(self) -> None:
        super().__init__()
        self.server = fakeredis.FakeServer()

    def client(self, **options: Any) -> Redis:
        return fakeredis.FakeAsyncRedis(server=self.server, **options)


class ValkeyBackend(RedisBackend):
    """A real server that others may use as well: whatever was written under the prefix is deleted on leaving."""

    name = "valkey"

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def client(self, **options: Any) -> Redis:
        return Redis.from_url(self.url, **options) if options else make_client(self.url)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        sweep = RedisConnection(self.url)
        keys = [f"{self.prefix}".encode() + rest for rest in await sweep.scan(self.prefix)]
        if keys:
            await sweep.command("UNLINK", *keys)
        await sweep.aclose()
