"""The bench: the guinea pig is what it says, the arithmetic is right, and a missed target is said aloud.

No test here depends on how quick anything is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lastbus.cli import main
from lastbus.proof.baseline import Baseline
from lastbus.proof.bench import contest, rival, run
from lastbus.proof.bench.contest import Hang, Lap
from lastbus.proof.bench.guinea import Guinea, grow
from lastbus.proof.bench.rival import words
from lastbus.proof.bench.standings import Standings, stand
from lastbus.proof.mutation import Mutation
from lastbus.proof.notes import Notes
from lastbus.proof.verdict import Report, Run

PATIENCE_SECONDS = 120.0
"""So long no test of the guinea pig takes, however busy the machine is."""
TRAPS = {"survived-s06": ("survived", "survived"), "not-run-s07": ("killed", "not-run")}


def lap(each: float, count: int = 100, startup: float = 0.0, word: str = "killed") -> Lap:
    return Lap(startup, each * count, {str(number): word for number in range(count)})


def stands(count: int = 100, hang: float = 0.9, traps: dict[str, tuple[str, str]] = TRAPS, **laps: Lap) -> Standings:
    known = {"naive": lap(1.0), "isolated": lap(0.9), "warm": lap(0.05, startup=1.0), "floor": lap(0.03), **laps}
    return stand(count, 2, {name: [one] for name, one in known.items()}, [Hang(hang, 0.01)], traps)


def missed(of: Standings) -> list[str]:
    names = [target.name.removeprefix("warm, ") for target in of.targets if not target.met]
    return [name.split(",")[0] for name in names]


def test_ratios_are_to_the_naive_way():
    naive, _, warm, floor = stands().rows

    assert (naive.each_ratio, naive.total_ratio) == (1.0, 1.0)
    assert warm.each_ratio == pytest.approx(20.0)
    assert warm.total_ratio == pytest.approx(100 / (1 + 5))
    assert floor.tried == 100


def test_rounds_are_summed_up_by_their_medians():
    laps = {name: [lap(each) for each in (1.0, 9.0, 2.0)] for name in ("naive", "isolated", "warm", "floor")}

    assert [row.each_seconds for row in stand(100, 1, laps, [Hang(0.1, 0.0)], {}).rows] == [2.0] * 4


@pytest.mark.guarantee("MUT-29")
@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({}, []),
        ({"warm": lap(0.11, startup=0.1), "floor": lap(0.1)}, ["each mutation"]),
        ({"warm": lap(0.05, startup=9.0)}, ["with start-up"]),
        ({"count": 99}, ["with start-up"]),
        ({"floor": lap(0.024)}, ["times the floor (a fork and the killers)"]),
        ({"hang": 1.1}, ["first look at a hang"]),
        ({"traps": {"not-run-s07": ("killed", "killed")}}, ["traps told from kills"]),
        ({"isolated": lap(0.9, word="survived")}, ["mutations killed"]),
    ],
    ids=["none", "each", "startup", "few", "floor", "hang", "traps", "killed"],
)
def test_every_target_is_met_or_missed(change, name):
    assert missed(stands(**change)) == name


@pytest.mark.guarantee("MUT-29")
def test_a_missed_target_is_printed_with_its_bound(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(run, "bench", lambda *_: stands(hang=1.5))
    main_says(["bench", "replay", "--json", str(tmp_path / "bench.json")])
    said = capsys.readouterr().out.splitlines()

    assert "MISSED first look at a hang, of 1 s or 10 times its killers: 1.5 (1)" in said
    assert sum(line.startswith(("met ", "MISSED ")) for line in said) == 6
    assert "trap not-run-s07: naive says killed, a replay says not-run" in said
    assert len(json.loads((tmp_path / "bench.json").read_text())["rows"]) == 4


def main_says(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 0


def test_every_way_is_a_line_with_its_figures(monkeypatch, capsys):
    monkeypatch.setattr(run, "bench", lambda *_: stands())
    main_says(["bench", "replay"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]

    assert ["naive", "0.00", "s", "1000.0", "ms", "1.0", "1.0", "100/100"] in lines
    assert ["warm", "1.00", "s", "50.0", "ms", "20.0", "16.7", "100/100"] in lines
    assert [line[-1] for line in lines if line[:1] == ["floor"]] == ["-"]


def test_on_a_terminal_it_is_a_table(monkeypatch, capsys):
    monkeypatch.setattr(run, "bench", lambda *_: stands())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    main_says(["bench", "replay"])
    said = capsys.readouterr().out

    assert "times naive" in said
    assert "━" in said


def test_the_guinea_pig_has_as_many_mutations_as_were_asked_for(tmp_path):
    guinea = grow(tmp_path, 43)

    assert (len(guinea.killable), guinea.distinct, len(guinea.traps)) == (43, 20, 7)
    assert len({one.edits for one in guinea.killable[:20]}) == 20
    assert {one.edits for one in guinea.killable[20:40]} == {one.edits for one in guinea.killable[:20]}


def test_the_rival_is_read_by_its_last_counts():
    said = "⠋ 1/3  🎉 1 🫥 0  ⏰ 0\r⠙ 3/3  🎉 2 🫥 0  ⏰ 1\n1.9 mutations/second\n"

    assert list(words(said).values()) == ["killed", "killed", "not killed"]
    assert words("⠋ 1/3  🎉 1 🫥 0\rTraceback") == {}


def test_a_rival_that_gave_up_has_no_row():
    assert [row.name for row in stands(mutmut=Lap(0.0, 900.0, {})).rows] == ["naive", "isolated", "warm", "floor"]


@pytest.mark.slow
def test_a_small_run_measures_every_way(tmp_path, monkeypatch):
    """Slow: it starts pytest several times, and looks at a hang twice. Only the hang is ever given up."""
    plain = contest.naive

    def small(root: Path, count: int) -> Guinea:
        guinea = grow(root, count)
        hang = replace(guinea.traps["hang-s01"], limit_seconds=0.2)
        traps = {"hang-s01": hang, "not-run-s07": guinea.traps["not-run-s07"]}
        return replace(guinea, project=replace(guinea.project, floor_seconds=PATIENCE_SECONDS), traps=traps)

    def naive(guinea: Guinea, mutations: Sequence[Mutation], python: str, jobs: int) -> Lap:
        words: dict[str, str] = {}
        for each in mutations:
            monkeypatch.setattr(contest, "NAIVE_SECONDS", 3.0 if each.id == "hang-s01" else PATIENCE_SECONDS)
            words |= plain(guinea, [each], python, jobs).words
        return Lap(0.0, 1.0, words)

    monkeypatch.setattr(run, "grow", small)
    monkeypatch.setattr(run, "naive", naive)
    monkeypatch.setattr(run, "is_installed", lambda _: False)
    steps: list[str] = []
    found = run.bench(sys.executable, 2, 2, 1, steps.append)

    assert [row.name for row in found.rows] == ["naive", "isolated", "warm", "floor"]
    assert [row.killed for row in found.rows] == [2, 2, 2, 0]
    assert found.traps == {"hang-s01": ("timeout", "hang"), "not-run-s07": ("killed", "not-run")}
    assert steps[-1] == "traps and hangs"


def interpreter(path: Path, script: str) -> str:
    """A program that stands for a Python with or without mutmut."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_rival_is_installed_where_it_can_be_imported(tmp_path):
    python = interpreter(tmp_path / "python", 'test "$*" = "-c import mutmut" && exit 0; exit 1')

    assert rival.is_installed(python)
    assert not rival.is_installed(interpreter(tmp_path / "bare", "exit 1"))


def test_the_rival_runs_on_a_copy_with_its_own_settings(tmp_path):
    guinea = grow(tmp_path / "pig", 1)
    before = (guinea.project.root / "pyproject.toml").read_text()
    python = interpreter(
        tmp_path / "python", f"(echo $*; ls; cat pyproject.toml) > {tmp_path}/seen; echo '2/2  🎉 1 🫥 0'"
    )

    lap = rival.mutmut(guinea, python, 3)

    seen = (tmp_path / "seen").read_text().splitlines()
    assert sorted(lap.words.values()) == ["killed", "not killed"]
    assert (lap.startup_seconds, lap.loop_seconds > 0) == (0.0, True)
    assert seen[0] == "-m mutmut run --max-children 3"
    assert "mutations" not in seen
    assert seen[-2:] == ["[tool.mutmut]", 'source_paths = ["src"]']
    assert (guinea.project.root / "pyproject.toml").read_text() == before


def test_a_rival_that_takes_too_long_is_ended_and_has_said_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(rival, "RIVAL_SECONDS", 0.05)
    python = interpreter(tmp_path / "python", "echo '1/1  🎉 1 🫥 0'; sleep 60")

    assert rival.mutmut(grow(tmp_path / "pig", 1), python, 1).words == {}


def test_the_naive_way_takes_a_failed_run_for_a_kill_and_gives_up_on_a_long_one(tmp_path, monkeypatch):
    guinea = grow(tmp_path / "pig", 1)
    (one,) = guinea.killable

    def word(script: str) -> str:
        return contest.naive(guinea, [one], interpreter(tmp_path / "python", script), 1).words[one.id]

    assert [word("exit 1"), word("exit 0")] == ["killed", "survived"]
    monkeypatch.setattr(contest, "NAIVE_SECONDS", 0.05)
    assert word("sleep 60") == "timeout"
    lost = replace(one, edits=(replace(one.edits[0], old="not there"),))
    assert contest.naive(guinea, [lost], "no-such-python", 1).words == {one.id: "anchor-lost"}


@pytest.mark.parametrize(
    ("ended", "outcomes", "word"),
    [
        ("finished", ["passed", "passed"], "passed"),
        ("finished", ["passed", "failed"], "not green"),
        ("died", ["passed"], "not green"),
    ],
)
def test_the_floor_says_whether_its_killers_were_green(tmp_path, ended, outcomes, word):
    (one,) = grow(tmp_path / "pig", 1).killable
    asked: list[Sequence[str]] = []

    class Played:
        def run(self, tests: Sequence[str], limits: object) -> tuple[Run, Notes]:
            asked.append(tests)
            return Run([Report(tests[0], "call", outcome) for outcome in outcomes], ended=ended), Notes()

    assert contest._run_unmutated(Played(), one, Baseline()) == word
    assert asked == [one.killers]


def test_every_way_has_its_turn_to_be_first():
    names = ["a", "b", "c"]

    assert [run._in_turn(names, number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
