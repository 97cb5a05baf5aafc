"""Notes: what a process that runs tests tells its parent, and how long the parent waits for the next word.

Keeps: MUT-05.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from lastbus.proof.verdict import Broken, Report


@dataclass(frozen=True)
class Limits:
    """Seconds without news after which a run is stopped: before the tests, and for each test."""

    startup: float
    of: Mapping[str, float]
    default: float = 60.0

    def for_test(self, test: str) -> float:
        """Seconds that one phase of `test` may take."""
        return self.of.get(test, self.default)


@dataclass
class Notes:
    """What a run told, while it goes on."""

    reports: list[Report] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    setup_seconds: float = 0.0
    startup_seconds: float = 0.0
    carries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    hints: dict[str, list[str]] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    doing: str = "start-up"
    refused: str = ""
    """Why a warm process could not put the mutation in; empty if it did, or was not asked to."""
    finished: bool = False

    def take(self, event: Mapping[str, Any], elapsed: float) -> None:
        """Note one event of the child, which came after `elapsed` seconds."""
        kind = event["event"]
        if kind == "report":
            self._report(event)
        elif kind == "start":
            self.doing = event["test"]
            self.startup_seconds = self.startup_seconds or elapsed
        elif kind == "collected":
            self.carries = {test: tuple(ids) for test, ids in event["carries"].items()}
            self.hints = event["hints"]
        elif kind == "broken":
            self.broken.append(Broken(event["kind"], event["where"], event["message"]))
        elif kind == "refused":
            self.refused = event["reason"]
        elif kind == "finish":
            self.finished = True
            self.modules = event["modules"]

    def _report(self, event: Mapping[str, Any]) -> None:
        test = event["test"]
        self.reports.append(Report(test, event["when"], event["outcome"], event["subtest"], event["message"]))
        if not event["subtest"]:
            self.seconds[test] = self.seconds.get(test, 0.0) + event["seconds"]
        if event["when"] == "setup":
            self.setup_seconds = max(self.setup_seconds, event["seconds"])
        if event["when"] == "teardown":
            self.doing = f"what follows {test}"


class Watch:
    """The deadline of the phase that a run is in. `patience` stretches it; `late` remembers the plain one.

    Keeps: MUT-05.
    """

    def __init__(self, limits: Limits, patience: float, now: float) -> None:
        self._limits = limits
        self._patience = patience
        self.late = False
        self._begin(limits.startup, now)

    def _begin(self, limit: float, now: float) -> None:
        self._limit = limit
        self._plain_end = now + limit
        self.deadline = now + limit * self._patience

    def see(self, event: Mapping[str, Any], now: float) -> None:
        """News came: a new phase begins, unless it is only a step inside a test."""
        self.late = self.late or now > self._plain_end
        if event["event"] == "start":
            self._begin(self._limits.for_test(event["test"]), now)
        elif event["event"] == "need":
            return  # A fixture asks for a service, in the middle of its test.
        elif event["event"] != "report" or event["when"] == "teardown":
            self._begin(self._limits.startup, now)

    def resume(self, now: float) -> None:
        """The phase begins again: what it waited for was the parent's work, not its own.

        Keeps: MUT-28.
        """
        self._begin(self._limit, now)


class Events:
    """Events read from a pipe, each under a deadline. Lines that are no event are passed over."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._buffer = b""

    def next(self, deadline: float) -> dict[str, Any] | None:
        """The next event, or None at the deadline or at the end of the pipe."""
        while True:
            line, found, rest = self._buffer.partition(b"\n")
            if found:
                self._buffer = rest
                with contextlib.suppress(ValueError):  # Half a line from a child that was killed.
                    return dict(json.loads(line))
            elif not self._read(deadline):
                return None

    def _read(self, deadline: float) -> bool:
        wait = max(0.0, deadline - time.monotonic())
        try:
            if not select.select([self._pipe], [], [], wait)[0]:
                return False
            data = os.read(self._pipe.fileno(), 65536)
        except (OSError, ValueError):  # Closed by stop() in another thread.
            return False
        self._buffer += data
        return data != b""
