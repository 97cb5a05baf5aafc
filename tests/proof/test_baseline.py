"""The baseline: green first, and limits from what it measured."""

from __future__ import annotations

import pytest

from lastbus.proof.baseline import FACTOR, SETUP_FACTOR, STARTUP_FLOOR_SECONDS, Baseline
from lastbus.proof.mutation import Mutation
from tests.proof.sample import ADD, FULL, TESTS, Sample


def mutation(*killers: str, limit_seconds: float | None = None) -> Mutation:
    return Mutation("a", "sum", ("SUM-01",), "", (), killers, "", "", limit_seconds=limit_seconds)


def test_a_quick_killer_gets_the_floor():
    limits = Baseline(floor_seconds=7.0, seconds={ADD: 0.001}).limits(mutation(ADD))

    assert limits.for_test(ADD) == 7.0
    assert limits.startup == STARTUP_FLOOR_SECONDS


def test_a_slow_killer_gets_a_multiple_and_the_slowest_setup():
    limits = Baseline(seconds={ADD: 3.0}, setup_seconds=1.0, startup_seconds=2.0).limits(mutation(ADD))

    assert limits.for_test(ADD) == 3.0 * FACTOR + SETUP_FACTOR
    assert limits.startup == 2.0 * FACTOR


def test_a_limit_in_the_file_wins():
    assert Baseline(seconds={ADD: 3.0}).limits(mutation(ADD, limit_seconds=0.5)).for_test(ADD) == 0.5


@pytest.mark.guarantee("MUT-06")
def test_a_red_baseline_stops_everything(sample: Sample, runs: str):
    sample.write("tests/test_shop.py", TESTS.replace("== 5", "== 6"))
    sample.mutate("add-wrong")
    sample.mutate("full-wrong", guarantees=["SUM-02"], killers=[FULL])

    outcome = sample.replay()

    assert outcome.exit_code == 3
    assert list(outcome.baseline.red) == [ADD]
    assert outcome.results == []


@pytest.mark.guarantee("MUT-06")
@pytest.mark.parametrize("broken", ["import nothing_like_this", "assert False"])
def test_a_baseline_that_cannot_be_collected_is_red(sample: Sample, runs: str, broken: str):
    sample.write("tests/conftest.py", broken)
    sample.mutate("add-wrong")

    assert list(sample.replay().baseline.red) == [ADD]


@pytest.mark.guarantee("MUT-14")
def test_a_killer_that_is_red_once_is_flaky(sample: Sample, inside: None, tmp_path):
    mark = tmp_path / "seen"
    sample.write(
        "tests/test_shop.py",
        TESTS.replace(
            "    assert shop.add(2, 3) == 5",
            f"    from pathlib import Path\n    seen = Path({str(mark)!r})\n    before = seen.exists()\n"
            "    seen.touch()\n    assert before",
        ),
    )
    sample.mutate("add-wrong")

    outcome = sample.replay()

    assert outcome.baseline.red == {}
    assert list(outcome.baseline.unstable) == [ADD]
    assert [str(result.verdict) for result in outcome.results] == ["flaky"]
