"""Shadows: attributes that somebody puts in front of a method of the close's future, of the loop, or of the bus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.adversary.stage import (
    NEVER,
    NONE,
    RETURNED,
    UNBOUNDED,
    Bus,
    Coro,
    Future,
    Loop,
    Make,
    Never,
    Played,
    Row,
    State,
    Task,
    by_hand,
    other,
    play,
)


def on_the_future(**shadows: Callable[..., Any]) -> Make:
    """An honest factory that also puts attributes on the close's future."""

    def make(bus: Bus, loop: Loop, coro: Coro) -> Any:
        for name, shadow in shadows.items():
            setattr(bus._close_future, name, shadow)
        return Task(coro, loop=loop)

    return make


def unsettable_and_another_coroutine(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._close_future.set_result = lambda *_: None  # type: ignore[union-attr, method-assign]
    bus._close_future.set_exception = lambda *_: None  # type: ignore[union-attr, method-assign]
    return Task(other(), loop=loop)


def boom(*_: object, **__: object) -> Any:
    raise RuntimeError("boom")


def counts_futures(bus: Bus, loop: Loop) -> None:
    create = loop.create_future

    def counted() -> Any:
        bus.touched.append("create_future")
        return create()

    loop.create_future = counted  # type: ignore[method-assign]


def makes_no_futures(bus: Bus, loop: Loop) -> None:
    def never() -> Any:
        bus.touched.append("create_future")
        return Never()

    loop.create_future = never  # type: ignore[method-assign]


class Poison:
    """Stands among the tasks in flight, and is none."""

    def __init__(self, done: Any, get_loop: Any) -> None:
        self.done = done
        self.get_loop = get_loop


def poisoned(done: Callable[[], Any], get_loop: Callable[[], Any]) -> Callable[[Bus, Loop], None]:
    """Put something among the tasks in flight."""

    def prepare(bus: Bus, loop: Loop) -> None:
        bus._pending_tasks[Poison(done, get_loop)] = ("event", "poison")  # type: ignore[index]

    return prepare


def on_the_bus(**shadows: Callable[..., Any]) -> Callable[[Bus, Loop], None]:
    """Put attributes on the bus itself."""

    def prepare(bus: Bus, loop: Loop) -> None:
        for name, shadow in shadows.items():
            setattr(bus, name, shadow)

    return prepare


def spawns_nothing_known(bus: Bus, loop: Loop) -> None:
    bus._spawn_teardown = lambda loop, future: object()  # type: ignore[method-assign, assignment, return-value]


def spawns_and_finishes(bus: Bus, loop: Loop) -> None:
    def spawn(loop: Loop, future: Any) -> Any:
        by_hand(bus._teardown_entry())
        done = Future(loop=loop)
        done.set_result(None)
        return done

    bus._spawn_teardown = spawn  # type: ignore[method-assign]


RAW = Played("RuntimeError", "RuntimeError", State(False, None, False, 0), NONE, NONE)
"""What is in flight is asked before anything is accepted, so its error has no effect."""

NO_TASK = RAW._replace(first="TypeError", second="TypeError")
DRAIN_LOST = UNBOUNDED._replace(
    state=State(True, "PENDING", True, 1),
    touched=("create_future",),
    residue=("AttributeError in the loop", "left running: Adoption._teardown_entry"),
)

ROWS = [
    # On the close's future.
    pytest.param(
        Row(on_the_future(add_done_callback=lambda *_, **__: None), RETURNED),
        marks=pytest.mark.guarantee("CLOSE-77"),
        id="future-add-nothing",
    ),
    pytest.param(
        Row(on_the_future(add_done_callback=boom), RETURNED),
        marks=pytest.mark.guarantee("CLOSE-77"),
        id="future-add-raises",
    ),
    pytest.param(
        Row(on_the_future(get_loop=lambda: "no loop"), RETURNED),
        marks=pytest.mark.guarantee("CLOSE-77", "CLOSE-81"),
        id="future-get_loop",
    ),
    pytest.param(
        Row(on_the_future(done=lambda: False), RETURNED), marks=pytest.mark.guarantee("CLOSE-77"), id="future-done"
    ),
    pytest.param(Row(on_the_future(set_result=lambda *_: None), RETURNED), id="future-set_result"),
    pytest.param(Row(on_the_future(set_exception=lambda *_: None), RETURNED), id="future-set_exception"),
    pytest.param(Row(on_the_future(exception=boom), RETURNED), id="future-exception"),
    pytest.param(Row(on_the_future(result=boom), RETURNED), id="future-result"),
    pytest.param(Row(on_the_future(cancel=boom), RETURNED), id="future-cancel"),
    pytest.param(
        Row(unsettable_and_another_coroutine, NEVER),
        marks=pytest.mark.guarantee("CLOSE-77"),
        id="future-unsettable-and-another-coroutine",
    ),
    # On the loop.
    pytest.param(
        Row(None, RETURNED, prepare=counts_futures), marks=pytest.mark.guarantee("CLOSE-79"), id="loop-counts-futures"
    ),
    pytest.param(
        Row(None, RETURNED, prepare=makes_no_futures),
        marks=pytest.mark.guarantee("CLOSE-79"),
        id="loop-makes-no-futures",
    ),
    pytest.param(
        Row(None, DRAIN_LOST, in_flight=True, prepare=makes_no_futures),
        marks=pytest.mark.guarantee("RES-R15a"),
        id="loop-makes-no-futures-with-work",
    ),
    # On the bus.
    pytest.param(
        Row(None, RAW, prepare=poisoned(done=boom, get_loop=boom)),
        marks=pytest.mark.guarantee("CLOSE-82"),
        id="work-done-raises",
    ),
    pytest.param(
        Row(None, NO_TASK, prepare=poisoned(done=lambda: False, get_loop=boom)),
        marks=pytest.mark.guarantee("CLOSE-82"),
        id="work-get_loop-raises",
    ),
    pytest.param(Row(None, RETURNED, prepare=poisoned(done=lambda: True, get_loop=boom)), id="work-claims-to-be-done"),
    pytest.param(
        Row(None, NO_TASK, prepare=poisoned(done=lambda: False, get_loop=asyncio.get_running_loop)),
        id="work-is-no-task",
    ),
    pytest.param(
        Row(None, RETURNED, prepare=on_the_bus(request_close=boom, _refuse_from_inside=boom)),
        marks=pytest.mark.guarantee("CLOSE-80"),
        id="bus-own-verbs",
    ),
    pytest.param(
        Row(None, RETURNED, prepare=on_the_bus(_on_teardown_done=boom)),
        marks=pytest.mark.guarantee("CLOSE-83"),
        id="bus-on_teardown_done-raises",
    ),
    pytest.param(
        Row(None, RETURNED, prepare=on_the_bus(_on_teardown_done=lambda _: None)), id="bus-on_teardown_done-nothing"
    ),
    pytest.param(
        Row(lambda bus, loop, coro: Task(other(), loop=loop), NEVER, prepare=on_the_bus(_on_teardown_done=boom)),
        marks=pytest.mark.guarantee("CLOSE-83"),
        id="bus-on_teardown_done-and-another-coroutine",
    ),
    pytest.param(Row(None, RETURNED, prepare=spawns_and_finishes), id="bus-spawns-and-finishes"),
    pytest.param(
        Row(None, UNBOUNDED._replace(state=State(True, "PENDING", False, 0)), prepare=spawns_nothing_known),
        marks=pytest.mark.guarantee("RES-R12a'"),
        id="bus-spawns-nothing-known",
    ),
]


@pytest.mark.parametrize("row", ROWS)
def test_both_closes_end_as_declared(row: Row) -> None:
    assert play(row) == row.played
