"""The report for CI servers."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from lastbus.proof.report.junit import junit
from lastbus.proof.verdict import Verdict
from tests.proof.accounts import account_of, proven, result
from tests.proof.sample import ADD


def cases(text: str) -> dict[str, list[str]]:
    """What each test case has inside, by its name."""
    return {case.get("name", ""): [each.tag for each in case] for case in ET.fromstring(text).iter("testcase")}


@pytest.mark.guarantee("MUT-63")
def test_every_mutation_is_a_test_case_and_what_is_as_expected_passes(sample):
    assert cases(junit(proven(sample))) == {"add-wrong": [], "full-late": [], "bird": []}


@pytest.mark.guarantee("MUT-63")
@pytest.mark.parametrize("verdict", [word for word in Verdict if word is not Verdict.KILLED], ids=str)
def test_what_proves_nothing_is_an_error_and_what_a_test_should_have_seen_a_failure(sample, verdict):
    kind = "failure" if str(verdict) in ("survived", "elsewhere", "subfailed-only", "flaky") else "error"

    text = junit(account_of(sample, result(sample, "one", verdict, "because\nof this")))

    told = ET.fromstring(text).find(f"testsuite/testcase/{kind}")
    assert told is not None
    assert (told.get("type"), told.get("message")) == (str(verdict), f"{verdict}: because")
    assert "of this\nThe sum is wrong.\nmutations/sum/one.json -> src/shop.py" in (told.text or "")


@pytest.mark.guarantee("MUT-63")
def test_a_dead_canary_fails(sample):
    text = junit(account_of(sample, result(sample, "bird", Verdict.KILLED, expect="hang")))

    assert 'type="killed, expected hang"' in text
    assert cases(text) == {"bird": ["failure"]}


@pytest.mark.guarantee("MUT-63")
def test_the_counts_are_those_of_the_cases(sample):
    account = account_of(
        sample,
        result(sample, "one", Verdict.KILLED),
        result(sample, "two", Verdict.SURVIVED),
        result(sample, "three", Verdict.HANG),
    )

    root = ET.fromstring(junit(account))

    assert (root.tag, [each.tag for each in root]) == ("testsuites", ["testsuite"])
    for place in (root, *root.findall("testsuite")):
        counts = {key: place.get(key) for key in ("tests", "failures", "errors", "skipped", "time")}
        assert counts == {"tests": "3", "failures": "1", "errors": "1", "skipped": "0", "time": "0.750"}


@pytest.mark.guarantee("MUT-63")
def test_a_red_baseline_is_an_error_for_each_killer(sample):
    text = junit(account_of(sample, red={ADD: "assert 5 == 6"}))

    assert cases(text) == {ADD: ["error"]}


@pytest.mark.guarantee("MUT-63")
def test_any_output_of_a_test_is_still_xml(sample):
    text = junit(account_of(sample, result(sample, "one", Verdict.SURVIVED, "\x00\x1b[31m<&>\ud800 ]]> é")))

    told = ET.fromstring(text.encode("utf-8")).find("testsuite/testcase/failure")
    assert told is not None
    assert (told.text or "").splitlines()[0] == "\ufffd\ufffd[31m<&>\ufffd ]]> é"
