"""Subscriptions: registered, found, gone; they call nobody by themselves."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lastbus import BaseBus, BusClosedError, Event
from lastbus.testing import ManualClock, Recorder
from tests._backends import Backend


@pytest.mark.guarantee("CORE-29")
async def test_a_registered_subscription_is_stored_as_it_was_asked_for(backend: Backend, clock: ManualClock) -> None:
    bus = backend.make_bus(clock=clock)

    subscription_id = await bus.register_subscription("t", {"a": 1}, "c", "f", "n", timeout=5)

    assert subscription_id
    stored = await bus.subscription_storage.get_subscription(subscription_id)
    assert stored is not None
    assert stored.subscription_id == subscription_id
    assert (stored.event_type, stored.filter_condition) == ("t", {"a": 1})
    assert (stored.correlation_id, stored.flow_id, stored.node_id) == ("c", "f", "n")
    assert (stored.timeout, stored.created_at) == (5, clock.time())


@pytest.mark.guarantee("CORE-29")
async def test_every_subscription_has_an_id_of_its_own(bus: BaseBus) -> None:
    assert await bus.register_subscription("t") != await bus.register_subscription("t")


@pytest.mark.guarantee("CORE-29")
async def test_an_unregistered_subscription_is_gone_from_every_question(bus: BaseBus) -> None:
    storage, event = bus.subscription_storage, Event("t", correlation_id="c")
    gone = await bus.register_subscription("t", correlation_id="c", flow_id="f", node_id="n")
    left = await bus.register_subscription("t", correlation_id="c", flow_id="f", node_id="n")

    assert await bus.unregister_subscription(gone) is True

    assert await storage.get_subscription(gone) is None
    for question in ({}, {"event_type": "t"}, {"correlation_id": "c"}, {"flow_id": "f"}, {"node_id": "n"}):
        assert [each.subscription_id for each in await storage.list_subscriptions(**question)] == [left], question
    assert [each.subscription_id for each in await storage.find_matching_subscriptions(event)] == [left]


@pytest.mark.guarantee("CORE-29")
async def test_unregistering_what_is_not_there_is_false(bus: BaseBus) -> None:
    subscription_id = await bus.register_subscription("t")

    assert await bus.unregister_subscription(subscription_id) is True
    assert await bus.unregister_subscription(subscription_id) is False
    assert await bus.unregister_subscription("nobody") is False


@pytest.mark.guarantee("CORE-29")
async def test_a_subscription_calls_nobody(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("other", recorder)
    await bus.register_subscription("t")
    await bus.register_subscription("*")

    await bus.publish("t")

    assert not bus._pending_tasks
    assert recorder.events == []


@pytest.mark.guarantee("CORE-29", "CORE-35", "CORE-36", "CORE-37")
async def test_a_subscription_that_cannot_be_stored_is_refused_by_its_field(bus: BaseBus) -> None:
    for field, bad in (
        ("event_type", ""),
        ("event_type", "a\0b"),
        ("correlation_id", " "),
        ("flow_id", "x" * 513),
        ("node_id", "\ud83d"),
        ("timeout", -1),
        ("timeout", math.nan),
        ("filter_condition", {"a": object()}),
        ("filter_condition", {"a": math.nan}),
    ):
        arguments: dict[str, Any] = {"event_type": "t", field: bad}
        with pytest.raises(ValueError, match=field):
            await bus.register_subscription(**arguments)

    assert await bus.subscription_storage.list_subscriptions() == []


@pytest.mark.guarantee("CORE-29")
async def test_a_filter_is_the_one_that_was_handed_in(bus: BaseBus) -> None:
    condition = {"a": [1]}
    subscription_id = await bus.register_subscription("t", condition)
    condition["a"].append(2)

    stored = await bus.subscription_storage.get_subscription(subscription_id)

    assert stored is not None
    assert stored.filter_condition == {"a": [1]}


@pytest.mark.guarantee("CORE-29")
async def test_a_closed_bus_takes_no_subscription(bus: BaseBus) -> None:
    await bus.close()

    with pytest.raises(BusClosedError, match="register_subscription"):
        await bus.register_subscription("t")
