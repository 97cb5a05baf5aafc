"""Acceptance: a close begins in one synchronous step, or nothing has happened."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from lastbus import CloseError
from tests.close.rig import Outcome, Rig, State, closed, factory


def test_outside_a_loop_the_request_is_refused_by_name() -> None:
    rig = asyncio.run(make_rig())

    with pytest.raises(CloseError) as caught:
        rig.request_close()

    assert caught.value.kind == "no-running-loop"
    assert rig.state == State(False, "None", False, 0)


async def make_rig() -> Rig:
    return Rig()


async def test_flag_credential_and_task_appear_together_before_anybody_else_runs() -> None:
    rig = Rig()
    rig.run("event", asyncio.Event().wait)

    future = rig.request_close()

    assert rig.state == State(True, "PENDING", True, 0)
    assert rig.request_close() is future
    await asyncio.wait({future}, timeout=2)
    assert future.exception() is None
    assert rig.state == State(True, "OK", False, 1)


async def test_the_fields_are_set_before_the_teardown_is_spawned() -> None:
    rig = Rig()
    seen: list[State] = []

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        seen.append(rig.state)
        return asyncio.Task(coro, loop=loop)

    with factory(make):
        rig.request_close()

    assert seen == [State(True, "PENDING", False, 0)]
    assert await closed(rig) == Outcome("returned")


async def test_a_spawn_that_fails_leaves_no_trace_and_the_next_close_succeeds() -> None:
    rig = Rig()

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        raise OSError("no task today")

    with factory(make):
        refused = await closed(rig)

    assert refused == Outcome("raised", "teardown-spawn-failed")
    assert rig.state == State(False, "None", False, 0)
    assert (rig.bound, rig.calls) == (0, [0] * 5)
    assert await closed(rig) == Outcome("returned")
    assert (rig.bound, rig.calls) == (1, [1] * 5)


async def test_while_work_runs_on_this_loop_no_other_loop_may_close() -> None:
    rig = Rig()
    may_end = asyncio.Event()
    rig.run("event", may_end.wait)
    outcomes: list[Outcome] = []

    async def close_there() -> None:
        outcomes.append(await closed(rig))

    thread = threading.Thread(target=lambda: asyncio.run(close_there()))
    thread.start()
    thread.join(5)

    assert outcomes == [Outcome("raised", "cross-loop-close")]
    assert rig.state == State(False, "None", False, 0)
    may_end.set()
    assert await closed(rig) == Outcome("returned")


async def test_something_that_stands_where_the_credential_belongs_is_refused() -> None:
    rig = Rig()
    rig._close_future = "a stranger"  # type: ignore[assignment]

    with pytest.raises(CloseError) as caught:
        rig.request_close()

    assert caught.value.kind == "credential-replaced"
    rig._close_future = None
    assert await closed(rig) == Outcome("returned")
