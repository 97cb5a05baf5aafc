"""How the commands speak while they work: a bar on a terminal, a line for each result elsewhere."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from lastbus._commands.console import err, out, progress
from lastbus.proof.verdict import Verdict
from tests.proof.accounts import result


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
