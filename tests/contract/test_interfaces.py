"""The ports: what a bus, a storage and a tracker are, each on its own, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lastbus import (
    BaseBus,
    EventBus,
    EventProcessingTracker,
    EventStorage,
    EventSubscriptionStorage,
    InMemoryEventBus,
    create_event_bus,
)

PORTS = (EventBus, EventStorage, EventSubscriptionStorage, EventProcessingTracker)


@pytest.mark.guarantee("CORE-33")
def test_the_four_ports_are_distinct_and_abstract() -> None:
    for port in PORTS:
        assert not any(issubclass(port, other) for other in PORTS if other is not port)
        with pytest.raises(TypeError, match="abstract"):
            port()  # type: ignore[abstract]


@pytest.mark.guarantee("CORE-33")
@pytest.mark.parametrize(
    "verb",
    [
        "publish",
        "publish_sync",
        "batch_publish",
        "register_handler",
        "unregister_handler",
        "register_subscription",
        "unregister_subscription",
        "wait_for_event",
        "get_event",
        "request_close",
        "close",
    ],
)
def test_a_bus_must_offer_every_verb(verb: str) -> None:
    assert verb in EventBus.__abstractmethods__
    assert verb not in BaseBus.__abstractmethods__


@pytest.mark.guarantee("CORE-33")
def test_every_bus_of_this_package_has_three_stores_of_its_own() -> None:
    one, other = InMemoryEventBus(), InMemoryEventBus()

    assert isinstance(one.event_storage, EventStorage)
    assert isinstance(one.subscription_storage, EventSubscriptionStorage)
    assert isinstance(one.processing_tracker, EventProcessingTracker)
    assert one.event_storage is not other.event_storage
    assert one.processing_tracker is not other.processing_tracker


@pytest.mark.guarantee("CORE-32")
def test_a_memory_bus_works_where_no_driver_is_installed() -> None:
    program = """
import asyncio, sys
for name in ("redis", "sqlalchemy", "aiosqlite", "asyncpg"):
    sys.modules[name] = None
from lastbus import create_event_bus
async def main():
    bus = create_event_bus("memory")
    await bus.get_event(await bus.publish("t"))
    await bus.close()
asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.guarantee("CORE-31")
@pytest.mark.parametrize("setting", [None, "", "0", "true", "yes", "1 "])
def test_the_sql_bus_is_refused_by_name_unless_it_was_unlocked(
    monkeypatch: pytest.MonkeyPatch, setting: str | None
) -> None:
    monkeypatch.delenv("PLAITA_ALLOW_EXPERIMENTAL_DB", raising=False)
    if setting is not None:
        monkeypatch.setenv("PLAITA_ALLOW_EXPERIMENTAL_DB", setting)

    for kind in ("sqlalchemy", "db"):
        with pytest.raises(ValueError, match="PLAITA_ALLOW_EXPERIMENTAL_DB=1"):
            create_event_bus(kind, database_url="sqlite+aiosqlite://")


@pytest.mark.guarantee("CORE-31")
def test_the_sql_bus_is_made_once_it_was_unlocked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLAITA_ALLOW_EXPERIMENTAL_DB", "1")

    bus = create_event_bus("sqlalchemy", database_url=f"sqlite+aiosqlite:///{tmp_path}/bus.db")

    assert type(bus).__name__ == "SqlalchemyEventBus"
