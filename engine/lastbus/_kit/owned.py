"""A server of our own: started on loopback in a scratch directory, gone without a trace afterwards."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from .availability import ServerFailed
from .ports import free_port
from .supervisor import Order, Supervised

if TYPE_CHECKING:
    from typing_extensions import Self

READY_POLLS_MAX: Final = 3_000
POLL_SECONDS: Final = 0.01
START_ATTEMPTS_MAX: Final = 5
RETRY_SECONDS: Final = 0.1

# Nothing sets this event: waiting for it is a pause without a clock.
_pause: Final = threading.Event().wait


class OwnedServer(ABC):
    """Start, stop, kill and restart one server process; the port stays the same over restarts.

    A context manager: entering starts it, leaving closes it. It never outlives this process, even one
    that is killed. A copy of this object in a forked child refers to the parent's server: the child may
    talk to it, but its ``close`` does nothing.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self.scratch: Final = Path(tempfile.mkdtemp(prefix="lastbus-"))
        self.log: Final = self.scratch / "server.log"
        self._owner: Final = os.getpid()
        self._process: Supervised | None = None
        self._port: int | None = None
        atexit.register(self.close)

    @property
    def port(self) -> int:
        """The loopback port. Chosen by the first start; ``RuntimeError`` before it."""
        if self._port is None:
            raise RuntimeError(f"{self.name} has no port yet: start() it first")
        return self._port

    @property
    def pid(self) -> int | None:
        """The server's process id, ``None`` while it is stopped."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there; one that ended by itself is not."""
        return self._process is not None and not self._process.ended_within(0)

    def start(self) -> None:
        """Start the server; it answers when this returns. A running one is left alone.

        Raises ``ServerFailed`` when it ends at once, ``START_ATTEMPTS_MAX`` times, or does not answer in time.
        """
        if self.running:
            return
        self.stop()
        for _ in range(START_ATTEMPTS_MAX):
            if self._try_start(self._port or free_port()):
                return
            _pause(RETRY_SECONDS)
        raise ServerFailed(self.name, f"ended at once, {START_ATTEMPTS_MAX} times", self.log)

    def stop(self) -> None:
        """Let the server end in its own way. It is gone when this returns; a stopped one stays so."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def kill(self) -> None:
        """End the server with SIGKILL. It is gone when this returns."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def restart(self) -> None:
        """Stop the server and start it again on the same port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server and remove its files. Harmless when repeated."""
        if not self._is_ours():
            return
        self.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)
        atexit.unregister(self.close)

    def _is_ours(self) -> bool:
        return os.getpid() == self._owner

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @abstractmethod
    def _order(self, port: int) -> Order:
        """What to run so that the server listens on ``port``."""

    @abstractmethod
    def _answers(self, port: int, pid: int) -> bool:
        """Say whether the process ``pid``, and not another server, serves on ``port``."""

    def _try_start(self, port: int) -> bool:
        """Start once. False when the server ended at once: the port was taken, or a killed one lingers."""
        process = self._spawn(port)
        for _ in range(READY_POLLS_MAX):
            if self._answers(port, process.pid):
                self._process, self._port = process, port
                return True
            if process.ended_within(POLL_SECONDS):
                process.stop()
                return False
        process.kill()
        raise ServerFailed(self.name, f"does not answer on port {port}", self.log)

    def _spawn(self, port: int) -> Supervised:
        try:
            return Supervised(self._order(port))
        except OSError as error:
            raise ServerFailed(self.name, f"cannot be executed: {error}") from error
