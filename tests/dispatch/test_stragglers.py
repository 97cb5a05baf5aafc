"""Stragglers: what outlives the drain is named, one by one, and left to finish.

A small `close_timeout` passes on the loop's own time, which is the contract there.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus import BaseBus, Event
from lastbus.memory import InMemoryEventBus
from lastbus.testing import Gate, Recorder, everyone_blocked
from tests._backends import open_backend

pytestmark = pytest.mark.usefixtures("hygiene")

SOON = 0.03
SLACK = 1.0


async def closes(bus: BaseBus) -> float | None:
    """How long two calls of `close()` took; None if they have not returned in time, which cancels nothing."""
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def close_twice() -> None:
        await bus.close()
        await bus.close()

    closing = asyncio.ensure_future(close_twice())
    await asyncio.wait({closing}, timeout=2)
    if not closing.done():
        return None
    closing.result()
    return loop.time() - begun


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


@pytest.mark.guarantee("DISP-04")
async def test_each_straggler_is_named_in_a_warning_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    bus = InMemoryEventBus(close_timeout=SOON)
    gates = [Gate(), Gate()]
    handlers = [await bus.register_handler(f"job-{n}", gate.hold) for n, gate in enumerate(gates)]
    events = [await bus.publish(f"job-{n}") for n in range(2)]
    await everyone_blocked()

    seconds = await closes(bus)
    for gate in gates:
        gate.open()
    await everyone_blocked()

    assert seconds is not None
    told = warnings(caplog)
    assert len(told) == 2
    for mine, other, text in ((0, 1, told[0]), (1, 0, told[1])):
        assert (events[mine] in text, handlers[mine] in text) == (True, True)
        assert (events[other] in text, handlers[other] in text) == (False, False)
        assert f"{SOON:g} s" in text
        assert "left to finish" in text


@pytest.mark.guarantee("DISP-05")
async def test_a_straggler_is_not_cancelled_and_finishes_after_the_close(gate: Gate) -> None:
    bus = InMemoryEventBus(close_timeout=SOON)
    await bus.register_handler("job", gate.hold)
    event_id = await bus.publish("job")
    await everyone_blocked()

    seconds = await closes(bus)
    held = list(bus._pending_tasks)
    gate.open()
    await everyone_blocked()

    assert seconds is not None
    assert [event.event_id for event in gate.left] == [event_id]
    assert gate.cancelled == []
    assert [task.done() and not task.cancelled() for task in held] == [True]
    assert bus._pending_tasks == {}


@pytest.mark.guarantee("DISP-06")
async def test_after_a_close_each_delivery_has_ended_or_was_named(
    gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus = InMemoryEventBus(close_timeout=SOON)

    async def fail(event: Event) -> None:
        raise ValueError("boom")

    for handler in (recorder, fail, gate.hold):
        await bus.register_handler("job", handler)
    for _ in range(3):
        await bus.publish("job")
    created = dict(bus._pending_tasks)

    seconds = await closes(bus)
    told = warnings(caplog)
    ended = [label for task, label in created.items() if task.done()]
    named = [label for label in created.values() if any(set(label) <= set(text.split()) for text in told)]
    gate.open()
    await everyone_blocked()

    assert seconds is not None
    assert (len(created), len(ended), len(told)) == (9, 6, 3)
    assert set(created.values()) == {*ended, *named}
    assert bus._pending_tasks == {}


@pytest.mark.guarantee("DISP-09")
async def test_what_a_straggler_has_started_goes_on_too(gate: Gate) -> None:
    bus = InMemoryEventBus(close_timeout=SOON)
    done: list[str] = []

    async def work(name: str, event: Event) -> None:
        await gate.hold(event)
        done.append(name)

    async def handler(event: Event) -> None:
        child = asyncio.ensure_future(work("child", event))
        await asyncio.shield(work("shielded", event))
        await child
        done.append("handler")

    await bus.register_handler("job", handler)
    await bus.publish("job")
    await everyone_blocked()

    seconds = await closes(bus)
    before = list(done)
    gate.open()
    await everyone_blocked()

    assert seconds is not None
    assert before == []
    assert sorted(done) == ["child", "handler", "shielded"]
    assert gate.cancelled == []


@pytest.mark.guarantee("DISP-13")
@pytest.mark.parametrize("name", ["memory", "fakeredis", "valkey"])
async def test_one_straggler_costs_a_close_its_bound_and_nothing_else(
    name: str, gate: Gate, request: pytest.FixtureRequest
) -> None:
    async with open_backend(name, request) as backend:
        bus: Any = backend.make_bus(close_timeout=SOON)
        await bus.register_handler("job", gate.hold)
        await bus.publish("job", prevent_duplicate_consumption=False)
        await gate.has_entered()

        seconds = await closes(bus)
        gate.open()
        await asyncio.wait(bus._pending_tasks or {asyncio.ensure_future(everyone_blocked())}, timeout=2)
        await bus.processing_tracker.aclose()

    assert seconds is not None
    assert SOON * 0.9 < seconds < SOON + SLACK
