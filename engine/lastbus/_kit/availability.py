"""A missing server is a failure where it was promised (CI) and one line of advice everywhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

LOG_TAIL_CHARS: Final = 2_000


class ServerUnavailable(RuntimeError):
    """This machine has no such server. The text says what to install."""

    def __init__(self, server: str, remedy: str) -> None:
        self.server = server
        self.remedy = remedy
        super().__init__(f"no {server} here: {remedy}")


class ServerFailed(RuntimeError):
    """The server is installed, but did not do what it must. Carries the end of its log."""

    def __init__(self, server: str, trouble: str, log: Path | None = None) -> None:
        self.server = server
        self.log_tail = _tail(log)
        super().__init__(f"{server} {trouble}" + (f"; its log ends:\n{self.log_tail}" if self.log_tail else ""))


def missing(absence: ServerUnavailable, environ: Mapping[str, str] = os.environ) -> NoReturn:
    """End the current test: with ``CI`` set it fails, otherwise it is skipped, both with the same line."""
    import pytest

    if in_ci(environ):
        pytest.fail(f"CI must have every server: {absence}", pytrace=False)
    pytest.skip(str(absence))


def in_ci(environ: Mapping[str, str] = os.environ) -> bool:
    """Say whether ``CI`` is set to anything but a spelled-out no."""
    return environ.get("CI", "").strip().lower() not in {"", "0", "false", "no"}


def _tail(log: Path | None) -> str:
    if log is None or not log.exists():
        return ""
    return log.read_text(errors="replace")[-LOG_TAIL_CHARS:].strip()
