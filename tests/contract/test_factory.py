"""The factory: a bus by name, the gate before the SQL bus, and the default bus."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastbus import InMemoryEventBus, create_event_bus, get_default_event_bus, set_default_event_bus

GATE = "PLAITA_ALLOW_EXPERIMENTAL_DB"


@pytest.fixture(autouse=True)
def no_default() -> Iterator[None]:
    set_default_event_bus(None)
    yield
    set_default_event_bus(None)


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path / 'bus.db'}"


def in_a_fresh_interpreter(program: str) -> str:
    """What the program prints. Only a new interpreter has loaded nothing yet; its start is what makes a test slow."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50)
    return done.stdout.strip()


async def test_a_memory_bus_takes_the_options_of_its_constructor() -> None:
    bus = create_event_bus("memory", publish_sync_drain_timeout=0.25)

    assert isinstance(bus, InMemoryEventBus)
    assert bus.publish_sync_drain_timeout == 0.25
    await bus.close()


@pytest.mark.parametrize("kind", ["", "postgres", "Memory", "kafka"])
def test_an_unknown_kind_is_refused_and_the_known_ones_are_named(kind: str) -> None:
    with pytest.raises(ValueError, match="memory, redis, db, sqlalchemy"):
        create_event_bus(kind)


def test_a_redis_bus_needs_an_address() -> None:
    with pytest.raises(ValueError, match="redis_url"):
        create_event_bus("redis")


@pytest.mark.guarantee("CORE-31")
@pytest.mark.parametrize("kind", ["db", "sqlalchemy"])
@pytest.mark.parametrize("value", [None, "", "0", "true", "yes", " 1"])
def test_the_sql_bus_is_refused_unless_the_gate_is_exactly_1(
    monkeypatch: pytest.MonkeyPatch, database_url: str, kind: str, value: str | None
) -> None:
    monkeypatch.delenv(GATE, raising=False)
    if value is not None:
        monkeypatch.setenv(GATE, value)

    with pytest.raises(ValueError, match=f"experimental.*{GATE}=1"):
        create_event_bus(kind, database_url=database_url)


@pytest.mark.guarantee("CORE-31")
@pytest.mark.parametrize("kind", ["db", "sqlalchemy"])
async def test_behind_the_gate_is_a_sql_bus(monkeypatch: pytest.MonkeyPatch, database_url: str, kind: str) -> None:
    monkeypatch.setenv(GATE, "1")

    bus = create_event_bus(kind, database_url=database_url, create_tables=True)

    event = await bus.get_event(await bus.publish("order.paid", total=3))
    assert (type(bus).__name__, event.data) == ("SqlalchemyEventBus", {"total": 3})
    await bus.close()


def test_a_sql_bus_needs_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GATE, "1")

    with pytest.raises(ValueError, match="database_url"):
        create_event_bus("db")


@pytest.mark.slow
@pytest.mark.guarantee("CORE-32")
def test_a_memory_bus_loads_no_driver() -> None:
    drivers = "{'redis', 'sqlalchemy', 'aiosqlite', 'asyncpg'}"

    loaded = in_a_fresh_interpreter(
        f"import sys, lastbus; lastbus.create_event_bus('memory'); print({drivers} & set(sys.modules))"
    )

    assert loaded == "set()"


@pytest.mark.slow
@pytest.mark.guarantee("CORE-32")
@pytest.mark.parametrize(
    ("kind", "driver", "extra"), [("redis", "redis", "lastbus[redis]"), ("db", "sqlalchemy", "lastbus[sql]")]
)
def test_a_missing_driver_is_named_with_the_extra_that_brings_it(kind: str, driver: str, extra: str) -> None:
    told = in_a_fresh_interpreter(
        f"import os, sys; os.environ[{GATE!r}] = '1'; sys.modules[{driver!r}] = None\n"
        "import lastbus\n"
        f"try: lastbus.create_event_bus({kind!r}, redis_url='redis://localhost', database_url='sqlite:///x.db')\n"
        "except lastbus.MissingExtraError as error: print(error)"
    )

    assert extra in told


@pytest.mark.guarantee("CORE-30")
def test_the_default_bus_is_a_memory_bus_and_always_the_same() -> None:
    first = get_default_event_bus()

    assert isinstance(first, InMemoryEventBus)
    assert get_default_event_bus() is first


@pytest.mark.guarantee("CORE-30")
def test_threads_that_ask_at_once_get_one_bus() -> None:
    ready = threading.Barrier(8)
    buses: list[object] = []

    def ask() -> None:
        ready.wait()
        buses.append(get_default_event_bus())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(buses) == 8
    assert len(set(map(id, buses))) == 1


def test_the_default_bus_can_be_replaced() -> None:
    mine = InMemoryEventBus()

    set_default_event_bus(mine)

    assert get_default_event_bus() is mine


@pytest.mark.slow
@pytest.mark.guarantee("CORE-30")
def test_the_default_bus_is_not_made_before_somebody_asks() -> None:
    loaded = in_a_fresh_interpreter(
        "import sys, lastbus._factory; print([name for name in sys.modules if name.startswith('lastbus._backends')])"
    )

    assert loaded == "[]"
