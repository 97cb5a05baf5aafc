"""The zygote: a process that has imported pytest and forks one child per run of tests.

Keeps: MUT-15, MUT-17. A program, not a library: it is started by file name with the
interpreter under proof, needs only pytest there, and imports nothing from this package.
It never runs a test itself, starts no thread and opens no socket, so a child inherits
nothing that is alive. Commands come in as JSON lines on standard input, events go
out as JSON lines on what was standard output. When its input ends, it kills what it
started and leaves.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    del sys.path[0]  # This file's folder is no place to import from: `report` or `config` may be anybody's.

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import random
import select
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

COMMANDS = 0
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
Command = dict[str, Any]


class Wire:
    """Events to the parent: one JSON object per line."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def send(self, event: str, **facts: Any) -> None:
        """Write one event whole, however small the pipe."""
        # A leading newline ends whatever line a killed child left unfinished.
        data = b"\n" + json.dumps({"event": event, **facts}).encode() + b"\n"
        while data:
            data = data[os.write(self.fd, data) :]


class Recorder:
    """The plugin that keeps the mapped tests, drops all others and sends what happens to them.

    Keeps: MUT-04, MUT-05.
    """

    def __init__(self, wire: Wire, keep: list[str]) -> None:
        self.wire = wire
        self.keep = set(keep)
        self.collected = False

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        # The parent watches the clock: a test that pytest-timeout fails would look like a kill.
        config.pluginmanager.unregister(name="timeout")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = [item.nodeid for item in items]
        items[:] = [item for item in items if item.nodeid in self.keep]
        carries = {item.nodeid: _ids(item) for item in items}
        missing = self.keep - carries.keys()
        hints = {killer: [name for name in found if name.startswith(killer + "[")][:3] for killer in missing}
        self.collected = True
        self.wire.send("collected", carries=carries, hints=hints)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.wire.send("start", test=nodeid)

    # First of all plugins: the terminal reporter turns a passed test with failed subtests into a failed one.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.wire.send(
            "report",
            test=report.nodeid,
            when=report.when,
            outcome=report.outcome,
            subtest=type(report).__name__.lower() == "subtestreport",
            message=_message(report) if report.failed else "",
            seconds=report.duration,
        )

    def pytest_exception_interact(self, call: Any, report: Any) -> None:
        if isinstance(report, pytest.CollectReport):
            kind = "import" if _while_importing(call.excinfo.value) else "collect"
            self.wire.send("broken", kind=kind, where=report.nodeid, message=str(report.longrepr)[-600:])


def _ids(item: pytest.Item) -> list[str]:
    return [str(arg) for mark in item.iter_markers("guarantee") for arg in mark.args]


def _message(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr)[-600:]


def _while_importing(error: BaseException) -> bool:
    """Whether a module's own code was running, or an import failed, anywhere in the chain of `error`."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, (ImportError, SyntaxError)) or "while importing" in str(link):
            return True
        frame = link.__traceback__
        while frame is not None:
            if frame.tb_frame.f_code.co_name == "<module>" and frame.tb_frame.f_globals.get("__name__") != "__main__":
                return True
            frame = frame.tb_next
        link = link.__cause__ or link.__context__
    return False


def run_tests(command: Command, wire: Wire) -> None:
    """Run the tests that `command` keeps, in this process, which is used up afterwards."""
    os.chdir(command["cwd"])
    _redirect(command["log"])
    _use_copy(command)
    recorder = Recorder(wire, command["keep"])
    args = ["-W", "ignore::pytest.PytestAssertRewriteWarning", *command["args"], *command["files"]]
    sys.argv = ["pytest", *args]
    code = int(pytest.main(args, plugins=[recorder]))
    sys.stdout.flush()
    sys.stderr.flush()
    if not recorder.collected and code not in (0, 5):
        said = _said(command["log"])
        wire.send("broken", kind=_usage_kind(said), where="pytest", message=said[-600:].strip())
    modules = _importable(command["purge"]) if command["tell_modules"] else []
    wire.send("finish", code=code, modules=modules)


def _redirect(log: str) -> None:
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.close(null)


def _use_copy(command: Command) -> None:
    """Make the copy the only place this process, and what it starts, imports the project from.

    Keeps: MUT-17.
    """
    roots = tuple(command["purge"])
    for name, module in list(sys.modules.items()):
        if name != "__main__" and _inside(getattr(module, "__file__", None), roots):
            del sys.modules[name]
    sys.path[:] = [*command["paths"], *(entry for entry in sys.path if entry not in roots)]
    sys.dont_write_bytecode = not command["bytecode"]
    os.environ["TMPDIR"] = command["tmp"]  # What a killed run leaves there goes with the copies.
    tempfile.tempdir = None
    os.environ["PYTHONPATH"] = os.pathsep.join(command["paths"])
    if not command["bytecode"]:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    random.seed()  # Every fork would otherwise draw the same "random" ports and names.


def _inside(file: str | None, roots: tuple[str, ...]) -> bool:
    return file is not None and "site-packages" not in file and file.startswith(roots)


def _importable(roots: list[str]) -> list[str]:
    """Modules that are not the project's and may be imported ahead of the next run, in the order they were imported.

    The order matters: `_asyncio` before `asyncio` would leave two ideas of the current task.
    Keeps: MUT-22.
    """
    names = []
    for name, module in sys.modules.items():
        spec = getattr(module, "__spec__", None)
        if name != "__main__" and spec is not None and spec.name == name and _foreign(spec.origin, roots):
            names.append(name)
    return names


def _foreign(origin: str | None, roots: list[str]) -> bool:
    """Whether a module comes from the interpreter or an installed package.

    Keeps: MUT-22.
    """
    if not origin or origin in ("built-in", "frozen"):
        return bool(origin)
    return os.path.isfile(origin) and not _inside(origin, tuple(roots))


def _said(log: str) -> str:
    with open(log, encoding="utf-8", errors="replace") as file:
        return file.read()


def _usage_kind(said: str) -> str:
    """A conftest or plugin that fails to import is reported by no hook, only in words."""
    return "import" if "while loading conftest" in said or "ImportError" in said else "collect"


def preload(names: list[str], wire: Wire) -> None:
    """Import what the tests will import anyway, so that each child finds it done; then say whether a fork is safe.

    Keeps: MUT-22.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            if name not in sys.modules:
                with contextlib.suppress(BaseException):  # Somebody's module: the child will see its error.
                    importlib.import_module(name)
    gc.collect()
    gc.freeze()
    wire.send("preloaded", threads=threading.active_count())


def fork_and_wait(command: Command, wire: Wire, alarm: int) -> None:
    """Run `command` in a forked child, in a session of its own, and leave nothing of it behind.

    Keeps: MUT-15.
    """
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            _become_child()
            run_tests(command, wire)
            status = 0
        except BaseException as error:
            wire.send("broken", kind="collect", where="runner", message=repr(error))
        finally:
            os._exit(status)
    wire.send("forked", pid=pid)
    status = _wait(pid, alarm)
    _sweep(pid)
    wire.send("exit", status=status)


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


def _wait(pid: int, alarm: int) -> int:
    """The exit status of `pid`; if the parent goes first, kill the child and leave.

    Keeps: MUT-15.
    """
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        ready, _, _ = select.select([COMMANDS, alarm], [], [])
        if alarm in ready:
            os.read(alarm, 512)
        elif os.read(COMMANDS, 1) == b"":  # The parent is gone: nobody will ask for this result.
            _sweep(pid)
            os._exit(1)


def _sweep(pid: int) -> None:
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


def _commands() -> Iterator[Command]:
    # Unbuffered: `_wait` looks at the same descriptor for its end.
    line = b""
    while True:
        byte = os.read(COMMANDS, 1)
        if byte == b"":
            return
        line += byte
        if byte == b"\n":
            yield json.loads(line)
            line = b""


def main() -> None:
    """Serve commands until the input ends. With `once`, run the first one in this very process."""
    wire = Wire(fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 32))
    os.dup2(2, 1)
    once = sys.argv[1:] == ["once"]
    alarm, ring = os.pipe()
    os.set_blocking(ring, False)
    if not once:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    wire.send("ready", python=sys.version.split()[0], pytest=pytest.__version__)
    for command in _commands():
        if command["do"] == "preload":
            preload(command["modules"], wire)
        elif once:
            wire.send("forked", pid=os.getpid())
            run_tests(command, wire)
            return
        else:
            fork_and_wait(command, wire, alarm)


if __name__ == "__main__":
    main()
