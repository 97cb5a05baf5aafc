"""Isolated runs: in a process that nobody has used before, and that is used up afterwards.

Keeps: MUT-15, MUT-17.
"""

from __future__ import annotations

import os
import sys

import pytest

from .forked import arguments
from .place import Command, redirect, use_copy
from .recorder import Recorder, Wire
from .serve import Parent, finish


def serve_isolated(parent: Parent) -> None:
    """Run in a child, so that this process can see to it that nothing of the run is left.

    Keeps: MUT-15.
    """
    parent.be_ready_to_fork()
    for command in parent.commands():
        if parent.fork():
            _end_after(parent.wire, command)


def _end_after(wire: Wire, command: Command) -> None:
    status = 70
    try:
        run_tests(command, wire)
        status = 0
    except BaseException as error:
        wire.send("broken", kind="collect", where="runner", message=repr(error))
    finally:
        os._exit(status)


def serve_once(parent: Parent) -> None:
    """One run, in this very process: for systems that cannot fork."""
    command = next(parent.commands())
    parent.wire.send("forked", pid=os.getpid())
    run_tests(command, parent.wire)


def run_tests(command: Command, wire: Wire) -> None:
    """Import the copy and run the tests that `command` keeps, in this process."""
    redirect(command["log"])
    use_copy(command)
    recorder = Recorder(wire, command["keep"], command["services"], command["tmp"])
    args = arguments(command)
    sys.argv = ["pytest", *args]
    code = int(pytest.main(args, plugins=[recorder]))
    finish(command, wire, code, recorder.collected)
