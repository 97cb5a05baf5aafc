"""Fixtures of the Redis tests: each runs on fakeredis and on a real server, unless it asks for one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from lastbus._backends.redis.connection import RedisConnection
from lastbus._kit.servers import RedisServer, ServerUnavailable, missing
from tests._backends.base import Backend
from tests._backends.catalogue import open_backend
from tests._backends.redis import RedisBackend


@pytest.fixture(params=["fakeredis", "valkey"])
async def redis(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """The Redis back end on both servers in turn."""
    async with open_backend(request.param, request) as opened:
        yield opened


@pytest.fixture
def raw(redis: RedisBackend) -> RedisConnection:
    """A connection of the test's own, to look at keys and to break them."""
    return redis.connection()


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A real server of this test's own, which it may count on, kill and restart."""
    try:
        server = RedisServer(persist=True)
    except ServerUnavailable as absence:
        missing(absence)
    with server:
        yield server
