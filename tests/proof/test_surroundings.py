"""Surroundings: what around the files can change a verdict."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lastbus.proof import surroundings
from lastbus.proof.surroundings import look
from tests.proof.sample import PYPROJECT, Sample


def digest(sample: Sample) -> str:
    return look(sample.project, sys.executable).digest


@pytest.mark.guarantee("MUT-42")
def test_the_same_surroundings_have_the_same_digest(sample):
    one = look(sample.project, sys.executable)

    assert (one.python, one.executable) == (sys.version.split()[0], os.path.abspath(sys.executable))
    assert one.digest == digest(sample) != ""


@pytest.mark.guarantee("MUT-42")
@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", PYPROJECT.replace('pythonpath = ["src"]', 'pythonpath = ["src", "."]')),
        ("pytest.ini", "[pytest]\nasyncio_mode = auto\n"),
        ("tox.ini", "[pytest]\nasyncio_mode = auto\n"),
        ("setup.cfg", "[tool:pytest]\nasyncio_mode = auto\n"),
    ],
    ids=["pyproject", "pytest", "tox", "setup"],
)
def test_settings_of_pytest_count(sample, file, text):
    sample.write("tox.ini", "[tox]\n")
    sample.write("setup.cfg", "[metadata]\n")
    before = digest(sample)
    sample.write(file, text)

    assert digest(sample) != before


def test_settings_of_other_tools_do_not(sample):
    sample.write("tox.ini", "[tox]\n")
    before = digest(sample)
    sample.write("tox.ini", "[tox]\nenv_list = lint\n")
    sample.write("pyproject.toml", PYPROJECT + "\n[tool.ruff]\nline-length = 120\n")

    assert digest(sample) == before


@pytest.mark.guarantee("MUT-42")
def test_an_installed_package_counts_and_so_does_its_version(sample, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    seen = [digest(sample)]
    for version in ("1", "2"):
        (tmp_path / f"till-{version}.dist-info").mkdir()
        seen.append(digest(sample))

    assert len(set(seen)) == 3


@pytest.mark.guarantee("MUT-42")
def test_another_interpreter_is_another_surrounding(sample, tmp_path):
    other = tmp_path / "python"
    other.write_text('#!/bin/sh\necho \'["3.99.0", ["other"], []]\'\n')
    other.chmod(0o755)

    assert look(sample.project, os.fspath(other)).python == "3.99.0"
    assert look(sample.project, os.fspath(other)).digest != digest(sample)


@pytest.mark.guarantee("MUT-42")
@pytest.mark.parametrize("said", ["exit 1", "echo nonsense"])
def test_an_interpreter_that_gives_no_answer_has_no_digest(sample, tmp_path, said):
    mute = tmp_path / "python"
    mute.write_text(f"#!/bin/sh\n{said}\n")
    mute.chmod(0o755)

    assert look(sample.project, os.fspath(mute)).digest == ""


@pytest.mark.guarantee("MUT-42")
def test_the_modules_that_judge_count(sample, monkeypatch):
    names = {Path(path).name for path in surroundings.judges()}
    assert {"replay.py", "serve.py", "swap.py", "verdict.py", "runner.py", "baseline.py", "mutation.py"} <= names
    assert "ledger.py" not in names

    before = digest(sample)
    monkeypatch.setattr(surroundings, "judges", lambda: {Path("verdict.py"): "another rule"})
    assert digest(sample) != before
