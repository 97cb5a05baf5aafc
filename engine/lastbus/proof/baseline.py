"""The baseline: every killer runs green on the unmutated tree before any mutation is judged.

Keeps: MUT-06.

It also measures. How long a killer takes here says how long a mutation may keep it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lastbus.proof.mutation import Mutation
from lastbus.proof.runner import Limits, Notes, Slot, share_bytecode, threads_for
from lastbus.proof.verdict import Run, judge

FIRST_LIMIT_SECONDS: Final = 120.0
FLOOR_SECONDS: Final = 10.0
"""Long enough for a test that bounds its own wait by a few seconds to fail by itself."""
STARTUP_FLOOR_SECONDS: Final = 10.0
FACTOR: Final = 10.0
SETUP_FACTOR: Final = 3.0


@dataclass
class Baseline:
    """What the killers do on the unmutated tree.

    `red` failed twice, `unstable` failed once, `absent` gave no result; each with its reason.
    """

    carries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    red: dict[str, str] = field(default_factory=dict)
    unstable: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    modules: dict[str, None] = field(default_factory=dict)
    setup_seconds: float = 0.0
    startup_seconds: float = 0.0
    wall_seconds: float = 0.0

    def limits(self, mutation: Mutation) -> Limits:
        """How long each killer of `mutation` may take: a multiple of what it took here, never below a floor.

        The slowest setup is added, because a killer that ran late in the baseline found
        the session's servers started, and alone it starts them itself.
        """
        own = mutation.limit_seconds
        setup = SETUP_FACTOR * self.setup_seconds
        return Limits(
            startup=max(STARTUP_FLOOR_SECONDS, FACTOR * self.startup_seconds),
            of={
                killer: own or max(FLOOR_SECONDS, FACTOR * self.seconds.get(killer, 0.0) + setup)
                for killer in mutation.killers
            },
        )


def measure(slots: Sequence[Slot], killers: Sequence[str]) -> Baseline:
    """Run `killers` on the unmutated copies, one process per slot, and the red ones once more alone.

    Keeps: MUT-06.
    """
    began = time.monotonic()
    baseline = Baseline()
    shares = [share for share in _shares(sorted(set(killers)), len(slots)) if share]
    with threads_for(slots) as pool:
        for share, (run, notes) in zip(shares, pool.map(_first_run, slots, shares), strict=False):
            _note(baseline, share, run, notes)
    for killer in list(baseline.red):
        run, notes = _first_run(slots[0], [killer])
        if not _red([killer], run, notes):
            baseline.unstable[killer] = baseline.red.pop(killer)
    share_bytecode(slots)
    baseline.wall_seconds = time.monotonic() - began
    return baseline


def _first_run(slot: Slot, killers: Sequence[str]) -> tuple[Run, Notes]:
    there = [killer for killer in killers if (slot.root / killer.split("::")[0]).is_file()]
    return slot.run(there, Limits(FIRST_LIMIT_SECONDS, {}, FIRST_LIMIT_SECONDS), bytecode=True)


def _shares(killers: Sequence[str], count: int) -> list[list[str]]:
    """`killers` in `count` lists that keep the tests of one file together, so that its fixtures start once."""
    shares: list[list[str]] = [[] for _ in range(count)]
    files: dict[str, list[str]] = {}
    for killer in killers:
        files.setdefault(killer.split("::")[0], []).append(killer)
    for tests in sorted(files.values(), key=len, reverse=True):
        min(shares, key=len).extend(tests)
    return shares


def _note(baseline: Baseline, killers: Sequence[str], run: Run, notes: Notes) -> None:
    baseline.carries.update(notes.carries)
    baseline.seconds.update(notes.seconds)
    baseline.modules.update(dict.fromkeys(notes.modules))
    baseline.setup_seconds = max(baseline.setup_seconds, notes.setup_seconds)
    baseline.startup_seconds = max(baseline.startup_seconds, notes.startup_seconds)
    baseline.red.update(_red(killers, run, notes))
    for killer in killers:
        if killer not in baseline.red:
            absence = _absence(killer, run, notes)
            if absence:
                baseline.absent[killer] = absence


def _red(killers: Sequence[str], run: Run, notes: Notes) -> dict[str, str]:
    """The killers that are not green, and why: broken collection or a run cut short makes all of them red.

    Keeps: MUT-06.
    """
    if run.broken or run.ended != "finished":
        words = judge(run, (), (), {}).reason
        return dict.fromkeys(killers, words)
    return {report.test: report.message for report in notes.reports if report.outcome == "failed"}


def _absence(killer: str, run: Run, notes: Notes) -> str:
    if any(report.test == killer and report.when == "call" and report.outcome == "passed" for report in run.reports):
        return ""
    if killer in notes.carries:
        return f"{killer} is skipped or expected to fail: a killer must run"
    if notes.hints.get(killer):
        return f"{killer} has several parametrisations: name one, such as {notes.hints[killer][0]}"
    return f"{killer} does not exist: correct the node id"
