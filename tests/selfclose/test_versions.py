"""The table of versions: `lastbus shapes` plays every shape under an interpreter and compares it with its page."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from lastbus import cli
from lastbus._close import selfclose
from lastbus._kit.shapes import play, versions
from lastbus._kit.shapes.versions import Column

PAGE = Path("docs/SHAPES.md")
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def shapes(*argv: str) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main(["shapes", *argv])
    return int(left.value.code or 0)


@pytest.fixture(scope="module")
def played() -> list[Column]:
    """This interpreter's columns."""
    return list(versions.columns(sys.executable))


def changed(column: Column, row: str, word: str) -> Column:
    return column._replace(words={**column.words, row: word})


@pytest.mark.guarantee("SELF-28", "SELF-29")
def test_every_shape_of_this_python_gets_the_word_that_the_page_says(played: list[Column]) -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert played[0].title == HERE
    assert [versions.surprises(each) for each in played] == [[]] * len(played)
    assert versions.differences(page, [each for each in played if each.title == HERE]) == []
    assert set(played[0].words) <= set(versions.expected())


@pytest.mark.guarantee("SELF-29")
@pytest.mark.parametrize("row", ["gather", "books of Lock", versions.CHECK_ROW])
def test_a_word_that_differs_is_named_with_its_row_and_its_version(played: list[Column], row: str) -> None:
    other = changed(played[0], row, "clean / in-graph")

    assert versions.surprises(other) == [f"{HERE}: {row}: clean / in-graph, not {versions.expected()[row]}"]
    told = versions.differences(PAGE.read_text(encoding="utf-8"), [other])
    assert any(row in each and "clean / in-graph" in each for each in told)


@pytest.mark.guarantee("SELF-29")
def test_a_row_that_the_page_lacks_is_a_difference(played: list[Column]) -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    page = "\n".join(line for line in lines if not line.startswith("| gather |"))

    assert any("gather" in each and "nothing" in each for each in versions.differences(page, played[:1]))


def test_a_column_that_was_not_played_is_told(played: list[Column]) -> None:
    page = versions.page([Column("3.9", played[0].words), *played])

    assert versions.uncompared(page, played) == ["3.9"]
    assert versions.differences(page, played) == []


@pytest.mark.guarantee("SELF-29")
def test_the_command_ends_with_0_if_all_is_as_on_the_page_and_with_1_if_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "SHAPES.md"

    written = shapes("--write", "--page", str(page))
    as_written = shapes("--check", "--page", str(page))
    page.write_text(page.read_text(encoding="utf-8").replace("| shield | in-graph |", "| shield | clean |"))

    assert [written, as_written, shapes("--check", "--page", str(page))] == [0, 0, 1]
    assert "shield" in capsys.readouterr().err


@pytest.mark.guarantee("SELF-29")
def test_the_command_prints_each_row_with_its_due_words_and_what_each_interpreter_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {**versions.expected(), "gather": "clean / clean"}
    del words["TaskGroup, at its end"]
    monkeypatch.setattr(versions, "columns", lambda python: [Column(f"title of {python}", words)])

    assert shapes("--python", "one") == 1

    said = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    assert said >= {
        "shape title of one",
        "shield (in-graph / clean) ok",
        "gather (in-graph / clean) clean / clean",
        "TaskGroup, at its end (in-graph / clean) n/a",
    }


@pytest.mark.parametrize("argv", [("--python", "no-such-python"), ("--check", "--page", "no-such-page.md")])
def test_what_cannot_be_played_or_read_is_told_and_ends_with_2(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shapes(*argv) == 2
    assert "no-such" in capsys.readouterr().err


async def test_a_wait_that_nobody_ends_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def for_ever(closing: object) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(play, "BOUND_SECONDS", 0.01)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(play.ask(selfclose, for_ever, by_handler=True), 10)


def test_an_interpreter_that_breaks_off_is_told_with_its_last_words(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'it is broken' >&2\nexit 3\n")
    broken.chmod(0o755)

    with pytest.raises(versions.InterpreterError, match="ended with 3: it is broken"):
        list(versions.columns(str(broken)))
