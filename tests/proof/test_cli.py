"""The command line: verbs, exit codes, and errors that say what to do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from lastbus import cli
from tests.proof.sample import ADD, DOCS, FULL, TESTS, Sample

Lastbus = Callable[..., tuple[int, str, str]]


@pytest.fixture
def in_processes(sample: Sample, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lastbus:
    """Run one command inside the sample; returns its exit code, what it printed and what it complained."""
    monkeypatch.chdir(sample.root)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("CI", raising=False)

    def run(*argv: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(argv)
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def lastbus(inside: None, in_processes: Lastbus) -> Lastbus:
    """The same, but the tests of the sample run in this process: the command is what is tried."""
    return in_processes


def commit(sample: Sample) -> None:
    """Put the sample under version control, all of it committed."""
    who = ["-c", "user.name=a", "-c", "user.email=b"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", *command], cwd=sample.root, check=True)


def test_a_replay_that_has_nothing_to_run_loads_nothing_that_only_others_need(lastbus, sample):
    sample.mutate("add-wrong")
    program = """
import sys
from lastbus.cli import main
try:
    main(["replay", "--reuse"])
finally:
    unneeded = {"asyncio", "lastbus.proof.ledger", "lastbus.proof.changes", "lastbus.proof.report.folder", "xml.etree"}
    print(*sorted(unneeded & sys.modules.keys()), file=sys.stderr)
"""

    first, second = (subprocess.run([sys.executable, "-c", program], capture_output=True, text=True) for _ in range(2))

    assert "1 killed" in first.stdout
    assert "1 of 1 verdicts still hold and were reused" in second.stdout
    assert (second.returncode, second.stderr) == (0, "\n")


@pytest.mark.parametrize(
    "command",
    [
        ["replay"],
        ["prove"],
        ["ledger"],
        ["ledger", "show"],
        ["frozen", "check"],
        ["frozen", "update"],
        ["frozen", "history"],
        ["merge"],
        ["mutations", "check"],
        ["mutations", "new"],
    ],
    ids=" ".join,
)
def test_every_command_explains_itself_with_an_example(lastbus, command):
    code, out, _ = lastbus(*command, "--help")

    assert code == 0
    assert "Example: lastbus" in out


@pytest.mark.guarantee("MUT-20")
def test_a_replay_without_survivors_exits_0_and_can_be_read_by_programs(in_processes, sample):
    sample.mutate("add-wrong")

    code, out, _ = in_processes("replay", "--json", "out.json")

    assert code == 0
    assert out.splitlines()[0] == "killed           add-wrong"
    body = json.loads((sample.root / "out.json").read_text())
    assert [result["verdict"] for result in body["results"]] == ["killed"]


@pytest.mark.guarantee("MUT-30")
def test_a_kill_of_what_survived_the_last_time_is_repeated(lastbus, sample, tmp_path):
    sample.mutate("add", new="return two + one")
    assert lastbus("replay")[0] == 1

    once = f"from pathlib import Path; new = not Path({str(tmp_path / 'seen')!r}).exists()"
    sample.mutate("add", new=f"{once}\n    Path({str(tmp_path / 'seen')!r}).touch()\n    return 0 if new else 5")
    _, out, _ = lastbus("replay")

    assert out.splitlines()[:2] == ["flaky            add", "  first killed, then survived: every killer passed"]


@pytest.mark.guarantee("MUT-20")
def test_the_exit_code_of_a_replay_comes_from_its_outcome(lastbus, sample):
    sample.mutate("add-same", new="return two + one")
    sample.mutate("add-lost", old="return three")

    assert lastbus("replay", "add-same")[0] == 1
    assert lastbus("replay", "--group", "SUM")[0] == 4


@pytest.mark.guarantee("MUT-06", "MUT-20")
def test_a_red_baseline_exits_3_and_names_the_test(lastbus, sample):
    sample.write("tests/test_shop.py", TESTS.replace("assert shop.full(3)", "raise OSError('no coins')"))
    sample.mutate("full-wrong", guarantees=["SUM-02"], killers=[FULL])

    code, _, err = lastbus("replay")

    assert code == 3
    assert f"  {FULL}: OSError: no coins" in err


@pytest.mark.guarantee("MUT-41")
def test_an_assertion_that_is_weakened_in_a_helper_lets_its_mutation_survive(lastbus, sample):
    helper = "import shop\n\ndef check_sum():\n    assert shop.add(2, 3) == 5\n"
    test = 'import pytest\nimport sums\n\n@pytest.mark.guarantee("SUM-01")\ndef test_sum():\n    sums.check_sum()\n'
    sample.write("tests/sums.py", helper)
    sample.write("tests/test_sums.py", test)
    sample.mutate("add-wrong", killers=["tests/test_sums.py::test_sum"])
    assert lastbus("replay")[0] == 0

    assert "1 of 1 verdicts still hold and were reused" in lastbus("replay")[1]
    sample.write("tests/sums.py", helper.replace("assert shop.add(2, 3) == 5", "shop.add(2, 3)"))

    assert lastbus("replay")[0] == 1


@pytest.mark.guarantee("MUT-45")
def test_an_audit_that_finds_the_history_wrong_exits_6_and_says_so(lastbus, sample):
    sample.mutate("add-wrong")
    assert "audit: no verdict could be reused; seed 1" in lastbus("replay", "--audit", "1", "--audit-seed", "1")[1]
    assert "audit: 1 reused verdicts replayed, all agree; seed 1" in lastbus("replay", "--audit=9", "--audit-seed=1")[1]
    record = sample.root / ".lastbus/replay.json"
    record.write_text(record.read_text().replace('"killed"', '"survived"'))

    code, _, err = lastbus("replay", "--audit", "1")

    assert code == 6
    assert err.startswith("lastbus: add-wrong: the history says survived, a run says killed, and nothing")


@pytest.mark.guarantee("MUT-44")
def test_in_ci_all_is_replayed(lastbus, sample, monkeypatch):
    sample.mutate("add-wrong")
    lastbus("replay")
    monkeypatch.setenv("CI", "true")

    assert "reused" not in lastbus("replay")[1]
    assert "reused" in lastbus("replay", "--reuse")[1]


@pytest.mark.guarantee("MUT-44")
@pytest.mark.parametrize("options", [["--confirm", "1"], ["--isolated"], ["--report", "seen"]], ids=" ".join)
def test_who_wants_to_see_runs_gets_runs(lastbus, sample, options):
    sample.mutate("add-wrong")
    lastbus("replay")

    assert "reused" not in lastbus("replay", *options)[1]
    assert "reused" in lastbus("replay")[1]


@pytest.mark.guarantee("MUT-49")
def test_a_catalogue_with_faults_exits_4_and_says_what_to_write_instead(lastbus, sample):
    assert lastbus("mutations", "check")[0] == 2
    sample.mutate("add-wrong", old="return one + too")
    sample.mutate("full-wrong", guarantees=["SUM-02"], old=">= LIMIT", new="> LIMIT", killers=[FULL])

    code, out, _ = lastbus("mutations", "check")

    assert code == 4
    assert out.splitlines() == [
        "mutations/sum/add-wrong.json:8: anchor-lost: old is not in src/shop.py: anchor the mutation anew",
        '  src/shop.py:11 is 94% alike: "old": "return one + two"',
        "2 mutations checked: 1 faults",
    ]
    (fault,) = json.loads(lastbus("mutations", "check", "--json")[1])["faults"]
    assert (fault["id"], fault["fault"], fault["suggestions"][0]["line"]) == ("add-wrong", "anchor-lost", 11)

    sample.mutate("add-wrong")
    assert lastbus("mutations", "check") == (0, "2 mutations checked: nothing is wrong\n", "")


@pytest.mark.guarantee("MUT-47", "MUT-48")
def test_shards_are_replayed_apart_and_added_up(lastbus, sample):
    sample.mutate("add-wrong")
    sample.mutate("add-same", new="return two + one")
    for shard in ("1", "2"):
        lastbus("replay", "--shard", f"{shard}/2", "--json", f"{shard}.json")

    code, out, _ = lastbus("merge", "1.json", "2.json", "--json", "all.json")

    assert code == 1
    assert "1 killed, 1 survived" in out
    body = json.loads((sample.root / "all.json").read_text())
    assert [result["id"] for result in body["results"]] == ["add-same", "add-wrong"]
    assert lastbus("merge", "2.json")[2] == "lastbus: incomplete: shard 1/2 is missing\n"

    sample.mutate("add-same", new="return 0")
    lastbus("replay", "--shard", "1/2", "--json", "1.json")
    assert lastbus("merge", "1.json", "2.json")[2].startswith("lastbus: 2.json is of another catalogue of mutations")


@pytest.mark.guarantee("MUT-46")
def test_a_replay_of_what_changed_says_when_nothing_did(lastbus, sample):
    sample.mutate("add-wrong")
    commit(sample)

    code, out, _ = lastbus("replay", "--changed-since", "HEAD")
    assert code == 0
    assert out.startswith("nothing to replay: no mutation, anchored function or killer changed since HEAD\n")

    sample.mutate("add-same", new="return two + one")
    assert lastbus("replay", "--changed-since", "HEAD")[1].startswith("survived         add-same")
    assert lastbus("replay", "--changed-since", "nowhere")[0] == 2


@pytest.mark.guarantee("MUT-52", "MUT-53")
def test_an_edit_becomes_a_mutation_that_is_replayed_at_once(in_processes, sample):
    commit(sample)
    code = sample.project.read("src/shop.py")
    sample.write("src/shop.py", code.replace("one + two", "one - two"))

    code_of_exit, out, err = in_processes("mutations", "new", "add-minus", "--guarantee", "SUM-01")

    assert err == "looking for tests marked with SUM-01 that run src/shop.py:11\n"
    assert out.splitlines() == [
        "wrote mutations/sum/add-minus.json",
        f"  killer {ADD}",
        "  tests that run the changed lines",
        "killed           add-minus",
        "the edit is still in src/shop.py: `git restore src/shop.py` takes it back",
    ]
    assert code_of_exit == 0
    assert "one - two" in sample.project.read("src/shop.py")


@pytest.mark.guarantee("MUT-52")
def test_an_edit_is_taken_back_only_when_it_is_asked_for(lastbus, sample):
    commit(sample)
    code = sample.project.read("src/shop.py")
    edited = code.replace("one + two", "two + one")
    sample.write("src/shop.py", edited)
    new = ("mutations", "new", "--guarantee", "SUM-01", "--killer", ADD, "--summary", "The sum is turned.")

    lastbus(*new, "add-left")
    assert sample.project.read("src/shop.py") == edited

    code_of_exit, out, _ = lastbus(*new, "add-turned", "--restore", "--group", "shop")
    assert code_of_exit == 1
    assert out.splitlines()[-2:] == [
        "  mutations/shop/add-turned.json -> src/shop.py",
        "sharpen a test, or name another with --killer; until then add-turned is no proof",
    ]
    assert sample.project.read("src/shop.py") == code
    assert lastbus("replay")[0] == 1


@pytest.mark.guarantee("MUT-19", "MUT-20")
@pytest.mark.parametrize("choice", [["none-*"], ["--group", "NONE"]], ids=" ".join)
def test_nothing_selected_exits_2(lastbus, sample, choice):
    sample.mutate("add-wrong")

    code, _, err = lastbus("replay", *choice)

    assert code == 2
    assert err.startswith("lastbus: no mutation matches")


@pytest.mark.guarantee("MUT-01", "MUT-20")
@pytest.mark.parametrize("command", ["replay", "ledger", "prove"])
def test_a_malformed_mutation_exits_4_and_is_named(lastbus, sample, command):
    sample.write("mutations/sum/bad.json", '{\n"id": "bad"\n}')

    code, _, err = lastbus(command)

    assert code == 4
    assert err == "lastbus: mutations/sum/bad.json:1: guarantees: is missing\n"


def test_outside_a_project_the_command_says_so(lastbus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert lastbus("ledger") == (
        2,
        "",
        f"lastbus: no pyproject.toml in {tmp_path} or above it: run this inside a project\n",
    )


def test_a_project_without_settings_is_told_what_to_add(lastbus, sample):
    sample.write("pyproject.toml", "[project]\n")

    assert "add for example:\n[tool.lastbus.proof]" in lastbus("ledger")[2]


def test_the_ledger_lists_every_guarantee_and_what_it_lacks(lastbus):
    code, out, _ = lastbus("ledger")

    assert code == 0
    assert "unpinned  SUM-01       Adding: no mutation breaks it" in out
    assert out.endswith("2 guarantees: 0 pinned, 2 unpinned, 0 declared; 0 errors\n")
    assert lastbus("ledger", "--check")[0] == 1


@pytest.mark.guarantee("MUT-09")
def test_an_unknown_id_fails_the_ledger(lastbus, sample):
    sample.write("docs/sum.md", DOCS.replace("SUM-02", "SUM-03"))

    code, _, err = lastbus("ledger")

    assert code == 1
    assert "src/shop.py:14 full: no document states SUM-02" in err


def test_the_ledger_as_json_has_a_row_per_guarantee(lastbus):
    assert [row["id"] for row in json.loads(lastbus("ledger", "--json")[1])] == ["SUM-01", "SUM-02"]


def test_one_guarantee_is_shown(lastbus):
    code, out, _ = lastbus("ledger", "show", "SUM-02")

    assert code == 0
    assert "code      src/shop.py:14 full" in out
    assert lastbus("ledger", "show", "NO-1")[0] == 2


@pytest.mark.guarantee("MUT-21")
def test_a_proof_is_complete_when_everything_is_pinned(lastbus, sample):
    sample.mutate("add-wrong")
    assert lastbus("prove")[0] == 1

    sample.mutate("full-wrong", guarantees=["SUM-02"], old=">= LIMIT", new="> LIMIT", killers=[FULL])
    code, out, _ = lastbus("prove")

    assert code == 0
    assert "2 guarantees: 2 pinned, 0 unpinned, 0 declared; 0 errors\nnothing is frozen\n" in out


@pytest.mark.guarantee("MUT-21")
def test_a_proof_leaves_its_evidence(in_processes, sample):
    sample.mutate("add-wrong")
    sample.mutate("full-wrong", guarantees=["SUM-02"], old=">= LIMIT", new="> LIMIT", killers=[FULL])

    assert in_processes("prove", "--report", "evidence")[0] == 0
    assert (sample.root / "evidence/report.json").exists()
    assert "1 failed" in (sample.root / "evidence/add-wrong/pytest.log").read_text()


@pytest.mark.guarantee("FRZ-02", "FRZ-03")
def test_a_changed_frozen_body_fails_the_check_until_it_is_decided(lastbus, sample):
    sample.write(
        "mutations/frozen.json",
        '[{"file": "src/shop.py", "name": "add", "bytes": 1, "lines": 1, "sha256": "", "why": "money"}]',
    )
    assert lastbus("frozen", "check")[0] == 1
    assert lastbus("frozen", "update")[0] == 2
    assert lastbus("frozen", "update", "add", "--why", "money")[0] == 0

    code, out, _ = lastbus("frozen", "check", "--rev", "nowhere")

    assert "1 frozen bodies unchanged" in out
    assert code == 1
    assert "add nowhere=absent" in out
    assert "add identical: False" in out


def test_without_entries_the_check_says_that_nothing_is_frozen(lastbus):
    assert lastbus("frozen", "check") == (0, "nothing is frozen\n", "")


def test_signal_handlers_are_given_back(lastbus):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    lastbus("frozen", "check")

    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.guarantee("MUT-15")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["interrupt", "termination"])
def test_a_signal_leaves_by_way_of_the_cleanup(number):
    before = signal.signal(number, lambda *_: None)
    try:
        with pytest.raises(SystemExit) as left, cli._signals_leave():
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)

    assert left.value.code == 128 + number


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_where_the_command_line_is_not_installed_it_says_what_to_install(missing):
    program = f"import sys; sys.modules[{missing!r}] = None; from lastbus.__main__ import main; main()"

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)

    assert ran.returncode == 2
    assert ran.stderr == f"lastbus: the command needs {missing}: pip install 'lastbus[proof]'\n"


def test_the_module_can_be_run_like_the_command():
    ran = subprocess.run([sys.executable, "-m", "lastbus", "--help"], capture_output=True, text=True, timeout=50)

    assert ran.returncode == 0
    assert "prove" in ran.stdout
