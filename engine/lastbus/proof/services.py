"""Services: servers that killers need, started once for a whole replay, when the first killer asks.

Keeps: MUT-28.

A project names them by the fixture that needs them::

    [tool.lastbus.proof.services]
    postgres_server = "tests.servers:postgres"

Before that fixture is set up, in whichever process, the context manager ``postgres`` of ``tests.servers`` is entered in
a process of its own, and what it yields (names and values) is put into the environment of the test. The fixture
should take the server that is named there, and start one itself if there is none.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lastbus.proof.config import Project
from lastbus.proof.notes import Events
from lastbus.proof.process import ZYGOTE, environment, kill_group

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 30.0


class Services:
    """The services of one replay."""

    def __init__(self, project: Project, work: Path, python: str) -> None:
        self._project = project
        self._log = work / "services.log"
        self._python = os.path.abspath(python) if os.path.dirname(python) else python
        self._places = dict(project.services)
        self._lock = threading.Lock()
        self._hosts: list[subprocess.Popen[bytes]] = []
        self._stopped = False
        self.lent: dict[str, Mapping[str, str]] = {}
        """What each service that was asked for has yielded, by fixture; nothing if it could not be started."""
        self.failures: dict[str, str] = {}

    @property
    def state(self) -> dict[str, Mapping[str, str] | None]:
        """For every fixture that needs a service, what it yields, or None if it was not asked for yet."""
        return {fixture: self.lent.get(fixture) for fixture in self._places}

    def lend(self, fixture: str) -> Mapping[str, str]:
        """What the service for `fixture` yields, which is started if it does not run. Safe from any thread.

        Keeps: MUT-28.
        """
        with self._lock:
            if fixture not in self.lent:
                self.lent[fixture] = {} if self._stopped else self._start(fixture)
            return self.lent[fixture]

    def _start(self, fixture: str) -> Mapping[str, str]:
        paths = [str((self._project.root / path).resolve()) for path in self._project.paths]
        with open(self._log, "ab") as log:
            host = subprocess.Popen(
                [self._python, str(ZYGOTE), "host", self._places[fixture], *paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._project.root,
                env=environment(),
                start_new_session=True,
            )
        self._hosts.append(host)
        assert host.stdout is not None
        said = Events(host.stdout).next(time.monotonic() + START_SECONDS) or {"failure": "it gave no answer"}
        if "failure" in said:
            self.failures[fixture] = said["failure"]
        return dict(said.get("environment", {}))

    def stop(self) -> None:
        """End every service and wait until it is gone. Safe from another thread, and more than once.

        Keeps: MUT-15, MUT-28.
        """
        self._stopped = True
        for host in self._hosts:
            assert host.stdin is not None
            with contextlib.suppress(OSError):
                host.stdin.close()
        for host in self._hosts:
            try:
                host.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                kill_group(host.pid)
                host.wait()

    def close(self) -> None:
        """`stop`, and let go of the pipes: only when nobody asks any more."""
        self.stop()
        for host in self._hosts:
            assert host.stdout is not None
            host.stdout.close()
