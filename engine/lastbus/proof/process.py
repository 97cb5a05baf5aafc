"""A process of the zygote, seen from the parent: started, asked, watched, and never left behind.

Keeps: MUT-05, MUT-11, MUT-15, MUT-31.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from lastbus.proof.errors import RunnerError, UsageError
from lastbus.proof.notes import Events, Limits, Notes, Watch
from lastbus.proof.verdict import Run

ZYGOTE: Final = Path(__file__).with_name("zygote") / "__main__.py"
"""Beside this file, and so never in a copy: what runs there cannot say how it is recorded."""
BOOT_SECONDS: Final = 60.0
DEATH_SECONDS: Final = 10.0
HIDDEN: Final = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTEST_CURRENT", "PYTEST_XDIST", "PYTEST_ADDOPTS", "COV_")

Lend = Callable[[str], Mapping[str, str]]
"""Have the service for a fixture run, and tell what names it."""


class Process:
    """One process that runs tests, or forks children that do; one run at a time."""

    def __init__(self, python: str, mode: str, cwd: Path, boot_log: Path, lend: Lend) -> None:
        self._lend = lend
        self._python = python
        self._mode = mode
        self._cwd = cwd
        self._boot_log = boot_log
        self._child: subprocess.Popen[bytes] | None = None
        self._running: int | None = None
        self._busy = False
        self.version = ""
        """Of its Python, once it has told."""

    @property
    def alive(self) -> bool:
        """Whether it can still be asked for something."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> str:
        """`launch` and wait until it is `ready`."""
        self.launch()
        return self.ready()

    def launch(self) -> None:
        """Start it, and wait for nothing: it may be told already what to do. `UsageError` if there is no interpreter.

        Keeps: MUT-11, MUT-31.
        """
        with open(self._boot_log, "wb") as said:
            try:
                self._child = subprocess.Popen(
                    [self._python, str(ZYGOTE), self._mode],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    cwd=self._cwd,
                    env=environment(),
                    start_new_session=True,
                )
            except OSError as error:
                raise UsageError(f"cannot start {self._python}: {error}") from error
        assert self._child.stdout is not None
        self._events = Events(self._child.stdout)

    def ready(self) -> str:
        """Its version of Python, once it has imported pytest; `UsageError` if it cannot.

        Keeps: MUT-31.
        """
        ready = self._events.next(time.monotonic() + BOOT_SECONDS)
        if ready is None or ready["event"] != "ready":
            words = self._boot_log.read_text(errors="replace").strip().splitlines()
            self.end()
            raise UsageError(f"{self._python} cannot run pytest ({words[-1] if words else 'it said nothing'})")
        self.version = str(ready["python"])
        return self.version

    def until(self, event: str, seconds: float) -> Mapping[str, Any] | None:
        """The next `event`, whatever else is said before it; None if it does not come."""
        end = time.monotonic() + seconds
        while (news := self._events.next(end)) is not None:
            if news["event"] == event:
                return news
        return None

    def run(self, command: Mapping[str, Any], limits: Limits, patience: float) -> tuple[Run, Notes]:
        """Run what `command` says under `limits`; never raises for what the tests do."""
        self._busy = True
        self.send(command)
        began = time.monotonic()
        watch = Watch(limits, patience, began)
        notes = Notes()
        stopped = not self._follow(notes, watch, began)
        self._busy = False
        run = Run(
            reports=notes.reports,
            broken=notes.broken,
            ended="finished" if notes.finished else "stopped" if stopped else "died",
            late=watch.late,
            doing=notes.doing,
            seconds=time.monotonic() - began,
        )
        return run, notes

    def _follow(self, notes: Notes, watch: Watch, began: float) -> bool:
        """Read events until the run ended; False if it had to be stopped."""
        while True:
            event = self._events.next(watch.deadline)
            now = time.monotonic()
            if event is None:
                overdue = now >= watch.deadline
                self._kill()
                return not overdue
            watch.see(event, now)
            notes.take(event, now - began)
            if event["event"] == "need":
                self._serve(event)
                watch.resume(time.monotonic())
            elif event["event"] == "forked":
                self._running = event["pid"]
            elif event["event"] == "exit" or (event["event"] == "finish" and self._mode == "once"):
                self._running = None
                return True

    def _serve(self, need: Mapping[str, Any]) -> None:
        """Answer a fixture that waits for a file to appear."""
        reply = Path(need["reply"])
        reply.with_suffix(".new").write_text(json.dumps(dict(self._lend(need["service"]))), encoding="utf-8")
        reply.with_suffix(".new").replace(reply)

    def _kill(self) -> None:
        """Kill the run's process group and wait until the process behind it is ready again."""
        if self._running is not None:
            kill_group(self._running)
            self._running = None
        if self._mode == "once" or self.until("exit", DEATH_SECONDS) is None:
            self.end()

    def stop(self) -> None:
        """End it and everything it runs. Safe from another thread, and more than once.

        Keeps: MUT-15.
        """
        running, self._running = self._running, None
        if running is not None:
            kill_group(running)
        child = self._child
        if child is not None:
            self._finish(child, idle=running is None and not self._busy)

    def end(self) -> None:
        """`stop`, and let go of the pipes: only when no other thread uses it any more."""
        self.stop()
        child, self._child = self._child, None
        if child is not None and child.stdout is not None:
            child.stdout.close()

    def _finish(self, child: subprocess.Popen[bytes], idle: bool) -> None:
        assert child.stdin is not None
        if idle:  # No run is there to be swept up after; it may be in the middle of its imports.
            kill_group(child.pid)
        with contextlib.suppress(OSError):
            child.stdin.close()
        try:
            child.wait(DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            kill_group(child.pid)
            child.wait()

    def send(self, command: Mapping[str, Any]) -> None:
        """Write one command; `RunnerError` if nobody is there to read it."""
        if self._child is None or self._child.stdin is None:
            raise RunnerError("no process: start() first")
        try:
            self._child.stdin.write(json.dumps(command).encode() + b"\n")
            self._child.stdin.flush()
        except (OSError, ValueError) as error:
            raise RunnerError(f"the test process is gone: {error}") from error


def environment() -> dict[str, str]:
    """The environment for the tests, without what an outer run of tests left there."""
    return {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}


def kill_group(pid: int) -> None:
    """Kill a process group outright, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
