"""A server answers when it is ours and ready: neither a stranger on the port nor a leftover of the one before."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastbus._kit.ports import LOOPBACK, free_port
from lastbus._kit.postgres_server import PostgresServer
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
