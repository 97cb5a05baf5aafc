"""A TLS door passes plain bytes on to what stands behind it, and is shut for good when it is closed."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastbus._kit import tls
from lastbus._kit.ports import LOOPBACK, free_port
from lastbus._kit.tls import TlsDoor, certify

ANSWER_SECONDS = 2.0


@pytest.fixture
def echo_port() -> Iterator[int]:
    """Somebody without TLS who repeats what one caller after the other says."""
    with socket.create_server((LOOPBACK, 0)) as listener:

        def repeat() -> None:
            with contextlib.suppress(OSError):  # The listener is closed: it is over.
                while True:
                    caller, _ = listener.accept()
                    with caller:
                        while said := caller.recv(1000):
                            caller.sendall(said)

        thread = threading.Thread(target=repeat)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A door that does not open is not waited for."""
    monkeypatch.setattr(tls, "OPEN_SECONDS", ANSWER_SECONDS)


@contextlib.contextmanager
def through(door: TlsDoor) -> Iterator[ssl.SSLSocket]:
    """A connection through the door that trusts its authority and nobody else."""
    context = ssl.create_default_context(cafile=door.ca_file)
    with (
        socket.create_connection((LOOPBACK, door.port), ANSWER_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as line,
    ):
        yield line


def test_bytes_pass_a_door_both_ways_until_it_is_closed(echo_port: int, tmp_path: Path) -> None:
    door = TlsDoor(echo_port, tmp_path)
    try:
        with through(door) as line:
            line.sendall(b"hello")
            assert line.recv(5) == b"hello"
    finally:
        door.close()

    door.close()
    with pytest.raises(ConnectionRefusedError), through(door):
        pass
    assert not door._thread.is_alive()


def test_a_door_to_nobody_hangs_up(tmp_path: Path) -> None:
    door = TlsDoor(free_port(), tmp_path)
    try:
        with through(door) as line:
            assert line.recv(1) == b""
    finally:
        door.close()


def test_a_door_on_a_port_that_is_taken_does_not_open(
    echo_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "free_port", lambda: echo_port)

    with pytest.raises(OSError, match=f"the TLS door on port {echo_port} did not open"):
        TlsDoor(echo_port, tmp_path)


def test_a_certificate_is_for_loopback_and_signed_by_the_authority_in_the_file(tmp_path: Path) -> None:
    context, ca_file = certify(tmp_path)

    assert isinstance(context, ssl.SSLContext)
    assert ca_file.parent == tmp_path
    assert len(ssl.create_default_context(cafile=ca_file).get_ca_certs()) == 1
