"""Warm runs: whatever kind of test it is, a fork of a process that has collected it says what a new process would."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lastbus.proof import runner
from lastbus.proof.notes import Limits, Notes
from lastbus.proof.runner import Slot
from lastbus.proof.verdict import Report, Run
from lastbus.proof.zygote import forked as forked_module
from lastbus.proof.zygote import warm
from lastbus.proof.zygote.recorder import Recorder, Wire
from lastbus.proof.zygote.swap import Ran
from tests.proof.inside import PLAIN, Here
from tests.proof.sample import ADD, CODE, FULL, HAS_SUBTESTS, PYPROJECT, TESTS, Sample, shop

LIMITS = Limits(startup=20.0, of={}, default=20.0)
STYLES = """
import asyncio
import unittest

import pytest
import shop

SEEN = []


@pytest.fixture(scope="session")
def till():
    SEEN.append("till")
    yield shop.add(1, 1)
    SEEN.append("closed")


def test_global_state(till):
    SEEN.append(till)
    assert SEEN == ["till", 2]


@pytest.mark.parametrize("one", [1, 2], ids=["first one", "zwei-ü"])
@pytest.mark.parametrize("two", [3, None])
def test_named(one, two):
    assert shop.add(one, two or 0) == one + (two or 0)


class TestClass:
    kept = 0

    @classmethod
    def setup_class(cls):
        cls.kept = shop.add(2, 2)

    @pytest.fixture
    def five(self):
        return 5

    def test_method(self, five):
        assert shop.add(1, self.kept) == five


def setUpModule():
    SEEN.append("module")


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sums = [shop.add(1, 1)]

    def test_case(self):
        self.assertEqual(self.sums, [2])

    def test_parts(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertEqual(shop.add(number, 1), number + 1)

    def test_skipped_by_itself(self):
        if shop.add(1, 1) != 2:
            self.skipTest("no sums today")


class Waiting(unittest.IsolatedAsyncioTestCase):
    async def test_awaited(self):
        await asyncio.sleep(0)
        self.assertEqual(shop.add(1, 1), 2)


@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    assert shop.add(1, 1) == 0


@pytest.mark.xfail(strict=False)
def test_allowed_to_fail():
    assert shop.add(1, 1) == 0


@pytest.mark.skip
def test_never():
    raise AssertionError


def test_output(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    print(shop.add(1, 1))
    assert capfd.readouterr().out == "2\\n"


def test_input():
    with pytest.raises(OSError, match="reading from stdin"):
        input(shop.add(1, 1))
    assert shop.add(1, 1) == 2
"""
SUBTESTS = """

def test_subtests(subtests):
    for number in range(3):
        with subtests.test(number=number):
            assert shop.add(number, 1) == number + 1
"""
FILE = "tests/test_styles.py"
TESTS_OF_STYLES = [
    "test_global_state",
    "test_named[3-first one]",
    r"test_named[None-zwei-\xfc]",
    "TestClass::test_method",
    "Case::test_case",
    "Case::test_parts",
    "Case::test_skipped_by_itself",
    "Waiting::test_awaited",
    "test_expected_to_fail",
    "test_allowed_to_fail",
    "test_never",
    "test_output",
    "test_input",
    *(["test_subtests"] if HAS_SUBTESTS else []),
]
IDS = [f"{FILE}::{name}" for name in TESTS_OF_STYLES]
WRONG = CODE.replace("return one + two", "return one - two - 2")


def styles(folder: Path, mode: str = "prepend") -> Sample:
    sample = shop(folder)
    sample.write("pyproject.toml", PYPROJECT.replace("[tool.pytest.ini_options]", f"{INI}\naddopts = '-ra {mode}'"))
    sample.write(FILE, STYLES + (SUBTESTS if HAS_SUBTESTS else ""))
    return sample


INI = "[tool.pytest.ini_options]"


@pytest.fixture(scope="session", params=["prepend", "importlib"])
def slot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    """A slot that has collected every style of test, in both ways in which pytest imports test modules."""
    folder = tmp_path_factory.mktemp("warm")
    one = Slot(styles(folder / "shop", f"--import-mode={request.param}").project, folder, 0, sys.executable)
    one.collect(IDS)
    yield one
    one.close()


def facts(run: Run) -> list[Report]:
    """What a run said, without the addresses of objects in it."""
    return [replace(report, message=report.message.split(" at 0x")[0]) for report in run.reports]


@pytest.mark.guarantee("MUT-22", "MUT-23")
@pytest.mark.parametrize("text", [CODE, WRONG], ids=["as-it-is", "mutated"])
def test_every_style_of_test_says_warm_what_it_says_alone(slot, text):
    with slot.mutated({"src/shop.py": text}):
        warm, _ = slot.run(IDS, LIMITS, mutated=["src/shop.py"])
        isolated, _ = slot.run(IDS, LIMITS, how="isolated")

    assert (warm.how, isolated.how, slot.cold) == ("warm", "isolated", "")
    assert facts(warm) == facts(isolated)
    assert {report.test for report in warm.reports} == set(IDS)


@pytest.mark.guarantee("MUT-23")
@pytest.mark.parametrize("test", IDS, ids=TESTS_OF_STYLES)
def test_a_test_alone_says_warm_what_it_says_in_company(slot, test):
    together, _ = slot.run(IDS, LIMITS)
    alone, notes = slot.run([test], LIMITS)

    assert alone.how == "warm"
    assert list(notes.carries) == [test]
    assert facts(alone) == [report for report in facts(together) if report.test == test]


@pytest.fixture
def counted(sample: Sample, tmp_path: Path) -> Iterator[Slot]:
    """A slot whose test module writes down each time that it is imported."""
    note = f"open({str(tmp_path / 'imports')!r}, 'a').write('x')"
    sample.write("tests/test_shop.py", f"{TESTS}\n{note}\n")
    one = Slot(sample.project, tmp_path, 0, sys.executable)
    yield one
    one.close()


@pytest.mark.guarantee("MUT-23")
def test_tests_are_collected_once_for_all_runs(counted, tmp_path):
    counted.collect([ADD, FULL])
    for test in (ADD, FULL, ADD):
        run, notes = counted.run([test], LIMITS)
        assert (run.how, list(notes.seconds)) == ("warm", [test])

    assert (tmp_path / "imports").read_text() == "x"


@pytest.mark.guarantee("MUT-23")
def test_what_a_run_leaves_behind_is_not_there_in_the_next(sample, tmp_path):
    sample.write("tests/test_shop.py", "SEEN = []\n\ndef test_once():\n    SEEN.append(1)\n    assert SEEN == [1]\n")
    slot = Slot(sample.project, tmp_path, 0, sys.executable)
    slot.collect(["tests/test_shop.py::test_once"])
    runs = [slot.run(["tests/test_shop.py::test_once"], LIMITS)[0] for _ in range(2)]
    slot.close()

    assert [run.how for run in runs] == ["warm", "warm"]
    assert [report.outcome for run in runs for report in run.reports] == ["passed"] * 6


Forked = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forked]:
    """Collect a module, become the child that runs some of its tests, and return the outcomes of their calls."""
    for name in ("redirect", "settle_in"):
        monkeypatch.setattr(forked_module, name, lambda _: None)
    monkeypatch.setattr(warm, "gc", SimpleNamespace(collect=int, freeze=int))
    wire = os.open(tmp_path / "wire", os.O_RDWR | os.O_CREAT)

    def forked(text: str, *tests: str) -> list[tuple[str, str]]:
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        (tmp_path / "test_one.py").write_text(text)
        keep = [f"test_one.py::{test}" for test in tests]
        command = {
            "do": "run",
            "cwd": str(tmp_path),
            "purge": [],
            "mutated": [],
            "keep": keep,
            "services": {},
            "log": "",
            "tell_modules": False,
        }
        recorder = Recorder(Wire(wire), [f"test_one.py::test_{name}" for name in ("one", "two")], {}, str(tmp_path))
        parent: Any = Here(recorder.wire, command)
        ran = Ran(str(tmp_path))
        ran.start()
        plugins = [recorder, warm.Warm(parent, recorder, ran, command)]
        pytest.main([f"--rootdir={tmp_path}", *PLAIN, str(tmp_path / "test_one.py")], plugins=plugins)
        sys.modules.pop("test_one", None)
        told = [json.loads(line) for line in (tmp_path / "wire").read_text().splitlines() if line]
        calls = [one for one in told if one["event"] == "report" and one["when"] == "call"]
        return [(one["test"].partition("::")[2], one["outcome"]) for one in calls]

    yield forked
    os.close(wire)


@pytest.mark.guarantee("MUT-23")
def test_a_child_runs_the_tests_that_it_was_forked_for(forked):
    assert forked("def test_one(): ...\n\ndef test_two(): ...\n", "test_two") == [("test_two", "passed")]


@pytest.mark.guarantee("MUT-23")
def test_a_child_is_the_first_to_run_its_tests(forked):
    text = "SEEN = []\n\ndef test_one():\n    SEEN.append(1)\n    assert SEEN == [1]\n"

    assert forked(text, "test_one") == [("test_one", "passed")]


@pytest.mark.guarantee("MUT-23")
def test_what_a_test_reads_and_prints_is_its_own(sample, tmp_path):
    sample.write("tests/test_shop.py", "import pytest\nimport shop\n\n" + STYLES[STYLES.index("def test_output") :])
    slot = Slot(sample.project, tmp_path, 0, sys.executable)
    tests = ["tests/test_shop.py::test_input", "tests/test_shop.py::test_output"]
    slot.collect(tests)
    run, _ = slot.run(tests, LIMITS)
    slot.close()

    assert run.how == "warm"
    assert [report.outcome for report in run.reports] == ["passed"] * 6


class Played:
    """A process that does nothing and says that all went well."""

    alive = True

    def __init__(self, python: str, mode: str, *_: object) -> None:
        self.mode = mode

    def start(self) -> str:
        return "3.99.0"

    version = "3.99"

    def launch(self) -> None: ...

    def ready(self) -> str:
        return self.version

    def send(self, command: object) -> None: ...

    def until(self, event: str, seconds: float) -> dict[str, Any]:
        return {"unfit": "", "modules": []}

    def run(self, *_: object) -> tuple[Run, Notes]:
        return Run(), Notes()

    def stop(self) -> None: ...

    def end(self) -> None: ...


@pytest.mark.guarantee("MUT-23")
def test_runs_are_warm_as_soon_as_the_tests_are_collected(sample, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "Process", Played)
    slot = Slot(sample.project, tmp_path, 0, sys.executable)
    before, _ = slot.run([ADD], LIMITS)
    slot.collect([ADD])
    after, _ = slot.run([ADD], LIMITS)

    assert (before.how, after.how) == ("fresh", "warm")


@pytest.mark.guarantee("MUT-23")
def test_what_another_job_has_collected_is_imported_anew(sample, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "Process", Played)
    slot = Slot(sample.project, tmp_path, 0, sys.executable)
    slot.collect([ADD])

    assert [slot.run(tests, LIMITS)[0].how for tests in ([ADD], [FULL], [ADD, FULL])] == ["warm", "fresh", "fresh"]


@pytest.mark.guarantee("MUT-24")
@pytest.mark.parametrize(
    ("file", "text", "how"),
    [
        ("src/shop.py", CODE.replace("one + two", "one - two"), "warm"),
        ("src/shop.py", CODE.replace("LIMIT = 3", "LIMIT = 4"), "fresh"),
        ("tests/test_shop.py", TESTS.replace("== 5", "== 6"), "fresh"),
        ("tests/conftest.py", "1 / 0\n", "fresh"),
    ],
    ids=["body", "constant", "test", "conftest"],
)
def test_what_cannot_be_swapped_is_imported_anew(counted, file, text, how):
    (counted.root / "tests/conftest.py").write_text("")
    counted.collect([ADD])
    with counted.mutated({file: text}):
        run, _ = counted.run([ADD], LIMITS, mutated=[file])

    assert run.how == how
    assert run.broken or [report.outcome for report in run.reports] != ["passed"] * 3 or "LIMIT = 4" in text


@pytest.mark.guarantee("MUT-22")
@pytest.mark.parametrize(
    ("alive", "why"),
    [
        ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", "a thread runs"),
        ("import socket; kept = socket.socket()", "a socket is open"),
        ("import asyncio; kept = asyncio.new_event_loop()", "a socket is open"),
    ],
    ids=["thread", "socket", "loop"],
)
def test_what_is_alive_after_an_import_is_never_forked(counted, alive, why):
    with open(counted.root / "tests/test_shop.py", "a", encoding="utf-8") as file:
        file.write(alive + "\n")
    counted.collect([ADD])
    run, _ = counted.run([ADD], LIMITS)

    assert why in counted.cold
    assert "tests/test_shop.py" in counted.cold
    assert run.how == "fresh"


@pytest.mark.guarantee("MUT-22")
def test_the_first_file_whose_import_leaves_something_alive_is_named(tmp_path, monkeypatch):
    alive = iter(["", "a thread runs", "a thread runs", "a thread runs"])
    monkeypatch.setattr(warm, "unfit", lambda: next(alive))
    wire = os.open(tmp_path / "wire", os.O_RDWR | os.O_CREAT)
    parent: Any = SimpleNamespace(wire=Wire(wire))
    recorder = Recorder(parent.wire, [], {}, str(tmp_path))
    plugin = warm.Warm(parent, recorder, Ran(str(tmp_path)), {"cwd": str(tmp_path), "purge": []})
    for file in ("test_one.py", "test_two.py", "test_three.py"):
        plugin.pytest_collectreport(pytest.CollectReport(file, "passed", None, []))
    plugin._tell_fitness()
    os.close(wire)

    assert json.loads((tmp_path / "wire").read_text())["unfit"] == "a thread runs after the import of test_two.py"


def test_a_warm_process_that_died_is_done_without(counted):
    counted.collect([ADD])
    text = CODE.replace("return one + two", "import os, signal; os.kill(os.getppid(), signal.SIGKILL)")
    with counted.mutated({"src/shop.py": text}):
        counted.run([ADD], LIMITS, mutated=["src/shop.py"])
    run, _ = counted.run([ADD], LIMITS)

    assert counted.cold == "the warm process died"
    assert (run.how, [report.outcome for report in run.reports]) == ("fresh", ["passed"] * 3)
