"""The command `lastbus frozen`: what it prints, and what makes it fail."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from lastbus import cli
from tests.proof.sample import Sample

Frozen = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def frozen(sample: Sample, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Frozen:
    """Run one verb inside the sample, where `add` is frozen; returns its exit code and the lines that it printed."""
    monkeypatch.chdir(sample.root)

    def run(*argv: str) -> tuple[int, list[str]]:
        with pytest.raises(SystemExit) as left:
            cli.main(["frozen", *argv])
        return int(left.value.code or 0), capsys.readouterr().out.splitlines()

    assert run("update", "src/shop.py::add", "--why", "invoices quote it")[0] == 0
    return run


def commit(sample: Sample, words: str) -> None:
    """Commit all of the sample."""
    who = ["-c", "user.name=a", "-c", "user.email=b"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", words], ["tag", words]):
        subprocess.run(["git", *command], cwd=sample.root, check=True)


def change(sample: Sample, old: str, new: str) -> None:
    """Edit the shop."""
    sample.write("src/shop.py", (sample.root / "src/shop.py").read_text().replace(old, new))


@pytest.mark.guarantee("FRZ-03")
def test_history_tells_bytes_and_lines_of_each_revision_and_of_the_work_tree(frozen, sample):
    commit(sample, "one")
    change(sample, "one + two", "two + one")
    commit(sample, "two")
    change(sample, "two + one", "one + two")

    assert frozen("history", "add", "one") == (0, ["one=40/2", "work tree=40/2", "identical: True"])
    assert frozen("history", "add", "one", "two") == (
        1,
        ["one=40/2", "two=40/2", "work tree=40/2", "identical: False"],
    )


@pytest.mark.guarantee("FRZ-03")
def test_history_without_revisions_takes_the_commits_that_touched_the_file(frozen, sample):
    commit(sample, "one")
    sample.write("README.md", "A shop.")
    commit(sample, "aside")
    change(sample, "def add", "def plus")
    commit(sample, "two")

    code, lines = frozen("history", "add")

    assert code == 1
    assert [line.partition("=")[2] for line in lines] == ["absent", "40/2", "absent", ""]


@pytest.mark.guarantee("FRZ-03", "FRZ-04")
def test_another_docstring_is_the_same_body(frozen, sample):
    commit(sample, "one")
    change(sample, "The sum.", "What both come to.")

    assert frozen("history", "add", "one")[1][-1] == "identical: True"
    assert frozen("check")[0] == 0


@pytest.mark.guarantee("FRZ-05")
def test_the_check_lists_the_mutations_in_each_body(frozen, sample):
    sample.mutate("add-wrong")

    code, lines = frozen("check")

    assert code == 0
    assert lines == ["1 frozen bodies unchanged", "src/shop.py::add: 1 mutations anchored in it: add-wrong"]


@pytest.mark.guarantee("FRZ-02")
def test_one_changed_byte_fails_the_check(frozen, sample):
    change(sample, "one + two", "one - two")

    code, lines = frozen("check")

    assert code == 1
    assert "add is frozen (invoices quote it) but changed" in lines[0]


@pytest.mark.guarantee("FRZ-07")
def test_an_update_by_name_needs_a_reason(frozen, sample):
    assert frozen("update", "add")[0] == 2
    assert frozen("update", "add", "--why", "auditors")[0] == 0
    assert "auditors" in (sample.root / "mutations/frozen.json").read_text()
