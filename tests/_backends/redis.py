"""The Redis back end under test: on fakeredis, quick and private, and on a real server, under a prefix of its own."""

from __future__ import annotations

import asyncio
import math
import uuid
from abc import abstractmethod
from types import TracebackType
from typing import Any

import fakeredis
import fakeredis.aioredis
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from lastbus._backends.redis.connection import RedisConnection, make_client
from lastbus._bus import BaseBus
from lastbus._clock import Clock
from lastbus.redis import (
    RedisEventBus,
    RedisEventStorage,
    RedisEventSubscriptionStorage,
    RedisEventWriter,
    RedisProcessingTracker,
)
from tests._backends.base import Backend

# It reads its table of commands once in a process: here, so that what is forked from this process finds it read.
fakeredis.FakeServer()


class RedisBackend(Backend):
    """Keys and channels under one fresh prefix. Each storage and each bus has a connection of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.prefix = f"lastbus-test:{uuid.uuid4().hex}:"
        self._connections: list[RedisConnection] = []
        self._writers: list[RedisEventWriter] = []

    @abstractmethod
    def client(self, **options: Any) -> Redis:
        """A fresh client on this server."""

    @abstractmethod
    def sync_client(self, **options: Any) -> SyncRedis:
        """A fresh client on this server for code without a loop."""

    def connection(self, **options: Any) -> RedisConnection:
        """A fresh connection, closed with the back end."""
        connection = RedisConnection(client=self.client(**options))
        self._connections.append(connection)
        return connection

    def _make_bus(self, **options: Any) -> BaseBus:
        # Tests that move the clock are not about the janitor, unless they ask for it.
        options.setdefault("sweep_indexes", False)
        return RedisEventBus(
            None,
            f"{self.prefix}event:",
            f"{self.prefix}subscription:",
            f"{self.prefix}processed:",
            client=self.client(),
            **options,
        )

    def event_storage(self, clock: Clock | None = None, ttl: float | None = None) -> RedisEventStorage:
        return RedisEventStorage(key_prefix=f"{self.prefix}event:", ttl=ttl, clock=clock, connection=self.connection())

    def subscription_storage(self) -> RedisEventSubscriptionStorage:
        return RedisEventSubscriptionStorage(key_prefix=f"{self.prefix}subscription:", connection=self.connection())

    def writer(self, client: SyncRedis | None = None, **options: Any) -> RedisEventWriter:
        """A synchronous writer, closed with the back end."""
        writer = RedisEventWriter(
            None,
            f"{self.prefix}event:",
            f"{self.prefix}subscription:",
            self.sync_client() if client is None else client,
            **options,
        )
        self._writers.append(writer)
        return writer

    def tracker(self, clock: Clock | None = None) -> RedisProcessingTracker:
        return RedisProcessingTracker(key_prefix=f"{self.prefix}processed:", clock=clock, connection=self.connection())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        for connection in self._connections:
            await connection.aclose()
        for writer in self._writers:
            writer.close()


class FakeConnection(fakeredis.aioredis.FakeAsyncRedisConnection):
    """Waits for an answer as a socket does.

    fakeredis waits with `asyncio.wait_for`, which swallows a cancellation that comes in the same turn as the answer
    (CPython 3.10 and 3.11).
    """

    async def can_read(self, timeout: float | None = 0) -> bool:
        socket = self._sock
        if timeout == 0 or socket is None:
            return socket is not None and not socket.responses.empty()
        loop = asyncio.get_running_loop()
        deadline = math.inf if timeout is None else loop.time() + timeout
        timer = None if timeout is None else loop.call_at(deadline, socket._response_available.set)
        try:
            while socket.responses.empty() and self._sock is socket and loop.time() < deadline:
                socket._response_available.clear()
                await socket._response_available.wait()
        finally:
            if timer is not None:
                timer.cancel()
        return not socket.responses.empty()


class FakeRedisBackend(RedisBackend):
    """A server within this process, gone with the test."""

    name = "fakeredis"

    def __init__(self) -> None:
        super().__init__()
        self.server = fakeredis.FakeServer()

    def client(self, **options: Any) -> Redis:
        return fakeredis.FakeAsyncRedis(server=self.server, connection_class=FakeConnection, **options)

    def sync_client(self, **options: Any) -> SyncRedis:
        return fakeredis.FakeRedis(server=self.server, **options)


class ValkeyBackend(RedisBackend):
    """A real server that others may use as well: whatever was written under the prefix is deleted on leaving."""

    name = "valkey"

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def client(self, **options: Any) -> Redis:
        return Redis.from_url(self.url, **options) if options else make_client(self.url)

    def sync_client(self, **options: Any) -> SyncRedis:
        return SyncRedis.from_url(self.url, **options)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        sweep = RedisConnection(self.url)
        keys = [f"{self.prefix}".encode() + rest for rest in await sweep.scan(self.prefix)]
        if keys:
            await sweep.command("UNLINK", *keys)
        await sweep.aclose()
