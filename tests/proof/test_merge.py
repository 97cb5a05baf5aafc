"""Shards and their merge: every mutation once, and nothing that does not belong together."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lastbus.proof.errors import UsageError
from lastbus.proof.merge import merge, run_facts
from lastbus.proof.mutation import Mutation
from lastbus.proof.shard import Shard

COUNTS = st.integers(1, 40)


def some(count: int) -> list[Mutation]:
    return [Mutation(f"m{one}", "g", (), "", (), (f"t{one % 3}.py::t",), "", "") for one in range(count)]


@pytest.mark.guarantee("MUT-47")
@given(count=COUNTS, total=COUNTS)
@example(count=3, total=2)
def test_every_mutation_is_in_one_shard_and_shards_differ_by_one_at_most(count, total):
    mutations = some(count)

    shards = [Shard(number, total).of(mutations) for number in range(1, min(total, count) + 1)]

    assert sorted(one.id for shard in shards for one in shard) == sorted(one.id for one in mutations)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.guarantee("MUT-47")
@given(order=st.permutations(some(12)))
@example(order=[*some(12)[1:], *some(1)])
def test_a_shard_is_the_same_wherever_it_is_dealt(order):
    assert {one.id for one in Shard(2, 3).of(order)} == {one.id for one in Shard(2, 3).of(some(12))}


@pytest.mark.guarantee("MUT-47")
def test_mutations_of_one_killer_are_spread_over_the_shards():
    for number in (1, 2, 3):
        assert [one.killers[0] for one in Shard(number, 3).of(some(9))] == ["t0.py::t", "t1.py::t", "t2.py::t"]


@pytest.mark.guarantee("MUT-47")
@pytest.mark.parametrize("text", ["0/3", "4/3", "1/0", "1", "a/b", "-1/2", "1/2/3", ""])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(UsageError, match="is no shard: write K/N"):
        Shard.parse(text)


@pytest.mark.guarantee("MUT-47")
def test_an_empty_shard_is_refused():
    with pytest.raises(UsageError, match="shard 3/3 is empty: there are only 2 mutations"):
        Shard(3, 3).of(some(2))


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the report of one shard of two, with one mutation each; returns its file."""

    def write(number: int, verdict: str = "killed", **changes: Any) -> Path:
        body: dict[str, Any] = json.loads(json.dumps(REPORT))
        name = changes.pop("id", f"m{number}")
        result = {"id": name, "guarantees": ["SUM-01"], "verdict": verdict, "expect": "killed", "killers": ["t.py::t"]}
        body["results"] = [{**result, "killed_by": {}, "reason": "", "seconds": 0.5}]
        body["run"]["shard"] = f"{number}/2"
        for key, value in changes.items():
            where = body if key in body else body["run"]
            where[key] = value
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps(body))
        return path

    return write


REPORT: dict[str, Any] = {
    "python": "3.11.7",
    "jobs": 2,
    "wall_seconds": 1.5,
    "baseline": {"red": {}},
    "results": [],
    # The digest of m1 and m2.
    "run": {
        "catalogue": "a",
        "tree": "b",
        "selected": "9a596d735a08fd02703fae6cec832be6",
        "reused": 1,
        "disagreements": [],
    },
}


@pytest.mark.guarantee("MUT-48")
def test_a_report_says_what_it_is_a_replay_of(sample):
    one, two = sample.mutate("one"), sample.mutate("two", new="return 0")

    def facts(shard: Shard | None = None, selected: tuple[Mutation, ...] = (one, two)) -> dict[str, Any]:
        return run_facts(sample.project, selected, (one, two), shard)

    before = facts()

    assert (before["commit"], before["shard"], facts(Shard(1, 2))["shard"]) == ("", None, "1/2")
    assert facts(selected=(two, one)) == before
    assert _differ(before, facts(selected=(one,))) == {"selected"}
    assert _differ(before, run_facts(sample.project, (one, two), (two,), None)) == {"catalogue"}
    sample.write("tests/conftest.py", "x = 1\n")
    assert _differ(before, facts()) == {"tree"}


def _differ(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {name for name in one if one[name] != other[name]}


@pytest.mark.guarantee("MUT-48")
def test_a_report_of_a_checkout_names_its_commit(sample):
    git = ["git", "-c", "user.name=a", "-c", "user.email=b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], cwd=sample.root, check=True)
    commit = subprocess.run([*git, "log", "--format=%H"], cwd=sample.root, check=True, capture_output=True, text=True)

    assert run_facts(sample.project, (), (), None)["commit"] == commit.stdout.strip() != ""


@pytest.mark.guarantee("MUT-48")
def test_shards_make_one_outcome(write):
    done = merge([write(2, "survived"), write(1)])

    assert [(one.mutation.id, str(one.verdict)) for one in done.outcome.results] == [
        ("m1", "killed"),
        ("m2", "survived"),
    ]
    assert (done.exit_code, done.reused, done.outcome.python, done.outcome.wall_seconds) == (1, 2, "3.11.7", 1.5)


@pytest.mark.guarantee("MUT-48")
@pytest.mark.parametrize(("verdict", "code"), [("killed", 0), ("survived", 1), ("hang", 5), ("anchor-lost", 4)])
def test_the_exit_code_is_that_of_the_whole_replay(write, verdict, code):
    assert merge([write(1), write(2, verdict)]).exit_code == code


@pytest.mark.guarantee("MUT-48")
def test_one_red_baseline_is_a_red_baseline(write):
    done = merge([write(1), write(2, baseline={"red": {"t.py::t": "assert 1 == 2"}}, results=[])])

    assert (done.exit_code, done.outcome.baseline.red) == (3, {"t.py::t": "assert 1 == 2"})


@pytest.mark.guarantee("MUT-48")
def test_one_wrong_history_is_a_wrong_history(write):
    assert merge([write(1), write(2, disagreements=["m2: the history says"])]).exit_code == 6


@pytest.mark.guarantee("MUT-48")
def test_a_missing_shard_is_refused(write):
    with pytest.raises(UsageError, match="incomplete: shard 2/2 is missing"):
        merge([write(1)])


@pytest.mark.guarantee("MUT-48")
def test_a_shard_that_is_there_twice_is_refused(write):
    with pytest.raises(UsageError, match="shard 1/2 is there twice"):
        merge([write(1), write(1), write(2)])


@pytest.mark.guarantee("MUT-48")
@pytest.mark.parametrize(
    ("fact", "words"),
    [
        ("catalogue", "another catalogue"),
        ("tree", "another revision"),
        ("selected", "another selection"),
        ("python", "another interpreter"),
        ("shard", "another number of shards"),
    ],
)
def test_shards_of_different_replays_are_refused(write, fact, words):
    with pytest.raises(UsageError, match=words):
        merge([write(1), write(2, **{fact: "2/3"})])


@pytest.mark.guarantee("MUT-48")
def test_a_mutation_in_two_shards_is_refused(write):
    with pytest.raises(UsageError, match=r"m1 is in .* shards overlap"):
        merge([write(1), write(2, id="m1")])


@pytest.mark.guarantee("MUT-48")
def test_a_mutation_without_a_result_is_refused(write):
    with pytest.raises(UsageError, match="incomplete: the results are not those of all"):
        merge([write(1), write(2, results=[])])


@pytest.mark.guarantee("MUT-48")
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"run": {"shard": null}}'])
def test_what_is_no_report_of_a_shard_is_refused(write, tmp_path, text):
    (tmp_path / "bad.json").write_text(text)

    with pytest.raises(UsageError, match=r"bad\.json is no report of a shard"):
        merge([write(1), tmp_path / "bad.json"])
