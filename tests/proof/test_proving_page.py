"""`docs/PROVING.md` says what is so: its ten minutes are played, its commands exist, its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lastbus.proof.verdict import Verdict
from tests.proof.prover import ROOT, Shell, install, shell_in

PAGE = (ROOT / "docs" / "PROVING.md").read_text(encoding="utf-8")
TUTORIAL = PAGE[PAGE.index("## In ten minutes") : PAGE.index("## Every day")]
BLOCK = re.compile(r"^```(\w*) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.slow


def rows(heading: str) -> list[list[str]]:
    """The rows of the first table after a heading, without its head."""
    lines = PAGE[PAGE.index(heading) :].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    cells = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        cells.append([cell.strip() for cell in line.strip("|").split("|")])
    return cells


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell in an empty folder, with the prover and no bus."""
    return shell_in(tmp_path_factory.mktemp("empty"), install(tmp_path_factory.mktemp("prover")))


def follow(page: str, folder: Path, shell: Shell) -> list[str]:
    """Do what a page says in `folder`: write its files, make its changes, type its commands. Returns the commands."""
    typed = []
    for language, file, body in BLOCK.findall(page):
        place = folder / file
        if language == "diff":
            old = "".join(f"{line[1:]}\n" for line in body.splitlines() if line.startswith("-"))
            new = "".join(f"{line[1:]}\n" for line in body.splitlines() if line.startswith("+"))
            assert place.read_text().count(old) == 1
            place.write_text(place.read_text().replace(old, new))
        elif file:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(body)
        elif language == "console":
            for command, expected in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", body, re.MULTILINE):
                typed.append(command)
                compare(command, expected, shell)
    return typed


def compare(command: str, expected: str, shell: Shell) -> None:
    """Type a command and compare what it says; `…` on the page stands for anything on its line."""
    ran = shell(command)
    pattern = "[^\n]*".join(re.escape(part) for part in expected.split("…"))
    assert re.fullmatch(pattern, ran.stdout), (command, ran.stdout, ran.stderr)


def test_the_ten_minutes_end_with_a_green_gate(tmp_path, shell):
    here = shell_in(tmp_path, Path(shell("command -v lastbus").stdout.strip()).parent)

    typed = follow(TUTORIAL, tmp_path, here)

    assert [command.split(";")[0] for command in typed] == [
        "lastbus ledger",
        "lastbus prove",
        "lastbus prove --report proof-report",
    ]
    workflow = (tmp_path / ".github/workflows/prove.yml").read_text()
    gate = re.findall(r"- run: (lastbus .+)", workflow)
    assert [here(command).returncode for command in gate] == [0]
    assert re.findall(r"path: (.+)", workflow) == ["proof-report"]
    assert (tmp_path / "proof-report/index.html").is_file()


def test_a_page_that_promises_another_output_is_noticed(tmp_path, shell):
    with pytest.raises(AssertionError, match="two"):
        follow("```console\n$ echo one two\none … three\n```\n", tmp_path, shell)

    assert follow("```console\n$ echo one two\none …\n```\n", tmp_path, shell) == ["echo one two"]


@pytest.mark.parametrize(
    "command", sorted({line.split("#")[0].strip() for line in re.findall(r"^\$ (lastbus .+)$", PAGE, re.MULTILINE)})
)
def test_every_option_that_the_page_names_exists(shell, command):
    words = command.split(";")[0].split()
    verbs = words[1:3] if words[1] in ("ledger", "frozen", "mutations") and words[2:3] else words[1:2]
    verbs = [verb for verb in verbs if not verb.startswith("-")]

    said = shell(" ".join(["lastbus", *verbs, "--help"]))

    assert said.returncode == 0, said.stderr
    assert [word for word in words if word.startswith("--") and word not in said.stdout] == []


def test_the_page_lists_every_verdict_and_no_other():
    listed = [word for cell, _ in rows("## The words") for word in re.findall(r"`([\w-]+)`", cell)]

    assert sorted(listed) == sorted(map(str, Verdict))


def test_the_page_lists_the_exit_codes_that_the_commands_name(shell):
    listed = [row[0] for row in rows("| exit code")]

    for verb in ("prove", "replay"):
        said = re.sub(r"[│\s]+", " ", shell(f"lastbus {verb} --help").stdout)
        assert re.findall(r"[:·] (\d) ", said[said.index("Exit codes") :]) == listed
