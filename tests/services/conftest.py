"""Fixtures of the services' tests: a bus in memory or on a real server, and the services' own keys on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lastbus._bus import BaseBus
from lastbus.testing import ManualClock
from tests._backends import Backend, open_backend
from tests._backends.redis import ValkeyBackend
from tests.services.shop import Control, Shop


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ValkeyBackend]:
    """A real server, with a prefix of this test's own."""
    async with open_backend("valkey", request) as opened:
        assert isinstance(opened, ValkeyBackend)
        yield opened


@pytest.fixture
def control(server: ValkeyBackend) -> Control:
    """Queues, executions and the directory of services, all empty."""
    return Control(server)


@pytest.fixture(params=["memory", "valkey"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """Where the bus of the services is."""
    async with open_backend(request.param, request) as opened:
        yield opened


@pytest.fixture
def bus(backend: Backend, clock: ManualClock) -> BaseBus:
    """The bus of the services."""
    return backend.make_bus(clock=clock)


@pytest.fixture
def shop(bus: BaseBus, control: Control, clock: ManualClock) -> Shop:
    """A flow that waits for an approval, on `bus`."""
    return Shop(bus, control, clock)
