"""The recorder: what it tells of a session of pytest. The session is a real one, inside this process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lastbus.proof.zygote.recorder import Recorder, Services, Wire
from tests.proof.inside import PLAIN
from tests.proof.sample import HAS_SUBTESTS

Events = list[dict[str, Any]]
Record = Callable[..., Events]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """Run the one test of a module under a recorder; returns what this told."""
    wire = os.open(tmp_path / "wire", os.O_RDWR | os.O_CREAT)

    def record(text: str, *args: str, services: Services | None = None) -> Events:
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        (tmp_path / "test_one.py").write_text(text)
        recorder = Recorder(Wire(wire), ["test_one.py::test_one"], services or {}, str(tmp_path))
        pytest.main([f"--rootdir={tmp_path}", *PLAIN, *args, str(tmp_path / "test_one.py")], plugins=[recorder])
        sys.modules.pop("test_one", None)
        return [json.loads(line) for line in (tmp_path / "wire").read_text().splitlines() if line]

    yield record
    os.close(wire)


def reports(events: Events) -> list[tuple[str, bool, str]]:
    """When, whether of a subtest, and how."""
    return [(one["when"], one["subtest"], one["outcome"]) for one in events if one["event"] == "report"]


PASSED = [(when, False, "passed") for when in ("setup", "call", "teardown")]


@pytest.mark.guarantee("MUT-04")
def test_the_phases_of_a_test_are_told_with_its_marks(record):
    told = record("import pytest\n\n@pytest.mark.guarantee('SUM-01')\ndef test_one(): ...\n\ndef test_two(): ...\n")

    assert [one["event"] for one in told] == ["collected", "start", "report", "report", "report"]
    assert told[0]["carries"] == {"test_one.py::test_one": ["SUM-01"]}
    assert reports(told) == PASSED


@pytest.mark.guarantee("MUT-04")
@pytest.mark.skipif(not HAS_SUBTESTS, reason="this pytest has no subtests")
def test_subtests_are_told_apart_from_their_test(record):
    told = record("def test_one(subtests):\n    with subtests.test():\n        assert not 1\n")

    assert reports(told)[1:3] == [("call", True, "failed"), ("call", False, "passed")]


@pytest.mark.guarantee("MUT-05")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("import", "1 / 0\n"),
        ("import", "import nothing_like_this\n"),
        ("import", "def test_add(:\n"),
        ("collect", "def names(n): return 1 / 0\nimport pytest\n@pytest.mark.parametrize('n', [1], ids=names)\n"),
    ],
    ids=["import", "missing", "syntax", "collect"],
)
def test_what_breaks_before_a_test_is_told(record, kind, text):
    told = record(text + "def test_one(n): ...\n")

    assert [one["kind"] for one in told if one["event"] == "broken"] == [kind]


@pytest.mark.guarantee("MUT-05")
def test_the_clock_of_pytest_timeout_does_not_run(record):
    text = "import time, pytest\n\n@pytest.mark.timeout(0.01)\ndef test_one():\n    time.sleep(0.1)\n"

    assert reports(record(text, "-p", "timeout", "-o", "timeout_method=signal")) == PASSED


def test_a_traceback_begins_where_the_test_does(record, capsys):
    told = record("def test_one():\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        assert not 1\n")
    said = capsys.readouterr().out

    assert reports(told)[1] == ("call", False, "failed")
    assert "_pytest" not in said
    assert "ZeroDivisionError" in said


@pytest.mark.guarantee("MUT-28")
def test_a_service_is_named_when_its_fixture_is_set_up(record, monkeypatch):
    monkeypatch.setenv("TILL", "own")
    fixture = "import os, pytest\n\n@pytest.fixture\ndef till(): return os.environ['TILL']\n\n"
    test = "def test_one(till): assert till == 'lent'\n"

    assert reports(record(fixture + test, services={"till": {"TILL": "lent"}})) == PASSED
