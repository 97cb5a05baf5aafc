"""The gate on mutants that mutmut makes; mutmut itself is not run here."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from lastbus.proof.config import toml
from scripts import generated_mutants
from scripts.generated_mutants import (
    DESELECTED,
    ROOMS,
    ROOT,
    UNTRIED,
    Room,
    Tried,
    ask_alone,
    decided,
    function_of,
    gate,
    made_in,
    patiently,
    percent_killed,
    stage,
    tried_in,
)
from tests.proof.sample import Sample

DIFF = """# lastbus.shop: survived
--- src/shop.py
+++ src/shop.py
@@ -1 +1 @@
-    return one + two
+    return two + one
"""
STRICT = Room(("_model/*",), ("tests/model",), strict=True)
LENIENT = Room(("_model/*",), ("tests/model",))
ACCEPTED = (
    '[[accepted]]\nby = "mutmut"\nfile = "src/shop.py"\nfunction = "add"\n'
    "change = '''\n-    return one + two\n+    return two + one\n'''\nreason = \"addition commutes\"\n"
)


def mutants(**words: int) -> list[Tried]:
    """So many mutants of each word."""
    return [Tried("x_add__mutmut_1", "src/shop.py", "add", word) for word, count in words.items() for _ in range(count)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What mutmut leaves: how each mutant made the tests exit, None for those that were not tried."""
    meta = tmp_path / "mutants" / "src" / "lastbus" / "_model" / "shop.py.meta"
    meta.parent.mkdir(parents=True)
    codes = {"x_add__mutmut_1": 1, "x_add__mutmut_2": 0, "x_add__mutmut_3": None, "xǁTillǁopen__mutmut_1": 33}
    meta.write_text(
        json.dumps({"exit_code_by_key": {f"lastbus._model.shop.{key}": code for key, code in codes.items()}})
    )
    return tmp_path


def test_a_name_of_mutmut_is_read_as_the_function_that_it_means():
    assert function_of("lastbus._model.names.x__shown__mutmut_12") == "_shown"
    assert function_of("lastbus._model.event.xǁEventǁ__init____mutmut_1") == "Event.__init__"


def test_what_was_tried_is_read_with_its_place_here_and_its_word(tree):
    tried = list(tried_in(tree, ()))

    assert [(one.function, one.word) for one in tried] == [
        ("add", "killed"),
        ("add", "survived"),
        ("Till.open", "no tests"),
    ]
    assert {one.file for one in tried} == {"engine/lastbus/_model/shop.py"}
    assert [one.function for one in tried_in(tree, ["*Till*"])] == ["Till.open"]


def test_what_is_not_asked_for_is_untouched(tree):
    words = [one.word for one in made_in(tree, ["*Till*"])]

    assert words == ["untouched", "untouched", "untouched", "no tests"]


def test_what_an_earlier_run_left_of_other_rooms_does_not_count(tree):
    assert len(list(tried_in(tree, room=STRICT))) == 3
    assert list(tried_in(tree, room=Room(("_close/*",), ()))) == []


@pytest.mark.guarantee("MUT-70")
@pytest.mark.parametrize(("word", "code"), [("killed", 0), ("skipped", 0), ("survived", 1), ("no tests", 1)])
def test_a_mutant_that_nobody_notices_or_covers_fails_the_gate(sample, capsys, word, code):
    tried = [*mutants(killed=99), Tried("x_add__mutmut_1", "src/shop.py", "add", word)]

    assert gate(sample.project, STRICT, tried, lambda _: DIFF) == code

    said = capsys.readouterr()
    assert ("nobody notices this" in said.err) is bool(code)


@pytest.mark.guarantee("MUT-70")
def test_no_mutants_fail_the_gate(sample, capsys):
    assert gate(sample.project, STRICT, [], lambda _: DIFF) == 1
    assert "mutmut tried no mutant" in capsys.readouterr().err


@pytest.mark.guarantee("MUT-70")
@pytest.mark.parametrize("room", [STRICT, LENIENT], ids=["strict", "lenient"])
@pytest.mark.parametrize(("word", "code"), [("survived", 0), ("hang", 0), ("untouched", 0), ("killed", 1)])
def test_an_accepted_mutant_passes_the_gate_until_somebody_notices_it(sample: Sample, room: Room, word: str, code: int):
    sample.write("mutations/accepted.toml", ACCEPTED)
    tried = [*mutants(killed=99), Tried("x_add__mutmut_1", "src/shop.py", "add", word)]

    assert gate(sample.project, room, tried, lambda _: DIFF) == code


@pytest.mark.guarantee("MUT-70")
@pytest.mark.parametrize(("killed", "code"), [(95, 0), (94, 1)])
@pytest.mark.parametrize("word", ["survived", "no tests", "hang", "broken"])
def test_a_room_that_is_not_strict_names_its_survivors_and_must_reach_its_percentage(
    sample: Sample, capsys: pytest.CaptureFixture[str], word: str, killed: int, code: int
) -> None:
    tried = [*mutants(killed=killed), *mutants(**{word: 100 - killed})]

    assert gate(sample.project, LENIENT, tried, lambda _: DIFF) == code

    said = capsys.readouterr()
    assert f"{killed}.0 % killed" in said.out
    assert said.out.count("nobody notices this") == (100 - killed if word in ("survived", "no tests") else 0)
    assert ("it must be 95 %" in said.err) is bool(code)


@pytest.mark.guarantee("MUT-70")
def test_a_strict_room_must_reach_the_percentage_as_well(sample: Sample) -> None:
    assert gate(sample.project, STRICT, mutants(killed=9, hang=1), lambda _: DIFF) == 1


def test_what_is_explained_and_what_a_pragma_leaves_out_is_no_part_of_the_percentage():
    words = Counter(killed=3, survived=2, skipped=5)

    assert percent_killed(words, explained=1) == 75.0
    assert percent_killed(Counter(survived=1), explained=1) == 100.0


@pytest.mark.guarantee("MUT-70")
def test_what_ran_out_of_time_is_asked_again_before_it_counts():
    asked: list[str] = []

    def again(name: str) -> str:
        asked.append(name)
        return "killed"

    words = ["killed", "survived", "timeout", "suspicious", "no tests", "skipped", "untouched"]
    tried = [Tried(word, "src/shop.py", "add", word) for word in words]

    assert [one.word for one in decided(tried, again)] == [
        "killed",
        "survived",
        "killed",
        "killed",
        "no tests",
        "skipped",
        "untouched",
    ]
    assert asked == ["timeout", "suspicious"]


PLAYED = """
import os, sys, time

for test in sys.argv[1:]:
    print(test, end=" ", flush=True)
    if test.endswith("slow"):
        time.sleep(0.5)
    if test.endswith("hangs"):
        print(os.environ["MUTANT_UNDER_TEST"], flush=True)
        time.sleep(600)
    if test.endswith("fails"):
        sys.exit(1)
    print("PASSED")
sys.exit(4 if "usage" in sys.argv[-1] else 0)
"""


def alone(folder: Path, *tests: str, seconds: float = 60.0) -> str:
    """What is said of a mutant if its tests behave as they are called."""
    player = folder / "player.py"
    player.write_text(PLAYED)
    return ask_alone([sys.executable, str(player)], [f"t.py::{test}" for test in tests], folder, "m", seconds)


@pytest.mark.slow
@pytest.mark.guarantee("MUT-70")
def test_a_mutant_that_is_asked_again_is_judged_by_tests_that_fail_or_pass(tmp_path):
    """Starts a program three times."""
    assert alone(tmp_path, "passes", "slow", "fails") == "killed"
    assert alone(tmp_path, "passes", "slow") == "survived"
    assert alone(tmp_path, "usage") == "broken"


@pytest.mark.slow
def test_many_tests_may_take_their_time_one_after_another(tmp_path):
    """Takes longer than any single test may."""
    assert alone(tmp_path, *["slow"] * 6, seconds=2.0) == "survived"


@pytest.mark.slow
@pytest.mark.guarantee("MUT-70")
def test_a_hang_is_no_kill_and_does_not_hide_one(tmp_path):
    """Waits for the limit three times."""
    assert alone(tmp_path, "one that [now and then] hangs", "fails", seconds=2.0) == "killed"
    assert alone(tmp_path, "passes", "hangs", "passes", seconds=2.0) == "hang"
    assert alone(tmp_path, "passes", "hangs", seconds=2.0) == "hang"


@pytest.mark.slow
def test_a_mutant_is_asked_again_with_the_tests_that_reach_it(tmp_path, capsys, monkeypatch):
    """Runs pytest twice."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    mutants = tmp_path / "mutants"
    mutants.mkdir()
    (mutants / "test_f.py").write_text(
        "import os\n\ndef test_one(): pass\n"
        "def test_two(): assert os.environ['MUTANT_UNDER_TEST'] != 'm.x_f__mutmut_1'\n"
        "def test_three(): assert False\n"
    )
    reach = {"m.x_f": ["test_f.py::test_two", "test_f.py::test_one"]}
    durations = {"test_f.py::test_one": 0.1, "test_f.py::test_two": 0.2}
    learned = {"tests_by_mangled_function_name": reach, "duration_by_test": durations}
    (mutants / "mutmut-stats.json").write_text(json.dumps(learned))

    ask = patiently(tmp_path, STRICT)

    names = ["m.x_f__mutmut_1", "m.x_f__mutmut_2", "m.x_g__mutmut_1"]
    assert [ask(name) for name in names] == ["killed", "survived", "no tests"]
    assert "asked again, alone: m.x_f__mutmut_1: killed" in capsys.readouterr().out


def test_each_room_is_tried_with_its_own_files_and_tests(tmp_path):
    stage(tmp_path, Room(("_model/*", "_bus.py"), ("tests/model",), ("sqlite", "valkey")))

    settings = toml.loads((tmp_path / "pyproject.toml").read_text())
    of_mutmut = settings["tool"]["mutmut"]
    assert of_mutmut["only_mutate"] == ["src/lastbus/_model/*", "src/lastbus/_bus.py"]
    assert of_mutmut["pytest_add_cli_args_test_selection"] == ["tests/model"]
    assert of_mutmut["pytest_add_cli_args"][-4:] == ["-m", "not slow", "-k", "not (fakeredis or postgres)"]
    assert "--timeout=0" in of_mutmut["pytest_add_cli_args"]
    assert settings["tool"]["pytest"]["ini_options"]["pythonpath"] == ["src", "."]
    assert (tmp_path / "src/lastbus/__init__.py").is_file()
    assert (tmp_path / "tests/model").is_dir()


def test_a_run_of_mutmut_that_failed_is_not_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(generated_mutants.sys, "executable", "/bin/false")

    assert generated_mutants.main(["model", "--tree", str(tmp_path)]) == 3


def test_a_room_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        generated_mutants.main(["cellar"])
    assert "there is no room cellar" in capsys.readouterr().err


def holders(file: str, rooms: dict[str, Room], untried: dict[str, str]) -> list[str]:
    """The rooms that hold a file, and what leaves it out."""
    places = [*((name, room) for name, room in rooms.items()), *((place, Room((place,), ())) for place in untried)]
    return [name for name, room in places if room.holds(file)]


def test_each_file_of_the_package_is_in_exactly_one_room_or_left_out_with_a_reason():
    package = ROOT / "engine" / "lastbus"
    files = [file.relative_to(package).as_posix() for file in package.rglob("*.py")]

    assert {file: found for file in files if len(found := holders(file, ROOMS, UNTRIED)) != 1} == {}
    assert all(UNTRIED.values())
    for room in [*ROOMS.values(), *(Room((place,), ()) for place in UNTRIED)]:
        for place in room.places:
            assert any(Room((place,), ()).holds(file) for file in files), f"there is no {place}"


def test_a_file_in_no_room_or_in_two_is_found():
    rooms = {"one": Room(("_model/*",), ()), "two": Room(("_model/event.py",), ())}

    assert holders("_model/event.py", rooms, {}) == ["one", "two"]
    assert holders("_close/state.py", rooms, {}) == []


def test_the_tests_of_each_room_exist():
    named = [*(test for room in ROOMS.values() for test in room.tests), *DESELECTED]

    for test in named:
        file, _, function = test.partition("::")
        assert (ROOT / file).exists(), test
        assert not function or f"def {function}(" in (ROOT / file).read_text(), test
