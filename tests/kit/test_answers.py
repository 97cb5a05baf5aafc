"""What is run for a server, and when it answers: neither a stranger on the port nor a leftover of the one before.

The programs are not the real ones here: what they are told, and what is made of what they say, is all that counts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastbus._kit.availability import ServerFailed
from lastbus._kit.ports import LOOPBACK, free_port
from lastbus._kit.postgres_server import BorrowedPostgres, PostgresServer, run_as, unprivileged_account
from lastbus._kit.redis_server import RedisServer

HEARD_SECONDS = 2


@contextlib.contextmanager
def listener(says: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Somebody on a port who hears one caller to the QUIT, says one thing, and hangs up."""
    heard: list[bytes] = []
    with socket.create_server((LOOPBACK, 0)) as door:
        door.settimeout(HEARD_SECONDS)

        def answer() -> None:
            caller, _ = door.accept()
            with caller:
                said = b""
                while b"QUIT" not in said:
                    said += caller.recv(1000)
                heard.append(said)
                caller.sendall(says)

        thread = threading.Thread(target=answer)
        thread.start()
        yield door.getsockname()[1], heard
        thread.join()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that is never started."""
    server = RedisServer(binary=tmp_path / "nothing", password="a b")
    yield server
    server.close()


@pytest.mark.parametrize(
    ("says", "answers"),
    [
        (b"$99\r\nprocess_id:42\r\n\r\n+PONG\r\n+OK\r\n", True),
        (b"$99\r\nprocess_id:421\r\n\r\n+PONG\r\n+OK\r\n", False),
        (b"$99\r\nprocess_id:42\r\n\r\n-LOADING\r\n+OK\r\n", False),
        (b"", False),
    ],
    ids=["ours", "a-stranger", "still-loading", "hangs-up"],
)
def test_redis_answers_when_it_is_the_process_that_was_started_and_serves(
    redis_server: RedisServer, says: bytes, answers: bool
) -> None:
    with listener(says) as (port, heard):
        assert redis_server._answers(port, 42) is answers

    assert heard[0].startswith(b"*3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$3\r\na b\r\n*2\r\n$4\r\nINFO\r\n")


def test_redis_does_not_answer_where_nobody_listens(redis_server: RedisServer) -> None:
    assert redis_server._answers(free_port(), 42) is False


@pytest.fixture
def postgres_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PostgresServer]:
    """A server that is never started."""
    monkeypatch.setattr("lastbus._kit.postgres_server.find_postgres", lambda: tmp_path)
    monkeypatch.setattr("lastbus._kit.postgres_server.unprivileged_account", lambda: None)
    server = PostgresServer()
    yield server
    server.close()


@pytest.mark.parametrize(
    ("notice", "answers"),
    [
        ("42\n/data\n1\n5432\n\n127.0.0.1\n\nready   \n", True),
        ("421\n/data\n1\n5432\n\n127.0.0.1\n\nready   \n", False),
        ("42\n/data\n1\n5432\n\n127.0.0.1\n\nstarting\n", False),
        (None, False),
    ],
    ids=["ours", "left-behind", "starting", "no-notice-yet"],
)
def test_postgres_answers_when_its_own_notice_says_so(
    postgres_server: PostgresServer, notice: str | None, answers: bool
) -> None:
    data = postgres_server.scratch / "data"
    data.mkdir()
    if notice is not None:
        (data / "postmaster.pid").write_text(notice)

    assert postgres_server._answers(5432, 42) is answers


def initdb(folder: Path, script: str) -> None:
    program = folder / "bin" / "initdb"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_postgres_makes_its_data_once_for_the_account_that_runs_it(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    initdb(tmp_path, f'test "$1" = --version && exit; echo "$*" >> {tmp_path}/told; mkdir "$2"')

    postgres_server._make_data()

    data = postgres_server.scratch / "data"
    assert data.is_dir()
    assert (tmp_path / "told").read_text() == f"-D {data} -U postgres -A trust -E UTF8 --locale=C --no-sync\n"
    order = postgres_server._order(5432)
    assert list(order.command[:5]) == [str(tmp_path / "bin" / "postgres"), "-D", str(data), "-p", "5432"]
    assert "fsync=off" in order.command
    assert (order.stop_signal, order.user, order.scratch) == (signal.SIGINT, None, str(postgres_server.scratch))


def test_postgres_that_cannot_make_its_data_says_why_and_leaves_none(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    initdb(tmp_path, 'test "$1" = --version && exit; mkdir "$2"; echo "no locale C"; exit 7')

    with pytest.raises(ServerFailed, match=r"initdb: 7\); its log ends:\nno locale C"):
        postgres_server._make_data()

    assert not (postgres_server.scratch / "data").exists()


def test_a_command_is_run_as_somebody_and_says_how_it_ended() -> None:
    assert run_as(None, ["sh", "-c", "exit 3"], subprocess.DEVNULL, 10) == 3


def test_only_root_has_somebody_else_run_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert unprivileged_account() not in (None, (0, 0))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unprivileged_account() is None


def test_a_borrowed_postgres_is_entered_and_left_as_it_is() -> None:
    lent = BorrowedPostgres("postgresql+asyncpg://theirs")

    with lent as entered:
        assert entered is lent
        assert entered.url == "postgresql+asyncpg://theirs"
