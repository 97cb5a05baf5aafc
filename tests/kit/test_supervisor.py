"""A supervised process is gone when it should be, whatever happened to whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lastbus._kit.supervisor import Order, Supervised

GONE_SECONDS = 10
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
PARENT = """
import sys, time
from lastbus._kit.redis_server import RedisServer
server = RedisServer()
server.start()
print(server.pid, server.scratch, flush=True)
{then}
"""


def sleeper(scratch: Path, *command: str) -> Supervised:
    return Supervised(Order(command or ("sleep", "60"), log=str(scratch / "log"), scratch=str(scratch)))


def started_by_a_parent_that(then: str) -> tuple[subprocess.Popen[str], psutil.Process, Path]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(then=then)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdout is not None
    pid, scratch = parent.stdout.readline().split()
    return parent, psutil.Process(int(pid)), Path(scratch)


def test_a_stopped_process_is_gone(tmp_path: Path) -> None:
    process = sleeper(tmp_path)
    assert not process.ended_within(0)
    process.stop()
    assert not psutil.pid_exists(process.pid)


def test_a_killed_process_is_gone(tmp_path: Path) -> None:
    process = sleeper(tmp_path)
    process.kill()
    assert not psutil.pid_exists(process.pid)


@pytest.mark.slow
def test_a_process_that_ignores_the_request_is_killed_after_the_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits for the (shortened) grace."""
    impatient = tmp_path / "supervisor.py"
    source = Path(sys.modules[Supervised.__module__].__file__ or "").read_text()
    impatient.write_text(source.replace("GRACE_SECONDS: Final = 5.0", "GRACE_SECONDS: Final = 0.2"))
    monkeypatch.setitem(Supervised.__init__.__globals__, "__file__", str(impatient))
    process = sleeper(tmp_path, sys.executable, "-c", STUBBORN)
    while b"up" not in (tmp_path / "log").read_bytes():
        assert not process.ended_within(0.01)
    process.stop()
    assert not psutil.pid_exists(process.pid)


def test_stopping_twice_or_after_the_end_is_harmless(tmp_path: Path) -> None:
    process = sleeper(tmp_path, "true")
    assert process.ended_within(GONE_SECONDS)
    process.stop()
    process.kill()
    process.stop()


def test_a_stop_keeps_the_files_for_the_next_start(tmp_path: Path) -> None:
    sleeper(tmp_path).stop()
    assert tmp_path.exists()


def test_a_command_that_does_not_exist_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no-such-command"):
        sleeper(tmp_path, "no-such-command")


@pytest.mark.slow
def test_a_server_dies_with_a_parent_that_was_killed() -> None:
    """Starts a Python that starts a server."""
    parent, server, scratch = started_by_a_parent_that("time.sleep(60)")
    with parent:
        parent.send_signal(signal.SIGKILL)
    assert psutil.wait_procs([server], timeout=GONE_SECONDS)[1] == []
    wait_until_removed(scratch)


@pytest.mark.slow
def test_a_server_dies_with_a_parent_that_forgot_it() -> None:
    """Starts a Python that starts a server."""
    parent, server, scratch = started_by_a_parent_that("sys.exit(3)")
    with parent:
        assert parent.wait(GONE_SECONDS) == 3
    assert not server.is_running()
    assert not scratch.exists()


def wait_until_removed(scratch: Path) -> None:
    """The supervisor removes the files just after the server's end; it has no other sign to give."""
    for _ in range(GONE_SECONDS * 100):
        if not scratch.exists():
            return
        signal.sigtimedwait((), 0.01)
    raise AssertionError(f"{scratch} is still there")
