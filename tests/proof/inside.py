"""Replays without processes: a slot that runs the tests of a sample inside this very process.

For tests about what a replay makes of its runs, whoever runs them. What the processes do is shown by `test_runner`, by
`test_warm`, and by tests of a replay that are played both ways.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from lastbus.proof.config import Project
from lastbus.proof.copies import Copy
from lastbus.proof.notes import Limits, Notes
from lastbus.proof.services import Services
from lastbus.proof.verdict import How, Run
from lastbus.proof.zygote.place import Command
from lastbus.proof.zygote.recorder import Wire

_WARM = "_lastbus_zygote.warm"
IN_WARM = f"{_WARM!r} in __import__('sys').modules"
"""What is true in a warm process, and in a warm run that is played here."""
PLAIN = (
    *("-q", "-s", "--tb=native", "--import-mode=importlib", "-W", "ignore::pytest.PytestUnknownMarkWarning"),
    # They look for what the whole process left behind.
    *("-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "no:unraisableexception", "-p", "no:threadexception"),
)
"""Arguments for a session of pytest inside a test of pytest."""
_ALONE = threading.Lock()
"""Several slots share the modules of this process."""


class Here:
    """The line to a parent that asks for some runs; the child that is forked for one is this very process."""

    def __init__(self, wire: Wire, *commands: Command) -> None:
        self.wire = wire
        self._commands = commands

    def commands(self) -> Iterator[Command]:
        """What is asked for."""
        yield from self._commands

    def fork(self) -> bool:
        """Go on as the child."""
        return True

    def leave(self) -> None:
        """There is more to this process than the child."""


class Inside:
    """What a `Slot` is to a replay, for test functions that take nothing.

    A test that raises `TimeoutError` is one that had to be stopped at its limit.
    """

    def __init__(
        self,
        project: Project,
        work: Path,
        number: int,
        python: str,
        isolated: bool = False,
        services: Services | None = None,
    ) -> None:
        self.copy = Copy(project.root, work / f"copy{number}")
        self.root = self.copy.root
        self.version = sys.version.split()[0]
        self.boot_seconds = 0.0
        self.cold = "not asked to collect"
        self._paths = [str(self.root / path) for path in (*project.paths, *project.tests)]
        self._isolated = isolated

    def start(self) -> None:
        """There is nothing to start."""

    def preload(self, modules: Sequence[str]) -> None:
        """What this process has imported is imported."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def close(self) -> None:
        """There is nothing to let go of."""

    def collect(self, tests: Sequence[str]) -> None:
        """From now on runs are warm, unless every run is isolated."""
        self.cold = "every run is isolated" if self._isolated else ""

    def mutated(self, texts: Mapping[str, str]) -> AbstractContextManager[None]:
        """As a slot does it: in its copy."""
        return self.copy.mutated(texts)

    def run(
        self,
        tests: Sequence[str],
        limits: Limits,
        patience: float = 1.0,
        bytecode: bool = False,
        how: How = "warm",
        mutated: Sequence[str] = (),
    ) -> tuple[Run, Notes]:
        """Import the tests from the copy and call them, one after the other."""
        if self._isolated:
            how = "isolated"
        elif how == "warm" and self.cold:
            how = "fresh"
        notes = Notes()
        with _ALONE, self._place(how):
            stopped = not self._played(tests, notes)
        ended: Any = "stopped" if stopped else "finished"
        return Run(notes.reports, notes.broken, ended, stopped, notes.doing, how=how), notes

    def _played(self, tests: Sequence[str], notes: Notes) -> bool:
        """Note what the tests do; False if one of them had to be stopped."""
        try:
            found = {test: self._found(test) for test in tests}
        except Exception as error:  # Whatever a module of the sample raises: it breaks the collection.
            notes.take({"event": "broken", "kind": "import", "where": "tests", "message": repr(error)}, 0.0)
            return True
        carries = {test: _ids(function) for test, function in found.items()}
        notes.take({"event": "collected", "carries": carries, "hints": {}}, 0.0)
        for test, function in found.items():
            notes.take({"event": "start", "test": test}, 0.0)
            message = ""
            try:
                function()
            except TimeoutError:
                return False
            except Exception as error:  # A test of the sample that failed.
                message = f"{type(error).__name__}: {error}"
            for when in ("setup", "call", "teardown"):
                words = message if when == "call" else ""
                facts = {"when": when, "outcome": "failed" if words else "passed", "message": words}
                notes.take({"event": "report", "test": test, "subtest": False, "seconds": 0.0, **facts}, 0.0)
        notes.take({"event": "finish", "modules": []}, 0.0)
        return True

    def _found(self, test: str) -> Callable[[], object]:
        file, _, name = test.partition("::")
        for path in (self.root / file).with_name("conftest.py"), self.root / file:
            scope: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
            if path.exists():
                exec(compile(path.read_text(encoding="utf-8"), path, "exec"), scope)
        found: Callable[[], object] = scope[name]
        return found

    @contextmanager
    def _place(self, how: How) -> Iterator[None]:
        """Modules come from the copy inside the block, without bytecode, and are forgotten after it."""
        before = sys.path[:], sys.dont_write_bytecode, sys.modules.pop(_WARM, None), set(sys.modules)
        sys.path[:0] = self._paths
        sys.dont_write_bytecode = True
        if how == "warm":
            sys.modules[_WARM] = types.ModuleType(_WARM)
        try:
            yield
        finally:
            sys.path[:], sys.dont_write_bytecode, really_warm, known = before
            for name in set(sys.modules) - known:
                if name == _WARM or str(self.root) in str(getattr(sys.modules[name], "__file__", "")):
                    del sys.modules[name]
            if really_warm is not None:  # This very test runs in a warm process.
                sys.modules[_WARM] = really_warm


def _ids(function: Callable[[], object]) -> list[str]:
    marks = getattr(function, "pytestmark", [])
    return [str(arg) for mark in marks if mark.name == "guarantee" for arg in mark.args]
