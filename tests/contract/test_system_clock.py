"""The machine's clock, which every bus has that is given no other.

Timing: what real timers do is the subject; they are a hundredth of a second long.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from lastbus import Event, EventTimeoutError, RetryPolicy
from lastbus._clock import SYSTEM_CLOCK
from lastbus.memory import InMemoryEventBus

SHORT = 0.01


async def test_a_wait_ends_after_its_time_by_the_machine() -> None:
    bus = InMemoryEventBus()
    before = time.monotonic()

    with pytest.raises(EventTimeoutError):
        await bus.wait_for_event("never", timeout=SHORT)

    assert time.monotonic() - before >= SHORT / 2
    await bus.close()


async def test_a_retry_comes_after_its_delay_by_the_machine() -> None:
    bus, calls = InMemoryEventBus(), []

    async def fail_once(event: Event) -> None:
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise ConnectionError("once")

    await bus.register_handler("job", fail_once, retry_policy=RetryPolicy(max_retries=1, initial_delay=SHORT))
    await bus.publish("job")
    await bus.close()

    assert len(calls) == 2
    assert calls[1] - calls[0] >= SHORT / 2


async def test_a_timer_that_was_called_off_does_not_go_off() -> None:
    rung: list[str] = []

    SYSTEM_CLOCK.call_later(SHORT, lambda: rung.append("off")).cancel()
    SYSTEM_CLOCK.call_later(SHORT, lambda: rung.append("on"))
    await asyncio.sleep(2 * SHORT)

    assert rung == ["on"]
