"""The warm process: it collects the wanted tests once, never runs one, and forks a child per mutation.

Keeps: MUT-22, MUT-23.

pytest itself brings the session up to the point where tests would run. There this plugin waits for commands. Each is
served by a fork, and in the child pytest goes on where it stood: it runs the chosen tests, tears down and ends.
"""

from __future__ import annotations

import gc
import linecache
import os
import sys
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from .forked import Forked, arguments
from .place import Command, importable, preload, unfit, use_copy
from .recorder import Recorder
from .serve import Parent, finish
from .swap import Codes, Ran, Swap, Unswappable, swaps


class Warm(Forked):
    """The plugin that stands between collection and the tests."""

    def __init__(self, parent: Parent, recorder: Recorder, ran: Ran, command: Command) -> None:
        super().__init__(parent, recorder)
        self.ran = ran
        self.root = command["cwd"]
        self.purge = command["purge"]
        self.held: tuple[Any, ...] = ()
        self.suspect = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember the first file whose import leaves something alive, so that a person can find it."""
        if not self.suspect and unfit():
            self.suspect = report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Serve until the parent goes; return only in a child, where pytest then runs what `session` holds.

        Keeps: MUT-23.
        """
        capture: Any = session.config.pluginmanager.getplugin("capturemanager")
        # What is captured goes to temporary files, which children must not share.
        capture.stop_global_capturing()
        codes = Codes(self.root, self.ran.stop())
        _have_lines_ready([*codes.texts, *_files_between_pytest_and_tests(session.config)])
        items = {item.nodeid: item for item in session.items}
        # Whatever a child lets go of it writes to, page by page, in memory that it shares until then.
        self.held = (codes, items, session, session.items)
        gc.collect()
        gc.freeze()
        self._tell_fitness()
        for command in self.parent.commands():
            if command["do"] == "preload":
                preload(command["modules"])
                self._tell_fitness()
                continue
            try:
                changes = [change for file in command["mutated"] for change in swaps(codes, file)]
            except Unswappable as refusal:
                self.refuse(str(refusal))
                continue
            if self.parent.fork():
                self.take_over(command)
                self._go_on(capture, changes)
                session.items = [items[test] for test in command["keep"] if test in items]
                session.testsfailed = 0  # Collection errors of other files: they are told, their tests are not here.
                return
        os._exit(0)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, None, None]:
        """End the child where its session ends: what was configured before it was forked is not its own to undo.

        Keeps: MUT-23.
        """
        yield
        if self.command:
            session.config.get_terminal_writer().flush()
            finish(self.command, self.parent.wire, exitstatus, collected=True)
            self.parent.leave()

    def _tell_fitness(self) -> None:
        why = unfit()
        where = f" after the import of {self.suspect}" if self.suspect and why else ""
        self.parent.wire.send("warm", unfit=why + where, modules=importable(self.purge))

    def _go_on(self, capture: Any, changes: list[Swap]) -> None:
        """Put the mutation in, and tell of the chosen tests."""
        capture.start_global_capturing()
        capture.suspend_global_capture()
        for function, code in changes:
            function.__code__ = code
        self.recorder.tell_collected()


def _have_lines_ready(files: Iterable[str]) -> None:
    """Read what tracebacks will show of `files`, so that no child has to; what is mutated later is read again."""
    for file in files:
        linecache.getlines(file)


def _files_between_pytest_and_tests(config: pytest.Config) -> list[str]:
    """The files whose frames stand above those of any test: pytest, its plugins, asyncio."""
    plugins = {type(plugin).__module__ for plugin in config.pluginmanager.get_plugins()}
    plugins |= {getattr(plugin, "__name__", "") for plugin in config.pluginmanager.get_plugins()}
    packages = {"asyncio", "pluggy", *(name.partition(".")[0] for name in plugins)}
    modules = (module for name, module in list(sys.modules.items()) if name.partition(".")[0] in packages)
    return [file for module in modules if (file := getattr(module, "__file__", None)) and file.endswith(".py")]


def serve_warm(parent: Parent) -> None:
    """Collect what the first command names, then serve; `pytest.main` returns only when it failed."""
    parent.be_ready_to_fork()
    command = next(parent.commands(), None)
    if command is None:
        return
    use_copy(command)
    recorder = Recorder(parent.wire, command["keep"], command["services"], command["tmp"])
    ran = Ran(command["cwd"])
    warm = Warm(parent, recorder, ran, command)
    args = arguments(command)
    sys.argv = ["pytest", *args]
    status = 70
    try:
        ran.start()
        code = int(pytest.main(args, plugins=[recorder, warm]))
        parent.wire.send("warm", unfit=f"pytest could not collect (exit code {code})", modules=[])
        status = 0
    except BaseException as error:
        parent.wire.send("broken", kind="collect", where="runner", message=repr(error))
    finally:
        os._exit(status)
