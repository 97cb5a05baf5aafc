"""The catalogue: every back end by name, opened with the server that it needs."""

from __future__ import annotations

from typing import Any

import pytest

from tests._backends.base import Backend

NAMES = ("memory", "fakeredis", "valkey", "sqlite", "postgres")


def backend_params() -> list[Any]:
    """The parametrisation of the `backend` fixture; a test's id ends with the back end's name."""
    return [pytest.param(name, id=name) for name in NAMES]


def open_backend(name: str, request: pytest.FixtureRequest) -> Backend:
    """A fresh back end; modules and servers are touched only where a test needs them."""
    return _OPENERS[name](request)


def _memory(request: pytest.FixtureRequest) -> Backend:
    from tests._backends.memory import MemoryBackend

    return MemoryBackend()


def _fakeredis(request: pytest.FixtureRequest) -> Backend:
    from tests._backends.redis import FakeRedisBackend

    return FakeRedisBackend()


def _valkey(request: pytest.FixtureRequest) -> Backend:
    from tests._backends.redis import ValkeyBackend

    return ValkeyBackend(request.getfixturevalue("valkey_server").url)


def _sqlite(request: pytest.FixtureRequest) -> Backend:
    from tests._backends.sqlalchemy import SqliteBackend

    return SqliteBackend(request.getfixturevalue("tmp_path"))


def _postgres(request: pytest.FixtureRequest) -> Backend:
    from tests._backends.sqlalchemy import PostgresBackend

    return PostgresBackend(request.getfixturevalue("postgres_server"))


_OPENERS = {
    "memory": _memory,
    "fakeredis": _fakeredis,
    "valkey": _valkey,
    "sqlite": _sqlite,
    "postgres": _postgres,
}
