"""`lastbus filter` and `lastbus worker`: what they run with, and that everything is closed on the way out.

Each test has a server of its own: the commands use the well-known keys. A command that is started as a program takes
most of a second to start.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

import lastbus
from lastbus import EventStorageError, cli
from lastbus._commands import services
from lastbus._kit.servers import RedisServer, ServerUnavailable, missing
from lastbus.redis import RedisServiceDirectory
from lastbus.services import Flow, Step
from tests._backends.eventually import eventually

Command = Callable[..., tuple[int, str, str]]

flow = Flow("greeting", [Step("greet", lambda _: "hello")])


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server of this test's own."""
    try:
        server = RedisServer()
    except ServerUnavailable as absence:
        missing(absence)
    with server:
        yield server


@pytest.fixture
def run(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run one command that leaves as soon as its service runs; returns its exit code, its output and its complaints."""

    async def leave_at_once() -> None:
        return

    monkeypatch.setattr(services, "stay", leave_at_once)
    monkeypatch.setenv("PLAITA_REDIS_URL", own_server.url)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*argv: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(argv)
        said = capsys.readouterr()
        return int(left.value.code or 0), said.out, said.err

    return run


HERE = f"{__name__}:flow"
LOOKS_MAX: Final = 100
LEAVE_SECONDS: Final = 5.0
"""How long a program that is told to end is waited for."""


async def listed(server: RedisServer) -> list[bytes]:
    """The keys of the services that are listed, as soon as there is one: it is announced beside whoever starts it."""
    keys: list[bytes] = []
    with Redis.from_url(server.url) as client:

        async def is_somebody_listed() -> bool:
            keys[:] = client.scan_iter("plaita:registry:*")
            return bool(keys)

        assert await eventually(is_somebody_listed, LOOKS_MAX), "no service is listed"
    return keys


@pytest.mark.guarantee("FLOW-05")
@pytest.mark.parametrize(
    ("options", "bus", "is_noted"),
    [
        ([], "RedisEventBus", False),
        (["--use-event-bus"], "RedisEventBus", True),
        (["--no-event-bus"], "no bus", False),
        (["--use-event-bus", "--no-event-bus"], "no bus", True),
        (["--event-bus-type", "memory"], "InMemoryEventBus", False),
    ],
    ids=["default", "use", "no", "both", "memory"],
)
def test_a_worker_has_a_bus_unless_it_is_told_otherwise(
    run: Command, options: list[str], bus: str, is_noted: bool
) -> None:
    code, out, err = run("worker", HERE, *options)

    assert code == 0
    assert out.endswith(f"is running with {bus}\n")
    assert ("--use-event-bus is deprecated" in err) is is_noted


@pytest.mark.guarantee("CORE-34")
@pytest.mark.parametrize("kind", ["redis", "memory", "db"])
def test_whatever_the_bus_the_services_keep_their_things_on_the_redis_server(
    run: Command, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    monkeypatch.setenv("PLAITA_ALLOW_EXPERIMENTAL_DB", "1")
    looks: list[list[bytes]] = []

    async def look() -> None:
        looks.append([each.rpartition(b":")[0] for each in await listed(own_server)])

    monkeypatch.setattr(services, "stay", look)
    database = f"sqlite+aiosqlite:///{tmp_path / 'bus.db'}"

    assert run("filter", "--event-bus-type", kind, "--database-url", database)[0] == 0
    assert looks == [[b"plaita:registry:event_filter"]]


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["worker"], "Missing argument"),
        (["worker", "no_such_module:flow"], "names no flow"),
        (["worker", f"{__name__}:nothing"], "names no flow"),
        (["worker", f"{__name__}:HERE"], "is no Flow but str"),
        (["worker", HERE, "--event-bus-type", "kafka"], "unknown event bus"),
        (["filter", "--event-bus-type", "db"], "experimental"),
    ],
    ids=["no-flow", "no-module", "no-name", "no-kind-of-flow", "no-bus", "gate"],
)
def test_wrong_usage_is_said_with_exit_code_2(run: Command, argv: list[str], complaint: str) -> None:
    code, _, err = run(*argv)

    assert code == 2
    assert complaint in err


def test_a_server_that_is_away_is_one_line_and_exit_code_1(run: Command, own_server: RedisServer) -> None:
    own_server.close()

    code, _, err = run("filter")

    assert code == 1
    assert err.splitlines()[-1].startswith("lastbus: Redis at ")


# -- on the way out ---------------------------------------------------------------------------------------------


class Bus:
    """A bus that counts how often it is closed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.closes = 0
        self.error = error

    async def close(self) -> None:
        self.closes += 1
        if self.error is not None:
            raise self.error


class Service:
    """A service that may fail as it starts or as it stops."""

    def __init__(self, at_start: Exception | None = None, at_stop: Exception | None = None) -> None:
        self.at_start = at_start
        self.at_stop = at_stop

    async def __aenter__(self) -> None:
        if self.at_start is not None:
            raise self.at_start

    async def __aexit__(self, *trouble: object) -> None:
        if self.at_stop is not None:
            raise self.at_stop


@pytest.fixture
def control(own_server: RedisServer) -> services.Control:
    return services.Control(own_server.url, "queue")


@pytest.mark.guarantee("FLOW-08")
@pytest.mark.parametrize(
    "service",
    [Service(at_start=EventStorageError("away")), Service(at_stop=EventStorageError("away"))],
    ids=["at-start", "at-stop"],
)
async def test_the_bus_is_closed_when_the_service_fails(
    control: services.Control, monkeypatch: pytest.MonkeyPatch, service: Service
) -> None:
    async def leave_at_once() -> None:
        return

    monkeypatch.setattr(services, "stay", leave_at_once)
    bus = Bus()

    with pytest.raises(EventStorageError, match="away"):
        await services.main_async(bus, control, "test", service)

    assert bus.closes == 1


@pytest.mark.guarantee("FLOW-08")
async def test_the_bus_is_closed_and_the_service_leaves_the_list_when_it_is_cancelled(
    control: services.Control, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_running = asyncio.Event()

    async def stay() -> None:
        is_running.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(services, "stay", stay)
    bus = Bus()
    running = asyncio.ensure_future(services.main_async(bus, control, "test", Service()))
    await is_running.wait()
    await listed(own_server)

    running.cancel()
    await asyncio.wait([running])

    directory = RedisServiceDirectory(own_server.url)
    assert (running.cancelled(), bus.closes) == (True, 1)
    assert await directory.list_types() == []
    await directory.aclose()


@pytest.mark.guarantee("FLOW-09")
async def test_a_bus_that_cannot_be_closed_is_a_warning_and_all_connections_are_closed(
    control: services.Control, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave_at_once() -> None:
        return

    monkeypatch.setattr(services, "stay", leave_at_once)

    await services.main_async(Bus(ConnectionError("away")), control, "test", Service())

    assert [each.levelname for each in caplog.records if each.name == "lastbus.services"] == ["WARNING"]
    assert control.directory.redis is None


@pytest.mark.guarantee("FLOW-10")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["terminated", "interrupted"])
def test_a_signal_cancels_the_service_between_two_steps_of_the_loop(number: int) -> None:
    ended, stray = [], []
    kept = {each: signal.signal(each, lambda *_: stray.append(True)) for each in (signal.SIGTERM, signal.SIGINT)}

    async def serve() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.wait_for(asyncio.get_running_loop().create_future(), 3)
        finally:
            ended.append(True)

    try:
        told = asyncio.run(services.until_told(serve()))
    finally:
        for each, handler in kept.items():
            signal.signal(each, handler)

    assert (told, ended, stray) == (number, [True], [])


# -- as programs ------------------------------------------------------------------------------------------------


def program(server: RedisServer, *argv: str) -> subprocess.Popen[str]:
    """The command as a program of its own."""
    paths = [str(Path(lastbus.__file__).parents[1]), str(Path(__file__).parents[2])]
    return subprocess.Popen(
        [sys.executable, "-c", "from lastbus.cli import main; main()", *argv],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PLAITA_REDIS_URL": server.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.guarantee("FLOW-08", "FLOW-10")
@pytest.mark.parametrize("argv", [["filter"], ["worker", HERE]], ids=["filter", "worker"])
def test_a_program_that_is_told_to_end_leaves_through_its_cleanup(own_server: RedisServer, argv: list[str]) -> None:
    running: Any = program(own_server, *argv)
    try:
        assert "is running with RedisEventBus" in running.stdout.readline()
        asyncio.run(listed(own_server))
        running.send_signal(signal.SIGTERM)
        _, complaints = running.communicate(timeout=LEAVE_SECONDS)
    finally:
        running.kill()
        running.wait()

    with Redis.from_url(own_server.url) as server:
        assert list(server.scan_iter("plaita:registry:*")) == []
    assert (running.returncode, complaints) == (128 + signal.SIGTERM, "")
