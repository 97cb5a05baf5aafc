"""Late: what a straggler still does to its store when the bus is closed. Declared consequences, kept as they are.

A small `close_timeout` passes on the loop's own time, which is the contract there.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus import BaseBus, Event
from lastbus.memory import InMemoryEventBus, InMemoryProcessingTracker
from lastbus.testing import Gate, Recorder, everyone_blocked
from tests._backends import open_backend

pytestmark = pytest.mark.usefixtures("hygiene")

SOON = 0.03


async def straggles(bus: BaseBus, gate: Gate, event: Event) -> bool:
    """Close `bus` while `gate` holds `event`, then let it pass; whether the close had returned by then."""
    await bus.register_handler("job", gate.hold, handler_id="mine")
    await bus.publish(event)
    await asyncio.wait_for(gate.has_entered(), 2)
    closing = asyncio.ensure_future(bus.close())
    await asyncio.wait({closing}, timeout=2)
    return closing.done()


async def ends(bus: BaseBus, gate: Gate) -> None:
    gate.open()
    await asyncio.wait(set(bus._pending_tasks), timeout=2)
    await everyone_blocked()


@pytest.mark.guarantee("DISP-10")
@pytest.mark.parametrize("name", ["fakeredis", "valkey"])
async def test_the_mark_of_a_straggler_opens_a_connection_that_nobody_closes(
    name: str, gate: Gate, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_backend(name, request) as backend:
        bus: Any = backend.make_bus(close_timeout=SOON)
        event = Event("job")
        closed = await straggles(bus, gate, event)
        after_close = bus.processing_tracker.redis
        named = [event.event_id in each.getMessage() and "mine" in each.getMessage() for each in caplog.records]

        await ends(bus, gate)
        after_mark = bus.processing_tracker.redis
        is_marked = await bus.processing_tracker.is_event_processed(event.event_id, "mine")
        await bus.processing_tracker.aclose()

    assert (closed, after_close, named) == (True, None, [True])
    assert after_mark is not None
    assert is_marked


class Severed(InMemoryProcessingTracker):
    """A store that several processes share: once closed here it takes no mark, and what was claimed here lapses."""

    def __init__(self) -> None:
        super().__init__()
        self.is_severed = False
        self.claims: list[tuple[str, str, str]] = []

    async def claim_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        self.claims.append((event_id, handler_id, owner))
        return await super().claim_event(event_id, handler_id, owner)

    async def finish_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        if self.is_severed:
            raise ConnectionError("no connection any more")
        return await super().finish_event(event_id, handler_id, owner)

    async def aclose(self) -> None:
        self.is_severed = True

    async def lapse(self) -> None:
        """The time of the claims is over; somebody else has a connection."""
        for claim in self.claims:
            await self.release_claim(*claim)
        self.is_severed = False


@pytest.mark.guarantee("DISP-11")
async def test_a_straggler_whose_mark_is_lost_is_handled_again(
    gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    tracker, event = Severed(), Event("job")
    bus = InMemoryEventBus(processing_tracker=tracker, close_timeout=SOON)
    closed = await straggles(bus, gate, event)
    await ends(bus, gate)
    is_marked = await tracker.is_event_processed(event.event_id, "mine")
    lost = [each for each in caplog.records if each.levelname == "ERROR"]

    await tracker.lapse()
    other = InMemoryEventBus(processing_tracker=tracker)
    await other.register_handler("job", recorder, handler_id="mine")
    await other._receive(event, deduplicate=True, wildcard=False)
    await everyone_blocked()

    assert (closed, len(gate.left), is_marked) == (True, 1, False)
    assert [event.event_id in each.getMessage() for each in lost] == [True]
    assert recorder.events == [event]
    assert await tracker.is_event_processed(event.event_id, "mine")
    await other.close()
