"""What is forked: the plugin of a process that never runs a test, and whose children each run some.

Keeps: MUT-17, MUT-23.
"""

from __future__ import annotations

from .place import Command, redirect, settle_in
from .recorder import Recorder
from .serve import Parent


class Forked:
    """How far pytest has come in this process, and whom it forks there."""

    def __init__(self, parent: Parent, recorder: Recorder) -> None:
        self.parent = parent
        self.recorder = recorder
        self.command: Command = {}
        """What this process was forked for; empty in the process that is never used up."""

    def refuse(self, reason: str) -> None:
        """Say that no child is forked for this command, and why."""
        self.parent.wire.send("refused", reason=reason)
        self.parent.wire.send("exit", status=0)

    def take_over(self, command: Command) -> None:
        """Become the process of one run: with a log and a place of its own, it tells of the chosen tests.

        Keeps: MUT-17.
        """
        redirect(command["log"])
        settle_in(command)
        self.command = command
        self.recorder.keep = set(command["keep"])
        self.recorder.services = command["services"]


def arguments(command: Command) -> list[str]:
    """What `pytest.main` is given; the files of the tests come last."""
    return ["-W", "ignore::pytest.PytestAssertRewriteWarning", *command["args"], *command["files"]]
