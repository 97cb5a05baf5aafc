"""A supervised server never outlives the process that asked for it, however that process ends.

Run as a script, this module is the supervisor: it starts one server as its own child and reads its orders
from standard input. The end of that input is an order too, and it is the one that the kernel gives on
behalf of a parent that was killed. Imported, the module offers ``Supervised``, the asking side.

A supervisor of our own, because ``PR_SET_PDEATHSIG`` would tie the server to the thread that started it,
needs a ``preexec_fn`` (unsafe once threads run), and exists on Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Final, NamedTuple

STOP: Final = b"S"
KILL: Final = b"K"
GRACE_SECONDS: Final = 5.0
LEAVE_SECONDS: Final = GRACE_SECONDS + 5.0


class Order(NamedTuple):
    """What to run, and how to end it.

    ``user`` (uid, gid) is the account of the server, not of the supervisor. ``scratch`` is removed when
    the asking process dies without having said ``stop`` or ``kill``; ``log`` receives what the server prints.
    """

    command: Sequence[str]
    log: str
    scratch: str
    stop_signal: int = signal.SIGTERM
    user: tuple[int, int] | None = None


class Supervised:
    """One server process with its supervisor. The server was started when the constructor returns.

    Raises ``OSError`` when the command cannot be executed.
    """

    def __init__(self, order: Order) -> None:
        # A session of its own: Ctrl-C and signals to our process group must not stop a server in the
        # middle of a test. The end of its input reaches the supervisor all the same.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        answer = _opened(self._process.stdout).readline().decode()
        if not answer.startswith("pid "):
            self._leave()
            raise OSError(answer.strip() or "the supervisor ended before it started the server")
        self.pid: Final = int(answer.split()[1])

    def ended_within(self, seconds: float) -> bool:
        """Say whether the server has ended, after waiting for that at most so long."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """Ask the server to end and kill it after ``GRACE_SECONDS``. It is gone when this returns."""
        self._say(STOP)

    def kill(self) -> None:
        """End the server without warning. It is gone when this returns."""
        self._say(KILL)

    def _say(self, word: bytes) -> None:
        # A server that ended by itself, or was told before, leaves nobody to tell.
        with contextlib.suppress(OSError, ValueError):
            _opened(self._process.stdin).write(word)
            _opened(self._process.stdin).flush()
        self._leave()

    def _leave(self) -> None:
        with contextlib.suppress(OSError):  # Closing flushes the word that could not be said.
            _opened(self._process.stdin).close()
        if not self.ended_within(LEAVE_SECONDS):
            self._process.kill()
            self._process.wait()
        _opened(self._process.stdout).close()


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def main(argv: Sequence[str]) -> int:
    """Run the server that the order in ``argv[0]`` describes until it ends; return its exit status."""
    order = Order(*json.loads(argv[0]))
    try:
        server = _spawn(order)
    except OSError as error:
        print(error, flush=True)
        return 1
    print("pid", server.pid, flush=True)
    orphaned = threading.Event()
    threading.Thread(target=_obey, args=(server, order, orphaned), daemon=True).start()
    status = server.wait()
    if orphaned.is_set():
        shutil.rmtree(order.scratch, ignore_errors=True)
    return status


def _spawn(order: Order) -> subprocess.Popen[bytes]:
    uid, gid = order.user or (None, None)
    with open(order.log, "ab") as log:
        return subprocess.Popen(
            order.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=order.scratch,
            user=uid,
            group=gid,
            extra_groups=None if order.user is None else [],
        )


def _obey(server: subprocess.Popen[bytes], order: Order, orphaned: threading.Event) -> None:
    word = os.read(sys.stdin.fileno(), 1)
    if not word:
        orphaned.set()
    if word == KILL:
        server.kill()
        return
    server.send_signal(order.stop_signal)
    try:
        server.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
