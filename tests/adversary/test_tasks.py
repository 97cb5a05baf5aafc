"""Tasks that are not what they seem: subclasses that override, instances that shadow, and those that do neither.

The engine asks none of them: whatever one of their hooks is called with is noted in `touched`, and nothing may be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.adversary.stage import (
    RETURNED,
    Bus,
    Coro,
    Loop,
    Make,
    Row,
    State,
    Task,
    by_hand,
    other,
    play,
    refused,
)

USED = ("add_done_callback", "done", "cancelled", "exception", "get_loop")


def overriding(name: str) -> Make:
    """Tasks of a class with a method of its own, which notes its calls and does what the original does."""

    def make(bus: Bus, loop: Loop, coro: Coro) -> Any:
        def method(task: Any, *args: Any, **kwargs: Any) -> Any:
            bus.touched.append(name)
            return getattr(asyncio.Task, name)(task, *args, **kwargs)

        return type("Overriding", (asyncio.Task,), {name: method})(coro, loop=loop)

    return make


def shadowed(name: str) -> Make:
    """Plain tasks with an attribute of their own in front of a method."""

    def make(bus: Bus, loop: Loop, coro: Coro) -> Any:
        task = Task(coro, loop=loop)
        setattr(task, name, lambda *args, **kwargs: bus.touched.append(name))
        return task

    return make


def aliased(bus: Bus, loop: Loop, coro: Coro) -> Any:
    task = Task(coro, loop=loop)
    task.add_done_callback = asyncio.Task.remove_done_callback.__get__(task, type(task))  # type: ignore[assignment]
    return task


class Method:
    """Looks like a bound method of the task, and equals everything."""

    def __init__(self, bus: Bus, task: Any) -> None:
        self.__self__ = task
        self.bus = bus

    def __eq__(self, other: object) -> bool:
        self.bus.touched.append("==")
        return True

    def __hash__(self) -> int:
        self.bus.touched.append("hash")
        return 0

    def __call__(self, *args: object, **kwargs: object) -> None:
        self.bus.touched.append("call")


def equal_to_everything(bus: Bus, loop: Loop, coro: Coro) -> Any:
    task = Task(coro, loop=loop)
    task.add_done_callback = Method(bus, task)  # type: ignore[assignment]
    return task


def equal_to_everything_and_another_coroutine(bus: Bus, loop: Loop, coro: Coro) -> Any:
    return equal_to_everything(bus, loop, other())


class Turncoat:
    """A descriptor: honest to the class, honest once to the instance, and then not."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    def __get__(self, task: Any, owner: Any = None) -> Any:
        if task is None:
            return asyncio.Task.add_done_callback
        self.bus.touched.append("get")
        if len(self.bus.touched) > 1:
            raise RuntimeError("turned")
        return asyncio.Task.add_done_callback.__get__(task, owner)


def described(bus: Bus, loop: Loop, coro: Coro) -> Any:
    return type("Described", (asyncio.Task,), {"add_done_callback": Turncoat(bus)})(coro, loop=loop)


def answering(bus: Bus, loop: Loop, coro: Coro) -> Any:
    armed = False

    class Answering(asyncio.Task):  # type: ignore[type-arg]
        def __getattribute__(self, name: str) -> Any:
            if armed and name != "set_name":  # The loop itself names a task, from 3.13 on after it was made.
                bus.touched.append(name)
            return super().__getattribute__(name)

    task = Answering(coro, loop=loop)
    armed = True
    return task


def noting_what_is_set(bus: Bus, loop: Loop, coro: Coro) -> Any:
    class Noting(asyncio.Task):  # type: ignore[type-arg]
        def __setattr__(self, name: str, value: object) -> None:
            bus.touched.append(name)
            super().__setattr__(name, value)

    return Noting(coro, loop=loop)


def undeletable(bus: Bus, loop: Loop, coro: Coro) -> Any:
    class Undeletable(asyncio.Task):  # type: ignore[type-arg]
        def __delattr__(self, name: str) -> None:
            bus.touched.append(name)
            raise RuntimeError("stays")

    task = Undeletable(coro, loop=loop)
    task.done = lambda: True  # type: ignore[method-assign]
    return task


def unsettable(bus: Bus, loop: Loop, coro: Coro) -> Any:
    class Unsettable(asyncio.Task):  # type: ignore[type-arg]
        def __setattr__(self, name: str, value: object) -> None:
            raise RuntimeError("is not set")

    task = Unsettable(coro, loop=loop)
    object.__setattr__(task, "done", lambda: True)
    return task


def uncancellable(bus: Bus, loop: Loop, coro: Coro) -> Any:
    class Uncancellable(asyncio.Task):  # type: ignore[type-arg]
        def cancel(self, *args: object) -> bool:
            bus.touched.append("cancel")
            raise RuntimeError("goes on")

        def done(self) -> bool:
            return False

    return Uncancellable(coro, loop=loop)


class Slotted(asyncio.Task):  # type: ignore[type-arg]
    __slots__ = ()


def slotted_and_shadowed(bus: Bus, loop: Loop, coro: Coro) -> Any:
    task = Slotted(coro, loop=loop)
    asyncio.Task.__setattr__(task, "done", lambda: True)
    return task


class Empty(asyncio.Task):  # type: ignore[type-arg]
    pass


class Talkative(asyncio.Task):  # type: ignore[type-arg]
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def with_more_attributes(bus: Bus, loop: Loop, coro: Coro) -> Any:
    task = Talkative(coro, loop=loop)
    task.more = 1  # type: ignore[attr-defined]
    return task


class Incomparable(asyncio.Task):  # type: ignore[type-arg]
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")


def of_a_watchful_metaclass(bus: Bus, loop: Loop, coro: Coro) -> Any:
    class Watchful(type):
        def __getattribute__(cls, name: str) -> Any:
            bus.touched.append(name)
            return super().__getattribute__(name)

    class Watched(asyncio.Task, metaclass=Watchful):  # type: ignore[misc, type-arg]
        pass

    task = Watched(coro, loop=loop)
    bus.touched.clear()
    return task


def hostile_but_too_late(bus: Bus, loop: Loop, coro: Coro) -> Any:
    """The teardown has run already: the task is accepted, and still nobody asks it anything."""
    by_hand(coro)
    namespace: dict[str, Callable[..., Any]] = {
        name: lambda task, *args, name=name, **kwargs: bus.touched.append(name) for name in USED
    }
    return type("Spy", (asyncio.Task,), namespace)(other(), loop=loop)


def of(cls: Any) -> Make:
    """Honest tasks of a class."""
    return lambda bus, loop, coro: cls(coro, loop=loop)


REFUSED = refused("teardown-hostile-task-methods")

ROWS = [
    pytest.param(
        Row(overriding("add_done_callback"), REFUSED),
        marks=pytest.mark.guarantee("CLOSE-55"),
        id="overrides-add_done_callback",
    ),
    pytest.param(Row(overriding("done"), REFUSED), marks=pytest.mark.guarantee("CLOSE-55"), id="overrides-done"),
    pytest.param(
        Row(overriding("cancelled"), REFUSED), marks=pytest.mark.guarantee("CLOSE-55"), id="overrides-cancelled"
    ),
    pytest.param(
        Row(overriding("exception"), REFUSED), marks=pytest.mark.guarantee("CLOSE-55"), id="overrides-exception"
    ),
    pytest.param(
        Row(overriding("get_loop"), REFUSED), marks=pytest.mark.guarantee("CLOSE-55"), id="overrides-get_loop"
    ),
    pytest.param(
        Row(shadowed("add_done_callback"), REFUSED),
        marks=pytest.mark.guarantee("CLOSE-59"),
        id="shadows-add_done_callback",
    ),
    pytest.param(Row(shadowed("done"), REFUSED), marks=pytest.mark.guarantee("CLOSE-59"), id="shadows-done"),
    pytest.param(Row(shadowed("cancelled"), REFUSED), marks=pytest.mark.guarantee("CLOSE-59"), id="shadows-cancelled"),
    pytest.param(Row(shadowed("exception"), REFUSED), marks=pytest.mark.guarantee("CLOSE-59"), id="shadows-exception"),
    pytest.param(Row(shadowed("get_loop"), REFUSED), marks=pytest.mark.guarantee("CLOSE-59"), id="shadows-get_loop"),
    pytest.param(
        Row(slotted_and_shadowed, REFUSED), marks=pytest.mark.guarantee("CLOSE-59"), id="slotted-and-shadowed"
    ),
    pytest.param(Row(aliased, REFUSED), marks=pytest.mark.guarantee("CLOSE-57", "CLOSE-59"), id="aliased"),
    pytest.param(Row(equal_to_everything, REFUSED), marks=pytest.mark.guarantee("CLOSE-56"), id="equal-to-everything"),
    pytest.param(
        Row(equal_to_everything_and_another_coroutine, REFUSED),
        marks=pytest.mark.guarantee("CLOSE-56"),
        id="equal-and-another-coroutine",
    ),
    pytest.param(Row(described, REFUSED), marks=pytest.mark.guarantee("CLOSE-56"), id="described"),
    pytest.param(Row(answering, REFUSED), marks=pytest.mark.guarantee("CLOSE-58", "RES-R12c"), id="answering"),
    pytest.param(Row(undeletable, REFUSED), marks=pytest.mark.guarantee("CLOSE-59"), id="undeletable"),
    pytest.param(Row(unsettable, REFUSED), marks=pytest.mark.guarantee("CLOSE-59", "RES-R3"), id="unsettable"),
    pytest.param(Row(uncancellable, REFUSED), marks=pytest.mark.guarantee("RES-R3"), id="uncancellable"),
    pytest.param(Row(noting_what_is_set, RETURNED), marks=pytest.mark.guarantee("CLOSE-50"), id="noting-what-is-set"),
    pytest.param(Row(of(Empty), RETURNED), marks=pytest.mark.guarantee("CLOSE-60"), id="empty-subclass"),
    pytest.param(Row(of(Slotted), RETURNED), marks=pytest.mark.guarantee("CLOSE-60"), id="slotted"),
    pytest.param(
        Row(with_more_attributes, RETURNED), marks=pytest.mark.guarantee("CLOSE-60"), id="with-more-attributes"
    ),
    pytest.param(Row(of(Incomparable), RETURNED), id="incomparable"),
    pytest.param(Row(of_a_watchful_metaclass, RETURNED), id="of-a-watchful-metaclass"),
    pytest.param(
        Row(hostile_but_too_late, RETURNED._replace(state=State(True, "OK", True, 1))),
        marks=pytest.mark.guarantee("CLOSE-57", "CLOSE-61"),
        id="hostile-but-too-late",
    ),
]


@pytest.mark.parametrize("row", ROWS)
def test_both_closes_end_as_declared_and_the_task_is_not_asked(row: Row) -> None:
    assert play(row) == row.played
