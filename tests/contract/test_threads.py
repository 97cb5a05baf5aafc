"""Plain handlers in threads: what cannot be stopped is not taken for stopped."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from lastbus import Event
from lastbus.memory import InMemoryEventBus
from lastbus.testing import everyone_blocked


class ThreadGate:
    """A plain handler that runs until the test opens it."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, event: Event) -> None:
        self.entered.set()
        assert self.opened.wait(10)

    async def has_entered(self) -> None:
        """Return when the handler runs."""
        assert await asyncio.get_running_loop().run_in_executor(None, self.entered.wait, 10)


@pytest.fixture
def thread_gate() -> Iterator[ThreadGate]:
    """A gate that is open at the end, whatever the test did."""
    gate = ThreadGate()
    yield gate
    gate.opened.set()


@pytest.mark.guarantee("CAP-38")
async def test_a_cancelled_thread_holds_its_claim_until_it_returns(thread_gate: ThreadGate) -> None:
    bus = InMemoryEventBus(close_timeout=0.02, on_overdue="cancel")
    handler_id = await bus.register_handler("job", thread_gate)
    event_id = await bus.publish("job")
    await thread_gate.has_entered()
    [delivery] = bus._pending_tasks

    await bus.close()
    claimed_by_another = await bus.processing_tracker.claim_event(event_id, handler_id, "another")
    thread_gate.opened.set()
    await asyncio.wait({delivery}, timeout=5)

    assert not claimed_by_another
    assert delivery.cancelled()
    assert await bus.processing_tracker.claim_event(event_id, handler_id, "another")


@pytest.mark.guarantee("CAP-38", "CAP-13")
async def test_a_thread_that_outlives_its_cancellation_is_named_again(
    thread_gate: ThreadGate, caplog: pytest.LogCaptureFixture
) -> None:
    bus = InMemoryEventBus(close_timeout=0.02, on_overdue="cancel")
    handler_id = await bus.register_handler("job", thread_gate)
    event_id = await bus.publish("job")
    await thread_gate.has_entered()

    with caplog.at_level(logging.WARNING, "lastbus"):
        await bus.close()

    named = [each.getMessage() for each in caplog.records if event_id in each.getMessage()]
    assert len(named) == 2
    assert all(handler_id in message for message in named)


@pytest.mark.guarantee("CAP-38")
async def test_a_second_cancellation_leaves_the_thread_behind(thread_gate: ThreadGate) -> None:
    bus = InMemoryEventBus(close_timeout=0.02)
    await bus.register_handler("job", thread_gate)
    await bus.publish("job")
    await thread_gate.has_entered()
    [delivery] = bus._pending_tasks

    delivery.cancel()
    await everyone_blocked()
    stood = not delivery.done()
    delivery.cancel()
    await everyone_blocked()

    assert stood
    assert delivery.cancelled()
    await bus.close()
