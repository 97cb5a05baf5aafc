"""What a GitHub Actions run shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lastbus.proof.report.github import ANNOTATIONS_MAX, CELL_MAX, ROWS_MAX, annotated, summary, tell
from lastbus.proof.verdict import Verdict
from tests.proof.accounts import account_of, proven, result
from tests.proof.sample import ADD


@pytest.mark.guarantee("MUT-65")
def test_outside_github_nothing_is_told(sample, tmp_path):
    account = account_of(sample, result(sample, "one", Verdict.SURVIVED))

    assert list(tell(account, {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary")})) == []
    assert not (tmp_path / "summary").exists()


@pytest.mark.guarantee("MUT-65")
def test_on_github_the_summary_is_added_and_what_is_wrong_is_annotated(sample, tmp_path):
    (tmp_path / "summary").write_text("an earlier step\n")
    account = account_of(sample, result(sample, "one", Verdict.SURVIVED))

    lines = list(tell(account, {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}))

    assert lines[0] == (
        f"::error file=src/shop.py,line=11,title=survived%3A one::The sum is wrong.%0Abecause%0Akillers: {ADD}"
    )
    said = (tmp_path / "summary").read_text()
    assert said.startswith("an earlier step\n## ❌ shop: 1 mutation met something else than expected\n")


@pytest.mark.guarantee("MUT-65")
def test_a_file_is_named_as_the_repository_knows_it(sample):
    account = account_of(sample, result(sample, "one", Verdict.SURVIVED))

    lines = list(tell(account, {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(sample.root.parent)}))

    assert lines[0].startswith("::error file=shop/src/shop.py,line=11,")


@pytest.mark.guarantee("MUT-65")
def test_no_text_can_break_out_of_its_annotation(sample):
    account = account_of(sample, result(sample, "one", Verdict.SURVIVED, "100 %\r\n::stop-commands::x"))

    line = next(annotated(account, sample.root))

    assert "\n" not in line
    assert "\r" not in line
    assert "100 %25%0D%0A::stop-commands::x" in line


@pytest.mark.guarantee("MUT-65")
def test_more_than_github_shows_are_only_counted(sample):
    results = [result(sample, f"m{number}", Verdict.SURVIVED) for number in range(ANNOTATIONS_MAX + 3)]

    lines = list(annotated(account_of(sample, *results), sample.root))

    assert sum(line.startswith("::error") for line in lines) == ANNOTATIONS_MAX
    assert lines[-1].endswith("more errors are in the summary and in the report")


@pytest.mark.guarantee("MUT-60", "MUT-65")
def test_the_summary_counts_verdicts_and_canaries(sample):
    said = summary(proven(sample))

    assert "| killed | 2 |" in said
    assert "Python 3.11.7, 1.5 s with 2 job(s), canaries 1 of 1 as expected." in said
    assert "| what |" not in said


@pytest.mark.guarantee("MUT-65")
def test_no_text_can_break_out_of_its_cell(sample):
    account = account_of(sample, result(sample, "one", Verdict.SURVIVED, "a | b\n<img src=x> `c` [d](e)"))

    row = next(line for line in summary(account).splitlines() if "survived" in line and "shop.py" in line)

    assert row.count("|") == 4
    assert "<img" not in row
    assert "&#60;img src=x&#62; &#96;c&#96; &#91;d&#93;&#40;e&#41;" in row


@pytest.mark.guarantee("MUT-65")
@pytest.mark.parametrize(("length", "shown"), [(CELL_MAX, "a" * CELL_MAX), (CELL_MAX + 1, "a" * CELL_MAX + "…")])
def test_a_cell_shows_no_more_than_fits_and_says_when_it_was_more(sample, length, shown):
    account = account_of(sample, result(sample, "one", Verdict.SURVIVED, "a" * length))

    row = next(line for line in summary(account).splitlines() if "survived" in line and "shop.py" in line)

    assert re.search("a{9}[a…]*", row)[0] == shown


@pytest.mark.guarantee("MUT-65")
def test_a_red_baseline_is_annotated_and_in_the_summary(sample):
    account = account_of(sample, red={ADD: "assert 5 == 6"})

    assert next(annotated(account, sample.root)) == (
        f"::error title=red baseline::{ADD} fails without any mutation: assert 5 == 6"
    )
    assert "| red baseline | <code>tests/test&#95;shop.py::" in summary(account)


@pytest.mark.guarantee("MUT-65")
def test_a_summary_is_never_so_long_that_it_is_dropped(sample):
    one = result(sample, "one", Verdict.SURVIVED, "|" * 4_000)
    account = account_of(sample, *[one] * (ROWS_MAX + 5))

    said = summary(account)

    assert said.count("\n| **survived**") == ROWS_MAX
    assert "more rows are in the report." in said
    assert len(said.encode()) < 1024 * 1024


def test_a_place_outside_the_repository_is_named_in_full(sample, tmp_path):
    account = account_of(sample, result(sample, "one", Verdict.SURVIVED))

    line = next(annotated(account, tmp_path / "elsewhere"))

    assert f"file={Path(sample.root / 'src/shop.py').resolve().as_posix()}," in line
