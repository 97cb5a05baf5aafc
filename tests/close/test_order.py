"""Order: handlers, then listeners, then components one after the other; and no clock but the two of the teardown."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest

import lastbus._close
from lastbus.testing import everyone_blocked
from tests.close.rig import SLOTS, Outcome, Rig, State, closed

pytestmark = pytest.mark.usefixtures("hygiene")

RETURNED = Outcome("returned")
GOOD = State(True, "OK", False, 1)
ONCE = [1] * 5
TIMED = {"wait", "wait_for", "timeout", "timeout_at", "call_later", "call_at", "sleep"}


@pytest.mark.guarantee("CLOSE-12")
async def test_handlers_then_listeners_then_components() -> None:
    rig = Rig(close_timeout=30)
    may_end = asyncio.Event()

    async def handler() -> None:
        await may_end.wait()
        rig.log.append("handler")

    async def listener() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            rig.log.append("listener stops")
            await everyone_blocked()
            rig.log.append("listener")

    rig.run("event", handler)
    rig.listen(listener)
    await everyone_blocked()
    closing = asyncio.ensure_future(closed(rig))
    await everyone_blocked()
    during_drain = (list(rig.log), rig.calls)
    may_end.set()

    assert [await closing, await closed(rig)] == [RETURNED] * 2
    assert during_drain == ([], [0] * 5)
    assert rig.log == ["handler", "listener stops", "listener", *(f"release {name}" for name in SLOTS)]
    assert (rig.state, rig.calls) == (GOOD, ONCE)


def timed_calls() -> list[tuple[str, str]]:
    """(module, function) of every call in the close contract that may have to do with time."""
    found = []
    for path in sorted(Path(lastbus._close.__path__[0]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                found += [(path.stem, name)] if name in TIMED else []
    return sorted(found)


@pytest.mark.guarantee("CLOSE-15")
def test_the_contract_has_two_timed_waits_and_the_callers_own_deadline_and_no_other_clock() -> None:
    assert timed_calls() == [("completion", "call_later"), ("teardown", "wait"), ("teardown", "wait")]


@pytest.mark.guarantee("CLOSE-15")
async def test_no_bound_of_the_teardown_covers_a_release() -> None:
    rig = Rig(close_timeout=0.01)
    slow = rig.components["redis"].may_end
    slow.clear()
    callers = [asyncio.ensure_future(closed(rig)), asyncio.ensure_future(closed(rig))]

    await asyncio.wait(callers, timeout=0.1)
    meanwhile = (rig.state, rig.calls, [each.done() for each in callers])
    slow.set()

    assert [await each for each in callers] == [RETURNED] * 2
    assert meanwhile == (State(True, "PENDING", True, 1), [1, 1, 0, 0, 0], [False, False])
    assert (rig.state, rig.calls) == (GOOD, ONCE)


@pytest.mark.guarantee("CLOSE-16")
async def test_connections_are_released_before_stores_and_each_after_the_last() -> None:
    rig = Rig()
    slow = rig.components["redis"].may_end
    slow.clear()
    closing = asyncio.ensure_future(closed(rig))

    await everyone_blocked()
    meanwhile = (rig.state, rig.calls, list(rig.log))
    slow.set()

    assert meanwhile == (State(True, "PENDING", True, 1), [1, 1, 0, 0, 0], ["release pubsub", "release redis"])
    assert [await closing, await closed(rig)] == [RETURNED] * 2
    assert rig.log == [f"release {name}" for name in SLOTS]
