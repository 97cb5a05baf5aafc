"""The witness: a program that runs the tests marked with a guarantee and tells which of them run which lines.

Keeps: MUT-53. It is started by file name with the interpreter of the tests, needs only pytest there, imports nothing of
this package, and says nothing of lines if coverage.py is not installed there. Request and answer are JSON: on standard
input, and in the file that the request names.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    del sys.path[0]  # This file's folder is no place to import from.

import importlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest


class Witness:
    """The plugin that keeps the marked tests and notes how long each takes and which lines of one file it runs."""

    def __init__(self, guarantees: list[str], target: str) -> None:
        self.guarantees = set(guarantees)
        self.seconds: dict[str, float] = {}
        self.coverage = self._coverage(target)

    @staticmethod
    def _coverage(target: str) -> Any:
        try:
            module = importlib.import_module("coverage")
        except ImportError:
            return None
        return module.Coverage(data_file=None, config_file=False, include=[target])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not self.guarantees.isdisjoint(_ids(item))]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        if self.coverage is not None:
            self.coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            if self.coverage is not None:
                self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = report.duration

    def run(self, args: list[str]) -> None:
        """Run the tests in this process, under coverage if there is one."""
        if self.coverage is None:
            pytest.main(args, plugins=[self])
            return
        self.coverage.start()
        try:
            pytest.main(args, plugins=[self])
        finally:
            self.coverage.stop()

    def lines(self, target: str) -> dict[str, list[int]] | None:
        """The lines of `target` that each test runs in its call phase; None without coverage."""
        if self.coverage is None:
            return None
        ran: dict[str, list[int]] = {}
        for line, contexts in self.coverage.get_data().contexts_by_lineno(os.path.realpath(target)).items():
            for test in filter(None, contexts):
                ran.setdefault(test, []).append(line)
        return ran


def _ids(item: pytest.Item) -> list[str]:
    return [str(arg) for mark in item.iter_markers("guarantee") for arg in mark.args]


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    target = os.path.realpath(request["target"])
    sys.path[:0] = request["paths"]
    witness = Witness(request["guarantees"], target)
    witness.run(request["args"])
    answer = {"seconds": witness.seconds, "lines": witness.lines(target)}
    with open(request["answer"], "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
