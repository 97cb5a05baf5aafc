"""What a baseline says of a killer without a result."""

from __future__ import annotations

import pytest

from lastbus.proof.baseline import _absence, _red
from lastbus.proof.notes import Notes
from lastbus.proof.verdict import Broken, Report, Run
from tests.proof.sample import ADD, FULL

PASSED = Run([Report(ADD, "setup", "passed"), Report(ADD, "call", "passed")])
SKIPPED = Run([Report(ADD, "setup", "skipped")])
EXPECTED = Run([Report(ADD, "call", "skipped")])


@pytest.mark.guarantee("MUT-06")
@pytest.mark.parametrize(
    ("run", "notes", "words"),
    [
        (PASSED, Notes(), ""),
        (SKIPPED, Notes(carries={ADD: ("SUM-01",)}), "is skipped or expected to fail: a killer must run"),
        (EXPECTED, Notes(carries={ADD: ()}), "is skipped or expected to fail: a killer must run"),
        (Run(), Notes(hints={ADD: [f"{ADD}[1]"]}), f"has several parametrisations: name one, such as {ADD}[1]"),
        (Run(), Notes(hints={ADD: []}), "does not exist: correct the node id"),
    ],
    ids=["passed", "skipped", "xfail", "parametrised", "missing"],
)
def test_a_killer_without_a_result_is_named_with_what_to_do(run, notes, words):
    assert _absence(ADD, run, notes) == (f"{ADD} {words}" if words else "")


@pytest.mark.guarantee("MUT-06")
def test_killers_that_fail_are_red_and_all_of_them_are_if_the_run_was_cut_short():
    failed = Notes(reports=[Report(ADD, "setup", "failed", False, "no till"), Report(FULL, "call", "passed")])

    assert _red([ADD, FULL], Run(), failed) == {ADD: "no till"}
    assert _red([ADD, FULL], Run(broken=[Broken("import", "a.py", "oh")]), failed) == dict.fromkeys(
        [ADD, FULL], "a.py: oh"
    )
    assert list(_red([ADD], Run(ended="died", doing=ADD), Notes())) == [ADD]
