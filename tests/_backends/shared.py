"""Servers that a replay starts once and lends to every test that asks for one: see `[tool.lastbus.proof.services]`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lastbus._kit.servers import postgres_for_tests, redis_for_tests


@contextmanager
def valkey() -> Iterator[dict[str, str]]:
    """A Redis-compatible server, by the variable that names it to `redis_for_tests`."""
    with redis_for_tests() as server:
        yield server.hand_down()


@contextmanager
def postgres() -> Iterator[dict[str, str]]:
    """A PostgreSQL server, by the variable that names it to `postgres_for_tests`."""
    with postgres_for_tests() as server:
        yield server.hand_down()
