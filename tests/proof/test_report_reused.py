"""Verdicts that were taken over, in every kind of report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from lastbus.proof.report import Account, result_line, to_json
from lastbus.proof.report.elements import elements
from lastbus.proof.report.junit import junit
from lastbus.proof.report.page import page
from lastbus.proof.verdict import Verdict
from tests.proof.accounts import account_of, result

EARLIER = "an earlier verdict that still holds"
REPORTS: dict[str, tuple[Callable[[Account], str], str]] = {
    "terminal": (lambda account: result_line(account.outcome.results[0]), EARLIER),
    "json": (lambda account: json.dumps(to_json(account.outcome)), '"reused": true'),
    "junit": (junit, EARLIER),
    "elements": (lambda account: json.dumps(elements(account)), EARLIER),
    "page": (page, EARLIER),
}


@pytest.mark.guarantee("MUT-60")
@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("verdict", [Verdict.KILLED, Verdict.SURVIVED], ids=str)
def test_a_verdict_that_was_taken_over_says_so(sample, report, verdict):
    write, words = REPORTS[report]
    run = result(sample, "add-wrong", verdict)

    assert words in write(account_of(sample, replace(run, reused=True)))
    assert words not in write(account_of(sample, run))
