"""What a zygote does to itself before it runs tests: where it reads and writes, what it imports, whom it belongs to.

What changes a whole process is tried in one of its own.
"""

from __future__ import annotations

import gc
import json
import linecache
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
from _pytest.assertion import rewrite

from lastbus.proof.zygote import isolated, place, recorder, serve, swap, warm
from lastbus.proof.zygote.swap import Ran

ENGINE = Path(place.__file__).parents[3]
HERE = str(Path(__file__).parent)


def said_by(program: str, *args: str) -> str:
    """What a program prints that can import the prover."""
    command = [sys.executable, "-c", program, *args]
    environ = {**os.environ, "PYTHONPATH": str(ENGINE)}
    return subprocess.run(
        command, env=environ, input="what nobody reads", capture_output=True, text=True, check=True, timeout=20
    ).stdout


@pytest.mark.guarantee("MUT-17")
def test_a_run_reads_nothing_and_writes_to_its_log(tmp_path):
    log = tmp_path / "log"
    log.write_text("an older and longer log\n" * 9)

    said = said_by(
        "import os, sys; from lastbus.proof.zygote.place import redirect; redirect(sys.argv[1]);"
        "print([sys.stdin.read()], flush=True); os.write(2, b'complaints')",
        str(log),
    )

    assert said == ""
    assert log.read_text() == "['']\ncomplaints"


@pytest.mark.guarantee("MUT-15")
def test_a_child_has_a_session_of_its_own_and_the_usual_signals():
    said = said_by(
        "import json, os, signal; from lastbus.proof.zygote.serve import _become_child\n"
        "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD): signal.signal(number, lambda *_: None)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    _become_child()\n"
        "    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]\n"
        "    usual = [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL]\n"
        "    print(json.dumps([os.getsid(0) == os.getpid(), handlers == usual]), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )

    assert json.loads(said) == [True, True]


@pytest.mark.guarantee("MUT-22")
def test_modules_are_imported_ahead_and_one_that_fails_is_left_to_the_tests(tmp_path, monkeypatch):
    frozen: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("frozen"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ahead_good.py").write_text("import warnings; warnings.warn('old')\n")
    (tmp_path / "ahead_bad.py").write_text("raise SystemExit(3)\n")

    place.preload(["ahead_bad", "ahead_good", "no_such_module"])

    assert "ahead_good" in sys.modules
    assert frozen == ["frozen"]
    del sys.modules["ahead_good"]


@pytest.mark.guarantee("MUT-22")
def test_what_belongs_to_the_prover_is_not_imported_ahead():
    assert place.OURS == "lastbus"
    assert [name for name in place.importable([]) if name.startswith("lastbus")] == []


@pytest.mark.guarantee("MUT-28")
def test_a_service_that_is_not_known_yet_is_asked_for_and_its_answer_is_taken_away(tmp_path):
    wire = os.open(tmp_path / "wire", os.O_RDWR | os.O_CREAT)
    reply = tmp_path / f"service-{os.getpid()}-till"
    reply.write_text('{"TILL": "lent"}')

    one = recorder.Recorder(recorder.Wire(wire), [], {"till": None}, str(tmp_path))
    answer = one._ask("till")

    os.close(wire)
    assert answer == {"TILL": "lent"}
    assert json.loads((tmp_path / "wire").read_text()) == {"event": "need", "service": "till", "reply": str(reply)}
    assert not reply.exists()


@pytest.mark.parametrize(
    ("longrepr", "message"),
    [
        (SimpleNamespace(reprcrash=SimpleNamespace(message="assert 1 == 2")), "assert 1 == 2"),
        ("in words", "in words"),
        ("x" * 700 + "end", "x" * 597 + "end"),
    ],
    ids=["crash", "words", "long"],
)
def test_a_report_says_what_crashed(longrepr, message):
    assert recorder._message(SimpleNamespace(longrepr=longrepr)) == message


class Told:
    """A line to the parent that remembers what was said."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def send(self, event: str, **facts: Any) -> None:
        self.events.append({"event": event, **facts})


@pytest.mark.guarantee("MUT-05")
@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("ImportError while loading conftest 'tests/conftest.py'.\nE   no till", "import"),
        ("E   ImportError: no module named till", "import"),
        ("ERROR: unrecognized arguments: --till", "collect"),
    ],
)
def test_what_pytest_says_in_words_alone_is_told_as_what_broke(tmp_path, said, kind):
    (tmp_path / "log").write_text("x" * 600 + said + "\n")
    told: Any = Told()

    serve.finish({"log": str(tmp_path / "log"), "tell_modules": False}, told, 4, collected=False)

    broken, finished = told.events
    assert (broken["event"], broken["kind"], broken["where"]) == ("broken", kind, "pytest")
    assert broken["message"].endswith(said)
    assert len(broken["message"]) <= 600
    assert finished == {"event": "finish", "code": 4, "modules": []}


@pytest.mark.guarantee("MUT-05")
@pytest.mark.parametrize(("code", "collected"), [(1, True), (0, False), (5, False)])
def test_a_run_that_collected_or_had_nothing_to_collect_is_not_broken(tmp_path, code, collected):
    told: Any = Told()

    serve.finish({"log": "no such log", "tell_modules": True, "purge": []}, told, code, collected)

    (finished,) = told.events
    assert "json" in finished["modules"]


def test_what_tracebacks_will_show_is_read_before_the_fork(tmp_path):
    file = tmp_path / "shown.py"
    file.write_text("x = 1\n")

    warm._have_lines_ready([str(file)])

    assert linecache.cache[str(file)][2] == ["x = 1\n"]


def test_where_nothing_can_be_forked_one_run_takes_place_in_the_process_itself(monkeypatch):
    ran: list[dict[str, Any]] = []
    monkeypatch.setattr(isolated, "run_tests", lambda command, wire: ran.append(command))
    parent: Any = SimpleNamespace(commands=lambda: iter([{"do": "run"}, {"do": "more"}]), wire=Told())

    isolated.serve_once(parent)

    assert ran == [{"do": "run"}]
    assert parent.wire.events == [{"event": "forked", "pid": os.getpid()}]


# -- which functions ran while the tests were imported -----------------------------------------------------------


def loud() -> None:
    """Runs where it is seen."""


def quiet() -> None:
    """Runs while pytest rewrites."""


def names(ran: set[tuple[str, swap.Place]]) -> set[str]:
    return {name for _, (name, _) in ran} & {"loud", "quiet"}


class Monitoring:
    """What Python has since 3.12, as far as it is used."""

    events = SimpleNamespace(PY_START=1)
    DISABLE = "disabled"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.callback: Any = None

    def get_tool(self, tool: int) -> str | None:
        return "somebody else" if tool < 2 else None

    def register_callback(self, tool: int, event: int, callback: Any) -> None:
        self.callback = callback

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))


@pytest.mark.guarantee("MUT-25")
def test_an_interpreter_that_can_be_asked_reports_each_function_once(monkeypatch):
    monitoring = Monitoring()
    monkeypatch.setattr(swap, "MONITORING", monitoring)
    foreign = compile("def far(): ...", "/elsewhere.py", "exec").co_consts[0]
    assert isinstance(foreign, CodeType)
    ran = Ran(HERE)
    ran.start()

    answers = [monitoring.callback(code, 0) for code in (loud.__code__, foreign)]

    assert answers == ["disabled", "disabled"]
    assert ran.stop() == {(loud.__code__.co_filename, ("loud", loud.__code__.co_firstlineno))}
    assert monitoring.calls == [
        ("use_tool_id", 2, "lastbus"),
        ("set_events", 2, 1),
        ("set_events", 2, 0),
        ("free_tool_id", 2),
    ]


@pytest.mark.guarantee("MUT-25")
def test_what_runs_in_a_thread_meanwhile_is_seen_too():
    ran = Ran(HERE)
    ran.start()
    thread = threading.Thread(target=loud)
    thread.start()
    thread.join()

    assert names(ran.stop()) == {"loud"}


@pytest.mark.guarantee("MUT-25")
def test_nobody_looks_while_pytest_rewrites_assertions(monkeypatch):
    def rewriting(*_: object) -> str:
        quiet()
        return "rewritten"

    monkeypatch.setattr(swap, "MONITORING", None)  # Newer interpreters are asked otherwise, and can be asked so.
    monkeypatch.setattr(rewrite, "_rewrite_test", rewriting)
    ran = Ran(HERE)
    ran.start()

    said = rewrite._rewrite_test("a file", "its configuration")
    loud()

    assert (said, names(ran.stop())) == ("rewritten", {"loud"})
    assert rewrite._rewrite_test is rewriting
