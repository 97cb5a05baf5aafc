"""The runner: a copy of the project's tree, and the processes that run tests in it under limits.

Keeps: MUT-07, MUT-11, MUT-15, MUT-17.

The parent, which is not mutated, watches every phase of every test; whatever passes its limit is killed
with its whole process group.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from lastbus.proof.config import Project
from lastbus.proof.copies import Copy
from lastbus.proof.errors import RunnerError
from lastbus.proof.notes import Limits, Notes
from lastbus.proof.process import BOOT_SECONDS, Process
from lastbus.proof.services import Services
from lastbus.proof.verdict import How, Run

COLLECT_SECONDS: Final = 120.0
LOG_CHARACTERS: Final = 20_000
ARGS: Final = ("-p", "no:cacheprovider", "--tb=native", "-q")


class Slot:
    """One copy of the tree and the processes that run tests in it, one run at a time.

    A run is *warm* (forked from a process that has collected the tests), *fresh* (forked from one where pytest is set
    up, and which has imported what tests need from elsewhere, never the project), or *isolated* (in a new interpreter
    that nobody has used).
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
        self._project = project
        self._services = services or Services(project, work, python)
        # It starts in the copy's folder, where a path that was given from here leads nowhere.
        self._python = os.path.abspath(python) if os.path.dirname(python) else python
        self._forks = hasattr(os, "fork")
        self._isolated = isolated or not self._forks
        self._copy = Copy(project.root, work / f"copy{number}")
        self.root = self._copy.root
        self._log = work / f"log{number}"
        self._scratch = work / f"tmp{number}"
        self._processes: dict[How, Process] = {}
        self._stopped = False
        self._modules: list[str] = []
        self.version = ""
        self.cold = "not asked to collect"
        """Why no run is warm; empty once the warm process waits for mutations."""
        self._unprepared = ""
        """Why no run is fresh; empty until that is known."""
        self._collected: set[str] = set()
        self._is_mutated = False
        self.boot_seconds = 0.0
        self._scratch.mkdir()
        # Servers that give up root must be able to reach their data below here.
        work.chmod(0o711)

    @property
    def copy(self) -> Copy:
        """The copy, for those who share bytecode."""
        return self._copy

    def start(self) -> None:
        """Have a process ready; `UsageError` if the interpreter cannot run pytest.

        Keeps: MUT-11.
        """
        self._process("isolated" if self._isolated else "warm")

    def collect(self, tests: Sequence[str]) -> None:
        """Have `tests` collected by a process that then serves warm runs; `cold` says why there is none.

        Keeps: MUT-22, MUT-23.
        """
        if self._isolated:
            self.cold = "every run is isolated"
            return
        began = time.monotonic()
        self._collected = set(tests)
        process = self._process("warm")
        process.send(self._command(tests, bytecode=True))
        self._await_warm(process, COLLECT_SECONDS)
        self._prepare(tests)  # It gets ready during the baseline, and sees nothing mutated.
        self.boot_seconds = time.monotonic() - began

    def _await_warm(self, process: Process, seconds: float) -> None:
        """Wait until the warm process says that it is fit to be forked, or do without it.

        Keeps: MUT-22.
        """
        said = process.until("warm", seconds)
        self.cold = "the collecting process ended" if said is None else said["unfit"]
        if said is not None:
            self._modules = said["modules"]
        if self.cold:
            self._drop("warm")

    def preload(self, modules: Sequence[str]) -> None:
        """Import `modules` before further runs, unless that leaves a process unfit to fork.

        Keeps: MUT-22.
        """
        if self._isolated:
            return
        self._modules = list(modules)
        if self._is_prepared(sorted(self._collected)):
            self._processes["fresh"].send({"do": "preload", "modules": self._modules})
            self._await_fresh(self._processes["fresh"])
        if not self.cold:
            self._processes["warm"].send({"do": "preload", "modules": self._modules})
            self._await_warm(self._processes["warm"], BOOT_SECONDS)

    def run(
        self,
        tests: Sequence[str],
        limits: Limits,
        patience: float = 1.0,
        bytecode: bool = False,
        how: How = "warm",
        mutated: Sequence[str] = (),
    ) -> tuple[Run, Notes]:
        """Run `tests` in the copy and tell what happened; never raises for what they do.

        `how` is a wish: what cannot run warm runs fresh, and what cannot run fresh isolated. `bytecode` lets the run
        leave .pyc files in the copy and name the modules it used: right for the tree as it is, wrong for a mutated one.
        Keeps: MUT-23.
        """
        if self._isolated:
            how = "isolated"
        if how == "warm" and not self.cold and set(tests) <= self._collected:
            run, notes = self._run(tests, limits, patience, bytecode, "warm", mutated)
            if not self._processes["warm"].alive:
                self.cold = "the warm process died"  # The copy is mutated now: too late to collect again.
            if not notes.refused:
                return run, notes
        if how != "isolated" and self._is_prepared(tests):
            run, notes = self._run(tests, limits, patience, bytecode, "fresh", mutated)
            if not notes.refused:
                return run, notes
        return self._run(tests, limits, patience, bytecode, "isolated", mutated)

    def _run(
        self, tests: Sequence[str], limits: Limits, patience: float, bytecode: bool, how: How, mutated: Sequence[str]
    ) -> tuple[Run, Notes]:
        process = self._process(how)
        command = self._command(tests, bytecode)
        run, notes = process.run({**command, "mutated": list(mutated)}, limits, patience)
        if how == "isolated":
            self._drop(how)
        return replace(run, how=how, log=self._said()), notes

    def _process(self, how: How) -> Process:
        """The process for such runs, started if need be.

        Keeps: MUT-11, MUT-15.
        """
        process = self._processes.get(how)
        if process is None or not process.alive:
            process = self._launch(how)
            self.version = process.ready()
        return process

    def _launch(self, how: How) -> Process:
        if self._stopped:
            raise RunnerError("stopped")
        self._drop(how)
        process = self._processes[how] = Process(
            self._python,
            how if self._forks else "once",
            self.root,
            self._log.with_suffix(f".{how}"),
            self._services.lend,
        )
        process.launch()
        return process

    def _prepare(self, tests: Sequence[str]) -> Process:
        """Have a process set pytest up for the files of `tests` and import what they will need; wait for nothing.

        Keeps: MUT-22.
        """
        process = self._launch("fresh")
        process.send({**self._command(tests, bytecode=True), "modules": self._modules})
        return process

    def _is_prepared(self, tests: Sequence[str]) -> bool:
        """Whether runs can be forked from the fresh process, which is started if need be.

        Once a mutation is in it is too late for that: its settings and plugins would be those of later runs as well.
        Keeps: MUT-17, MUT-22.
        """
        process = self._processes.get("fresh")
        if not self._unprepared and (process is None or not process.alive):
            if self._is_mutated:
                return False
            process = self._prepare([*self._collected, *tests])
        if process is not None and not process.version:
            self.version = process.ready()
            self._await_fresh(process)
        return not self._unprepared

    def _await_fresh(self, process: Process) -> None:
        """Wait until the fresh process says that it is fit to be forked, or do without it.

        Keeps: MUT-22.
        """
        said = process.until("prepared", BOOT_SECONDS)
        self._unprepared = "the preparing process ended" if said is None else said["unfit"]
        if self._unprepared:
            self._drop("fresh")

    def _drop(self, how: How) -> None:
        process = self._processes.pop(how, None)
        if process is not None:
            process.end()

    def _said(self) -> str:
        if not self._log.exists():
            return ""
        return self._log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARACTERS:]

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
            "services": self._services.state,
            "bytecode": bytecode,
            "tell_modules": bytecode,
        }

    @contextlib.contextmanager
    def mutated(self, texts: Mapping[str, str]) -> Iterator[None]:
        """The copy holds `texts` inside the block, and its own bytes again after it."""
        self._is_mutated = bool(texts)
        try:
            with self._copy.mutated(texts):
                yield
        finally:
            self._is_mutated = False

    def stop(self) -> None:
        """End the processes and everything they run. Safe from another thread, and more than once.

        Keeps: MUT-15.
        """
        self._stopped = True
        for process in list(self._processes.values()):
            process.stop()
        self._services.stop()

    def close(self) -> None:
        """`stop`, and let go of the pipes: only when no other thread uses this slot any more."""
        self.stop()
        for how in list(self._processes):
            self._drop(how)
        self._services.close()


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
