"""The baseline: every killer runs green on the unmutated tree before any mutation is judged.

Keeps: MUT-06.

It also measures. How long a killer takes here says how long a mutation may keep it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lastbus.proof.copies import share_bytecode
from lastbus.proof.mutation import Mutation
from lastbus.proof.notes import Limits, Notes
from lastbus.proof.runner import Slot, threads_for
from lastbus.proof.verdict import How, Run, judge

FIRST_LIMIT_SECONDS: Final = 120.0
STARTUP_FLOOR_SECONDS: Final = 10.0
FACTOR: Final = 10.0
SETUP_FACTOR: Final = 3.0


@dataclass
class Baseline:
    """What the killers do on the unmutated tree.

    `red` failed twice, `unstable` failed once, `absent` gave no result, `cold` passes in a fresh process only; each
    with its reason. `floor_seconds` is the least that a test may take.
    """

    floor_seconds: float = 1.0

    carries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    red: dict[str, str] = field(default_factory=dict)
    unstable: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    cold: dict[str, str] = field(default_factory=dict)
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
                killer: own or max(self.floor_seconds, FACTOR * self.seconds.get(killer, 0.0) + setup)
                for killer in mutation.killers
            },
        )


def measure(slots: Sequence[Slot], wanted: Sequence[Sequence[str]], floor_seconds: float = 1.0) -> Baseline:
    """Collect on every slot the killers that are wanted there, run them unmutated, and look again at the red ones.

    Keeps: MUT-06.
    """
    began = time.monotonic()
    baseline = Baseline(floor_seconds)
    place = {killer: slot for slot, killers in zip(slots, wanted, strict=True) for killer in killers}
    with threads_for(slots) as pool:
        for killers, told in zip(wanted, pool.map(_collect_and_run, slots, wanted), strict=True):
            if told is not None:
                _note(baseline, killers, *told)
    baseline.startup_seconds = max(baseline.startup_seconds, *(slot.boot_seconds for slot in slots))
    for killer in [*baseline.red, *baseline.absent]:
        _look_again(baseline, place[killer], killer)
    share_bytecode([slot.copy for slot in slots])
    baseline.wall_seconds = time.monotonic() - began
    return baseline


def _collect_and_run(slot: Slot, killers: Sequence[str]) -> tuple[Run, Notes] | None:
    """Nothing is collected for nothing: pytest would take that for everything."""
    if not killers:
        return None
    slot.collect(_there(slot, killers))
    return _first_run(slot, killers)


def _first_run(slot: Slot, killers: Sequence[str], how: How = "warm") -> tuple[Run, Notes]:
    limits = Limits(FIRST_LIMIT_SECONDS, {}, FIRST_LIMIT_SECONDS)
    return slot.run(_there(slot, killers), limits, bytecode=True, how=how)


def _there(slot: Slot, killers: Sequence[str]) -> list[str]:
    return [killer for killer in killers if (slot.root / killer.split("::")[0]).is_file()]


def _look_again(baseline: Baseline, slot: Slot, killer: str) -> None:
    """Whether a killer that gave no green result is red, unstable, absent, or merely not fit to run warm.

    Keeps: MUT-06, MUT-14, MUT-26.
    """
    first = baseline.red.pop(killer, "")
    if not first and slot.cold:
        return  # Absent from a fresh run: there is no other way to look.
    baseline.absent.pop(killer, None)
    run, notes = _first_run(slot, [killer], "fresh")
    _note(baseline, [killer], run, notes)
    if killer in baseline.absent:
        return
    if killer not in baseline.red:
        if first and (slot.cold or not _red([killer], *_first_run(slot, [killer]))):
            baseline.unstable[killer] = first
        else:
            baseline.cold[killer] = first or "was not collected by the warm process"
    elif not slot.cold and not _red([killer], *_first_run(slot, [killer], "fresh")):
        baseline.unstable[killer] = baseline.red.pop(killer)


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
