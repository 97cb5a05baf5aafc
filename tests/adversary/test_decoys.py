"""Decoys: something that is put where the close's future belongs, at once, a little later, or again and again.

*At once* is inside the task factory. *Late* is by `call_soon` from there: after the acceptance, before the teardown's
first step. The teardown then settles what it finds, and the close is reported as one that never entered: bounded,
conservative, and never a silent success.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.adversary.stage import (
    ALL,
    EAGER,
    NEVER,
    NONE,
    RETURNED,
    TAMPERED,
    TWICE,
    Bus,
    Coro,
    LiesToBe,
    Loop,
    Make,
    Row,
    State,
    Task,
    by_hand,
    other,
    play,
)

Decoy = Callable[[Bus, Loop], Any]


class Unhashable(asyncio.Future):  # type: ignore[type-arg]
    __hash__ = None  # type: ignore[assignment]


def raising_hash(bus: Bus, loop: Loop) -> Any:
    class RaisingHash(asyncio.Future):  # type: ignore[type-arg]
        def __hash__(self) -> int:
            bus.touched.append("hash")
            raise RuntimeError("hashed")

    return RaisingHash(loop=loop)


def raising_eq(bus: Bus, loop: Loop) -> Any:
    mark = hash(bus._close_future)

    class RaisingEq(asyncio.Future):  # type: ignore[type-arg]
        def __hash__(self) -> int:
            bus.touched.append("hash")
            return mark

        def __eq__(self, other: object) -> bool:
            bus.touched.append("==")
            raise RuntimeError("compared")

    return RaisingEq(loop=loop)


class Bomb:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("asked for its class")


def settled(bus: Bus, loop: Loop) -> Any:
    future = loop.create_future()
    future.set_result(7)
    return future


def cancelled(bus: Bus, loop: Loop) -> Any:
    future = loop.create_future()
    future.cancel()
    return future


def foreign(bus: Bus, loop: Loop) -> Any:
    assert bus.elsewhere is not None
    return bus.elsewhere.create_future()


DECOYS: dict[str, Decoy] = {
    "future": lambda bus, loop: loop.create_future(),
    "unhashable": lambda bus, loop: Unhashable(loop=loop),
    "raising-hash": raising_hash,
    "raising-eq": raising_eq,
    "liar": lambda bus, loop: LiesToBe(asyncio.Future),
    "bomb": lambda bus, loop: Bomb(),
    "object": lambda bus, loop: object(),
    "number": lambda bus, loop: 3,
    "text": lambda bus, loop: "x",
    "dict": lambda bus, loop: {},
    "settled": settled,
    "cancelled": cancelled,
    "foreign": foreign,
}


def at_once(decoy: Decoy) -> Make:
    def make(bus: Bus, loop: Loop, coro: Coro) -> Any:
        bus._close_future = decoy(bus, loop)
        bus.touched.clear()
        return Task(coro, loop=loop)

    return make


def late(decoy: Decoy) -> Make:
    def make(bus: Bus, loop: Loop, coro: Coro) -> Any:
        def swap() -> None:
            bus._close_future = decoy(bus, loop)
            bus.touched.clear()

        loop.call_soon(swap)
        return Task(coro, loop=loop)

    return make


def nothing(bus: Bus, loop: Loop) -> None:
    return None


def at_once_and_later_again(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._close_future = loop.create_future()
    loop.call_soon(loop.call_soon, lambda: setattr(bus, "_close_future", loop.create_future()))
    return Task(coro, loop=loop)


def settles_and_swaps(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._close_future.set_result(None)  # type: ignore[union-attr]
    bus._close_future = loop.create_future()
    return Task(other(), loop=loop)


def settles_and_swaps_late(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._close_future.set_result(None)  # type: ignore[union-attr]
    loop.call_soon(lambda: setattr(bus, "_close_future", loop.create_future()))
    return Task(other(), loop=loop)


def swaps_late_for_another_coroutine(bus: Bus, loop: Loop, coro: Coro) -> Any:
    loop.call_soon(lambda: setattr(bus, "_close_future", loop.create_future()))
    return Task(other(), loop=loop)


def swaps_and_runs_eagerly(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._close_future = loop.create_future()
    return asyncio.eager_task_factory(loop, coro)


def swaps_and_runs_by_hand(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._close_future = loop.create_future()
    by_hand(coro)
    return bus.finished


def swaps_runs_by_hand_and_raises(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._close_future = loop.create_future()
    by_hand(coro)
    raise OSError("too late")


LATE = NEVER._replace(state=State(True, "teardown-never-entered", False, 1), calls=ALL, calls_after=ALL)
EMPTIED = NEVER._replace(state=State(True, None, False, 1), calls=ALL, calls_after=TWICE)

ROWS = [
    pytest.param(
        Row(at_once(DECOYS["future"]), RETURNED),
        marks=pytest.mark.guarantee("CLOSE-62", "RES-R13b"),
        id="future-at-once",
    ),
    pytest.param(
        Row(at_once(DECOYS["unhashable"]), RETURNED), marks=pytest.mark.guarantee("CLOSE-70"), id="unhashable-at-once"
    ),
    pytest.param(Row(at_once(DECOYS["raising-hash"]), RETURNED), id="raising-hash-at-once"),
    pytest.param(Row(at_once(DECOYS["raising-eq"]), RETURNED), id="raising-eq-at-once"),
    pytest.param(Row(at_once(DECOYS["liar"]), RETURNED), id="liar-at-once"),
    pytest.param(Row(at_once(DECOYS["bomb"]), RETURNED), id="bomb-at-once"),
    pytest.param(Row(at_once(DECOYS["object"]), RETURNED), id="object-at-once"),
    pytest.param(Row(at_once(DECOYS["number"]), RETURNED), id="number-at-once"),
    pytest.param(Row(at_once(DECOYS["text"]), RETURNED), id="text-at-once"),
    pytest.param(Row(at_once(DECOYS["dict"]), RETURNED), id="dict-at-once"),
    pytest.param(Row(at_once(DECOYS["settled"]), RETURNED), id="settled-at-once"),
    pytest.param(Row(at_once(DECOYS["cancelled"]), RETURNED), id="cancelled-at-once"),
    pytest.param(Row(at_once(DECOYS["foreign"]), RETURNED), id="foreign-at-once"),
    pytest.param(Row(at_once(DECOYS["future"]), RETURNED, in_flight=True), id="future-at-once-with-work-in-flight"),
    pytest.param(
        Row(late(DECOYS["future"]), LATE), marks=pytest.mark.guarantee("CLOSE-63", "RES-R13b"), id="future-late"
    ),
    pytest.param(
        Row(late(DECOYS["unhashable"]), LATE), marks=pytest.mark.guarantee("CLOSE-69", "CLOSE-66"), id="unhashable-late"
    ),
    pytest.param(
        Row(late(DECOYS["raising-hash"]), LATE), marks=pytest.mark.guarantee("CLOSE-71"), id="raising-hash-late"
    ),
    pytest.param(Row(late(DECOYS["raising-eq"]), LATE), marks=pytest.mark.guarantee("CLOSE-71"), id="raising-eq-late"),
    pytest.param(Row(late(DECOYS["liar"]), LATE), marks=pytest.mark.guarantee("CLOSE-72"), id="liar-late"),
    pytest.param(Row(late(DECOYS["bomb"]), LATE), marks=pytest.mark.guarantee("CLOSE-72"), id="bomb-late"),
    pytest.param(Row(late(DECOYS["object"]), LATE), marks=pytest.mark.guarantee("CLOSE-72"), id="object-late"),
    pytest.param(Row(late(DECOYS["number"]), LATE), id="number-late"),
    pytest.param(Row(late(DECOYS["text"]), LATE), id="text-late"),
    pytest.param(Row(late(DECOYS["dict"]), LATE), id="dict-late"),
    pytest.param(Row(late(DECOYS["settled"]), LATE), id="settled-late"),
    pytest.param(Row(late(DECOYS["cancelled"]), LATE), id="cancelled-late"),
    pytest.param(Row(late(DECOYS["foreign"]), LATE), id="foreign-late"),
    pytest.param(Row(late(DECOYS["future"]), LATE, in_flight=True), id="future-late-with-work-in-flight"),
    pytest.param(Row(at_once(nothing), EMPTIED), marks=pytest.mark.guarantee("CLOSE-73"), id="nothing-at-once"),
    pytest.param(Row(late(nothing), EMPTIED), marks=pytest.mark.guarantee("CLOSE-73"), id="nothing-late"),
    pytest.param(Row(at_once_and_later_again, RETURNED), id="at-once-and-later-again"),
    pytest.param(
        Row(
            swaps_late_for_another_coroutine,
            NEVER._replace(state=State(True, "teardown-never-entered", False, 0)),
        ),
        marks=pytest.mark.guarantee("CLOSE-51", "CLOSE-76"),
        id="late-for-another-coroutine",
    ),
    pytest.param(
        Row(
            settles_and_swaps,
            RETURNED._replace(
                state=State(True, "OK", True, 0), calls=NONE, calls_after=NONE, record=TAMPERED, signals=1
            ),
        ),
        marks=pytest.mark.guarantee("CLOSE-64"),
        id="settles-and-swaps",
    ),
    pytest.param(
        Row(
            settles_and_swaps_late,
            RETURNED._replace(
                state=State(True, "PENDING", True, 0), calls=NONE, calls_after=NONE, record=TAMPERED, signals=1
            ),
        ),
        marks=pytest.mark.guarantee("CLOSE-64"),
        id="settles-and-swaps-late",
    ),
    pytest.param(
        Row(swaps_and_runs_eagerly, EMPTIED),
        marks=[EAGER, pytest.mark.guarantee("RES-R14a")],
        id="swaps-and-runs-eagerly",
    ),
    pytest.param(
        Row(swaps_and_runs_by_hand, EMPTIED), marks=pytest.mark.guarantee("RES-R14a"), id="swaps-and-runs-by-hand"
    ),
    pytest.param(
        Row(swaps_runs_by_hand_and_raises, EMPTIED),
        marks=pytest.mark.guarantee("RES-R14a"),
        id="swaps-runs-by-hand-and-raises",
    ),
]


@pytest.mark.parametrize("row", ROWS)
def test_both_closes_end_as_declared_and_the_decoy_is_not_asked(row: Row) -> None:
    assert play(row) == row.played
