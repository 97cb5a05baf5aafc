"""Why a verdict was given: each reason names what somebody must look at."""

from __future__ import annotations

import pytest

from lastbus.proof.verdict import (
    Broken,
    Judgement,
    Report,
    Run,
    Verdict,
    agreed,
    flaky,
    judge,
    settle,
    wants_second_run,
)

KILLER = "tests/test_a.py::test_a"
OTHER = "tests/test_a.py::test_b"
PASSED = Report(KILLER, "call", "passed")


def said(*reports: Report, **facts: object) -> tuple[Verdict, str]:
    judgement = judge(Run(reports, **facts), [KILLER], ["SUM-01"], {KILLER: ("SUM-01",)})  # type: ignore[arg-type]
    return judgement.verdict, judgement.reason


@pytest.mark.guarantee("MUT-05")
@pytest.mark.parametrize(
    ("reports", "facts", "verdict", "reason"),
    [
        ([Report(KILLER, "call", "failed", message="5 != 6")], {}, Verdict.KILLED, "5 != 6"),
        ([PASSED], {}, Verdict.SURVIVED, "every killer passed"),
        ([], {"ended": "stopped", "doing": "test_a"}, Verdict.TIMEOUT, "over its limit in test_a"),
        ([], {"broken": [Broken("import", "a.py", "no b")]}, Verdict.IMPORT_ERROR, "a.py: no b"),
        ([], {"broken": [Broken("collect", "a.py", "no c")]}, Verdict.COLLECT_ERROR, "a.py: no c"),
        ([], {"ended": "died", "doing": "test_a"}, Verdict.NOT_RUN, "the process died in test_a"),
        ([], {}, Verdict.NOT_RUN, f"no result from {KILLER} (missing or skipped)"),
        (
            [Report(KILLER, "setup", "failed", message="no server")],
            {},
            Verdict.SETUP_ERROR,
            f"{KILLER} in setup: no server",
        ),
        (
            [Report(OTHER, "call", "failed")],
            {},
            Verdict.ELSEWHERE,
            f"failed, but carries none of the guarantees: {OTHER}",
        ),
        ([Report(KILLER, "call", "failed", True)], {}, Verdict.SUBFAILED_ONLY, f"only subtests of {KILLER} failed"),
    ],
    ids=lambda value: str(value) if isinstance(value, Verdict) else "",
)
def test_every_verdict_on_one_run_says_why(reports, facts, verdict, reason):
    assert said(*reports, **facts) == (verdict, reason)


@pytest.mark.guarantee("MUT-05")
def test_a_process_that_died_after_every_killer_passed_is_no_survivor():
    assert said(PASSED, ended="died", doing="the end") == (Verdict.NOT_RUN, "the process died in the end")


def test_the_reason_of_a_kill_is_what_its_killer_said_and_no_other_test():
    reports = [
        Report(OTHER, "call", "failed", message="another"),
        Report(KILLER, "setup", "passed", message="set up"),
        Report(KILLER, "call", "failed", message="its own"),
    ]

    assert said(*reports) == (Verdict.KILLED, "its own")


@pytest.mark.guarantee("MUT-14")
@pytest.mark.parametrize(
    ("word", "expect", "again"),
    [
        (Verdict.KILLED, "killed", False),
        (Verdict.SURVIVED, "killed", True),
        (Verdict.SURVIVED, "survived", False),
        (Verdict.SURVIVED, "hang", True),
        (Verdict.HANG, "survived", True),
    ],
)
def test_only_a_kill_and_an_expected_survivor_need_no_second_look(word, expect, again):
    assert wants_second_run(Judgement(word), expect) is again


def test_a_second_look_says_what_both_said():
    over, late = Judgement(Verdict.TIMEOUT, "over its limit in a"), Judgement(Verdict.KILLED, "5 != 6")

    assert settle(over, over, False).reason == "over its limit in a, again when run alone with a longer limit"
    assert settle(over, late, True).reason == "over its limit in a; alone it ended late as killed"


def test_looks_that_differ_are_all_named_with_the_last_reason():
    looks = [Judgement(Verdict.SURVIVED, "one"), Judgement(Verdict.KILLED, "two"), Judgement(Verdict.HANG, "three")]

    assert flaky(looks) == Judgement(Verdict.FLAKY, "first survived, then killed, hang: three")


@pytest.mark.guarantee("MUT-27")
def test_where_each_place_agrees_with_itself_the_last_isolated_look_is_reported():
    firsts = [Judgement(Verdict.SURVIVED)] * 2
    isolated = [Judgement(Verdict.KILLED, str(number)) for number in range(3)]

    assert agreed(firsts, isolated).reason == "2"
