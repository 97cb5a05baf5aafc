"""The zygote's main loop: a process that has imported pytest and forks one child per run of tests.

Keeps: MUT-15, MUT-17. It never runs a test itself, starts no thread and opens no socket, so a child inherits
nothing that is alive. Commands come in as JSON lines on standard input, events go
out as JSON lines on what was standard output. When its input ends, it kills what it
started and leaves.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import sys
from collections.abc import Iterator

import pytest

from .place import Command, importable
from .recorder import Wire

PRIVATE_FD = 32
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Parent:
    """The line to the parent: commands in, events out, and the alarm that a child has ended."""

    def __init__(self) -> None:
        # Descriptors that no test meets: pytest and the children put others in the place of 0, 1 and 2.
        self.commands_fd = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, PRIVATE_FD)
        self.wire = Wire(fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, PRIVATE_FD))
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self.alarm = -1
        self._unread = b""

    def be_ready_to_fork(self) -> None:
        """Adopt what children leave behind, and hear when one of them ends.

        Keeps: MUT-15.
        """
        self.alarm, ring = os.pipe()
        os.set_blocking(ring, False)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def commands(self) -> Iterator[Command]:
        """What the parent asks for, until it goes."""
        while True:
            line, ended, rest = self._unread.partition(b"\n")
            if ended:
                self._unread = rest
                yield json.loads(line)
            elif not self._hear():
                return

    def _hear(self) -> bool:
        """Read what the parent has written meanwhile; False if it is gone."""
        heard = os.read(self.commands_fd, 65536)
        self._unread += heard
        return heard != b""

    def fork(self) -> bool:
        """Fork a child in a session of its own; True in the child. Here, wait for its end and leave nothing of it.

        Keeps: MUT-15.
        """
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.close(self.commands_fd)
            _become_child()
            return True
        self.wire.send("forked", pid=pid)
        status = self._wait(pid)
        sweep(pid)
        self.wire.send("exit", status=status)
        return False

    def leave(self) -> None:
        """End a child that `fork` made, without a word."""
        os._exit(0)

    def _wait(self, pid: int) -> int:
        """The exit status of `pid`; if the parent goes first, kill the child and leave.

        Keeps: MUT-15.
        """
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status
            ready, _, _ = select.select([self.commands_fd, self.alarm], [], [])
            if self.alarm in ready:
                os.read(self.alarm, 512)
            elif not self._hear():  # The parent is gone: nobody will ask for this result.
                sweep(pid)
                os._exit(1)


def _become_child() -> None:
    """A session of its own, the usual signals, and death with the zygote where the system offers that.

    Keeps: MUT-15.
    """
    os.setsid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def sweep(pid: int) -> None:
    """Kill what is left of the group of `pid` and, where the system tells, what escaped from it.

    Keeps: MUT-15.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    while True:
        children = list(_children())
        if not children:
            return
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _children() -> Iterator[int]:
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        yield from map(int, file.read().split())


def _prctl(option: int, value: int) -> None:
    """Linux only: elsewhere the process group alone bounds what a run can leave."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def finish(command: Command, wire: Wire, code: int, collected: bool) -> None:
    """Say that the run is over, and what kept it from collecting if something did."""
    sys.stdout.flush()
    sys.stderr.flush()
    if not collected and code not in (0, 5):
        said = _said(command["log"])
        wire.send("broken", kind=_usage_kind(said), where="pytest", message=said[-600:].strip())
    wire.send("finish", code=code, modules=importable(command["purge"]) if command["tell_modules"] else [])


def _said(log: str) -> str:
    with open(log, encoding="utf-8", errors="replace") as file:
        return file.read()


def _usage_kind(said: str) -> str:
    """A conftest or plugin that fails to import is reported by no hook, only in words."""
    return "import" if "while loading conftest" in said or "ImportError" in said else "collect"


def main(mode: str) -> None:
    """Serve commands until the input ends; `mode` is `warm`, `fresh`, `isolated` or `once`."""
    parent = Parent()
    parent.wire.send("ready", python=sys.version.split()[0], pytest=pytest.__version__)
    if mode == "warm":
        from .warm import serve_warm as serve
    elif mode == "fresh":
        from .fresh import serve_fresh as serve
    elif mode == "isolated":
        from .isolated import serve_isolated as serve
    else:
        from .isolated import serve_once as serve
    serve(parent)
