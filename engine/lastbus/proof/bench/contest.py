"""The contestants: ways to replay the same mutations, each with its time and its verdicts."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lastbus.proof.baseline import Baseline, measure
from lastbus.proof.bench.guinea import CODE, Guinea
from lastbus.proof.mutation import Mutation, apply, texts_of
from lastbus.proof.process import environment, kill_group
from lastbus.proof.replay import replay
from lastbus.proof.runner import Slot, threads_for
from lastbus.proof.verdict import Verdict

NAIVE_SECONDS: Final = 5.0
"""After so long the naive replayer gives up, as its kind does."""


@dataclass(frozen=True)
class Lap:
    """What one way took for some mutations: before the first, for all of them, and what it said about each."""

    startup_seconds: float
    loop_seconds: float
    words: dict[str, str]

    @property
    def each_seconds(self) -> float:
        """Seconds for a mutation, without the start-up."""
        return self.loop_seconds / len(self.words)


def naive(guinea: Guinea, mutations: Sequence[Mutation], python: str, jobs: int) -> Lap:
    """What comes to mind first: copy the tree, edit the file, start pytest, look at its exit code."""
    began = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        words = list(pool.map(lambda mutation: _naive_word(guinea, mutation, python), mutations))
    named = zip((mutation.id for mutation in mutations), words, strict=True)
    return Lap(0.0, time.monotonic() - began, dict(named))


def _naive_word(guinea: Guinea, mutation: Mutation, python: str) -> str:
    with tempfile.TemporaryDirectory(prefix="lastbus-naive-") as folder:
        root = Path(folder) / "tree"
        shutil.copytree(guinea.project.root, root, ignore=shutil.ignore_patterns("mutations"))
        text = (root / CODE).read_text(encoding="utf-8")
        edit = mutation.edits[0]
        if edit.old not in text:
            return str(Verdict.ANCHOR_LOST)
        (root / CODE).write_text(text.replace(edit.old, edit.new, 1), encoding="utf-8")
        command = [python, "-m", "pytest", "-x", "-q", *mutation.killers]
        return _exit_word(command, root)


def _exit_word(command: Sequence[str], cwd: Path) -> str:
    null = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=cwd, env=environment(), stdout=null, stderr=null, start_new_session=True) as run:
        try:
            return "survived" if run.wait(NAIVE_SECONDS) == 0 else "killed"
        except subprocess.TimeoutExpired:
            kill_group(run.pid)
            return "timeout"


def replayed(guinea: Guinea, mutations: Sequence[Mutation], python: str, jobs: int, isolated: bool = False) -> Lap:
    """A replay as the command does it, warm where that is possible or isolated throughout."""
    outcome = replay(guinea.project, mutations, python, jobs, isolated)
    words = {result.mutation.id: str(result.verdict) for result in outcome.results}
    return Lap(outcome.startup_seconds, outcome.wall_seconds - outcome.startup_seconds, words)


def floor(guinea: Guinea, mutations: Sequence[Mutation], python: str, jobs: int) -> Lap:
    """What no replay in forks can undercut: a fork and the killers, without any mutation."""
    with tempfile.TemporaryDirectory(prefix="lastbus-floor-") as work:
        began = time.monotonic()
        slots, baseline = _ready(guinea, mutations, python, jobs, Path(work).resolve())
        ready = time.monotonic()

        def share(number: int) -> dict[str, str]:
            mine = mutations[number :: len(slots)]
            return {mutation.id: _run_unmutated(slots[number], mutation, baseline) for mutation in mine}

        words: dict[str, str] = {}
        with threads_for(slots) as pool:
            for part in pool.map(share, range(len(slots))):
                words.update(part)
        took = time.monotonic() - ready
        for slot in slots:
            slot.close()
        return Lap(ready - began, took, words)


def _ready(
    guinea: Guinea, mutations: Sequence[Mutation], python: str, jobs: int, work: Path
) -> tuple[list[Slot], Baseline]:
    slots = [Slot(guinea.project, work, number, python) for number in range(jobs)]
    killers = [killer for mutation in mutations for killer in mutation.killers]
    baseline = measure(slots, [killers] * jobs, guinea.project.floor_seconds)
    for slot in slots:
        slot.preload(list(baseline.modules))
    return slots, baseline


def _run_unmutated(slot: Slot, mutation: Mutation, baseline: Baseline) -> str:
    run, _ = slot.run(mutation.killers, baseline.limits(mutation))
    green = run.ended == "finished" and all(report.outcome == "passed" for report in run.reports)
    return "passed" if green else "not green"


@dataclass(frozen=True)
class Hang:
    """What the first look at a hang took, and what its killers take unmutated."""

    seconds: float
    mapped_seconds: float


def hangs(guinea: Guinea, python: str) -> list[Hang]:
    """The first look at every trap that never ends."""
    traps = [trap for name, trap in guinea.traps.items() if name.startswith("hang")]
    with tempfile.TemporaryDirectory(prefix="lastbus-hang-") as work:
        slots, baseline = _ready(guinea, traps, python, 1, Path(work).resolve())
        seen = [_hang(guinea, slots[0], trap, baseline) for trap in traps]
        slots[0].close()
        return seen


def _hang(guinea: Guinea, slot: Slot, trap: Mutation, baseline: Baseline) -> Hang:
    texts = apply(trap.edits, texts_of(guinea.project, trap))
    with slot.mutated(texts):
        run, _ = slot.run(trap.killers, baseline.limits(trap), mutated=list(texts))
    return Hang(run.seconds, sum(baseline.seconds.get(killer, 0.0) for killer in trap.killers))
