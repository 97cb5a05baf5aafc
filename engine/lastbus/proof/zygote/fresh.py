"""The fresh process: pytest stands before the first conftest in it, and every run is forked from there.

Keeps: MUT-17, MUT-22. What it has imported comes from elsewhere; each child imports the project anew. Plugins are
loaded by then, and the settings are read: what mutates one of these is refused.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Sequence

import pytest

from .forked import Forked, arguments
from .place import Command, imported_below, preload, unfit, use_copy
from .recorder import Recorder
from .serve import Parent, finish


class Fresh(Forked):
    """The plugin that stands between the settings and the first conftest."""

    def __init__(self, parent: Parent, recorder: Recorder, command: Command) -> None:
        super().__init__(parent, recorder)
        self._root = command["cwd"]
        self._count = len(command["files"])

    # First of all wrappers: whatever pytest captures from here on goes to files of the child.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(
        self, early_config: pytest.Config, args: list[str]
    ) -> Generator[None, None, None]:
        """Serve until the parent goes; go on only in a child, with the files of its tests in place of all."""
        used = imported_below(self._root)
        gc.collect()
        gc.freeze()
        self.parent.wire.send("prepared", unfit=unfit())
        for command in self.parent.commands():
            if command["do"] == "preload":
                preload(command["modules"])
                self.parent.wire.send("prepared", unfit=unfit())
                continue
            reason = self._refusal(command["mutated"], used)
            if reason:
                self.refuse(reason)
            elif self.parent.fork():
                self.take_over(command)
                for names in (args, early_config.known_args_namespace.file_or_dir):
                    names[len(names) - self._count :] = command["files"]
                break
        else:
            os._exit(0)
        yield

    def _refusal(self, mutated: Sequence[str], used: frozenset[str]) -> str:
        """Why a child of this process would not run what is mutated.

        Keeps: MUT-17.
        """
        for file in mutated:
            if not file.endswith(".py"):
                return f"{file} may have been read as a setting"
            if os.path.join(self._root, file) in used:
                return f"{file} was imported by a plugin"
        return ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """What was imported is set aside: to look through it whenever garbage is collected takes longer than a test."""
        gc.freeze()


def serve_fresh(parent: Parent) -> None:
    """Have pytest come to its first conftest, then serve; `pytest.main` returns in children, or if it failed.

    Keeps: MUT-17, MUT-22.
    """
    parent.be_ready_to_fork()
    command = next(parent.commands(), None)
    if command is None:
        return
    preload(command["modules"])
    use_copy(command)
    recorder = Recorder(parent.wire, [], {}, command["tmp"])
    fresh = Fresh(parent, recorder, command)
    args = arguments(command)
    sys.argv = ["pytest", *args]
    status = 70
    try:
        code = int(pytest.main(args, plugins=[recorder, fresh]))
        if fresh.command:
            finish(fresh.command, parent.wire, code, recorder.collected)
        else:
            parent.wire.send("prepared", unfit=f"pytest did not come to its conftests (exit code {code})")
        status = 0
    except BaseException as error:
        parent.wire.send("broken", kind="collect", where="runner", message=repr(error))
    finally:
        os._exit(status)
