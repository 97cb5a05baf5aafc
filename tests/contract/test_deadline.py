"""The deadline of a wait covers the whole of it, connecting included."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus import BusClosedError, EventTimeoutError
from lastbus.memory import InMemoryEventBus
from lastbus.testing import ManualClock, everyone_blocked


class ConnectsLate(InMemoryEventBus):
    """A bus whose connection is made when the test says so."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.connect = asyncio.Event()

    async def _open(self) -> None:
        await self.connect.wait()


@pytest.mark.guarantee("CORE-28")
async def test_a_wait_ends_at_its_deadline_although_the_bus_never_connects(clock: ManualClock) -> None:
    bus = ConnectsLate(clock=clock)
    waiting = asyncio.ensure_future(bus.wait_for_event("job", timeout=5.0))
    await everyone_blocked()

    clock.advance(5.0)
    await everyone_blocked()

    assert waiting.done()
    with pytest.raises(EventTimeoutError):
        waiting.result()
    assert len(bus._waiters) == 0
    assert bus._starting == {}


@pytest.mark.guarantee("CORE-28", "CAP-10")
async def test_a_close_ends_a_wait_that_is_still_connecting() -> None:
    bus = ConnectsLate(close_timeout=0.0)
    waiting = asyncio.ensure_future(bus.wait_for_event("job"))
    await everyone_blocked()

    await bus.close()
    await everyone_blocked()

    assert waiting.done()
    with pytest.raises(BusClosedError):
        waiting.result()


@pytest.mark.guarantee("CORE-28")
async def test_a_cancelled_wait_stops_connecting() -> None:
    bus = ConnectsLate()
    waiting = asyncio.ensure_future(bus.wait_for_event("job"))
    await everyone_blocked()

    waiting.cancel()
    await everyone_blocked()

    assert waiting.cancelled()
    assert bus._starting == {}


@pytest.mark.guarantee("CORE-28")
async def test_an_error_of_connecting_reaches_the_waiter() -> None:
    class Refuses(InMemoryEventBus):
        async def _open(self) -> None:
            raise OSError("nobody there")

    with pytest.raises(OSError, match="nobody there"):
        await Refuses().wait_for_event("job", timeout=1.0)


@pytest.mark.guarantee("CORE-27")
async def test_an_async_condition_is_refused_because_it_would_always_be_true() -> None:
    async def never(event: object) -> bool:
        return False

    bus = InMemoryEventBus()

    with pytest.raises(TypeError, match="plain function"):
        await bus.wait_for_event("job", timeout=0.0, condition=never)
    assert len(bus._waiters) == 0


@pytest.mark.guarantee("CORE-42")
@pytest.mark.parametrize("one", ["job", {"event_type": "job"}], ids=["text", "mapping"])
async def test_one_event_is_no_batch(one: Any) -> None:
    bus = InMemoryEventBus()

    with pytest.raises(TypeError, match="use publish"):
        await bus.batch_publish(one)

    assert await bus.event_storage.list_events() == []
