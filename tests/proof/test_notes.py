"""What a process that runs tests tells its parent, and how long the parent waits for the next word."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import IO, Any

import pytest

from lastbus.proof.notes import Events, Limits, Notes, Watch
from lastbus.proof.verdict import Broken, Report

LIMITS = Limits(startup=5.0, of={"a.py::t": 1.0}, default=2.0)
PAST = 0.0
"""A deadline that is over: what is there is read, and nothing is waited for."""


class Pipe:
    """A pipe whose writing end is the test's."""

    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        self.reading: IO[bytes] = os.fdopen(reader, "rb")
        self.events = Events(self.reading)

    def say(self, text: bytes) -> None:
        os.write(self._writer, text)

    def close(self) -> None:
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()
    pipe.reading.close()


@pytest.mark.guarantee("MUT-05")
def test_events_come_whole_and_in_order_and_what_is_none_is_passed_over(pipe):
    pipe.say(b'\n{"event": "one"}\n{"event": "tw')
    assert pipe.events.next(PAST) == {"event": "one"}
    assert pipe.events.next(PAST) is None

    pipe.say(b'o"}\n{"half a li\n{"event": "three"}\n')
    assert [pipe.events.next(PAST) for _ in range(3)] == [{"event": "two"}, {"event": "three"}, None]


@pytest.mark.guarantee("MUT-05")
def test_there_is_no_event_after_the_end_of_a_pipe(pipe):
    pipe.say(b'{"event": "last"}\n')
    pipe.close()

    assert [pipe.events.next(time.monotonic() + 60) for _ in range(2)] == [{"event": "last"}, None]
    pipe.reading.close()
    assert pipe.events.next(time.monotonic() + 60) is None


def watch(patience: float = 1.0) -> Watch:
    return Watch(LIMITS, patience, now=100.0)


@pytest.mark.guarantee("MUT-05")
def test_each_phase_of_a_run_has_its_own_deadline():
    one = watch()
    deadlines = [one.deadline]

    for now, event in enumerate(
        (
            {"event": "collected"},
            {"event": "start", "test": "a.py::t"},
            {"event": "report", "when": "setup"},
            {"event": "report", "when": "teardown"},
            {"event": "start", "test": "b.py::t"},
        ),
        start=101,
    ):
        one.see(event, float(now))
        deadlines.append(one.deadline)

    assert deadlines == [105.0, 106.0, 103.0, 103.0, 109.0, 107.0]


@pytest.mark.guarantee("MUT-05")
def test_patience_stretches_a_deadline_and_forgets_no_limit_that_was_passed():
    one = watch(patience=3.0)

    one.see({"event": "start", "test": "a.py::t"}, 101.0)
    assert (one.deadline, one.late) == (104.0, False)
    one.see({"event": "report", "when": "call"}, 102.5)
    one.see({"event": "start", "test": "b.py::t"}, 102.6)
    assert one.late


@pytest.mark.guarantee("MUT-28")
def test_a_service_that_is_asked_for_costs_a_test_none_of_its_time():
    one = watch()
    one.see({"event": "start", "test": "a.py::t"}, 101.0)

    one.see({"event": "need", "service": "database"}, 101.5)
    assert one.deadline == 102.0
    one.resume(150.0)

    assert (one.deadline, one.late) == (151.0, False)


def report(when: str, seconds: float, **changes: Any) -> dict[str, Any]:
    facts = {"outcome": "passed", "subtest": False, "message": ""}
    return {"event": "report", "test": "a.py::t", "when": when, "seconds": seconds, **facts, **changes}


@pytest.mark.guarantee("MUT-05")
def test_notes_keep_what_was_told():
    notes = Notes()
    for elapsed, event in enumerate(
        (
            {"event": "collected", "carries": {"a.py::t": ["SUM-01"]}, "hints": {"b.py::t": ["b.py::t[1]"]}},
            {"event": "broken", "kind": "import", "where": "b.py", "message": "no such module"},
            {"event": "start", "test": "a.py::t"},
            report("setup", 0.5),
            report("call", 2.0, subtest=True),
            report("call", 3.0, outcome="failed", message="assert 1 == 2"),
        )
    ):
        notes.take(event, float(elapsed))

    assert notes.doing == "a.py::t"
    notes.take(report("teardown", 0.25), 9.0)
    notes.take({"event": "start", "test": "c.py::t"}, 9.5)
    assert not notes.finished
    notes.take({"event": "finish", "modules": ["shop"]}, 10.0)

    assert (notes.carries, notes.hints) == ({"a.py::t": ("SUM-01",)}, {"b.py::t": ["b.py::t[1]"]})
    assert notes.broken == [Broken("import", "b.py", "no such module")]
    assert notes.reports[2] == Report("a.py::t", "call", "failed", False, "assert 1 == 2")
    assert (notes.seconds, notes.setup_seconds, notes.startup_seconds) == ({"a.py::t": 3.75}, 0.5, 2.0)
    assert (notes.finished, notes.modules, notes.refused) == (True, ["shop"], "")


def test_notes_say_what_goes_on_and_what_was_refused():
    notes = Notes()
    before = notes.doing

    notes.take(report("teardown", 0.0), 1.0)
    notes.take({"event": "refused", "reason": "it ran before"}, 1.0)

    assert (before, notes.doing, notes.refused) == ("start-up", "what follows a.py::t", "it ran before")
