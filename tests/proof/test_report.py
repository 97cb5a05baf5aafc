"""What people and programs read of an outcome."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lastbus.proof import ledger, report
from lastbus.proof.baseline import Baseline
from lastbus.proof.replay import Outcome, Result
from lastbus.proof.verdict import Judgement, Verdict
from tests.proof.sample import ADD, Sample


def result(sample: Sample, name: str, verdict: Verdict, **changes: object) -> Result:
    return Result(sample.mutate(name, **changes), Judgement(verdict, "because", {ADD: ("SUM-01",)}), 0.25)


@pytest.fixture
def outcome(sample: Sample) -> Outcome:
    """Two killed, one survivor, one good and one dead canary."""
    results = [
        result(sample, "one", Verdict.KILLED),
        result(sample, "two", Verdict.KILLED),
        result(sample, "three", Verdict.SURVIVED),
        result(sample, "bird", Verdict.SURVIVED, expect="survived"),
        result(sample, "dead-bird", Verdict.KILLED, expect="hang"),
    ]
    return Outcome("3.11.7", 2, Baseline(carries={ADD: ("SUM-01",)}), results, 1.5)


@pytest.mark.guarantee("MUT-08", "MUT-18")
def test_canaries_are_not_in_the_summary(outcome):
    assert outcome.summary == {"killed": 2, "survived": 1}
    assert [one.as_expected for one in outcome.canaries] == [True, False]


@pytest.mark.guarantee("MUT-11")
def test_json_tells_the_interpreter_the_baseline_and_every_result(outcome):
    body = json.loads(json.dumps(report.to_json(outcome)))

    assert (body["python"], body["jobs"], body["wall_seconds"]) == ("3.11.7", 2, 1.5)
    assert body["baseline"]["tests"] == 1
    assert body["results"][0] == {
        "id": "one",
        "guarantees": ["SUM-01"],
        "verdict": "killed",
        "expect": "killed",
        "killers": [ADD],
        "killed_by": {ADD: ["SUM-01"]},
        "reason": "because",
        "how": "",
        "reused": False,
        "disagreement": "",
        "seconds": 0.25,
    }
    assert body["summary"] == {"killed": 2, "survived": 1}
    assert body["canaries"] == {"as_expected": 1, "total": 2}


def test_a_kill_is_one_line_and_a_survivor_says_why_and_where(outcome):
    lines = [report.result_line(one) for one in outcome.results]

    assert lines[0] == "killed           one"
    assert lines[2] == "survived         three\n  because\n  mutations/sum/three.json -> src/shop.py"
    assert lines[3] == "survived         bird (canary, as expected)"
    assert lines[4].startswith("killed           dead-bird, expected hang\n")


@pytest.mark.guarantee("MUT-27")
def test_looks_that_differed_are_told_even_of_a_kill(outcome):
    told = replace(outcome.results[0], disagreement="warm: survived, isolated: killed")

    assert report.result_line(told) == (
        "killed           one (warm: survived, isolated: killed: the isolated verdict counts)"
    )


def test_the_summary_line_counts_canaries_apart(outcome):
    assert report.summary_line(outcome) == (
        "2 killed, 1 survived; canaries 1 of 2 as expected; 1.5 s on Python 3.11.7 with 2 job(s)"
    )


def test_the_summary_line_of_nothing_says_so():
    assert report.summary_line(Outcome("3.11.7", 1, Baseline(), [], 0.0)) == (
        "no mutations; 0.0 s on Python 3.11.7 with 1 job(s)"
    )


@pytest.mark.guarantee("MUT-06")
def test_a_red_baseline_names_what_failed(outcome):
    outcome.baseline.red[ADD] = "assert 5 == 6\nmore"

    assert list(report.red_lines(outcome))[1:] == [f"  {ADD}: assert 5 == 6"]


def test_evidence_is_a_report_and_a_folder_per_mutation(outcome, sample, tmp_path):
    report.write(tmp_path / "out", report.Account.of(sample.project, outcome, ledger.read(sample.project)))

    diff = (tmp_path / "out/one/mutation.diff").read_text()
    assert "-    return one + two\n+    return one - two\n" in diff
    assert (tmp_path / "out/three/verdict.txt").read_text().startswith("survived")
    assert len(json.loads((tmp_path / "out/report.json").read_text())["ledger"]) == 2


@pytest.mark.guarantee("MUT-21")
def test_a_row_shows_all_four_places_and_what_is_missing(sample):
    sample.mutate("one")

    lines = list(report.row_lines(ledger.read(sample.project).row("SUM-01")))

    assert lines[0] == "SUM-01 Adding [unpinned]"
    assert [line.split()[0] for line in lines[2:]] == ["document", "code", "test", "mutation", "missing"]
    assert "never replayed" in lines[-1]


def test_the_ledger_line_counts_every_status_and_the_errors(sample):
    sample.mutate("one")
    sample.record(Outcome("3.11.7", 1, Baseline(), [result(sample, "one", Verdict.KILLED)]))
    sample.write("src/more.py", '"""Keeps: SUM-09."""\n')

    assert report.ledger_line(ledger.read(sample.project)) == (
        "2 guarantees: 1 pinned, 1 unpinned, 0 declared; 1 errors"
    )


@pytest.mark.guarantee("MUT-21")
def test_a_row_says_what_the_last_replay_said_and_whether_that_still_counts(sample):
    def said() -> str:
        lines = report.row_lines(ledger.read(sample.project).row("SUM-01"))
        return next(line for line in lines if line.startswith("  mutation"))

    sample.record(Outcome("3.11.7", 1, Baseline(), [result(sample, "one", Verdict.KILLED)], 1.5))

    assert said() == "  mutation  mutations/sum/one.json: killed"
    sample.write("src/shop.py", (sample.root / "src/shop.py").read_text() + "# another line\n")
    assert said() == "  mutation  mutations/sum/one.json: killed (stale)"
