"""A process that runs tests, seen from the parent: programs of a few lines stand for it here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lastbus.proof.errors import RunnerError, UsageError
from lastbus.proof.notes import Limits
from lastbus.proof.process import Process, environment, kill_group

LIMITS = Limits(startup=5.0, of={}, default=5.0)
READY = '{"event": "ready", "python": "3.99"}'
Started = Callable[..., Process]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """These programs are quick: one that says nothing for so long never will."""
    monkeypatch.setattr("lastbus.proof.process.BOOT_SECONDS", 3.0)
    monkeypatch.setattr("lastbus.proof.process.DEATH_SECONDS", 3.0)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Started]:
    """Start a script, one of the shell if it does not say otherwise, as if it were the interpreter.

    Whatever a test leaves running is ended.
    """
    made: list[Process] = []

    def start(script: str, mode: str = "fresh", lend: Any = dict) -> Process:
        python = tmp_path / f"python{len(made)}"
        shell = '#!/bin/sh\nsay() { echo "$1"; }\n'
        python.write_text(script if script.startswith("#!") else f"{shell}{script}\n")
        python.chmod(0o755)
        made.append(Process(str(python), mode, tmp_path, tmp_path / "boot.log", lend))
        return made[-1]

    yield start
    for each in made:
        each.end()


def event(kind: str, **facts: Any) -> str:
    return f"say '{json.dumps({'event': kind, **facts})}'"


@pytest.mark.guarantee("MUT-11", "MUT-31")
def test_a_process_tells_its_version_and_is_alive_until_it_is_ended(process):
    one = process(f"say '{READY}'; read command")

    assert not one.alive
    assert one.start() == "3.99"
    assert one.alive
    one.stop()
    one.stop()
    assert not one.alive
    one.end()
    with pytest.raises(RunnerError, match=r"start\(\) first"):
        one.send({})


@pytest.mark.guarantee("MUT-31")
@pytest.mark.parametrize(
    ("script", "words"),
    [("echo oh; echo 'no module named pytest' >&2", r"\(no module named pytest\)"), ("exit 1", "it said nothing")],
)
def test_an_interpreter_that_cannot_run_pytest_is_named_with_its_last_words(process, script, words):
    one = process(script)

    with pytest.raises(UsageError, match=f"cannot run pytest .*{words}"):
        one.start()

    assert not one.alive


@pytest.mark.guarantee("MUT-31")
def test_an_interpreter_that_is_none_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot start .*no-such-python"):
        Process(str(tmp_path / "no-such-python"), "fresh", tmp_path, tmp_path / "log", dict).start()


def test_a_process_may_be_told_what_to_do_before_it_is_ready(process):
    one = process(f"say '{READY}'; read command; {event('chatter')}; {event('prepared', unfit='')}; read command")
    one.launch()
    one.send({})

    assert one.ready() == "3.99"
    assert one.until("prepared", 10.0) == {"event": "prepared", "unfit": ""}


@pytest.mark.guarantee("MUT-15")
def test_a_process_that_is_not_ready_yet_is_not_waited_for_when_it_is_stopped(process):
    one = process("exec sleep 60")
    one.launch()
    child = one._child

    one.stop()

    assert child.returncode == -signal.SIGKILL


@pytest.mark.guarantee("MUT-05")
def test_a_run_is_what_the_process_tells_of_it(process):
    told = (
        event("start", test="a.py::t"),
        event("report", test="a.py::t", when="call", outcome="failed", subtest=False, message="no", seconds=0.5),
        event("finish", modules=["shop"]),
        event("exit", status=1),
    )
    one = process(f"say '{READY}'; read command; echo \"$command\" > asked; {'; '.join(told)}; read command")
    one.start()

    run, notes = one.run({"do": "run"}, LIMITS, 1.0)

    assert json.loads((one._cwd / "asked").read_text()) == {"do": "run"}
    assert (run.ended, run.late, run.doing, run.seconds > 0) == ("finished", False, "a.py::t", True)
    assert [(report.test, report.outcome) for report in run.reports] == [("a.py::t", "failed")]
    assert notes.modules == ["shop"]
    assert one.alive


@pytest.mark.guarantee("MUT-05")
def test_a_run_whose_process_is_gone_died(process):
    one = process(f"say '{READY}'; read command; {event('start', test='a.py::t')}")
    one.start()

    run, _ = one.run({}, LIMITS, 1.0)

    assert (run.ended, run.doing) == ("died", "a.py::t")
    assert not one.alive


def test_nobody_is_there_to_read_what_a_process_that_ended_is_told(process):
    one = process(f"say '{READY}'")
    one.start()
    one._child.wait()

    with pytest.raises(RunnerError, match="the test process is gone"):
        one.send({})


FORKING = f"""#!{sys.executable} -IS
import json, subprocess, sys
print({READY!r}, flush=True)
sys.stdin.readline()
run = subprocess.Popen(["sleep", "60"], start_new_session=True)
print(json.dumps({{"event": "forked", "pid": run.pid}}), flush=True)
print(json.dumps({{"event": "start", "test": "a.py::t"}}), flush=True)
with open("ended", "w") as file:
    print(run.wait(), file=file)
print(json.dumps({{"event": "exit"}}), flush=True)
sys.stdin.readline()
"""
"""Runs what never ends in a group of its own, notes how it ended, and is ready again."""


@pytest.mark.guarantee("MUT-05", "MUT-15")
@pytest.mark.parametrize(("mode", "is_ready_again"), [("fresh", True), ("once", False)])
def test_a_run_over_its_limit_is_killed_and_the_process_behind_it_is_used_again(process, mode, is_ready_again):
    one = process(FORKING, mode)
    one.start()

    run, _ = one.run({}, Limits(startup=10.0, of={"a.py::t": 0.05}), 1.0)

    assert (run.ended, run.doing) == ("stopped", "a.py::t")
    assert (one._cwd / "ended").read_text() == f"{-signal.SIGKILL}\n"
    assert one.alive is is_ready_again


@pytest.mark.guarantee("MUT-15")
def test_a_process_that_is_stopped_in_the_middle_of_a_run_takes_the_run_along(process):
    one = process(FORKING)
    one.start()
    one.send({})
    one._running = one.until("forked", 10)["pid"]

    one.stop()

    assert (one._cwd / "ended").read_text() == f"{-signal.SIGKILL}\n"
    assert not one.alive


@pytest.mark.guarantee("MUT-28")
def test_a_fixture_that_needs_a_service_is_answered_in_its_file(process, tmp_path):
    reply = tmp_path / "reply"
    told = (
        event("need", service="database", reply=str(reply)),
        f"for try in $(seq 200); do test -e {reply} && break; sleep 0.01; done",
        event("finish", modules=[]),
        event("exit", status=0),
    )
    one = process(f"say '{READY}'; read command; {'; '.join(told)}; read command", lend=lambda name: {"URL": name})
    one.start()

    run, _ = one.run({}, LIMITS, 1.0)

    assert run.ended == "finished"
    assert json.loads(reply.read_text()) == {"URL": "database"}


@pytest.mark.guarantee("MUT-15")
def test_a_process_that_ignores_the_end_of_its_orders_is_killed(process, monkeypatch):
    monkeypatch.setattr("lastbus.proof.process.DEATH_SECONDS", 0.05)
    one = process(f"say '{READY}'; sleep 60")
    one.start()

    one.stop()

    assert not one.alive


def test_tests_are_run_without_what_an_outer_run_left_in_the_environment(monkeypatch):
    for name in ("PYTHONPATH", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS", "COV_CORE_SOURCE", "SHOP"):
        monkeypatch.setenv(name, "x")

    kept = environment()

    assert {
        name for name in ("PYTHONPATH", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS", "COV_CORE_SOURCE") if name in kept
    } == set()
    assert kept["SHOP"] == "x"
    assert kept["PATH"] == os.environ["PATH"]


def test_a_group_is_killed_and_one_that_is_gone_is_no_error():
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        kill_group(sleeper.pid)
        assert sleeper.wait(3) == -signal.SIGKILL
    finally:
        sleeper.kill()
        sleeper.wait()
    done = subprocess.Popen([sys.executable, "-S", "-c", ""], start_new_session=True)
    done.wait()

    kill_group(done.pid)
