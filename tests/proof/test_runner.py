"""Copies, processes, limits: nothing of a run reaches the tree, and nothing of it stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lastbus.proof.copies import Copy, copy_tree
from lastbus.proof.errors import UsageError
from lastbus.proof.notes import Events, Limits, Notes, Watch
from lastbus.proof.runner import Slot
from lastbus.proof.zygote import serve
from tests.proof.ends import ends, gone
from tests.proof.sample import ADD, FULL, Sample, shop

LIMITS = Limits(startup=10.0, of={}, default=5.0)


@pytest.fixture(scope="session")
def slot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    """A slot on the shop, shared by the tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("slot")
    one = Slot(shop(folder / "shop").project, folder, 0, sys.executable)
    yield one
    one.close()


def interpreter(file: Path, script: str) -> str:
    """A program that stands for an interpreter."""
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


def test_a_run_tells_what_its_tests_did(slot):
    run, notes = slot.run([ADD], LIMITS)

    assert run.ended == "finished"
    assert [(report.test, report.when, report.outcome) for report in run.reports] == [
        (ADD, when, "passed") for when in ("setup", "call", "teardown")
    ]
    assert notes.carries == {ADD: ("SUM-01",)}


def test_only_the_mapped_tests_run(slot):
    _, notes = slot.run([FULL], LIMITS)

    assert list(notes.carries) == list(notes.seconds) == [FULL]


@pytest.mark.guarantee("MUT-07")
def test_a_mutated_copy_gets_its_bytes_and_times_back(slot):
    file = slot.root / "src/shop.py"
    before = file.read_bytes(), file.stat().st_mtime_ns

    with slot.mutated({"src/shop.py": "x = 1\n"}):
        assert file.read_bytes() == b"x = 1\n"

    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


@pytest.mark.guarantee("MUT-07")
def test_a_mutation_is_in_the_copy_and_not_in_the_tree(sample, tmp_path):
    before = sample.digest()
    copy = Copy(sample.root, tmp_path / "copy")

    with copy.mutated({"src/shop.py": "x = 1\n"}):
        assert (copy.root / "src/shop.py").read_text() == "x = 1\n"
        assert sample.digest() == before


@pytest.mark.guarantee("MUT-17")
def test_two_mutated_versions_never_share_a_time(slot):
    times = [(slot.root / "src/shop.py").stat().st_mtime_ns]
    for _ in range(2):
        with slot.mutated({"src/shop.py": "x = 1\n"}):
            times.append((slot.root / "src/shop.py").stat().st_mtime_ns)

    assert len({time // 1_000_000_000 for time in times}) == 3


@pytest.mark.guarantee("MUT-17")
def test_a_mutated_run_leaves_no_bytecode(slot):
    caches = sorted(slot.root.rglob("*.pyc"))

    with slot.mutated({"src/shop.py": "x = 1\n"}):
        slot.run([ADD], LIMITS)

    assert sorted(slot.root.rglob("*.pyc")) == caches


@pytest.mark.guarantee("MUT-15")
def test_what_a_test_leaves_running_is_killed_with_its_run(slot, tmp_path):
    note = tmp_path / "pids"
    code = (
        "import subprocess\n"
        "def add(a, b):\n"
        f"    with open({str(note)!r}, 'w') as note:\n"
        "        for own_session in (False, True):\n"
        "            p = subprocess.Popen(['sleep', '60'], start_new_session=own_session)\n"
        "            p.returncode = 0\n"
        "            print(p.pid, file=note)\n"
        "    return 5\n"
    )
    with slot.mutated({"src/shop.py": code}):
        run, _ = slot.run([ADD], LIMITS)

    assert run.ended == "finished"
    assert [gone(int(pid)) for pid in note.read_text().split()] == [True, True]


@pytest.mark.guarantee("MUT-15")
def test_what_left_the_group_of_a_run_is_killed_as_well(monkeypatch):
    group, escaped = (subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2))
    left = [group.pid, escaped.pid]
    # A run of this test may have other children: here it has these two, until they are gone.
    monkeypatch.setattr(serve, "_children", lambda: [pid for pid in left if psutil.pid_exists(pid)])

    try:
        serve.sweep(group.pid)
        assert [gone(pid) for pid in left] == [True, True]
    finally:
        for child in (group, escaped):
            child.kill()
            child.wait()


@pytest.mark.guarantee("MUT-15")
def test_a_run_over_its_limit_is_killed_and_the_next_one_works(slot, tmp_path):
    note = tmp_path / "pid"
    code = f"import os\ndef add(a, b):\n    open({str(note)!r}, 'w').write(str(os.getpid()))\n    while True: pass\n"

    with slot.mutated({"src/shop.py": code}):
        run, _ = slot.run([ADD], Limits(10.0, {ADD: 0.2}))

    assert (run.ended, run.doing) == ("stopped", ADD)
    assert gone(int(note.read_text()))
    assert slot.run([ADD], LIMITS)[0].ended == "finished"


@pytest.mark.guarantee("MUT-22")
def test_a_warm_process_still_knows_the_current_task(sample, tmp_path):
    sample.write(
        "tests/test_shop.py",
        "import asyncio\n\nasync def ask():\n    return asyncio.current_task()\n\n"
        "def test_add_gives_the_sum():\n    assert asyncio.run(ask())\n",
    )
    slot = Slot(sample.project, tmp_path, 0, sys.executable)
    cold, notes = slot.run([ADD], LIMITS, bytecode=True)
    slot.preload(notes.modules)
    warm, _ = slot.run([ADD], LIMITS)
    slot.close()

    assert "_asyncio" in notes.modules
    assert warm.reports == cold.reports


@pytest.mark.guarantee("MUT-22")
def test_the_project_itself_is_not_imported_ahead(slot):
    _, notes = slot.run([ADD], LIMITS, bytecode=True)

    assert "json" in notes.modules
    assert not {"shop", "test_shop", "tests.test_shop", "conftest"} & set(notes.modules)


@pytest.mark.guarantee("MUT-22")
def test_a_process_that_an_import_made_unfit_to_fork_is_replaced(sample, tmp_path):
    (tmp_path / "busy.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    python = interpreter(tmp_path / "python", f'PYTHONPATH={tmp_path} exec {sys.executable} "$@"')
    sample.write(
        "tests/test_shop.py", "import sys\n\ndef test_add_gives_the_sum():\n    assert 'busy' not in sys.modules\n"
    )
    slot = Slot(sample.project, tmp_path, 0, python)
    slot.start()
    slot.preload(["busy"])
    run, _ = slot.run([ADD], LIMITS)
    slot.close()

    assert [report.outcome for report in run.reports] == ["passed"] * 3


@pytest.mark.guarantee("MUT-11")
def test_an_interpreter_that_is_not_there_is_refused(sample, tmp_path):
    with pytest.raises(UsageError, match="cannot start /no/python"):
        Slot(sample.project, tmp_path, 0, "/no/python").start()


@pytest.mark.guarantee("MUT-11")
def test_an_interpreter_is_looked_for_from_where_the_command_was_given(sample, tmp_path, monkeypatch):
    interpreter(tmp_path / "python", "echo 'No module named pytest' >&2; exit 1")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match=r"cannot run pytest"):
        Slot(sample.project, tmp_path, 0, "./python").start()


@pytest.mark.guarantee("MUT-11")
def test_an_interpreter_without_pytest_is_refused(sample, tmp_path):
    bare = interpreter(tmp_path / "python", "echo 'No module named pytest' >&2; exit 1")

    with pytest.raises(UsageError, match=r"cannot run pytest.*No module named pytest"):
        Slot(sample.project, tmp_path, 0, bare).start()


@pytest.mark.guarantee("MUT-11")
def test_the_chosen_interpreter_is_what_is_started(sample, tmp_path, monkeypatch):
    told = """echo '{"event": "ready", "python": "%s"}'; read command"""
    chosen = interpreter(tmp_path / "python", told % "3.99.0")
    monkeypatch.setattr(sys, "executable", interpreter(tmp_path / "own", told % "3.98.0"))
    slot = Slot(sample.project, tmp_path, 0, chosen)
    slot.start()
    slot.close()

    assert slot.version == "3.99.0"


@pytest.mark.guarantee("MUT-11")
def test_the_chosen_interpreter_runs_the_tests(sample, tmp_path):
    chosen = interpreter(tmp_path / "python", f'touch {tmp_path}/used; exec {sys.executable} "$@"')
    sample.mutate("add-wrong")

    sample.replay(python=chosen)

    assert (tmp_path / "used").exists()


@pytest.mark.guarantee("MUT-15")
def test_a_signal_ends_everything_and_leaves_the_tree(sample: Sample, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"import os\n    with open({str(pipe)!r}, 'w') as pipe: pipe.write(str(os.getpid()))\n    while True: pass"
    sample.mutate("hang", new=code, limit_seconds=30)
    before = sample.digest()
    program = "from lastbus.cli import main; main()"
    command = [sys.executable, "-c", program, "replay"]
    with subprocess.Popen(command, cwd=sample.root, stdout=subprocess.DEVNULL) as replay:
        test = int(pipe.read_text())
        zygote = psutil.Process(replay.pid).children()[0].pid
        replay.terminate()
        assert replay.wait() == 143

    assert gone(test)
    assert gone(zygote)
    assert sample.digest() == before


@pytest.mark.guarantee("MUT-15")
def test_a_replay_that_is_killed_outright_takes_its_processes_along(sample: Sample, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"import os\n    with open({str(pipe)!r}, 'w') as pipe: pipe.write(str(os.getpid()))\n    while True: pass"
    sample.mutate("hang", new=code, limit_seconds=30)
    command = [sys.executable, "-c", "from lastbus.cli import main; main()", "replay"]
    # Nobody is left to remove the copies: let them lie where this test's own files do.
    place = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=sample.root, stdout=subprocess.DEVNULL, env=place) as replay:
        test = psutil.Process(int(pipe.read_text()))
        zygote = test.parent()
        replay.kill()

    assert [one.pid for one in (test, zygote) if one is not None and not ends(one.pid)] == []


@pytest.mark.guarantee("MUT-07")
def test_a_copy_leaves_caches_and_environments_out(tmp_path):
    for file in ("src/a.py", ".git/x", ".mypy_cache/x", "src/__pycache__/x", "env/pyvenv.cfg", ".lastbus/x"):
        (tmp_path / "from" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / file).write_text("")

    copy_tree(tmp_path / "from", tmp_path / "to")

    assert [
        file.relative_to(tmp_path / "to").as_posix() for file in (tmp_path / "to").rglob("*") if file.is_file()
    ] == ["src/a.py"]


def watch(patience: float = 1.0) -> Watch:
    return Watch(Limits(startup=10.0, of={ADD: 2.0}, default=5.0), patience, now=100.0)


@pytest.mark.guarantee("MUT-05")
def test_every_phase_has_its_own_deadline():
    one = watch()
    assert one.deadline == 110.0

    one.see({"event": "start", "test": ADD}, 103.0)
    assert one.deadline == 105.0

    one.see({"event": "report", "when": "call"}, 104.0)
    assert one.deadline == 105.0

    one.see({"event": "report", "when": "teardown"}, 104.5)
    assert one.deadline == 114.5
    assert not one.late


@pytest.mark.guarantee("MUT-05")
def test_patience_moves_the_deadline_and_remembers_the_limit():
    one = watch(patience=3.0)
    one.see({"event": "start", "test": ADD}, 100.0)
    assert one.deadline == 106.0

    one.see({"event": "report", "when": "call"}, 103.0)
    assert one.late


@pytest.mark.guarantee("MUT-28")
def test_a_phase_begins_again_when_it_has_waited_for_a_service():
    one = watch()
    one.see({"event": "start", "test": ADD}, 100.0)
    one.see({"event": "need"}, 101.0)
    assert one.deadline == 102.0

    one.resume(130.0)
    assert (one.deadline, one.late) == (132.0, False)


def test_half_a_line_is_no_event():
    read, write = os.pipe()
    os.write(write, b'{"event": "sta\n{"event": "exit"}\n')
    os.close(write)
    with open(read, "rb") as pipe:
        events = Events(pipe)

        assert events.next(0.0) == {"event": "exit"}
        assert events.next(0.0) is None


def test_notes_add_up_the_phases_of_a_test():
    notes = Notes()
    for when, seconds in (("setup", 1.0), ("call", 2.0), ("teardown", 0.5)):
        notes.take(
            {
                "event": "report",
                "test": ADD,
                "when": when,
                "outcome": "passed",
                "subtest": False,
                "message": "",
                "seconds": seconds,
            },
            0.0,
        )

    assert notes.seconds == {ADD: 3.5}
    assert notes.setup_seconds == 1.0
