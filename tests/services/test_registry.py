"""The registry: who is here, under whatever type, for as long as it says so."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable

import pytest

from lastbus.services import ServiceDirectory, ServiceRegistry
from lastbus.testing import ManualClock
from tests.contract.waiting import until
from tests.services.shop import Control


async def announced(control: Control, *service_types: str) -> ServiceDirectory:
    directory = control.directory()
    for service_type in service_types:
        await directory.announce(service_type, "host-1a2b3c4d", "{}", 60)
    return directory


@pytest.mark.guarantee("STORE-09")
async def test_types_are_whole_whatever_they_hold(control: Control) -> None:
    directory = await announced(control, "flow_worker", "a:b_service", "*", "a")

    assert await directory.list_types() == ["*", "a", "a:b_service", "flow_worker"]
    assert await directory.list_texts("a") == ["{}"]


@pytest.mark.guarantee("STORE-09")
async def test_an_instance_id_with_a_colon_is_refused(control: Control) -> None:
    with pytest.raises(ValueError, match="instance_id must not contain a colon"):
        await control.directory().announce("flow_worker", "host:1", "{}", 60)


@pytest.mark.guarantee("STORE-09", "FLOW-22")
async def test_a_service_is_listed_between_start_and_stop(control: Control, clock: ManualClock) -> None:
    directory = control.directory()
    one = ServiceRegistry(directory, "a:b_service", instance_id="host-1a2b3c4d", clock=clock)
    other = ServiceRegistry(control.directory(), "a:b_service", clock=clock)

    async with one, other:
        await until_listed(one, 2)
        assert await one.get_service_types() == ["a:b_service"]
        assert set(await one.get_services("a:b_service")) == {one.info, other.info}
        assert (one.info.started_at, one.info.pid) == (clock.time(), os.getpid())

    assert await directory.list_types() == []


async def until_listed(registry: ServiceRegistry, count: int) -> None:
    """Return when so many instances are listed: the first announcement is made beside the caller."""
    for _ in range(1000):
        if len(await registry.get_services(registry.info.service_type)) == count:
            return
    raise AssertionError("not listed")


class ListDirectory(ServiceDirectory):
    """A directory that notes what it is told; it may fail."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.fails: Callable[[], bool] = lambda: False

    async def announce(self, service_type: str, instance_id: str, text: str, ttl: float) -> None:
        self.said.append(f"announce {ttl:g}")

    async def withdraw(self, service_type: str, instance_id: str) -> bool:
        self.said.append("withdraw")
        if self.fails():
            raise ConnectionError("away")
        return True

    async def list_types(self) -> list[str]:
        return []

    async def list_texts(self, service_type: str) -> list[str]:
        return []


@pytest.mark.guarantee("FLOW-22")
async def test_a_service_is_announced_again_before_its_time_is_over(clock: ManualClock) -> None:
    directory = ListDirectory()

    async with ServiceRegistry(directory, "s", ttl=30, heartbeat_interval=10, clock=clock):
        for beats in (1, 2, 3):
            await until(lambda beats=beats: len(clock.sleeps) == beats)  # type: ignore[misc]
            clock.advance(10)

    assert directory.said[:3] == ["announce 30"] * 3
    assert directory.said[-1] == "withdraw"


@pytest.mark.guarantee("FLOW-22")
async def test_a_directory_that_fails_as_a_service_leaves_is_a_warning(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    directory = ListDirectory()
    directory.fails = lambda: True

    async with ServiceRegistry(directory, "s", instance_id="i", clock=clock):
        pass

    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "service i could not be taken off the list: away")
    ]


@pytest.mark.guarantee("FLOW-22")
async def test_unless_it_is_told_otherwise_a_service_is_announced_for_half_a_minute_every_ten_seconds(
    clock: ManualClock,
) -> None:
    directory = ListDirectory()

    async with ServiceRegistry(directory, "s", clock=clock):
        await until(lambda: bool(clock.sleeps))

    assert (directory.said[0], clock.sleeps) == ("announce 30", [10.0])


def test_a_time_on_the_list_that_is_none_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match=r"^ttl "):
        ServiceRegistry(ListDirectory(), "s", ttl=0)


def test_a_service_that_is_given_no_id_takes_the_hosts_name_and_no_two_the_same() -> None:
    ids = [ServiceRegistry(ListDirectory(), "s").info.instance_id for _ in range(2)]

    assert ids[0] != ids[1]
    assert all(re.fullmatch(rf"{re.escape(socket.gethostname())}-[0-9a-f]{{8}}", each) for each in ids)


async def test_a_process_that_died_is_listed_for_its_time(control: Control) -> None:
    await (await announced(control)).announce("s", "i", "{}", 60)
    key = f"{control.server.prefix}registry:s:i"

    assert 0 < await control.server.connection().command("PTTL", key) <= 60_000
