"""The host of a service: enters one context manager of the project, tells what it yields, and leaves with its parent.

Keeps: MUT-28. It runs in the tree as it is, never in a mutated copy, and writes no bytecode into it.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import signal
import sys
from typing import Any

PRIVATE_FD = 32


def main(place: str, *paths: str) -> None:
    """Serve `module:context_manager`, found on `paths`, until standard input ends or a signal comes.

    Keeps: MUT-28.
    """
    out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, PRIVATE_FD)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    sys.dont_write_bytecode = True
    sys.path[:0] = paths
    module, _, name = place.partition(":")
    with contextlib.ExitStack() as stack:
        try:
            service = getattr(importlib.import_module(module), name)
            _tell(out, environment=dict(stack.enter_context(service())))
        except Exception as error:  # Whatever the project's code raises: the tests will do without.
            _tell(out, environment={}, failure=f"{type(error).__name__}: {error}")
            return
        while os.read(0, 512):
            pass


def _tell(out: int, **facts: Any) -> None:
    os.write(out, json.dumps({"event": "serving", **facts}).encode() + b"\n")


def _leave(signum: int, _frame: object) -> None:
    raise SystemExit(128 + signum)
