"""The runner: copies of the project's tree, and a process for each that runs tests in it under a limit.

Keeps: MUT-07, MUT-11, MUT-15, MUT-17.

Mutations are put into a copy, never into the tree. The parent, which is not
mutated, watches every phase of every test; whatever passes its limit is killed
with its whole process group.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from lastbus.proof.config import Project
from lastbus.proof.errors import RunnerError, UsageError
from lastbus.proof.verdict import Broken, Report, Run

ZYGOTE: Final = Path(__file__).with_name("zygote.py")
BOOT_SECONDS: Final = 60.0
DEATH_SECONDS: Final = 10.0
LOG_CHARACTERS: Final = 20_000
LEFT_OUT: Final = frozenset(
    {".git", ".venv", ".tox", ".cache", ".lastbus", ".hypothesis", "__pycache__", "node_modules", "build", "dist"}
)
HIDDEN: Final = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTEST_CURRENT", "PYTEST_XDIST", "PYTEST_ADDOPTS", "COV_")
ARGS: Final = ("-p", "no:cacheprovider", "--tb=short", "-q")


@dataclass(frozen=True)
class Limits:
    """Seconds without news after which a run is stopped: before the tests, and for each test."""

    startup: float
    of: Mapping[str, float]
    default: float = 60.0

    def for_test(self, test: str) -> float:
        """Seconds that one phase of `test` may take."""
        return self.of.get(test, self.default)


@dataclass
class Notes:
    """What a run told, while it goes on."""

    reports: list[Report] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    setup_seconds: float = 0.0
    startup_seconds: float = 0.0
    carries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    hints: dict[str, list[str]] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    doing: str = "start-up"
    finished: bool = False

    def take(self, event: Mapping[str, Any], elapsed: float) -> None:
        """Note one event of the child, which came after `elapsed` seconds."""
        kind = event["event"]
        if kind == "report":
            self._report(event)
        elif kind == "start":
            self.doing = event["test"]
            self.startup_seconds = self.startup_seconds or elapsed
        elif kind == "collected":
            self.carries = {test: tuple(ids) for test, ids in event["carries"].items()}
            self.hints = event["hints"]
        elif kind == "broken":
            self.broken.append(Broken(event["kind"], event["where"], event["message"]))
        elif kind == "finish":
            self.finished = True
            self.modules = event["modules"]

    def _report(self, event: Mapping[str, Any]) -> None:
        test = event["test"]
        self.reports.append(Report(test, event["when"], event["outcome"], event["subtest"], event["message"]))
        if not event["subtest"]:
            self.seconds[test] = self.seconds.get(test, 0.0) + event["seconds"]
        if event["when"] == "setup":
            self.setup_seconds = max(self.setup_seconds, event["seconds"])
        if event["when"] == "teardown":
            self.doing = f"what follows {test}"


class Watch:
    """The deadline of the phase that a run is in. `patience` stretches it; `late` remembers the plain one.

    Keeps: MUT-05.
    """

    def __init__(self, limits: Limits, patience: float, now: float) -> None:
        self._limits = limits
        self._patience = patience
        self.late = False
        self._begin(limits.startup, now)

    def _begin(self, limit: float, now: float) -> None:
        self._plain_end = now + limit
        self.deadline = now + limit * self._patience

    def see(self, event: Mapping[str, Any], now: float) -> None:
        """News came: a new phase begins, unless it is only a step inside a test."""
        self.late = self.late or now > self._plain_end
        if event["event"] == "start":
            self._begin(self._limits.for_test(event["test"]), now)
        elif event["event"] != "report" or event["when"] == "teardown":
            self._begin(self._limits.startup, now)


class Events:
    """Events read from a pipe, each under a deadline. Lines that are no event are passed over."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._buffer = b""

    def next(self, deadline: float) -> dict[str, Any] | None:
        """The next event, or None at the deadline or at the end of the pipe."""
        while True:
            line, found, rest = self._buffer.partition(b"\n")
            if found:
                self._buffer = rest
                with contextlib.suppress(ValueError):  # Half a line from a child that was killed.
                    return dict(json.loads(line))
            elif not self._read(deadline):
                return None

    def _read(self, deadline: float) -> bool:
        wait = max(0.0, deadline - time.monotonic())
        try:
            if not select.select([self._pipe], [], [], wait)[0]:
                return False
            data = os.read(self._pipe.fileno(), 65536)
        except (OSError, ValueError):  # Closed by stop() in another thread.
            return False
        self._buffer += data
        return data != b""


class Slot:
    """One copy of the tree and the process that runs tests in it, one run at a time.

    With `isolated` every run gets a new process; otherwise runs are forked from one that stays.
    """

    def __init__(self, project: Project, work: Path, number: int, python: str, isolated: bool = False) -> None:
        self._project = project
        # It starts in the copy's folder, where a path that was given from here leads nowhere.
        self._python = os.path.abspath(python) if os.path.dirname(python) else python
        self._isolated = isolated or not hasattr(os, "fork")
        self.root = work / f"copy{number}"
        self._log = work / f"log{number}"
        self._scratch = work / f"tmp{number}"
        self._process: subprocess.Popen[bytes] | None = None
        self._running: int | None = None
        self._stopped = False
        self._warm: list[str] = []
        self._stamps = itertools.count(1)
        self.version = ""
        copy_tree(project.root, self.root)
        self._scratch.mkdir()
        # Servers that give up root must be able to reach their data below here.
        work.chmod(0o711)

    def start(self) -> None:
        """Have a process ready; `UsageError` if the interpreter cannot run pytest.

        Keeps: MUT-11.
        """
        if self._stopped:
            raise RunnerError("stopped")
        once = ["once"] if self._isolated else []
        with open(self._log.with_suffix(".boot"), "wb") as said:
            try:
                self._process = subprocess.Popen(
                    [self._python, str(ZYGOTE), *once],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    cwd=self.root,
                    env=_environment(),
                    start_new_session=True,
                )
            except OSError as error:
                raise UsageError(f"cannot start {self._python}: {error}") from error
        self._events = Events(self._out)
        event = self._events.next(time.monotonic() + BOOT_SECONDS)
        if event is None or event["event"] != "ready":
            words = self._log.with_suffix(".boot").read_text(errors="replace").strip().splitlines()
            self._end()
            raise UsageError(f"{self._python} cannot run pytest ({words[-1] if words else 'it said nothing'})")
        self.version = event["python"]

    def preload(self, modules: Sequence[str]) -> None:
        """Import `modules` before further runs, unless that leaves the process unfit to fork.

        Keeps: MUT-22.
        """
        if self._isolated:
            return
        self._send({"do": "preload", "modules": list(modules)})
        event = self._events.next(time.monotonic() + BOOT_SECONDS)
        self._warm = list(modules)
        if event is None or event["threads"] != 1:
            self._warm = []
            self._end()

    def run(
        self, tests: Sequence[str], limits: Limits, patience: float = 1.0, bytecode: bool = False
    ) -> tuple[Run, Notes]:
        """Run `tests` in the copy and tell what happened; never raises for what they do.

        `bytecode` lets the run leave .pyc files in the copy and name the modules it used:
        right for the tree as it is, wrong for a mutated one.
        """
        self._ready()
        self._send(self._command(tests, bytecode))
        began = time.monotonic()
        watch = Watch(limits, patience, began)
        notes = Notes()
        stopped = not self._follow(notes, watch, began)
        run = Run(
            reports=notes.reports,
            broken=notes.broken,
            ended="finished" if notes.finished else "stopped" if stopped else "died",
            late=watch.late,
            doing=notes.doing,
            seconds=time.monotonic() - began,
            log=self._said(),
        )
        return run, notes

    def _said(self) -> str:
        if not self._log.exists():
            return ""
        return self._log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARACTERS:]

    def _ready(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.start()
            if self._warm:
                self.preload(self._warm)

    def _command(self, tests: Sequence[str], bytecode: bool) -> dict[str, Any]:
        here = [str(self.root / path) for path in self._project.paths]
        there = [str((self._project.root / path).resolve()) for path in self._project.paths]
        return {
            "do": "run",
            "cwd": str(self.root),
            "paths": here,
            "purge": [*there, str(self.root)],
            "files": sorted({test.split("::")[0] for test in tests}),
            "keep": list(tests),
            "log": str(self._log),
            "tmp": str(self._scratch),
            "args": [f"--rootdir={self.root}", f"--basetemp={self._scratch / 't'}", *ARGS],
            "bytecode": bytecode,
            "tell_modules": bytecode,
        }

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
            if event["event"] == "forked":
                self._running = event["pid"]
            elif event["event"] == "exit" or (event["event"] == "finish" and self._isolated):
                notes.take(event, now - began)
                self._running = None
                if self._isolated:
                    self._end()
                return True
            notes.take(event, now - began)

    def _kill(self) -> None:
        """Kill the run's process group and wait until the process behind it is ready again."""
        if self._running is not None:
            _kill_group(self._running)
            self._running = None
        end = time.monotonic() + DEATH_SECONDS
        while not self._isolated and (event := self._events.next(end)) is not None:
            if event["event"] == "exit":
                return
        self._end()

    @contextlib.contextmanager
    def mutated(self, texts: Mapping[str, str]) -> Iterator[None]:
        """The copy holds `texts` inside the block, and its own bytes again after it.

        A mutated file gets a modification time no version of it had before, so that bytecode of
        one version is never taken for another, even if size and second are equal.
        Keeps: MUT-07, MUT-17.
        """
        kept = {file: ((self.root / file).read_bytes(), (self.root / file).stat()) for file in texts}
        try:
            for file, text in texts.items():
                path = self.root / file
                path.write_bytes(text.encode("utf-8"))
                later = kept[file][1].st_mtime_ns + next(self._stamps) * 10_000_000_000
                os.utime(path, ns=(later, later))
            yield
        finally:
            for file, (data, stat) in kept.items():
                (self.root / file).write_bytes(data)
                os.utime(self.root / file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def stop(self) -> None:
        """End the process and everything it runs. Safe from another thread, and more than once.

        Keeps: MUT-15.
        """
        self._stopped = True
        running, self._running = self._running, None
        if running is not None:
            _kill_group(running)
        if self._process is not None:
            self._finish(self._process)

    def close(self) -> None:
        """`stop`, and let go of the pipes: only when no other thread uses this slot any more."""
        self._stopped = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        running, self._running = self._running, None
        if running is not None:
            _kill_group(running)
        if process is not None:
            self._finish(process)
            if process.stdout is not None:
                process.stdout.close()

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(OSError):
            self._in(process).close()
        try:
            process.wait(DEATH_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
            process.wait()

    @property
    def _out(self) -> IO[bytes]:
        if self._process is None or self._process.stdout is None:
            raise RunnerError("no process: start() first")
        return self._process.stdout

    @staticmethod
    def _in(process: subprocess.Popen[bytes]) -> IO[bytes]:
        if process.stdin is None:
            raise RunnerError("no process: start() first")
        return process.stdin

    def _send(self, command: Mapping[str, Any]) -> None:
        if self._process is None:
            raise RunnerError("no process: start() first")
        try:
            self._in(self._process).write(json.dumps(command).encode() + b"\n")
            self._in(self._process).flush()
        except (OSError, ValueError) as error:
            raise RunnerError(f"the test process is gone: {error}") from error


def copy_tree(source: Path, target: Path) -> None:
    """Copy a project with modification times, without version control, environments and caches.

    Keeps: MUT-07.
    """

    def leave_out(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder)
        return {
            name
            for name in names
            if name in LEFT_OUT or name.endswith("_cache") or (inside / name / "pyvenv.cfg").exists()
        }

    shutil.copytree(source, target, ignore=leave_out, symlinks=True)


def share_bytecode(slots: Sequence[Slot]) -> None:
    """Give every copy the .pyc files that any of them has made; their sources are equal in bytes and times."""
    for giver in slots:
        for cache in giver.root.rglob("__pycache__"):
            for taker in slots:
                if taker is not giver:
                    shutil.copytree(cache, taker.root / cache.relative_to(giver.root), dirs_exist_ok=True)


@contextlib.contextmanager
def threads_for(slots: Sequence[Slot]) -> Iterator[ThreadPoolExecutor]:
    """A thread for each slot. If the block fails or is interrupted, the slots are stopped first,
    so that leaving it never waits for a test.

    Keeps: MUT-15.
    """
    with ThreadPoolExecutor(len(slots)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for slot in slots:
                slot.stop()
            raise


def _environment() -> dict[str, str]:
    """The environment for the tests, without what an outer run of tests left there."""
    return {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
