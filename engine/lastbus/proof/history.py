"""History: a verdict that still holds is taken over, so that a replay runs only what could have changed.

Keeps: MUT-40, MUT-44, MUT-45.

Only a verdict that a second look would not change is taken over: a kill, a survivor, and a canary that did what it is
for. What depended on time or luck is run again. An audit runs some of what could be taken over all the same, and a
verdict that differs is an error of the history, not of a test.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lastbus.proof import record
from lastbus.proof.baseline import Baseline
from lastbus.proof.config import Project
from lastbus.proof.errors import UsageError
from lastbus.proof.mutation import Mutation
from lastbus.proof.replay import RED_BASELINE, Outcome, Result
from lastbus.proof.verdict import Judgement, Verdict

DISAGREED: Final = 6
"""The exit code of an audit that found the history wrong."""
SEED_MAX: Final = 2**32
SURE: Final = frozenset({Verdict.KILLED.value, Verdict.SURVIVED.value})
Run = Callable[[Sequence[Mutation]], Outcome]


@dataclass(frozen=True)
class Use:
    """What a replay makes of the history: nothing if `fresh`, else all of it but a sample of `audit` verdicts."""

    fresh: bool = False
    audit: int = 0
    seed: int = 0

    @classmethod
    def chosen(cls, fresh: bool | None, audit: int, seed: int | None, runs: bool, environ: Mapping[str, str]) -> Use:
        """What somebody asked for. Unasked, nothing is taken over where `runs` themselves are wanted, nor in CI, where
        a record may come from anywhere.

        Keeps: MUT-44.
        """
        if fresh and audit:
            raise UsageError("--audit tries what is taken over, and --fresh takes nothing over: choose one of them")
        if fresh is None:
            fresh = not audit and (runs or _in_ci(environ))
        return cls(fresh, audit, random.SystemRandom().randrange(SEED_MAX) if seed is None else seed)


def _in_ci(environ: Mapping[str, str]) -> bool:
    """Whether ``CI`` is set to anything but a spelled-out no.

    Keeps: MUT-44.
    """
    return environ.get("CI", "").strip().lower() not in ("", "0", "false", "no")


@dataclass
class Replayed:
    """An outcome, of which `reused` verdicts are earlier ones, and what an audit of `audited` more came to."""

    outcome: Outcome
    reused: int = 0
    audited: list[str] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """That of the outcome, unless the history was wrong: then no verdict that was taken over counts.

        Keeps: MUT-45.
        """
        if self.disagreements and self.outcome.exit_code != RED_BASELINE:
            return DISAGREED
        return self.outcome.exit_code


def replay(project: Project, mutations: Sequence[Mutation], python: str, use: Use, run: Run) -> Replayed:
    """Replay `mutations` by `run`, less those whose last verdict still holds, and keep the record.

    The outcome has a result for each mutation, in their order; a red baseline has none, and leaves the record alone.
    Keeps: MUT-40, MUT-43.
    """
    began = time.monotonic()
    present = record.Present(project)
    held = {} if use.fresh else holding(present, mutations, python)
    sample = audited(held, use)
    known = taken_over(mutations, held, sample)
    left = [mutation for mutation in mutations if mutation.id not in known]
    basis = record.Basis.of(present, left, python)
    outcome = run(left) if left else Outcome(basis.around.python, 0, Baseline())
    if outcome.baseline.red:
        return Replayed(outcome)
    record.update(project, outcome, basis)
    ran = {result.mutation.id: result for result in outcome.results}
    outcome.results = [ran.get(one.id) or _earlier(one, held[one.id]) for one in mutations]
    outcome.wall_seconds = time.monotonic() - began
    return Replayed(outcome, len(known), sample, [*_disagreements(sample, held, ran)])


def holding(present: record.Present, mutations: Sequence[Mutation], python: str) -> dict[str, record.Entry]:
    """The entries of `mutations` that may be taken over for a replay with `python`.

    Keeps: MUT-40, MUT-42.
    """
    around = present.around(python)
    entries = record.load(present.project)
    for mutation in mutations:
        present.tree.know(mutation)
    return {
        mutation.id: entry
        for mutation in mutations
        if (entry := entries.get(mutation.id)) is not None
        and entry.verdict in {*SURE, mutation.expect}
        and entry.surroundings == around.digest != ""
        and not present.tree.changed(entry.files)
    }


def audited(held: Mapping[str, record.Entry], use: Use) -> list[str]:
    """The ids that an audit runs although they could be taken over: the same for the same seed.

    Keeps: MUT-45.
    """
    chance = random.Random(use.seed)  # noqa: S311 - a sample that can be drawn again, not a secret.
    return sorted(chance.sample(sorted(held), min(use.audit, len(held))))


def taken_over(mutations: Sequence[Mutation], held: Mapping[str, record.Entry], sample: Sequence[str]) -> set[str]:
    """The ids that nothing is run for. A canary tries the rig, so it is run whenever anything is.

    Keeps: MUT-40.
    """
    known = set(held) - set(sample)
    if len(known) == len(mutations):
        return known
    return known - {mutation.id for mutation in mutations if mutation.canary}


def _earlier(mutation: Mutation, entry: record.Entry) -> Result:
    judgement = Judgement(Verdict(entry.verdict), entry.reason, entry.killed_by)
    return Result(mutation, judgement, 0.0, reused=True)


def _disagreements(sample: Sequence[str], held: Mapping[str, record.Entry], ran: Mapping[str, Result]) -> list[str]:
    """What an audit found: every verdict that a run does not confirm.

    Keeps: MUT-45.
    """
    return [
        f"{name}: the history says {held[name].verdict}, a run says {ran[name].verdict}, and nothing that the history"
        f" watches has changed: do not trust it, replay with --fresh"
        for name in sample
        if ran[name].verdict.value != held[name].verdict
    ]
