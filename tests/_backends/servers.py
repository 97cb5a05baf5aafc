"""Servers of the session: started once, when the first test asks, and gone with the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lastbus._kit.servers import (
    BorrowedPostgres,
    BorrowedRedis,
    PostgresServer,
    RedisServer,
    ServerUnavailable,
    missing,
    postgres_for_tests,
    redis_for_tests,
)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[RedisServer | BorrowedRedis]:
    """A Redis-compatible server for this process's tests."""
    try:
        server = redis_for_tests()
    except ServerUnavailable as absence:
        missing(absence)
    with server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer | BorrowedPostgres]:
    """A PostgreSQL server for this process's tests."""
    try:
        server = postgres_for_tests()
    except ServerUnavailable as absence:
        missing(absence)
    with server:
        yield server
