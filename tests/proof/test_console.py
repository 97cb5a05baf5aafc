"""How the commands speak while they work: a bar on a terminal, a line for each result elsewhere."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from lastbus import cli
from lastbus._commands.console import err, out, progress
from lastbus.proof import authoring
from lastbus.proof.verdict import Verdict
from lastbus.proof.witnesses import Witnesses
from tests.proof.accounts import result
from tests.proof.sample import ADD, CODE, TESTS


@pytest.fixture
def results(sample):
    """One as expected, one that differed on the second look, and one that nobody noticed."""
    killed = result(sample, "one", Verdict.KILLED)
    return [killed, replace(killed, disagreement="warm: survived"), result(sample, "three", Verdict.SURVIVED)]


def test_away_from_a_terminal_every_result_is_a_line(results, capsys):
    with progress(3) as tell:
        for each in results:
            tell(each)

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["killed", "killed", "survived"]


def test_on_a_terminal_a_bar_counts_and_only_what_is_not_as_expected_is_a_line(results, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")

    with progress(3) as tell:
        for each in results:
            tell(each)

    said = capsys.readouterr().out
    assert said.count("killed ") == 1
    assert "(warm: survived: the isolated verdict counts)" in said
    assert "survived         three" in said
    assert "replay" in said
    assert "100%" in said


def test_results_and_complaints_are_plain_text_on_their_own_streams(capsys):
    out().print("[bold]7 of 9[/] " + "x" * 200)
    err().print("[red]no[/]")

    said = capsys.readouterr()
    assert (said.out, said.err) == ("[bold]7 of 9[/] " + "x" * 200 + "\n", "[red]no[/]\n")


MORE = """

@pytest.mark.guarantee("SUM-01")
def test_nothing_is_added(): assert shop.add(1, 0) == 1


@pytest.mark.guarantee("SUM-01")
def test_much_is_added(): assert shop.add(1, 99) == 100


@pytest.mark.guarantee("SUM-01")
def test_less_is_added(): assert shop.add(1, -1) == 0
"""


@pytest.mark.guarantee("MUT-53")
def test_of_many_tests_the_killers_are_found_without_a_word(sample, inside, capsys, monkeypatch):
    sample.write("tests/test_shop.py", TESTS + MORE)
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "one"]):
        subprocess.run(["git", *command], cwd=sample.root, check=True)
    sample.write("src/shop.py", CODE.replace("one + two", "one - two"))
    names = ("test_nothing_is_added", "test_much_is_added", "test_less_is_added")
    tests = [f"tests/test_shop.py::{name}" for name in names]
    monkeypatch.setattr(authoring, "find", lambda *_: Witnesses((*tests, ADD), "that run the changed lines"))
    monkeypatch.chdir(sample.root)

    with pytest.raises(SystemExit) as left:
        cli.main(["mutations", "new", "add-minus", "--guarantee", "SUM-01"])

    assert left.value.code == 0
    assert capsys.readouterr().out.splitlines()[:6] == [
        "wrote mutations/sum/add-minus.json",
        f"  killer {tests[1]}",
        f"  killer {tests[2]}",
        f"  killer {ADD}",
        "  of 4 tests that run the changed lines",
        "killed           add-minus",
    ]
