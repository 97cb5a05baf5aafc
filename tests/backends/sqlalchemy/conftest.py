"""What only the SQL back end is asked: on a SQLite file, and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from lastbus._kit.servers import BorrowedPostgres, PostgresServer
from tests._backends import open_backend
from tests._backends.sqlalchemy import SqlBackend


@pytest.fixture(params=["sqlite", "postgres"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[SqlBackend]:
    """Empty tables, and an engine on them that is disposed afterwards."""
    async with open_backend(request.param, request) as opened:
        assert isinstance(opened, SqlBackend)
        yield opened


@pytest.fixture
def postgres_url(postgres_server: PostgresServer | BorrowedPostgres) -> Iterator[str]:
    """An empty PostgreSQL database that only this test uses."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest) -> str:
    """A database without tables."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite+aiosqlite:///{request.getfixturevalue('tmp_path') / 'empty.db'}"
