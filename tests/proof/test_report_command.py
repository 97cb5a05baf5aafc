"""`--report`: what `lastbus prove` and `lastbus replay` leave in a folder and tell to GitHub."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable

import pytest

from lastbus import cli
from tests.proof.accounts import BREAKS_FULL
from tests.proof.sample import Sample

Lastbus = Callable[..., tuple[int, str]]


@pytest.fixture
def lastbus(sample: Sample, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lastbus:
    """Run one command inside the sample; returns its exit code and all that it said."""
    monkeypatch.chdir(sample.root)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    def run(*argv: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(argv)
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out + said.err

    return run


@pytest.mark.guarantee("MUT-60")
def test_prove_reports_the_whole_and_a_replay_its_part(lastbus, sample):
    sample.mutate("add-wrong")
    sample.mutate("full-late", **BREAKS_FULL)

    assert lastbus("prove", "--report", "whole")[0] == 0
    assert lastbus("replay", "add-wrong", "--report", "part")[0] == 0

    tones = [
        json.loads((sample.root / name / "report.json").read_text())["headline"]["tone"] for name in ("whole", "part")
    ]
    assert tones == ["good", "partial"]
    assert (sample.root / "whole/index.html").is_file()


@pytest.mark.guarantee("MUT-62")
@pytest.mark.parametrize("command", ["prove", "replay"])
def test_a_wrong_folder_is_refused_before_anything_is_replayed(lastbus, sample, command):
    sample.mutate("add-wrong")

    code, said = lastbus(command, "--report", "src")

    assert code == 2
    assert said == "lastbus: src is not empty and no report of a proof: name another folder, or remove it\n"


@pytest.mark.guarantee("MUT-65")
@pytest.mark.parametrize("command", ["prove", "replay"])
def test_github_is_told_without_being_asked(lastbus, sample, monkeypatch, tmp_path, command):
    sample.mutate("add-same", new="return two + one")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))

    code, said = lastbus(command)

    assert code == 1
    assert "\n::error file=" in said
    assert "❌ shop" in (tmp_path / "summary.md").read_text()


def test_a_red_baseline_is_reported_too(lastbus, sample):
    sample.mutate("add-wrong")
    sample.write("src/shop.py", sample.project.read("src/shop.py").replace("one + two", "one + two + 0 * LIMIT + 1"))

    assert lastbus("prove", "--report", "out")[0] == 3

    assert "The baseline is red" in (sample.root / "out/index.html").read_text()


@pytest.fixture
def shards(lastbus, sample, inside) -> list[str]:
    """The reports of two shards that were replayed on other machines."""
    sample.mutate("add-wrong")
    sample.mutate("full-late", **BREAKS_FULL)
    for number in (1, 2):
        assert lastbus("replay", "--shard", f"{number}/2", "--json", f"{number}.json")[0] == 0
    shutil.rmtree(sample.root / ".lastbus")
    return ["1.json", "2.json"]


@pytest.mark.guarantee("MUT-54")
def test_a_merge_is_reported_as_the_whole_replay_with_its_ledger(lastbus, sample, shards):
    assert lastbus("merge", *shards, "--report", "whole")[0] == 0

    body = json.loads((sample.root / "whole/report.json").read_text())
    assert body["headline"]["tone"] == "good"
    assert [row["status"] for row in body["ledger"]] == ["pinned", "pinned"]
    assert "return one - two" in (sample.root / "whole/add-wrong/mutation.diff").read_text()


@pytest.mark.guarantee("MUT-54")
def test_what_is_merged_and_reported_may_come_from_pipes(lastbus, sample, shards):
    pipes = [piped((sample.root / shard).read_bytes()) for shard in shards]

    code, _ = lastbus("merge", *(f"/dev/fd/{pipe}" for pipe in pipes), "--report", "whole")
    for pipe in pipes:
        os.close(pipe)

    assert code == 0
    assert (sample.root / "whole/add-wrong/mutation.diff").is_file()


def piped(content: bytes) -> int:
    """The end of a pipe at which `content` can be read, once."""
    end, start = os.pipe()
    with open(start, "wb") as pipe:
        pipe.write(content)
    return end


@pytest.mark.guarantee("MUT-54")
@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("tests/conftest.py", "another revision of the code or the tests"),
        ("mutations/sum/third.json", "another catalogue of mutations"),
    ],
    ids=["tests", "catalogue"],
)
def test_a_merge_is_not_reported_where_something_else_stands(lastbus, sample, shards, file, what):
    body = (sample.root / "mutations/sum/add-wrong.json").read_text() if file.endswith(".json") else ""
    sample.write(file, body.replace("add-wrong", "third"))

    code, said = lastbus("merge", *shards, "--report", "whole")

    assert (code, said) == (2, f"lastbus: 1.json is of {what} than this checkout: check out what was replayed\n")
    assert not (sample.root / "whole").exists()
