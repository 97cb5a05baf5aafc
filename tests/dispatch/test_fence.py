"""Fence: an event of another process that comes too late, or whose listener goes away, is named and not half taken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus import Event
from lastbus.memory import InMemoryEventBus
from lastbus.testing import Gate, Recorder, everyone_blocked

pytestmark = pytest.mark.usefixtures("hygiene")


def naming(caplog: pytest.LogCaptureFixture, event: Event, handler_id: str) -> list[str]:
    """The levels of the log lines about `event`, each of which names `handler_id`."""
    about = [each for each in caplog.records if event.event_id in each.getMessage()]
    assert all(handler_id in each.getMessage() for each in about)
    return [each.levelname for each in about]


async def full(bus: InMemoryEventBus, gate: Gate) -> None:
    """Let `gate` take the only slot."""
    await bus.register_handler("full", gate.hold)
    await bus.publish("full")
    await everyone_blocked()


@pytest.mark.guarantee("DISP-07")
async def test_what_comes_after_a_close_began_is_refused_and_named(
    gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus = InMemoryEventBus()
    handler_id = await bus.register_handler("job", recorder)
    await full(bus, gate)
    closing, event = bus.request_close(), Event("job")
    held = dict(bus._pending_tasks)

    await bus._receive(event, deduplicate=True, wildcard=False)
    after = dict(bus._pending_tasks)
    gate.open()
    await asyncio.wait({closing}, timeout=2)
    await bus._receive(event, deduplicate=True, wildcard=False)
    await everyone_blocked()

    assert after == held
    assert closing.done()
    assert recorder.events == []
    assert naming(caplog, event, handler_id) == ["WARNING"] * 2


@pytest.mark.guarantee("DISP-08")
async def test_an_event_whose_listener_is_cancelled_while_it_waits_for_a_slot_is_named(
    gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus = InMemoryEventBus(max_pending_callbacks=1)
    handler_id = await bus.register_handler("job", recorder)
    await full(bus, gate)
    event = Event("job")
    listener = asyncio.ensure_future(bus._receive(event, deduplicate=True, wildcard=False))
    await everyone_blocked()

    listener.cancel()
    await asyncio.wait({listener}, timeout=2)
    gate.open()
    await everyone_blocked()

    assert listener.cancelled()
    assert naming(caplog, event, handler_id) == ["WARNING"]
    assert (recorder.events, bus._slots.taken) == ([], 0)
    await bus.close()


@pytest.mark.guarantee("DISP-08")
@pytest.mark.parametrize("is_cancelled_too", [False, True])
async def test_an_event_that_waits_for_a_slot_while_the_bus_closes_is_named_once(
    is_cancelled_too: bool, gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus: Any = InMemoryEventBus(max_pending_callbacks=1)
    handler_id = await bus.register_handler("job", recorder)
    await full(bus, gate)
    event = Event("job")
    listener = asyncio.ensure_future(bus._receive(event, deduplicate=True, wildcard=False))
    await everyone_blocked()

    closing = bus.request_close()
    if is_cancelled_too:
        listener.cancel()
    await asyncio.wait({listener}, timeout=2)
    gate.open()
    await asyncio.wait({closing}, timeout=2)

    assert (closing.done(), listener.cancelled()) == (True, is_cancelled_too)
    assert naming(caplog, event, handler_id) == ["WARNING"]
    assert (recorder.events, bus._slots.taken) == ([], 0)
