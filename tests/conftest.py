"""Fixtures of the whole suite: the back end under test, a bus on it, and what a test needs instead of sleeping."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lastbus._bus import BaseBus
from lastbus.testing import Gate, ManualClock, Recorder
from tests._backends import Backend, backend_params, open_backend

pytest_plugins = ["lastbus.proof.pytest_plugin", "tests._backends.servers"]


@pytest.fixture(params=backend_params())
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """Each back end in turn: an empty store of its own, on which a test makes as many buses as it likes."""
    async with open_backend(request.param, request) as opened:
        yield opened


@pytest.fixture
def bus(backend: Backend) -> BaseBus:
    """One bus on the back end under test; it is closed with the back end."""
    return backend.make_bus()


@pytest.fixture
def gate() -> Gate:
    """A handler that stops until the test opens it."""
    return Gate()


@pytest.fixture
def recorder() -> Recorder:
    """A handler that remembers its events."""
    return Recorder()


@pytest.fixture
def clock() -> ManualClock:
    """Time that moves only when the test says so."""
    return ManualClock()
