"""A gate holds whoever enters until it is opened, a recorder keeps what it hears, and both can be waited for."""

from __future__ import annotations

import asyncio

from lastbus import Event
from lastbus.testing import Gate, Recorder, everyone_blocked

EVENT = Event("job")
BOUND_SECONDS = 2.0


async def test_everybody_that_is_ready_has_moved_once_all_are_blocked() -> None:
    steps: list[int] = []

    async def walk() -> None:
        for step in range(20):
            steps.append(step)
            await asyncio.sleep(0)

    walking = asyncio.ensure_future(walk())
    await everyone_blocked()

    assert walking.done()
    assert steps == list(range(20))


async def test_a_gate_holds_until_it_is_opened_and_remembers_who_came_and_left() -> None:
    gate = Gate()
    holding = asyncio.ensure_future(gate.hold(EVENT))

    await asyncio.wait_for(gate.has_entered(), BOUND_SECONDS)
    await everyone_blocked()
    assert (gate.entered, gate.left, holding.done()) == ([EVENT], [], False)
    gate.open()
    await asyncio.wait_for(gate.has_left(), BOUND_SECONDS)
    assert (gate.left, gate.cancelled) == ([EVENT], [])
    await asyncio.wait_for(holding, BOUND_SECONDS)


async def test_an_open_gate_holds_nobody() -> None:
    gate = Gate()
    gate.open()

    await asyncio.wait_for(gate.hold(EVENT), BOUND_SECONDS)

    assert gate.left == [EVENT]


async def test_who_is_cancelled_at_a_gate_is_remembered_and_stays_cancelled() -> None:
    gate = Gate()
    holding = asyncio.ensure_future(gate.hold(EVENT))
    await asyncio.wait_for(gate.has_entered(), BOUND_SECONDS)

    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)

    assert holding.cancelled()
    assert (gate.cancelled, gate.left) == ([EVENT], [])


async def test_a_wait_for_two_is_not_over_with_one() -> None:
    gate, recorder = Gate(), Recorder()
    gate.open()
    waits = [asyncio.ensure_future(one) for one in (gate.has_entered(2), gate.has_left(2), recorder.has_heard(2))]

    for hears in (gate.hold, recorder):
        await asyncio.wait_for(hears(EVENT), BOUND_SECONDS)
    await everyone_blocked()
    assert [wait.done() for wait in waits] == [False, False, False]
    for hears in (gate.hold, recorder):
        await asyncio.wait_for(hears(EVENT), BOUND_SECONDS)
    await everyone_blocked()
    assert [wait.done() for wait in waits] == [True, True, True]


async def test_a_recorder_tells_what_it_has_heard() -> None:
    recorder = Recorder()
    hearing = asyncio.ensure_future(recorder.has_heard())
    await everyone_blocked()

    await asyncio.wait_for(recorder(EVENT), BOUND_SECONDS)

    assert await asyncio.wait_for(hearing, BOUND_SECONDS) == [EVENT] == recorder.events
