"""The report in the schema of the mutation-testing elements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from lastbus.proof.report.elements import elements
from lastbus.proof.verdict import Verdict
from tests.proof.accounts import account_of, proven, result
from tests.proof.sample import ADD, FULL

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "mutation-testing-report-schema.json").read_text())


def mutants(body: dict[str, Any]) -> dict[str, Any]:
    return {mutant["id"]: mutant for file in body["files"].values() for mutant in file["mutants"]}


def complaints(body: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft7Validator(SCHEMA).iter_errors(json.loads(json.dumps(body)))]


@pytest.mark.guarantee("MUT-64")
@pytest.mark.parametrize("verdict", list(Verdict), ids=str)
def test_every_verdict_fits_the_published_schema(sample, verdict):
    body = elements(account_of(sample, result(sample, "one", verdict)))

    assert complaints(body) == []
    assert mutants(body)["one"]["statusReason"] == f"{verdict}: because"


def test_the_schema_would_notice_a_wrong_word(sample):
    body = elements(proven(sample))
    body["files"]["src/shop.py"]["mutants"][0]["status"] = "Dead"

    assert len(complaints(body)) == 1


@pytest.mark.guarantee("MUT-64")
@pytest.mark.parametrize("verdict", [word for word in Verdict if word is not Verdict.KILLED], ids=str)
def test_nothing_but_a_kill_counts_as_detected(sample, verdict):
    body = elements(account_of(sample, result(sample, "one", verdict)))

    # Viewers of the schema count a Timeout as detected, like a kill.
    assert mutants(body)["one"]["status"] not in ("Killed", "Timeout")


@pytest.mark.guarantee("MUT-64")
def test_a_mutant_tells_where_it_is_what_it_does_and_who_noticed(sample):
    body = elements(proven(sample))

    assert mutants(body)["full-late"] == {
        "id": "full-late",
        "mutatorName": "sum",
        "description": "The sum is wrong. [SUM-02]",
        "replacement": "> LIMIT",
        "location": {"start": {"line": 19, "column": 18}, "end": {"line": 19, "column": 26}},
        "status": "Killed",
        "statusReason": "killed: because",
        "coveredBy": [FULL],
        "killedBy": [FULL],
        "duration": 250,
    }
    line = body["files"]["src/shop.py"]["source"].splitlines()[18]
    assert line[17:25] == ">= LIMIT"


@pytest.mark.guarantee("MUT-64")
@pytest.mark.parametrize(
    ("verdict", "expect", "status"),
    [
        (Verdict.SURVIVED, "survived", "Ignored"),
        (Verdict.HANG, "hang", "Ignored"),
        (Verdict.KILLED, "survived", "Survived"),
        (Verdict.SURVIVED, "hang", "Survived"),
    ],
    ids=["lives", "hangs", "dead", "does-not-hang"],
)
def test_a_canary_is_never_a_kill(sample, verdict, expect, status):
    body = elements(account_of(sample, result(sample, "bird", verdict, expect=expect)))

    assert mutants(body)["bird"]["status"] == status


def test_tests_are_listed_by_file_with_their_lines(sample):
    body = elements(proven(sample))

    tests = {test["id"]: test for test in body["testFiles"]["tests/test_shop.py"]["tests"]}
    assert tests.keys() == {ADD, FULL}
    assert tests[ADD]["name"] == "test_add_gives_the_sum"
    assert tests[ADD]["location"]["start"]["line"] == 5


@pytest.mark.guarantee("MUT-64")
def test_a_lost_anchor_stands_at_the_first_character(sample):
    body = elements(account_of(sample, result(sample, "lost", Verdict.ANCHOR_LOST, old="nowhere")))

    first = {"line": 1, "column": 1}
    assert mutants(body)["lost"]["location"] == {"start": first, "end": first}
    assert complaints(body) == []


def test_further_edits_are_told(sample):
    edits = [
        {"file": "src/shop.py", "old": "one + two", "new": "one - two"},
        {"file": "tests/test_shop.py", "old": "== 5", "new": "== 6"},
    ]
    body = elements(
        account_of(sample, result(sample, "both", Verdict.SURVIVED, edits=edits, file=None, old=None, new=None))
    )

    assert mutants(body)["both"]["description"].endswith("(further edits in tests/test_shop.py)")


def test_a_file_that_is_gone_has_no_source(sample):
    body = elements(account_of(sample, result(sample, "gone", Verdict.ANCHOR_LOST, file="src/gone.lua")))

    assert body["files"]["src/gone.lua"]["source"] == ""
    assert body["files"]["src/gone.lua"]["language"] == "lua"
    assert complaints(body) == []


@pytest.mark.guarantee("MUT-64")
def test_a_test_in_a_class_is_found_in_its_file_and_keeps_its_name(sample):
    killer = "tests/test_shop.py::TestTill::test_open[a::b]"
    body = elements(account_of(sample, result(sample, "one", Verdict.SURVIVED, killers=[killer])))

    assert [test["name"] for test in body["testFiles"]["tests/test_shop.py"]["tests"]] == ["TestTill::test_open[a::b]"]
