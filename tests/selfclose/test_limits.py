"""Limits of the walk: how many nodes, how deep a nesting, and what is never limited."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus._close import selfclose
from lastbus._close.selfclose import MAX_DEPTH, wake_verdict
from lastbus._kit.shapes.held import nested
from lastbus._kit.shapes.shape import Closing, a_future
from tests.adversary.stage import Bus, House, Loop, Task, outcome, run
from tests.selfclose.chains import await_chain, chain
from tests.selfclose.scene import play_wait, refused_as


@pytest.mark.guarantee("SELF-20", "SELF-21", "RES-T2.2")
@pytest.mark.parametrize(
    ("length", "end"), [(65_535, "returned"), (65_536, "self-close-budget")], ids=["to-the-limit", "one-too-many"]
)
def test_a_close_that_wakes_a_chain_of_futures_is_walked_to_the_documented_limit(length: int, end: str) -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        bus.dispatch()
        closing = Task(bus.close())
        chain(closing, length)
        return await outcome(closing), bus._closing

    value, found = run(act)

    assert value == (end, end == "returned")
    assert found.residue == []


@pytest.mark.guarantee("SELF-20")
async def test_the_limit_counts_nodes_and_the_caller_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfclose, "MAX_NODES", 100)
    closing = asyncio.get_running_loop().create_future()
    futures = chain(closing, 99)
    within = wake_verdict(closing, []).word
    found = wake_verdict(closing, [futures[-1]]).word
    futures[0].add_done_callback(asyncio.Future().set_result)

    assert [within, found, wake_verdict(closing, []).word] == ["clean", "in-graph", "over-budget"]


@pytest.mark.guarantee("SELF-22")
@pytest.mark.parametrize("length", [600, 10_000])
async def test_an_honest_chain_of_tasks_is_walked_to_its_end(length: int) -> None:
    closing = asyncio.get_running_loop().create_future()
    tasks = await await_chain(closing, length)

    assert wake_verdict(closing, []).word == "clean"
    assert wake_verdict(closing, [tasks[-1]]).word == "in-graph"
    closing.set_result(None)
    await asyncio.wait({tasks[-1]})


@pytest.mark.guarantee("SELF-19")
@pytest.mark.parametrize("how", ["wait", "as_completed"])
def test_siblings_that_are_waited_for_together_do_not_wake_each_other(how: str) -> None:
    async def act(loop: Loop, found: House) -> Any:
        bus = Bus()
        siblings = [bus.dispatch() for _ in range(700)]
        closing = Task(bus.close())
        everybody = {*siblings, closing}

        async def supervise() -> None:
            if how == "wait":
                await asyncio.wait(everybody)
                return
            for each in asyncio.as_completed(everybody):
                await each

        supervisor = Task(supervise())
        end = await outcome(closing)
        await supervisor
        return end

    value, found = run(act)

    assert value == "returned"
    assert found.residue == []


@pytest.mark.guarantee("SELF-23")
@pytest.mark.parametrize(
    ("depth", "ending"),
    [(MAX_DEPTH, refused_as("self-close")), (MAX_DEPTH + 2, refused_as("wake-graph-incomplete"))],
    ids=["to-the-limit", "deeper"],
)
def test_callbacks_may_hold_each_other_so_deep_and_no_deeper(depth: int, ending: Any) -> None:
    async def through_partials(closing: Closing) -> None:
        waiter = a_future()
        closing.add_done_callback(nested(waiter, depth))
        await waiter

    assert play_wait(through_partials) == ending
