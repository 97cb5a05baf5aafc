"""Fresh runs: forked where pytest is set up, and the project is imported anew in each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lastbus.proof.notes import Limits
from lastbus.proof.runner import Slot
from lastbus.proof.zygote import forked, fresh
from lastbus.proof.zygote.place import Command
from lastbus.proof.zygote.recorder import Recorder, Wire
from tests.proof.inside import PLAIN, Here
from tests.proof.sample import ADD, CODE, FULL, PYPROJECT, Sample, shop

LIMITS = Limits(startup=20.0, of={}, default=20.0)
PLUGIN = "import pytest\n\n@pytest.fixture\ndef till():\n    return 'empty'\n"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Prepare for all test files there are, become the child of the first command that is not refused; what it told."""
    for name in ("redirect", "settle_in"):
        monkeypatch.setattr(forked, name, lambda _: None)
    monkeypatch.setattr(fresh, "gc", SimpleNamespace(collect=int, freeze=int))
    monkeypatch.syspath_prepend(tmp_path)
    wire = os.open(tmp_path / "wire", os.O_RDWR | os.O_CREAT)

    def told(*commands: Command) -> list[dict[str, Any]]:
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        files = sorted(file.name for file in tmp_path.glob("test_*.py"))
        recorder = Recorder(Wire(wire), [], {}, str(tmp_path))
        parent: Any = Here(recorder.wire, *commands)
        plugin = fresh.Fresh(parent, recorder, {"cwd": str(tmp_path), "files": files})
        before = set(sys.modules)
        monkeypatch.chdir(tmp_path)
        pytest.main([f"--rootdir={tmp_path}", *PLAIN, *files], plugins=[recorder, plugin])
        for name in set(sys.modules) - before:
            if name.startswith(("test_", "plug")):
                del sys.modules[name]
        return [json.loads(line) for line in (tmp_path / "wire").read_text().splitlines() if line]

    yield told
    os.close(wire)


def command(*tests: str, mutated: tuple[str, ...] = ()) -> Command:
    files = sorted({test.partition("::")[0] for test in tests})
    return {"do": "run", "keep": list(tests), "files": files, "mutated": list(mutated), "services": {}, "log": ""}


@pytest.mark.guarantee("MUT-22")
def test_a_child_imports_the_files_of_its_own_tests_and_no_others(told, tmp_path):
    (tmp_path / "test_one.py").write_text("def test_one(): ...\n\ndef test_more(): ...\n")
    (tmp_path / "test_two.py").write_text("raise SystemExit(3)\n")

    news = told(command("test_one.py::test_one"))

    assert [one["event"] for one in news[:2]] == ["prepared", "collected"]
    calls = [(one["test"], one["outcome"]) for one in news if one["event"] == "report" and one["when"] == "call"]
    assert calls == [("test_one.py::test_one", "passed")]


@pytest.mark.guarantee("MUT-17")
@pytest.mark.parametrize(
    ("file", "why"),
    [("pytest.ini", "may have been read"), ("plug_till.py", "imported by a plugin"), ("test_one.py", "")],
    ids=["setting", "plugin", "test"],
)
def test_what_pytest_has_read_or_imported_before_the_fork_is_refused(told, tmp_path, monkeypatch, file, why):
    monkeypatch.setenv("PYTEST_PLUGINS", "plug_till")
    (tmp_path / "plug_till.py").write_text("")
    (tmp_path / "test_one.py").write_text("def test_one(): ...\n")

    news = told(command("test_one.py::test_one", mutated=(file,)), command("test_one.py::test_one"))

    refused = [one["reason"] for one in news if one["event"] == "refused"]
    assert [why in reason for reason in refused] == ([True] if why else [])


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Slot]:
    """A slot for a shop whose plugin and settings matter."""
    sample: Sample = shop(tmp_path / "shop")
    sample.write("pyproject.toml", PYPROJECT.replace("pythonpath", 'addopts = "-p plug"\npythonpath'))
    sample.write("src/plug.py", PLUGIN)
    sample.write("tests/test_shop.py", "import shop\n\ndef test_add_gives_the_sum(till):\n    assert till == 'empty'\n")
    slot = Slot(sample.project, tmp_path, 0, sys.executable)
    yield slot
    slot.close()


@pytest.mark.guarantee("MUT-17")
@pytest.mark.parametrize(
    ("file", "text", "how", "outcome"),
    [
        ("src/plug.py", PLUGIN.replace("empty", "full"), "isolated", "failed"),
        ("pyproject.toml", PYPROJECT, "isolated", "failed"),
        ("src/shop.py", CODE + "1 / 0\n", "fresh", "broken"),
        ("tests/conftest.py", "1 / 0\n", "fresh", "broken"),
        ("src/shop.py", CODE, "fresh", "passed"),
    ],
    ids=["plugin", "setting", "code", "conftest", "nothing"],
)
def test_a_mutation_is_there_whatever_pytest_had_to_do_before(slot, file, text, how, outcome):
    (slot.root / "tests/conftest.py").write_text("")
    slot.preload([])
    with slot.mutated({file: text}):
        run, _ = slot.run([ADD], LIMITS, how="fresh", mutated=[file])

    words = {"failed"} & {report.outcome for report in run.reports} or {"broken" if run.broken else "passed"}
    assert (run.how, words) == (how, {outcome})


@pytest.mark.guarantee("MUT-22")
def test_settings_that_pytest_cannot_read_leave_every_run_isolated(slot):
    (slot.root / "pyproject.toml").write_text("no such settings")

    run, _ = slot.run([ADD], LIMITS, how="fresh")

    assert (run.how, [broken.kind for broken in run.broken]) == ("isolated", ["collect"])


@pytest.mark.guarantee("MUT-23")
def test_each_fresh_run_begins_with_nothing_of_the_one_before(slot):
    (slot.root / "tests/test_shop.py").write_text(
        "import shop\n\ndef test_add_gives_the_sum():\n    assert shop.LIMIT == 3\n    shop.LIMIT = 4\n\n"
        "def test_a_shop_at_its_limit_is_full():\n    assert shop.full(3)\n"
    )

    runs = [slot.run([test], LIMITS, how="fresh")[0] for test in (ADD, FULL, ADD)]

    assert [(run.how, [report.outcome for report in run.reports]) for run in runs] == [("fresh", ["passed"] * 3)] * 3
