"""What a run says: pure facts in, one word out."""

from __future__ import annotations

import pytest

from lastbus.proof.verdict import (
    Broken,
    Judgement,
    Report,
    Run,
    Verdict,
    agreed,
    exit_code,
    judge,
    settle,
    wants_second_run,
)

KILLER = "tests/test_a.py::test_a"
OTHER = "tests/test_a.py::test_b"
CARRIES = {KILLER: ("SUM-01",), OTHER: ()}


def report(test: str = KILLER, when: str = "call", outcome: str = "failed", subtest: bool = False) -> Report:
    return Report(test, when, outcome, subtest)


def verdict(*reports: Report, killers: tuple[str, ...] = (KILLER,), **facts: object) -> Verdict:
    return judge(Run(reports, **facts), killers, ("SUM-01",), CARRIES).verdict  # type: ignore[arg-type]


@pytest.mark.guarantee("MUT-10")
def test_a_mapped_test_that_carries_the_guarantee_kills_by_failing():
    judgement = judge(Run([report()]), [KILLER], ["SUM-01"], CARRIES)

    assert judgement.verdict is Verdict.KILLED
    assert judgement.killed_by == {KILLER: ("SUM-01",)}


@pytest.mark.guarantee("MUT-10")
def test_a_failed_killer_without_the_guarantee_is_elsewhere():
    assert verdict(report(OTHER), killers=(OTHER,)) is Verdict.ELSEWHERE


@pytest.mark.guarantee("MUT-10")
def test_a_failed_test_that_is_no_killer_is_elsewhere():
    judgement = judge(Run([report(OTHER)]), [KILLER], ["SUM-01"], {OTHER: ("SUM-01",)})

    assert judgement.verdict is Verdict.ELSEWHERE


@pytest.mark.guarantee("MUT-04")
def test_failed_subtests_alone_are_subfailed_only():
    assert verdict(report(subtest=True), report(outcome="passed")) is Verdict.SUBFAILED_ONLY


@pytest.mark.guarantee("MUT-04")
def test_a_killer_that_fails_beside_its_subtests_kills():
    assert verdict(report(subtest=True), report()) is Verdict.KILLED


@pytest.mark.guarantee("MUT-04")
@pytest.mark.parametrize("when", ["setup", "teardown"])
def test_a_failure_outside_the_call_phase_is_a_setup_error(when):
    assert verdict(report(outcome="passed"), report(when=when)) is Verdict.SETUP_ERROR


@pytest.mark.guarantee("MUT-05")
def test_a_run_that_was_stopped_is_not_a_kill_even_if_a_test_had_failed():
    assert verdict(report(), ended="stopped") is Verdict.TIMEOUT


@pytest.mark.guarantee("MUT-05")
@pytest.mark.parametrize(("kind", "word"), [("import", Verdict.IMPORT_ERROR), ("collect", Verdict.COLLECT_ERROR)])
def test_broken_collection_is_not_a_kill(kind, word):
    assert verdict(broken=[Broken(kind, "tests/test_a.py")]) is word


@pytest.mark.guarantee("MUT-05")
def test_a_process_that_died_is_not_a_kill():
    assert verdict(ended="died") is Verdict.NOT_RUN


@pytest.mark.guarantee("MUT-05")
@pytest.mark.parametrize("reports", [[], [report(outcome="skipped")], [report(when="setup", outcome="skipped")]])
def test_a_killer_without_a_result_is_not_run(reports):
    assert verdict(*reports) is Verdict.NOT_RUN


def test_killers_that_all_pass_are_a_survivor():
    assert verdict(report(outcome="passed")) is Verdict.SURVIVED


def test_a_canary_without_guarantees_counts_any_failed_killer():
    assert judge(Run([report(OTHER)]), [OTHER], [], {}).verdict is Verdict.KILLED


@pytest.mark.guarantee("MUT-14")
@pytest.mark.parametrize("word", [word for word in Verdict if word is not Verdict.KILLED])
def test_everything_but_a_kill_is_looked_at_twice(word):
    assert wants_second_run(Judgement(word), "killed")
    assert not wants_second_run(Judgement(Verdict.KILLED), "killed")


@pytest.mark.guarantee("MUT-14")
def test_two_runs_that_disagree_are_flaky():
    assert settle(Judgement(Verdict.SURVIVED), Judgement(Verdict.KILLED), False).verdict is Verdict.FLAKY


@pytest.mark.guarantee("MUT-14")
def test_two_runs_that_agree_stand():
    assert settle(Judgement(Verdict.SURVIVED), Judgement(Verdict.SURVIVED), False).verdict is Verdict.SURVIVED


@pytest.mark.guarantee("MUT-14", "MUT-27")
@pytest.mark.parametrize(
    ("firsts", "isolated", "word"),
    [
        ("survived survived", "killed killed", "killed"),
        ("survived killed", "killed killed", "flaky"),
        ("survived survived", "killed survived", "flaky"),
    ],
)
def test_a_place_that_agrees_with_itself_is_believed_and_isolation_first(firsts, isolated, word):
    looks = [[Judgement(Verdict(word)) for word in words.split()] for words in (firsts, isolated)]

    assert agreed(*looks).verdict == word


@pytest.mark.guarantee("MUT-05")
def test_over_the_limit_twice_is_a_hang():
    assert settle(Judgement(Verdict.TIMEOUT), Judgement(Verdict.TIMEOUT), True).verdict is Verdict.HANG


@pytest.mark.guarantee("MUT-05")
def test_a_kill_that_comes_late_is_a_timeout():
    assert settle(Judgement(Verdict.TIMEOUT), Judgement(Verdict.KILLED), True).verdict is Verdict.TIMEOUT


@pytest.mark.guarantee("MUT-05")
def test_a_second_run_in_time_decides():
    assert settle(Judgement(Verdict.TIMEOUT), Judgement(Verdict.KILLED), False).verdict is Verdict.KILLED


@pytest.mark.guarantee("MUT-20")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("killed", 0),
        ("killed survived", 1),
        ("elsewhere", 1),
        ("subfailed-only", 1),
        ("flaky", 1),
        ("survived hang", 5),
        ("timeout", 5),
        ("survived hang no-op", 4),
        ("anchor-lost", 4),
        ("anchor-ambiguous", 4),
        ("unparsable", 4),
        ("not-run", 4),
        ("import-error", 4),
        ("collect-error", 4),
        ("setup-error", 4),
    ],
)
def test_the_exit_code_tells_the_worst(words, code):
    assert exit_code([(Verdict(word), "killed") for word in words.split()]) == code


@pytest.mark.guarantee("MUT-18")
def test_a_canary_is_right_when_it_is_not_killed():
    assert exit_code([(Verdict.SURVIVED, "survived"), (Verdict.HANG, "hang")]) == 0
    assert exit_code([(Verdict.KILLED, "survived")]) == 1
