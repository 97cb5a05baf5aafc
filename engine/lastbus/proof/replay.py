"""A replay: the baseline, every selected mutation in a copy of the tree, second runs, and the outcome.

Keeps: MUT-06, MUT-14, MUT-18.
"""

from __future__ import annotations

import queue
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from lastbus.proof.baseline import Baseline, measure
from lastbus.proof.config import Project
from lastbus.proof.division import divide, killers
from lastbus.proof.mutation import Mutation, Unfit, apply, texts_of
from lastbus.proof.runner import Slot, threads_for
from lastbus.proof.services import Services
from lastbus.proof.verdict import (
    OVERDUE,
    How,
    Judgement,
    Run,
    Verdict,
    agreed,
    exit_code,
    flaky,
    judge,
    settle,
    wants_second_run,
)

PATIENCE: Final = 3.0
"""How much longer than its limit a run may take when it is alone, before it counts as hanging."""
EARLIER: Final = "an earlier verdict that still holds"
"""What every report says of a verdict for which nothing was run."""
SUSPICION: Final = 2
"""How often a kill is repeated if the verdict before it was another."""
RED_BASELINE: Final = 3
Progress = Callable[["Result"], None]
Texts = Mapping[str, str]


@dataclass(frozen=True)
class Result:
    """What the replay says about one mutation."""

    mutation: Mutation
    judgement: Judgement
    seconds: float
    log: str = ""
    reused: bool = False
    """The verdict is an earlier one that still holds; nothing was run for it."""
    how: str = ""
    """Where the first run took place: `warm`, `fresh` or `isolated`; empty if there was none."""
    disagreement: str = ""
    """What the first look said, if a look in isolation said otherwise."""

    @property
    def verdict(self) -> Verdict:
        """The word for what happened."""
        return self.judgement.verdict

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the one that the mutation expects."""
        return self.verdict.value == self.mutation.expect

    @property
    def killed_by(self) -> dict[str, tuple[str, ...]]:
        """The killers that failed, with the ids that they carry."""
        return dict(self.judgement.killed_by or {})


@dataclass
class Outcome:
    """One replay: which interpreter, how long, the baseline and a result per mutation."""

    python: str
    jobs: int
    baseline: Baseline
    results: list[Result] = field(default_factory=list)
    wall_seconds: float = 0.0
    startup_seconds: float = 0.0
    """How long it took to copy, collect and measure the baseline: what all mutations share."""

    @property
    def summary(self) -> dict[str, int]:
        """How often each verdict was given; canaries are left out, they are `canaries`.

        Keeps: MUT-08, MUT-18.
        """
        return dict(Counter(str(result.verdict) for result in self.results if not result.mutation.canary))

    @property
    def canaries(self) -> list[Result]:
        """The results of the mutations that test the rig itself."""
        return [result for result in self.results if result.mutation.canary]

    @property
    def exit_code(self) -> int:
        """3 for a red baseline, otherwise what the verdicts say.

        Keeps: MUT-06, MUT-18, MUT-20.
        """
        if self.baseline.red:
            return RED_BASELINE
        return exit_code([(result.verdict, result.mutation.expect) for result in self.results])


def replay(
    project: Project,
    mutations: Sequence[Mutation],
    python: str = sys.executable,
    jobs: int = 1,
    isolated: bool = False,
    progress: Progress = lambda _: None,
    confirm: int = 0,
    suspects: Collection[str] = (),
) -> Outcome:
    """Replay `mutations` and tell what each of them met. The tree itself is only read.

    A kill is repeated `confirm` times, and that of a mutation in `suspects` some times anyway. Whatever ends this call,
    an interrupt included, no process of it is left behind.
    Keeps: MUT-06, MUT-07, MUT-15.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lastbus-") as work, ExitStack() as ending:
        room = Path(work).resolve()
        services = Services(project, room, python)
        parts = divide(mutations, max(1, min(jobs, len(mutations))))
        slots = [Slot(project, room, number, python, isolated, services) for number in range(len(parts))]
        for slot in slots:
            ending.callback(slot.close)
        with threads_for(slots) as pool:
            list(pool.map(Slot.start, slots))
        baseline = measure(slots, [killers(part) for part in parts], project.floor_seconds)
        outcome = Outcome(slots[0].version, jobs, baseline)
        if not baseline.red:
            with threads_for(slots) as pool:
                list(pool.map(Slot.preload, slots, [list(baseline.modules)] * len(slots)))
            outcome.startup_seconds = time.monotonic() - began
            looks = {suspect: max(confirm, SUSPICION) for suspect in suspects}
            confirmations = {one.id: looks.get(one.id, confirm) for one in mutations}
            waiting = dict(zip(slots, map(deque, parts), strict=True))
            outcome.results = _Round(project, waiting, baseline, progress, confirmations).play(mutations)
        outcome.wall_seconds = time.monotonic() - began
        return outcome


class _Round:
    """Mutations waiting for slots: all once, then second runs, those over their limit alone at the end."""

    def __init__(
        self,
        project: Project,
        waiting: Mapping[Slot, deque[Mutation]],
        baseline: Baseline,
        progress: Progress,
        confirmations: Mapping[str, int],
    ) -> None:
        self._project = project
        self._confirmations = confirmations
        self._waiting = waiting
        self._choosing = threading.Lock()
        self._slots = list(waiting)
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for slot in waiting:
            self._free.put(slot)
        self._baseline = baseline
        self._progress = progress
        self._texts: dict[str, str] = {}

    def play(self, mutations: Sequence[Mutation]) -> list[Result]:
        # The copies are what is tried: the tree may have been edited since they were made.
        copied = replace(self._project, root=self._slots[0].root)
        for mutation in mutations:
            self._texts.update(texts_of(copied, mutation))
        results: dict[str, Result] = {}
        alone: list[Result] = []
        with threads_for(self._slots) as pool:
            for future in [pool.submit(self._turn) for _ in mutations]:
                result = future.result()
                results[result.mutation.id] = result
                if result.verdict is Verdict.TIMEOUT:
                    alone.append(result)
                else:
                    self._progress(result)
        for first in alone:
            result = results[first.mutation.id] = self._again(first)
            self._progress(result)
        return [results[mutation.id] for mutation in mutations]

    def _turn(self) -> Result:
        """The next mutation, in a free slot."""
        slot = self._free.get()
        try:
            return self._judge(self._next(slot), slot)
        finally:
            self._free.put(slot)

    def _next(self, slot: Slot) -> Mutation:
        """The first that waits for `slot`; if there is none, the last one of the longest line."""
        with self._choosing:
            if self._waiting[slot]:
                return self._waiting[slot].popleft()
            return max(self._waiting.values(), key=len).pop()

    def _judge(self, mutation: Mutation, slot: Slot) -> Result:
        """One mutation, looked at as often as its verdict asks for; alone and at the end if it was over its limit.

        Keeps: MUT-14, MUT-27, MUT-30.
        """
        began = time.monotonic()
        try:
            texts = apply(mutation.edits, self._texts)
        except Unfit as unfit:
            return Result(mutation, Judgement(unfit.verdict, unfit.reason), time.monotonic() - began)
        doubt = self._doubt(mutation)
        if doubt is not None:
            return Result(mutation, doubt, 0.0)
        first, run = self._run(slot, mutation, texts)
        if first.verdict is Verdict.KILLED:
            first = self._repeated(slot, mutation, texts, first, run.how)
        if first.verdict in (Verdict.TIMEOUT, Verdict.FLAKY) or not wants_second_run(first, mutation.expect):
            return Result(mutation, first, time.monotonic() - began, run.log, how=run.how)
        result = self._confirmed(slot, mutation, texts, first, run)
        return replace(result, seconds=time.monotonic() - began)

    def _repeated(self, slot: Slot, mutation: Mutation, texts: Texts, kill: Judgement, how: How) -> Judgement:
        """A kill that is to be confirmed: the killers must fail again each time, and pass each time unmutated.

        Keeps: MUT-30.
        """
        for _ in range(self._confirmations[mutation.id]):
            again, _ = self._run(slot, mutation, texts, how=how)
            if again.verdict is not Verdict.KILLED:
                return flaky([kill, again])
            unmutated, _ = self._run(slot, mutation, {}, how=how)
            if unmutated.verdict is not Verdict.SURVIVED:
                return Judgement(Verdict.FLAKY, f"unmutated, after the baseline: {unmutated.reason}")
        return kill

    def _confirmed(self, slot: Slot, mutation: Mutation, texts: Texts, first: Judgement, run: Run) -> Result:
        """What a run in isolation makes of `first`. If they differ, each is asked once more: is it the place, or luck?

        Keeps: MUT-14, MUT-27.
        """
        second, again = self._run(slot, mutation, texts, how="isolated")
        if first.verdict is second.verdict or run.how == "isolated":
            return Result(mutation, settle(first, second, again.late), again.seconds, again.log, how=run.how)
        firsts = [first, self._run(slot, mutation, texts)[0]]
        seconds = [second, self._run(slot, mutation, texts, how="isolated")[0]]
        judgement = agreed(firsts, seconds)
        told = "" if judgement.verdict is Verdict.FLAKY else f"{run.how}: {first.verdict}, isolated: {second.verdict}"
        return Result(mutation, judgement, again.seconds, again.log, how=run.how, disagreement=told)

    def _again(self, first: Result) -> Result:
        """Alone, in a new process, with a longer limit: the second opinion on a run over its limit.

        Keeps: MUT-05, MUT-14, MUT-27.
        """
        mutation = first.mutation
        texts = apply(mutation.edits, self._texts)
        began = time.monotonic()
        second, run = self._run(self._slots[0], mutation, texts, PATIENCE, "isolated")
        judgement = settle(first.judgement, second, run.late)
        told = "" if judgement.verdict in OVERDUE else f"{first.how}: {first.verdict}, isolated: {second.verdict}"
        seconds = first.seconds + time.monotonic() - began
        return replace(first, judgement=judgement, seconds=seconds, log=run.log, disagreement=told)

    def _doubt(self, mutation: Mutation) -> Judgement | None:
        """Why the baseline already makes a run useless, if it does.

        Keeps: MUT-14.
        """
        for killer in mutation.killers:
            if killer in self._baseline.absent:
                return Judgement(Verdict.NOT_RUN, self._baseline.absent[killer])
            if killer in self._baseline.unstable:
                return Judgement(Verdict.FLAKY, f"{killer} is unstable unmutated: {self._baseline.unstable[killer]}")
        return None

    def _run(
        self, slot: Slot, mutation: Mutation, texts: Texts, patience: float = 1.0, how: How = "warm"
    ) -> tuple[Judgement, Run]:
        """One run of the killers on the mutated copy, in a warm process if every killer passes there unmutated.

        Keeps: MUT-26.
        """
        if how == "warm" and not self._baseline.cold.keys().isdisjoint(mutation.killers):
            how = "fresh"
        with slot.mutated(texts):
            limits = self._baseline.limits(mutation)
            run, _ = slot.run(mutation.killers, limits, patience, how=how, mutated=list(texts))
        return judge(run, mutation.killers, mutation.guarantees, self._baseline.carries), run
