"""Shapes: the ways in which a handler can wait for a close, what the guard says of each, and what comes of it.

The table is the one of docs/SHAPES.md. `lastbus shapes` plays the guard alone, on every interpreter; here a real bus is
closed, with the guard and without it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from lastbus._close import selfclose
from lastbus._close.selfclose import wake_verdict
from lastbus._kit.shapes import built_in, held
from lastbus._kit.shapes.play import OF_KIND, ask
from lastbus._kit.shapes.shape import Shape, available
from tests.selfclose.scene import BOUNDED, REFUSED, play_wait, refused_as, slug, switch_off

ALL = pytest.mark.parametrize("shape", available(), ids=slug)


def expected(kind: str) -> Any:
    return BOUNDED if kind == "returned" else refused_as(kind)


@ALL
@pytest.mark.guarantee(
    "SELF-13", "SELF-14", "SELF-16", "SELF-17", "SELF-18", "SELF-19", "SELF-23", "SELF-24", "SELF-29", "SELF-30",
    "SELF-33", "SELF-36", "RES-T2.1", "RES-T2.5",
)  # fmt: skip
def test_a_handler_that_waits_is_refused_as_far_as_it_is_seen_and_bounded_where_it_is_not(shape: Shape) -> None:
    assert play_wait(shape.wait) == expected(REFUSED[shape.handler])


@ALL
@pytest.mark.guarantee("SELF-01", "SELF-30", "RES-T1")
def test_without_the_guard_a_handler_that_waits_is_bounded_and_nobody_is_harmed(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)

    assert play_wait(shape.wait) == BOUNDED


@ALL
@pytest.mark.guarantee("SELF-13", "SELF-18", "SELF-29")
async def test_somebody_who_is_no_handler_may_wait_in_the_same_way(shape: Shape) -> None:
    assert await ask(selfclose, shape.wait, by_handler=False) == shape.other


@pytest.mark.guarantee("SELF-32")
def test_a_handler_that_consumes_as_completed_is_told_that_it_waits_for_itself() -> None:
    assert play_wait(built_in.as_completed) == refused_as("self-close")


@pytest.mark.guarantee("SELF-15")
@pytest.mark.parametrize("known", selfclose.KINDS, ids=lambda each: each.__name__)
async def test_a_kind_that_lacks_its_book_is_never_taken_for_one_that_wakes_nobody(
    known: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = OF_KIND[known.__name__]
    whole = await ask(selfclose, wait, by_handler=True)
    gone = selfclose.KINDS[known]._replace(attributes=("_gone",), wakes=("_gone",))
    monkeypatch.setitem(selfclose.KINDS, known, gone)

    assert [whole, await ask(selfclose, wait, by_handler=True)] == ["in-graph", "incomplete"]


class Group:
    """Stands for the newest classes of asyncio where Python does not have them."""

    _cond: Any = None
    _done: Any = None
    _todo: Any = ()

    def __init__(self, tasks: set[Any] = frozenset(), waiter: Any = None) -> None:  # type: ignore[assignment]
        self._tasks = tasks
        self._on_completed_fut = waiter

    def end(self, _: object = None) -> None:
        """A task of the group has ended."""


class Barrier(Group):
    """A class of its own."""


class Iterator(Group):
    """A class of its own."""


@pytest.fixture
def newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that has all that the guard knows."""
    monkeypatch.setattr(asyncio, "TaskGroup", Group, raising=False)
    monkeypatch.setattr(asyncio, "Barrier", Barrier, raising=False)
    monkeypatch.setattr(asyncio.tasks, "_AsCompletedIterator", Iterator, raising=False)


@pytest.mark.usefixtures("newest")
@pytest.mark.guarantee("SELF-14", "SELF-32")
def test_what_is_newer_than_the_oldest_python_is_known_by_what_it_wakes() -> None:
    kinds = selfclose._kinds()

    assert kinds[Barrier].wakes == kinds[Barrier].attributes == ("_cond",)
    assert (kinds[Group].wakes, kinds[Group].unclaimed) == (("_on_completed_fut",), "_tasks")
    assert (kinds[Iterator].wakes, set(kinds[Iterator].attributes)) == (("_done",), {"_done", "_todo"})


@pytest.mark.usefixtures("newest")
@pytest.mark.guarantee("SELF-26")
async def test_what_as_completed_makes_of_a_future_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "as_completed", list)

    made: Any = selfclose._kinds()[Iterator].sample()

    assert [type(each) for each in made] == [asyncio.Future]


@pytest.mark.usefixtures("newest")
@pytest.mark.guarantee("SELF-16")
@pytest.mark.parametrize(
    ("tasks", "is_awaited", "verdict"),
    [
        ({"a task"}, False, ("incomplete", "a Group whose tasks nobody waits for yet")),
        ({"a task"}, True, ("clean", "")),
        (set(), False, ("clean", "")),
    ],
    ids=["nobody-waits-yet", "somebody-waits", "it-has-no-tasks"],
)
async def test_a_group_whose_tasks_nobody_waits_for_yet_says_nothing_of_who_will(
    tasks: set[Any], is_awaited: bool, verdict: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(selfclose.KINDS, Group, selfclose._kinds()[Group])
    closing = asyncio.get_running_loop().create_future()
    closing.add_done_callback(Group(tasks, asyncio.Future() if is_awaited else None).end)

    assert wake_verdict(closing, []) == verdict


@pytest.mark.guarantee("SELF-13", "SELF-14")
async def test_what_asyncio_would_take_for_a_future_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = asyncio.get_running_loop().create_future()

    class Duck:
        _asyncio_future_blocking = False

        def __init__(self) -> None:
            self._callbacks = [(handler.set_result, None)]

    closing = asyncio.Future()
    duck = Duck()
    closing.add_done_callback(lambda _: duck)

    assert wake_verdict(closing, [handler]).word == "in-graph"


@pytest.mark.guarantee("SELF-13")
async def test_a_callback_that_holds_itself_is_opened_once() -> None:
    closing = asyncio.Future()

    def callback(_: object) -> None:
        callback(_)

    closing.add_done_callback(callback)

    assert wake_verdict(closing, []).word == "clean"


@pytest.mark.guarantee("SELF-13")
async def test_a_caller_that_wakes_itself_is_no_find() -> None:
    closing = asyncio.get_running_loop().create_future()
    closing.add_done_callback(lambda _: closing)

    assert wake_verdict(closing, [closing]).word == "clean"


@pytest.mark.guarantee("SELF-13")
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
async def test_what_was_met_before_hides_nothing_that_is_woken_beside_it(is_first: bool) -> None:
    loop = asyncio.get_running_loop()
    closing, handler = loop.create_future(), loop.create_future()
    callbacks = [lambda _: closing, handler.set_result]
    for callback in callbacks if is_first else reversed(callbacks):
        closing.add_done_callback(callback)

    assert wake_verdict(closing, [handler]).word == "in-graph"


class Fleeting(asyncio.Event):
    """An event that says anew, whenever it is asked, by whom it is awaited."""

    def __init__(self, make: Callable[[], object]) -> None:
        super().__init__()
        self.make = make

    @property
    def _waiters(self) -> Any:
        return [self.make()]

    @_waiters.setter
    def _waiters(self, value: Any) -> None:
        """What the class itself puts there is forgotten."""


def a_future_for(handler: asyncio.Future[Any]) -> Callable[[], object]:
    def make() -> object:
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(handler.set_result)
        return future

    return make


def a_function_for(handler: asyncio.Future[Any]) -> Callable[[], object]:
    return lambda: lambda: handler


@pytest.mark.guarantee("SELF-13")
@pytest.mark.parametrize("maker", [a_future_for, a_function_for])
async def test_what_is_made_only_to_be_looked_at_is_never_taken_for_what_was_there_before(
    maker: Callable[[asyncio.Future[Any]], Callable[[], object]],
) -> None:
    loop = asyncio.get_running_loop()
    closing, handlers = loop.create_future(), [loop.create_future() for _ in range(50)]
    events = [Fleeting(maker(handler)) for handler in handlers]
    for event in events:
        closing.add_done_callback(functools.partial(event.is_set))

    assert [wake_verdict(closing, [handler]).word for handler in handlers] == ["in-graph"] * 50


@pytest.mark.guarantee("SELF-17")
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
async def test_a_stranger_that_leaves_nothing_open_takes_no_doubt_about_another_away(is_first: bool) -> None:
    loop = asyncio.get_running_loop()
    closing, over = loop.create_future(), loop.create_future()
    over.set_result(None)
    gates = [held.Gate(loop.create_future()), held.Gate(over)]
    for gate in gates if is_first else reversed(gates):
        closing.add_done_callback(gate.open)

    assert wake_verdict(closing, []).word == "incomplete"


@pytest.mark.guarantee("SELF-13")
async def test_a_variable_without_a_value_holds_nothing() -> None:
    closing = asyncio.Future()
    closing.add_done_callback(lambda _: later)

    verdict = wake_verdict(closing, [])
    later = None

    assert verdict.word == "clean"


@pytest.mark.guarantee("SELF-13")
@pytest.mark.parametrize("held", ["loop", "module"])
async def test_who_holds_a_loop_or_a_module_does_not_hold_what_these_know(
    held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    thing: Any = loop if held == "loop" else asyncio
    monkeypatch.setattr(thing, "pending", loop.create_future(), raising=False)
    closing = loop.create_future()
    closing.add_done_callback(lambda _: thing)

    assert wake_verdict(closing, []).word == "clean"


@pytest.mark.guarantee("SELF-18")
async def test_a_stranger_whose_future_is_followed_anyway_leaves_nothing_open() -> None:
    loop = asyncio.get_running_loop()
    closing, waiter = loop.create_future(), loop.create_future()
    gate = held.Gate(waiter)
    closing.add_done_callback(gate.open)
    closing.add_done_callback(waiter.set_result)

    assert wake_verdict(closing, []).word == "clean"


@pytest.mark.guarantee("SELF-17")
@pytest.mark.parametrize("book", ["_getters", "_putters"])
async def test_a_stranger_with_a_queue_is_in_doubt_only_while_somebody_waits_there(book: str) -> None:
    loop = asyncio.get_running_loop()
    closing = loop.create_future()
    stranger = type("Inbox", (), {"note": lambda self, _: None})()
    stranger.queue = asyncio.Queue()
    closing.add_done_callback(stranger.note)
    before = wake_verdict(closing, []).word
    getattr(stranger.queue, book).append(loop.create_future())
    waits_there = wake_verdict(closing, []).word
    getattr(stranger.queue, book)[0].set_result(None)

    assert [before, waits_there, wake_verdict(closing, []).word] == ["clean", "incomplete", "clean"]


@pytest.mark.guarantee("SELF-24")
async def test_what_an_object_raises_is_named_and_not_passed_on() -> None:
    class Touchy(asyncio.Event):
        @property
        def _waiters(self) -> Any:
            raise ValueError("no")

        @_waiters.setter
        def _waiters(self, value: Any) -> None:
            """What the class itself puts there is forgotten."""

    closing = asyncio.Future()
    event = Touchy()
    closing.add_done_callback(lambda _: event.set())

    word, detail = wake_verdict(closing, [])

    assert (word, "ValueError" in detail) == ("incomplete", True)


@pytest.mark.guarantee("SELF-24")
async def test_a_call_that_no_task_makes_cannot_be_looked_at_and_says_so() -> None:
    assert wake_verdict(None, []) == ("incomplete", "the call is made by no task")
