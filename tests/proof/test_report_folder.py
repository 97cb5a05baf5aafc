"""A report on disk: whole or not at all, and never in place of something else."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from lastbus.proof import report
from lastbus.proof.errors import UsageError
from lastbus.proof.report import folder
from lastbus.proof.verdict import Verdict
from tests.proof.accounts import account_of, proven, result


def names(place: Path) -> list[str]:
    return sorted(file.relative_to(place).as_posix() for file in place.rglob("*") if file.is_file())


def test_a_report_is_a_page_three_files_for_programs_and_a_folder_per_mutation(sample, tmp_path):
    report.write(tmp_path / "deep" / "out", proven(sample))

    assert names(tmp_path / "deep" / "out") == [
        *(
            f"{name}/{file}"
            for name in ("add-wrong", "bird")
            for file in ("mutation.diff", "pytest.log", "verdict.txt")
        ),
        *(f"full-late/{file}" for file in ("mutation.diff", "pytest.log", "verdict.txt")),
        "index.html",
        "junit.xml",
        "mutation.json",
        "report.json",
    ]
    assert (tmp_path / "deep/out/add-wrong/pytest.log").read_text() == "the log"


def test_report_json_tells_the_headline_and_when_it_was_made(sample, tmp_path):
    report.write(tmp_path / "out", proven(sample))

    body = json.loads((tmp_path / "out/report.json").read_text())
    assert body["headline"]["tone"] == "good"
    assert (body["project"], body["errors"]) == ("shop", [])
    assert body["made"].endswith("+00:00")


@pytest.mark.guarantee("MUT-61")
def test_a_new_report_takes_the_place_of_the_old_one_as_a_whole(sample, tmp_path):
    report.write(tmp_path / "out", account_of(sample, result(sample, "gone", Verdict.KILLED)))
    (sample.root / "mutations/sum/gone.json").unlink()

    report.write(tmp_path / "out", proven(sample))

    assert not (tmp_path / "out/gone").exists()
    assert (tmp_path / "out/add-wrong").is_dir()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.guarantee("MUT-61")
@pytest.mark.parametrize("there", [True, False], ids=["an-older-report", "none"])
def test_a_crash_in_the_middle_leaves_the_older_report_or_none(sample, tmp_path, monkeypatch, there):
    account = proven(sample)
    if there:
        report.write(tmp_path / "out", account)
    before = {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in names(tmp_path / "out")}
    monkeypatch.setattr(folder, "elements", lambda _: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        report.write(tmp_path / "out", account)

    assert (tmp_path / "out").exists() is there
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in names(tmp_path / "out")} == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.guarantee("MUT-61")
def test_a_report_can_be_read_by_everybody(sample, tmp_path):
    before = os.umask(0o022)
    try:
        report.write(tmp_path / "out", proven(sample))
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o755


@pytest.mark.guarantee("MUT-62")
@pytest.mark.parametrize(
    "text",
    [None, "{}", "[]", '{"baseline": {}, "results": []}', "\udce9"],
    ids=["none", "other", "list", "part", "torn"],
)
def test_a_folder_that_is_no_report_is_refused_and_kept(sample, tmp_path, text):
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("years of work")
    if text is not None:
        (home / "report.json").write_bytes(text.encode(errors="surrogateescape"))

    with pytest.raises(UsageError, match="no report of a proof"):
        report.write(home, proven(sample))

    assert (home / "thesis.txt").read_text() == "years of work"


@pytest.mark.guarantee("MUT-62")
def test_an_empty_folder_is_filled_and_a_file_is_refused(sample, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")

    report.write(tmp_path / "empty", proven(sample))
    with pytest.raises(UsageError, match="is a file"):
        report.write(tmp_path / "file", proven(sample))

    assert (tmp_path / "empty/index.html").is_file()
    assert (tmp_path / "file").read_text() == "mine"


def test_what_is_no_text_is_written_all_the_same(sample, tmp_path):
    report.write(tmp_path / "out", account_of(sample, result(sample, "odd", Verdict.SURVIVED, "half a pair: \ud800")))

    assert (tmp_path / "out/odd/verdict.txt").read_text().count("half a pair: ?") == 1
