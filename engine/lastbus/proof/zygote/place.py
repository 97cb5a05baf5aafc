"""The place of a run: the copy it imports from, where it writes, and what it may have imported ahead.

Keeps: MUT-17, MUT-22.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import random
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterable
from typing import Any

OURS = __name__.partition(".")[0]
Command = dict[str, Any]


def redirect(log: str) -> None:
    """Let the process read nothing and write to `log`."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.close(null)


def use_copy(command: Command) -> None:
    """Make the copy the only place this process, and what it starts, imports the project from.

    Keeps: MUT-17.
    """
    os.chdir(command["cwd"])
    roots = tuple(command["purge"])
    for name, module in list(sys.modules.items()):
        if name != "__main__" and not _is_ours(name) and _inside(getattr(module, "__file__", None), roots):
            del sys.modules[name]
    sys.path[:] = [*command["paths"], *(entry for entry in sys.path if entry not in roots)]
    os.environ["PYTHONPATH"] = os.pathsep.join(command["paths"])
    settle_in(command)


def settle_in(command: Command) -> None:
    """What every run needs, forked from a warm process or not: its own temporary folder, luck, and no bytecode.

    Keeps: MUT-17.
    """
    os.environ["TMPDIR"] = tempfile.tempdir = command["tmp"]  # What a killed run leaves there goes with the copies.
    sys.dont_write_bytecode = not command["bytecode"]
    if not command["bytecode"]:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    random.seed()  # Every fork would otherwise draw the same "random" ports and names.


def importable(roots: list[str]) -> list[str]:
    """Modules that are not the project's and may be imported ahead of the next run, in the order they were imported.

    The order matters: `_asyncio` before `asyncio` would leave two ideas of the current task.
    Keeps: MUT-22.
    """
    names = []
    for name, module in sys.modules.items():
        spec = getattr(module, "__spec__", None)
        if name == "__main__" or _is_ours(name):
            continue
        if spec is not None and spec.name == name and _foreign(spec.origin, roots):
            names.append(name)
    return names


def imported_below(root: str) -> frozenset[str]:
    """The files of the project at `root` that this process has imported.

    Keeps: MUT-17.
    """
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return frozenset(file for file in files if file and _inside(file, (root + os.sep,)))


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == OURS


def _inside(file: str | None, roots: tuple[str, ...]) -> bool:
    return file is not None and "site-packages" not in file and file.startswith(roots)


def _foreign(origin: str | None, roots: list[str]) -> bool:
    """Whether a module comes from the interpreter or an installed package.

    Keeps: MUT-22.
    """
    if not origin or origin in ("built-in", "frozen"):
        return bool(origin)
    return os.path.isfile(origin) and not _inside(origin, tuple(roots))


def preload(names: Iterable[str]) -> None:
    """Import what the tests will import anyway, so that each child finds it done.

    Keeps: MUT-22.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            if name not in sys.modules:
                with contextlib.suppress(BaseException):  # Somebody's module: the child will see its error.
                    importlib.import_module(name)
    gc.collect()
    gc.freeze()


def unfit() -> str:
    """Why this process must not be forked: whatever a child would inherit half alive. Empty if there is nothing.

    Keeps: MUT-22.
    """
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if others:
        return f"a thread runs: {others[0]}"
    events = sys.modules.get("asyncio.events")
    if events is not None and events._get_running_loop() is not None:
        return "an event loop runs"
    return "a socket is open" if _has_socket() else ""


def _has_socket() -> bool:
    """Whether this process holds a socket; where /proc does not tell, none is seen.

    Keeps: MUT-22.
    """
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # The descriptor of this very listing.
                if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    return True
    return False
