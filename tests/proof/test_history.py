"""The history: what is taken over, what is run again, and how an audit finds it wrong."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Sequence

import pytest

from lastbus.proof import history, record
from lastbus.proof.baseline import Baseline
from lastbus.proof.config import Project
from lastbus.proof.errors import UsageError
from lastbus.proof.history import Replayed, Use
from lastbus.proof.mutation import Mutation, load_all
from lastbus.proof.replay import Outcome, Result
from lastbus.proof.verdict import Judgement, Verdict
from tests.proof.sample import ADD, FULL, TESTS, Sample

REUSE = Use()
BREAKS_FULL = {"guarantees": ["SUM-02"], "old": ">= LIMIT", "new": "> LIMIT", "killers": [FULL]}


class Stage:
    """A shop whose replays are played: each mutation gets the verdict that the test has set for it."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.verdicts: dict[str, Verdict] = {}
        self.red: dict[str, str] = {}
        self.ran: list[list[str]] = []

    def run(self, mutations: Sequence[Mutation]) -> Outcome:
        self.ran.append([mutation.id for mutation in mutations])
        results = [Result(one, self._judgement(one), 0.1) for one in mutations if not self.red]
        return Outcome("3", 1, Baseline(red=self.red), results)

    def _judgement(self, mutation: Mutation) -> Judgement:
        verdict = self.verdicts.get(mutation.id, Verdict.KILLED)
        killed_by = {mutation.killers[0]: mutation.guarantees} if verdict is Verdict.KILLED else {}
        return Judgement(verdict, "as played", killed_by)

    def replay(self, use: Use = REUSE, python: str = sys.executable) -> Replayed:
        project = self.sample.project
        return history.replay(project, load_all(project), python, use, self.run)

    def then(self, use: Use = REUSE) -> list[str]:
        """What a replay runs now; those whose verdict is reused are left out."""
        before = len(self.ran)
        self.replay(use)
        return self.ran[-1] if len(self.ran) > before else []


@pytest.fixture
def stage(sample: Sample) -> Stage:
    """A shop with one killed mutation for each of its two guarantees, replayed once."""
    sample.mutate("add-wrong")
    sample.mutate("full-late", **BREAKS_FULL)
    stage = Stage(sample)
    stage.replay()
    return stage


@pytest.mark.guarantee("MUT-40")
def test_what_was_never_replayed_is_run_and_recorded(sample):
    sample.mutate("add-wrong")
    stage = Stage(sample)

    done = stage.replay()

    assert stage.ran == [["add-wrong"]]
    assert (done.reused, done.audited, done.disagreements, done.exit_code) == (0, [], [], 0)
    assert stage.replay().reused == 1
    assert stage.ran == [["add-wrong"]]


@pytest.mark.guarantee("MUT-40")
def test_nothing_is_run_when_nothing_changed(stage):
    done = stage.replay()

    assert len(stage.ran) == 1
    assert done.reused == 2
    assert [(str(one.verdict), one.reused) for one in done.outcome.results] == [("killed", True)] * 2
    assert done.outcome.results[0].killed_by == {ADD: ("SUM-01",)}
    assert done.exit_code == 0


@pytest.mark.guarantee("MUT-40")
@pytest.mark.parametrize("file", ["src/shop.py", "tests/test_shop.py", "tests/conftest.py", "tests/data/sums.json"])
def test_what_rests_on_a_changed_file_is_run_again(stage, file):
    path = stage.sample.root / file
    stage.sample.write(file, (path.read_text() if path.exists() else "") + "\n# changed\n")

    assert stage.then() == ["add-wrong", "full-late"]


@pytest.mark.guarantee("MUT-40")
def test_only_what_could_have_changed_is_run_again(stage):
    stage.sample.mutate("add-wrong", new="return 0")

    done = stage.replay()

    assert stage.ran[-1] == ["add-wrong"]
    assert [one.mutation.id for one in done.outcome.results] == ["add-wrong", "full-late"]
    assert [one.reused for one in done.outcome.results] == [False, True]


@pytest.mark.guarantee("MUT-40")
def test_a_survivor_is_reused_and_still_fails_the_replay(stage):
    stage.verdicts["add-wrong"] = Verdict.SURVIVED
    stage.replay(Use(fresh=True))

    done = stage.replay()

    assert (done.reused, done.exit_code) == (2, 1)


@pytest.mark.guarantee("MUT-40")
@pytest.mark.parametrize(
    "verdict", [Verdict.FLAKY, Verdict.HANG, Verdict.TIMEOUT, Verdict.NOT_RUN, Verdict.SETUP_ERROR]
)
def test_a_verdict_of_time_or_luck_is_not_reused(stage, verdict):
    stage.verdicts["add-wrong"] = verdict
    stage.replay(Use(fresh=True))

    assert stage.then() == ["add-wrong"]


@pytest.mark.guarantee("MUT-40")
def test_canaries_are_run_whenever_anything_is(stage):
    stage.sample.mutate("bird", expect="hang", guarantees=[])
    stage.verdicts["bird"] = Verdict.HANG
    stage.replay()

    assert stage.then() == []
    stage.sample.mutate("add-wrong", new="return 0")
    assert stage.then() == ["add-wrong", "bird"]


def test_a_red_baseline_leaves_the_record_alone(stage):
    stage.sample.mutate("add-wrong", new="return 0")
    before = record.load(stage.sample.project)
    stage.red = {ADD: "assert 1 == 2"}

    done = stage.replay()

    assert (done.exit_code, done.outcome.results) == (3, [])
    assert record.load(stage.sample.project) == before


@pytest.mark.guarantee("MUT-43")
def test_an_edit_while_the_replay_runs_makes_its_verdict_stale(stage, monkeypatch):
    played = stage.run

    def run_and_edit(mutations: Sequence[Mutation]) -> Outcome:
        stage.sample.write("tests/test_shop.py", TESTS.replace("== 5", "!= 6"))
        return played(mutations)

    monkeypatch.setattr(stage, "run", run_and_edit)
    stage.replay(Use(fresh=True))
    monkeypatch.undo()

    assert stage.then() == ["add-wrong", "full-late"]


@pytest.mark.guarantee("MUT-55")
def test_a_verdict_on_a_mutation_that_is_gone_is_forgotten(stage):
    (stage.sample.root / "mutations/sum/full-late.json").unlink()
    stage.sample.mutate("add-wrong", new="return 0")
    stage.replay()
    assert set(record.load(stage.sample.project)) == {"add-wrong"}

    stage.sample.mutate("full-late", **BREAKS_FULL)

    assert stage.then() == ["full-late"]


@pytest.mark.guarantee("MUT-55")
def test_the_verdict_on_a_mutation_that_is_about_to_be_written_is_kept(stage):
    new = stage.sample.mutate("new")
    basis = record.Basis.of(record.Present(stage.sample.project), [new], sys.executable)
    (stage.sample.root / new.source).unlink()

    record.update(stage.sample.project, stage.run([new]), basis)

    assert set(record.load(stage.sample.project)) == {"add-wrong", "full-late", "new"}


def test_the_record_is_changed_by_one_replay_at_a_time(stage, monkeypatch):
    load = record.load

    def load_alone(project: Project) -> dict[str, record.Entry]:
        with (project.root / ".lastbus/replay.lock").open("w") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return load(project)

    outcome = stage.replay().outcome
    monkeypatch.setattr(record, "load", load_alone)
    stage.sample.record(outcome)


@pytest.mark.guarantee("MUT-44")
def test_fresh_reuses_nothing(stage):
    assert stage.then(Use(fresh=True)) == ["add-wrong", "full-late"]


@pytest.mark.guarantee("MUT-44")
@pytest.mark.parametrize(
    ("asked", "audit", "runs", "ci", "fresh"),
    [
        (None, 0, False, "", False),
        (None, 0, False, "false", False),
        (None, 0, False, "true", True),
        (None, 0, True, "", True),
        (None, 3, False, "true", False),
        (False, 0, True, "true", False),
        (True, 0, False, "", True),
    ],
)
def test_ci_and_who_wants_runs_are_fresh_unless_told_otherwise(asked, audit, runs, ci, fresh):
    assert Use.chosen(asked, audit, 1, runs, {"CI": ci}).fresh is fresh


def test_an_audit_of_nothing_is_refused():
    with pytest.raises(UsageError, match="choose one of them"):
        Use.chosen(True, 1, None, False, {})


@pytest.mark.guarantee("MUT-45")
def test_an_audit_runs_a_sample_of_what_could_be_reused(stage):
    done = stage.replay(Use(audit=1, seed=7))

    assert stage.ran[-1] == done.audited
    assert (len(done.audited), done.reused, done.disagreements, done.exit_code) == (1, 1, [], 0)


@pytest.mark.guarantee("MUT-45")
def test_the_same_seed_draws_the_same_sample(stage):
    held = history.holding(record.Present(stage.sample.project), load_all(stage.sample.project), sys.executable)
    many = {f"{name}-{number}": entry for name, entry in held.items() for number in range(50)}

    assert history.audited(many, Use(audit=5, seed=3)) == history.audited(many, Use(audit=5, seed=3))
    assert len({tuple(history.audited(many, Use(audit=5, seed=seed))) for seed in range(8)}) > 1
    assert len(history.audited(many, Use(audit=500, seed=3))) == 100


@pytest.mark.guarantee("MUT-45")
def test_a_verdict_that_a_run_does_not_confirm_is_an_error_of_the_history(stage):
    stage.verdicts["add-wrong"] = Verdict.SURVIVED

    done = stage.replay(Use(audit=2, seed=1))

    assert done.exit_code == history.DISAGREED
    assert [line.partition(",")[0] for line in done.disagreements] == ["add-wrong: the history says killed"]
    assert record.load(stage.sample.project)["add-wrong"].verdict == "survived"


@pytest.mark.guarantee("MUT-42")
def test_another_interpreter_reuses_nothing(real_surroundings, stage):
    entries = record.load(stage.sample.project)
    for entry in entries.values():
        assert (entry.python, entry.executable) == ("3", os.path.abspath(sys.executable))

    stage.sample.write("pyproject.toml", (stage.sample.root / "pyproject.toml").read_text() + "\n# no setting\n")
    assert stage.then() == []
    stage.sample.write("pytest.ini", "[pytest]\nxfail_strict = true\n")
    assert stage.then() == ["add-wrong", "full-late"]


@pytest.mark.guarantee("MUT-42")
def test_an_interpreter_that_gives_no_answer_reuses_nothing(real_surroundings, stage):
    stage.replay(python="no-such-python")
    stage.replay(python="no-such-python")

    assert len(stage.ran) == 3
