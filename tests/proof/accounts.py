"""Accounts for the tests of reports: made-up results on the shop, without a replay."""

from __future__ import annotations

from typing import Any

from lastbus.proof import ledger
from lastbus.proof.baseline import Baseline
from lastbus.proof.replay import Outcome, Result
from lastbus.proof.report import Account
from lastbus.proof.verdict import Judgement, Verdict
from tests.proof.sample import ADD, FULL, Sample

BREAKS_FULL = {"guarantees": ["SUM-02"], "old": ">= LIMIT", "new": "> LIMIT", "killers": [FULL]}


def result(sample: Sample, name: str, verdict: Verdict, reason: str = "because", **changes: Any) -> Result:
    """A result as if a replay had given it; `changes` are those of the mutation."""
    mutation = sample.mutate(name, **changes)
    killed_by = {mutation.killers[0]: mutation.guarantees} if verdict is Verdict.KILLED else {}
    return Result(mutation, Judgement(verdict, reason, killed_by), 0.25, "the log")


def account_of(sample: Sample, *results: Result, red: dict[str, str] | None = None) -> Account:
    """The account of these results, after they have been recorded as a replay would."""
    baseline = Baseline(carries={ADD: ("SUM-01",), FULL: ("SUM-02",)}, red=red or {}, wall_seconds=0.5)
    outcome = Outcome("3.11.7", 2, baseline, list(results), 1.5)
    sample.record(outcome)
    return Account.of(sample.project, outcome, ledger.read(sample.project))


def proven(sample: Sample) -> Account:
    """The account of a shop in which everything is pinned."""
    return account_of(
        sample,
        result(sample, "add-wrong", Verdict.KILLED),
        result(sample, "full-late", Verdict.KILLED, **BREAKS_FULL),
        result(sample, "bird", Verdict.SURVIVED, expect="survived", guarantees=[]),
    )
