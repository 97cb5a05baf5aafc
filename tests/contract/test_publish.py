"""Publishing, on every back end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus import BaseBus, BusClosedError, Event, EventNotFoundError
from lastbus.testing import Gate, Recorder, everyone_blocked


@pytest.mark.guarantee("CORE-12")
async def test_publish_returns_the_id_of_an_event_that_can_be_fetched_at_once(bus: BaseBus) -> None:
    event = Event("order.paid", {"total": 3}, correlation_id="c-1", source="till")

    published = await bus.publish(event)

    assert published == event.event_id
    assert await bus.get_event(published) == event


@pytest.mark.guarantee("CORE-13")
async def test_an_unknown_id_is_none_in_storage_and_a_named_error_on_the_bus(bus: BaseBus) -> None:
    assert await bus.event_storage.get_event("nobody") is None
    with pytest.raises(EventNotFoundError, match="nobody"):
        await bus.get_event("nobody")
