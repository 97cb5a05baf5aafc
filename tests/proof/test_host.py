"""The host of a service: it tells what the service yields, and lets it leave however the host is ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lastbus.proof.notes import Events
from lastbus.proof.process import ZYGOTE, environment

ANSWER_SECONDS = 20.0
HOSTED = """
import contextlib
from pathlib import Path


@contextlib.contextmanager
def till():
    print("what a service prints")
    try:
        yield {"TILL": "lent"}
    finally:
        Path("left").touch()


def broken():
    raise RuntimeError("no till here")
"""
Host = Callable[[str], "tuple[subprocess.Popen[bytes], dict[str, Any] | None]"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Start the host of a service; returns it with the first thing that it says."""
    (tmp_path / "hosted.py").write_text(HOSTED)
    started: list[subprocess.Popen[bytes]] = []

    def start(service: str) -> tuple[subprocess.Popen[bytes], dict[str, Any] | None]:
        command = [sys.executable, str(ZYGOTE), "host", f"hosted:{service}", str(tmp_path)]
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        one = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, cwd=tmp_path, env=environment())
        started.append(one)
        assert one.stdout is not None
        return one, Events(one.stdout).next(time.monotonic() + ANSWER_SECONDS)

    yield start
    for one in started:
        one.kill()
        one.wait()
        for end in (one.stdin, one.stdout):
            assert end is not None
            end.close()


@pytest.mark.guarantee("MUT-28")
def test_a_service_leaves_when_nobody_needs_it_any_more(host, tmp_path):
    one, told = host("till")

    assert told == {"event": "serving", "environment": {"TILL": "lent"}}
    assert not (tmp_path / "left").exists()
    one.stdin.close()
    assert one.wait(ANSWER_SECONDS) == 0
    assert (tmp_path / "left").exists()
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.guarantee("MUT-28")
def test_a_service_leaves_when_its_host_is_told_to_end_and_not_when_it_is_interrupted(host, tmp_path):
    one, _ = host("till")

    one.send_signal(signal.SIGINT)
    one.send_signal(signal.SIGTERM)

    assert one.wait(ANSWER_SECONDS) == 128 + signal.SIGTERM
    assert (tmp_path / "left").exists()


@pytest.mark.guarantee("MUT-28")
@pytest.mark.parametrize(
    ("service", "words"), [("broken", "RuntimeError: no till here"), ("nothing", "AttributeError: module 'hosted'")]
)
def test_a_service_that_cannot_be_started_is_told_with_the_reason(host, service, words):
    one, told = host(service)

    assert told["environment"] == {}
    assert told["failure"].startswith(words)
    assert one.wait(ANSWER_SECONDS) == 0
