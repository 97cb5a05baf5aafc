"""Callers: from where a close may be called, by whom it may be called off, and what becomes of it then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.adversary.stage import ALL, Bus, House, Loop, State, Task, outcome, run, turns


def test_a_supervisor_that_cancels_everything_leaves_a_close_that_can_be_repeated() -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.redis.may_end = bus.curtain  # type: ignore[attr-defined]
        callers = [Task(bus.close()), Task(bus.close())]
        await turns()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        outcomes = [await outcome(each) for each in callers]
        state = bus.state
        bus.curtain.set()
        return outcomes, state, await outcome(Task(bus.close())), bus.calls

    value, found = run(act)

    assert value == (["cancelled"] * 2, State(True, None, False, 1), "returned", [1, 2, 1, 1, 1])
    assert found.residue == []


@pytest.mark.parametrize("begins", [True, False], ids=["the-first-caller", "a-later-caller"])
def test_a_cancelled_caller_does_not_disturb_the_other(begins: bool) -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.dispatch()
        first, second = Task(bus.close()), Task(bus.close())
        await turns(2)
        (first if begins else second).cancel()
        return sorted([await outcome(first), await outcome(second)]), bus.state, bus.calls

    value, found = run(act)

    assert value == (["cancelled", "returned"], State(True, "OK", False, 1), ALL)
    assert found.residue == []
