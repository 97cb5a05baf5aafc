"""The recorder: a pytest plugin that keeps the mapped tests, drops all others, and sends what happens to them.

Keeps: MUT-04, MUT-05.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from typing import Any

import pytest

ASK_SECONDS = 180.0
GLANCE_SECONDS = 0.005
Services = dict[str, dict[str, str] | None]
"""For each fixture that needs a service: what names that service, or None if the parent must be asked."""


class Wire:
    """Events to the parent: one JSON object per line."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def send(self, event: str, **facts: Any) -> None:
        """Write one event whole, however small the pipe."""
        # A leading newline ends whatever line a killed child left unfinished.
        data = b"\n" + json.dumps({"event": event, **facts}).encode() + b"\n"
        while data:
            data = data[os.write(self.fd, data) :]


class Recorder:
    """The plugin of one run, or of one warm process and every run forked from it.

    Keeps: MUT-04, MUT-05.
    """

    def __init__(self, wire: Wire, keep: Iterable[str], services: Services, tmp: str) -> None:
        self.wire = wire
        self.keep = set(keep)
        self.services = services
        self.tmp = tmp
        self.collected = False
        self.carries: dict[str, list[str]] = {}
        self.hints: dict[str, list[str]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        # The parent watches the clock: a test that pytest-timeout fails would look like a kill.
        config.pluginmanager.unregister(name="timeout")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = [item.nodeid for item in items]
        items[:] = [item for item in items if item.nodeid in self.keep]
        self.carries = {item.nodeid: _ids(item) for item in items}
        missing = self.keep - self.carries.keys()
        self.hints = {killer: [name for name in found if name.startswith(killer + "[")][:3] for killer in missing}
        self.collected = True
        self.tell_collected()

    def tell_collected(self) -> None:
        """Say which of the tests in `keep` there are, and what the missing ones may be called."""
        carries = {test: self.carries[test] for test in self.keep if test in self.carries}
        self.wire.send("collected", carries=carries, hints={k: v for k, v in self.hints.items() if k in self.keep})

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> None:
        """Before a fixture that needs a service is set up, the service runs and the environment names it.

        Keeps: MUT-28.
        """
        name = fixturedef.argname
        if name in self.services:
            os.environ.update(self.services[name] or self._ask(name))

    def _ask(self, name: str) -> dict[str, str]:
        reply = os.path.join(self.tmp, f"service-{os.getpid()}-{name}")
        self.wire.send("need", service=name, reply=reply)
        end = time.monotonic() + ASK_SECONDS
        while not os.path.exists(reply) and time.monotonic() < end:
            time.sleep(GLANCE_SECONDS)
        with open(reply, encoding="utf-8") as file:
            answer = dict(json.load(file))
        os.unlink(reply)
        return answer

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.wire.send("start", test=nodeid)

    # First of all plugins: the terminal reporter turns a passed test with failed subtests into a failed one.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.wire.send(
            "report",
            test=report.nodeid,
            when=report.when,
            outcome=report.outcome,
            subtest=type(report).__name__.lower() == "subtestreport",
            message=_message(report) if report.failed else "",
            seconds=report.duration,
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
        """A traceback begins where the test's own file does: what pytest did before is the same in every run.

        To format it all would take as long as many a test.
        """
        if call.excinfo is not None:
            call.excinfo.traceback = call.excinfo.traceback.cut(path=item.path)

    def pytest_exception_interact(self, call: Any, report: Any) -> None:
        if isinstance(report, pytest.CollectReport):
            kind = "import" if _while_importing(call.excinfo.value) else "collect"
            self.wire.send("broken", kind=kind, where=report.nodeid, message=str(report.longrepr)[-600:])


def _ids(item: pytest.Item) -> list[str]:
    return [str(arg) for mark in item.iter_markers("guarantee") for arg in mark.args]


def _message(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr)[-600:]


def _while_importing(error: BaseException) -> bool:
    """Whether a module's own code was running, or an import failed, anywhere in the chain of `error`."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, (ImportError, SyntaxError)) or "while importing" in str(link):
            return True
        frame = link.__traceback__
        while frame is not None:
            if frame.tb_frame.f_code.co_name == "<module>" and frame.tb_frame.f_globals.get("__name__") != "__main__":
                return True
            frame = frame.tb_next
        link = link.__cause__ or link.__context__
    return False
