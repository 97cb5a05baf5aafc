"""Whole replays of the shop: every verdict there is, from a real run."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lastbus.proof.baseline import Baseline
from lastbus.proof.replay import Outcome, _Round
from lastbus.proof.verdict import Verdict
from tests.proof.inside import IN_WARM, Inside
from tests.proof.sample import ADD, CODE, FULL, HAS_SUBTESTS, TESTS, UNMARKED, Sample, shop

EXTRA = """

@pytest.fixture
def filled():
    return shop.full(9) or 1 / 0


@pytest.mark.guarantee("SUM-01")
def test_with_a_setup(filled):
    assert filled


@pytest.mark.guarantee("SUM-01")
def test_that_may_be_skipped():
    if shop.add(1, 1) != 2:
        pytest.skip("no sums today")


@pytest.mark.guarantee("SUM-01")
@pytest.mark.parametrize("one", [1, 2])
def test_of_several(one):
    assert shop.add(one, 1) == one + 1
"""

NAMED = """
import pytest
import shop


@pytest.mark.guarantee("SUM-01")
@pytest.mark.parametrize("one", [1], ids=lambda one: str(shop.add(one, 1)))
def test_named(one):
    assert one
"""

SUBTESTS = """
import pytest
import shop


@pytest.mark.guarantee("SUM-01")
def test_parts(subtests):
    with subtests.test("sum"):
        assert shop.add(1, 1) == 2
"""

one_worker = pytest.mark.xdist_group("verdicts")
"""Tests that share the big replay stay on one worker, so that it is made once."""
ONCE = "from pathlib import Path; seen = Path({mark!r}); new = not seen.exists(); seen.touch()\n    "


def _write_mutations(sample: Sample, folder: Path) -> None:
    once = ONCE.format(mark=str(folder / "once"))
    sample.mutate("killed")
    sample.mutate("survived", new="return two + one")
    sample.mutate("elsewhere", killers=[UNMARKED])
    sample.mutate("subfailed-only", killers=["tests/test_parts.py::test_parts"])
    sample.mutate("flaky", old="    return one + two", new=f"    {once}return one + two if new else 0")
    sample.mutate("hang", new="while True: pass", limit_seconds=0.2)
    sample.mutate("timeout", new="import time; time.sleep(0.35); return 0", limit_seconds=0.2)
    sample.mutate("import-error", old="LIMIT = 3", new="LIMIT = 3 / 0")
    sample.mutate("collect-error", new="raise KeyError", killers=["tests/test_named.py::test_named[2]"])
    sample.mutate("setup-error", old="count >= LIMIT", new="False", killers=["tests/test_shop.py::test_with_a_setup"])
    sample.mutate("not-run", killers=["tests/test_shop.py::test_that_may_be_skipped"])
    sample.mutate("anchor-lost", old="return three")
    sample.mutate("anchor-ambiguous", old="return ", new="yield ")
    sample.mutate("no-op", new="return one + two  # or more")
    sample.mutate("unparsable", new="return one +")
    sample.mutate("canary-survives", new="return two + one", expect="survived")
    sample.mutate("canary-hangs", new="while True: pass", expect="hang", limit_seconds=0.2)
    sample.mutate("missing", killers=["tests/test_shop.py::test_gone"])
    sample.mutate("no-file", killers=["tests/test_gone.py::test_gone"])
    sample.mutate("several", killers=["tests/test_shop.py::test_of_several"])
    sample.mutate("one-of-several", killers=["tests/test_shop.py::test_of_several[2]"])
    sample.mutate("dies", new="import os; os._exit(3)")


@pytest.fixture(scope="session")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """One replay of a shop with a mutation for every verdict, on two copies."""
    folder = tmp_path_factory.mktemp("verdicts")
    sample = shop(folder / "shop")
    sample.write("tests/test_shop.py", TESTS + EXTRA)
    sample.write("tests/test_named.py", NAMED)
    sample.write("tests/test_parts.py", SUBTESTS if HAS_SUBTESTS else SUBTESTS.replace("(subtests)", "()"))
    _write_mutations(sample, folder)
    if not HAS_SUBTESTS:
        (sample.root / "mutations/sum/subfailed-only.json").unlink()
    before = sample.digest()
    yield sample.replay(jobs=2)
    assert sample.digest() == before


def verdict(outcome: Outcome, name: str) -> str:
    return next(str(result.verdict) for result in outcome.results if result.mutation.id == name)


def reason(outcome: Outcome, name: str) -> str:
    return next(result.judgement.reason for result in outcome.results if result.mutation.id == name)


@pytest.mark.parametrize("word", list(Verdict), ids=str)
@one_worker
def test_every_verdict_comes_from_a_real_run(outcome, word):
    if word is Verdict.SUBFAILED_ONLY and not HAS_SUBTESTS:
        pytest.skip("this pytest has no subtests")
    assert verdict(outcome, str(word)) == str(word)


@pytest.mark.guarantee("MUT-18")
@one_worker
def test_canaries_are_replayed_and_counted_apart(outcome):
    assert {result.mutation.id: str(result.verdict) for result in outcome.canaries} == {
        "canary-survives": "survived",
        "canary-hangs": "hang",
    }
    assert all(result.as_expected for result in outcome.canaries)
    assert outcome.summary["survived"] == outcome.summary["hang"] == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "does not exist"),
        ("no-file", "does not exist"),
        ("several", "name one, such as tests/test_shop.py::test_of_several[1]"),
        ("dies", "the process died in tests/test_shop.py::test_add_gives_the_sum"),
    ],
)
@one_worker
def test_a_killer_without_a_result_is_explained(outcome, name, words):
    assert verdict(outcome, name) == "not-run"
    assert words in reason(outcome, name)


@one_worker
def test_one_parametrisation_kills(outcome):
    assert verdict(outcome, "one-of-several") == "killed"


@pytest.mark.guarantee("MUT-08")
@one_worker
def test_the_summary_counts_the_results(outcome):
    assert sum(outcome.summary.values()) == len(outcome.results) - len(outcome.canaries)
    assert outcome.summary["killed"] == 2


@pytest.mark.guarantee("MUT-11")
@one_worker
def test_the_version_is_that_of_the_interpreter_that_ran(outcome):
    assert outcome.python == sys.version.split()[0]


@pytest.mark.guarantee("MUT-18")
def test_a_killed_canary_fails_the_replay(sample, inside):
    sample.mutate("canary", expect="survived")

    assert sample.replay().exit_code == 1


@pytest.mark.guarantee("MUT-07")
def test_a_copy_is_clean_again_before_the_next_mutation(sample, runs):
    sample.mutate("add-wrong")
    sample.mutate("harmless", new="return two + one", killers=[ADD, FULL, UNMARKED])
    before = sample.digest()

    assert sample.verdicts() == {"add-wrong": "killed", "harmless": "survived"}
    assert sample.digest() == before


@pytest.mark.guarantee("MUT-17")
def test_equal_size_and_time_do_not_bring_back_old_bytecode(sample):
    sample.mutate("minus", new="return one - two")
    sample.mutate("times", new="return one * two", killers=[ADD])
    sample.mutate("same", new="return two + one")

    assert sample.verdicts() == {"minus": "killed", "same": "survived", "times": "killed"}


@pytest.mark.guarantee("MUT-17")
def test_programs_that_a_test_starts_run_the_mutated_code(sample):
    sample.write(
        "tests/test_program.py",
        "import subprocess, sys\nimport pytest\n\n"
        '@pytest.mark.guarantee("SUM-01")\ndef test_program():\n'
        '    code = "import shop; print(shop.add(2, 3))"\n'
        "    assert subprocess.check_output([sys.executable, '-c', code]).strip() == b'5'\n",
    )
    sample.mutate("add-wrong", killers=["tests/test_program.py::test_program"])

    assert sample.verdicts() == {"add-wrong": "killed"}


@pytest.mark.guarantee("MUT-17")
def test_an_installed_copy_is_not_what_is_tested(sample, tmp_path, monkeypatch):
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed/shop.py").write_text(CODE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    sample.mutate("add-wrong")

    assert sample.verdicts() == {"add-wrong": "killed"}


def test_without_fork_the_verdicts_are_the_same(sample):
    sample.mutate("killed")
    sample.mutate("survived", new="return two + one")
    sample.mutate("hang", new="while True: pass", limit_seconds=0.2)
    sample.mutate("dies", new="import os; os._exit(3)")

    words = sample.verdicts(isolated=True, jobs=2)

    assert words == {"dies": "not-run", "hang": "hang", "killed": "killed", "survived": "survived"}


@pytest.mark.guarantee("MUT-05")
def test_a_test_that_pytest_timeout_would_fail_is_no_kill(sample, monkeypatch):
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    sample.write("tests/test_shop.py", TESTS.replace("def test_add", "@pytest.mark.timeout(0.05)\ndef test_add"))
    sample.mutate("slow", new="import time; time.sleep(0.2); return one + two")

    assert sample.verdicts() == {"slow": "survived"}


HANG = {"inside": "raise TimeoutError", "processes": "while True: pass"}
"""Code that makes a run end at its limit, by where it runs."""


@pytest.mark.guarantee("MUT-27")
def test_where_warm_and_isolated_runs_differ_the_isolated_verdict_counts_and_it_is_told(sample, runs):
    sample.mutate("seems-to-survive", new=f"return one + two if {IN_WARM} else 0")
    sample.mutate("seems-to-hang", new=f"if {IN_WARM}:\n        {HANG[runs]}\n    return 0", limit_seconds=0.3)
    sample.mutate("survives", new="return two + one")

    told = {result.mutation.id: (str(result.verdict), result.disagreement) for result in sample.replay().results}

    assert told == {
        "seems-to-survive": ("killed", "warm: survived, isolated: killed"),
        "seems-to-hang": ("killed", "warm: timeout, isolated: killed"),
        "survives": ("survived", ""),
    }


@pytest.mark.guarantee("MUT-26")
def test_a_killer_that_does_not_pass_warm_is_never_judged_warm(sample, runs):
    sample.write("tests/test_shop.py", TESTS.replace("== 5", f"== 5\n    assert not {IN_WARM}"))
    sample.mutate("wrong")
    sample.mutate("fullness", guarantees=["SUM-02"], old="count >= LIMIT", new="False", killers=[FULL])

    outcome = sample.replay()

    assert list(outcome.baseline.cold) == [ADD]
    assert [(result.verdict, result.how) for result in outcome.results] == [("killed", "warm"), ("killed", "fresh")]


def counting(file: Path, then: str) -> str:
    """Code that finds out how often it ran before, as `n`."""
    return (
        f"from pathlib import Path; file = Path({str(file)!r}); n = file.stat().st_size if file.exists() else 0\n    "
        f"file.write_text('x' * (n + 1))\n    {then}"
    )


@pytest.mark.guarantee("MUT-30")
def test_a_kill_that_does_not_happen_again_is_flaky(sample, inside, tmp_path):
    sample.mutate("now-and-then", new=counting(tmp_path / "n", "return one + two if n % 2 else 0"))
    sample.mutate("always", new="return 0")

    assert sample.verdicts() == {"always": "killed", "now-and-then": "killed"}
    (tmp_path / "n").unlink()
    assert sample.verdicts(confirm=1) == {"always": "killed", "now-and-then": "flaky"}
    (tmp_path / "n").unlink()
    assert sample.verdicts(suspects=["now-and-then"]) == {"always": "killed", "now-and-then": "flaky"}


@pytest.mark.guarantee("MUT-30")
def test_a_killer_that_fails_unmutated_after_its_baseline_is_flaky(sample, inside, tmp_path):
    unstable = counting(tmp_path / "n", "assert n < 1")
    sample.write("tests/test_shop.py", TESTS.replace("assert shop.add(2, 3) == 5", unstable))
    sample.mutate("wrong")

    outcome = sample.replay(confirm=1)

    assert [str(result.verdict) for result in outcome.results] == ["flaky"]
    assert "unmutated, after the baseline" in outcome.results[0].judgement.reason


@pytest.mark.parametrize(("jobs", "copies"), [(1, 1), (2, 2), (9, 3)])
def test_there_are_no_more_copies_than_mutations_and_what_waits_is_shared_out(sample, monkeypatch, jobs, copies):
    made: list[Inside] = []

    class Counted(Inside):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr("lastbus.proof.replay.Slot", Counted)
    for name in ("one", "two", "three"):
        sample.mutate(name)

    results = sample.replay(jobs=jobs).results

    assert len(made) == copies
    assert {result.mutation.id: str(result.verdict) for result in results} == dict.fromkeys(
        ["one", "three", "two"], "killed"
    )


def test_a_job_that_is_done_goes_on_with_the_last_one_of_the_longest_line(sample):
    one, two, three = (sample.mutate(name) for name in ("one", "two", "three"))
    idle, busy, other = (Inside(sample.project, sample.root.parent / str(number), 0, "") for number in range(3))
    waiting: Any = {idle: deque(), busy: deque([one, two]), other: deque([three])}
    waits = _Round(sample.project, waiting, Baseline(), lambda _: None, {})

    assert [waits._next(slot) for slot in (idle, busy, idle)] == [two, one, three]
