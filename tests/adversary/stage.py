"""The stage: a bus that records, a loop that belongs to one row, and an audience that watches without touching.

A row says what the loop's task factory (or anybody else in the process) does to a close. `play` closes the bus twice
under it and returns everything that an observer can know: how both calls ended, the state tuple, what was released
how often, what was recorded, and what was left lying about once the loop is closed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from lastbus._close.closer import Closer
from lastbus.proof.watchdog import QuiescenceLoop, hangs
from tests.close.hygiene import only_this_test_is_collected

Task, Future = asyncio.Task, asyncio.Future
Loop = asyncio.AbstractEventLoop
SLOTS = ("pubsub", "redis", "event_storage", "subscription_storage", "processing_tracker")

LIMIT = 0.05
"""Seconds that a bus on the stage grants its handlers."""

NONE, ALL, TWICE = [0] * 5, [1] * 5, [1, 1, 2, 2, 2]
TAMPERED = "teardown-settlement-tampered"


class State(NamedTuple):
    """The state tuple: flag, credential, whether there is a live task, runs of the teardown."""

    closing: bool
    credential: str | None
    has_task: bool
    runs: int


class Component:
    """Something to release. It counts each call as it starts, and may be told never to end."""

    def __init__(self, calls: list[int], place: int) -> None:
        self.calls = calls
        self.place = place
        self.may_end: asyncio.Event | None = None

    async def aclose(self) -> None:
        self.calls[self.place] += 1
        if self.may_end is not None:
            await self.may_end.wait()


class Bus(Closer):
    """The close contract, five components, and a few props for those who attack it."""

    def __init__(self) -> None:
        super().__init__(close_timeout=LIMIT)
        self.calls = [0] * 5
        for place, slot in enumerate(SLOTS):
            setattr(self, slot, Component(self.calls, place))
        self.curtain = asyncio.Event()
        self.kept: list[Any] = []
        self.touched: list[Any] = []
        self.finished: Task[Any] | None = None
        self.elsewhere: Loop | None = None
        self.bound = 0

    def _on_round_bound(self) -> None:
        self.bound += 1

    @property
    def state(self) -> State:
        """What an observer sees now."""
        return State(
            self._closing, _credential(self._close_future), self._teardown_task is not None, self._teardown_runs
        )

    def dispatch(self, gate: asyncio.Event | None = None) -> Task[Any]:
        """Let something be in flight until `gate` opens; without one, until a moment after the close has begun."""
        if gate is None:
            gate = asyncio.Event()
            asyncio.get_running_loop().call_later(LIMIT / 5, gate.set)
        task = Task(gate.wait())
        self._pending_tasks[task] = ("event", "handler")
        task.add_done_callback(lambda ended: self._pending_tasks.pop(ended, None))
        return task


Coro = Coroutine[Any, Any, None]
Make = Callable[[Bus, Loop, Coro], Any]

EAGER = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python has eager tasks from 3.12 on")


def _credential(held: Any) -> str | None:
    if held is None:
        return None
    if Future not in type.__dict__["__mro__"].__get__(type(held)):
        return "STRANGER"
    if not Future.done(held):
        return "PENDING"
    if Future.cancelled(held):
        return "CANCELLED"
    error = Future.exception(held)
    return "OK" if error is None else kind_of(error)


class Never:
    """Can be awaited, for ever, and is no future."""

    def __await__(self) -> Any:
        return Future().__await__()


class LiesToBe:
    """Says that it is of a class that it is not of."""

    def __init__(self, claimed: type) -> None:
        self.claimed = claimed

    @property
    def __class__(self) -> Any:
        return self.claimed


async def other() -> None:
    """A coroutine that is not the teardown."""
    await asyncio.sleep(0)


def by_hand(coro: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits to its end, here and now: eager execution on every version of Python."""
    try:
        coro.send(None)
    except StopIteration:
        return
    raise AssertionError("it waited")


async def ended(task: Future[Any]) -> bool:
    """Whether `task` ends. It is observed only, and nothing that hangs on the loop instance is used."""
    return not await hangs(task)


async def outcome(task: Task[Any]) -> str:
    """How a call of `close()` ended: "returned", the kind of its error and of that error's cause, or "HANG"."""
    if not await ended(task):
        return "HANG"
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    if error is None:
        return "returned"
    cause = error.__cause__
    return f"{kind_of(error)} from {kind_of(cause)}" if cause is not None else kind_of(error)


def kind_of(error: BaseException) -> str:
    """The kind of a close error, or the name of another one."""
    return getattr(error, "kind", type(error).__name__)


async def turns(count: int = 10) -> None:
    """Let everybody have `count` turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


class Played(NamedTuple):
    """All that a row decides. `state` and `calls` are as they are after the first close."""

    first: str
    second: str
    state: State | tuple[Any, ...]
    calls: list[int]
    calls_after: list[int]
    record: str | None = None
    signals: int = 0
    touched: tuple[Any, ...] = ()
    residue: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """What is done to the bus, and what comes of it."""

    make: Make | None
    played: Played
    in_flight: bool = False
    prepare: Callable[[Bus, Loop], None] | None = None


RETURNED = Played("returned", "returned", State(True, "OK", False, 1), ALL, ALL)
NEVER = Played("teardown-never-entered", "teardown-never-entered", State(True, None, False, 0), NONE, NONE)
UNBOUNDED = Played("HANG", "HANG", State(True, "PENDING", True, 0), NONE, NONE)


def refused(cause: str) -> Played:
    """Both closes are refused for this reason, and nothing has happened."""
    refusal = f"teardown-spawn-failed from {cause}"
    return Played(refusal, refusal, State(False, None, False, 0), NONE, NONE)


@dataclass
class House:
    """What fell on the floor: warnings, complaints to the loop, exceptions that nobody could raise, lost tasks."""

    residue: list[str] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)

    def complain(self, _: Loop, context: dict[str, Any]) -> None:
        """The loop's exception handler."""
        error = context.get("exception")
        self.residue.append(f"{type(error).__name__} in the loop" if error else str(context.get("message")))


class _Ear(logging.Handler):
    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


@contextmanager
def house() -> Iterator[House]:
    """Listen to everything that is said in the block, until after a garbage collection at its end."""
    found = House()
    ear = _Ear(found.signals)
    logger = logging.getLogger("lastbus.close")
    hook = sys.unraisablehook
    logger.addHandler(ear)
    sys.unraisablehook = lambda unraisable: found.residue.append(f"unraisable: {unraisable.exc_value!r}")
    try:
        # What existed before cannot host our coroutine: looking for its owner, and collecting, is then quick.
        with only_this_test_is_collected(), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield found
            gc.collect()
        found.residue += [str(each.message) for each in said]
    finally:
        sys.unraisablehook = hook
        logger.removeHandler(ear)


def run(act: Callable[[Loop, House], Coroutine[Any, Any, Any]]) -> tuple[Any, House]:
    """Run `act` on a loop of its own; its value, and what was left once that loop is closed."""
    with house() as found:
        loop = QuiescenceLoop()
        loop.set_exception_handler(found.complain)
        try:
            value = loop.run_until_complete(act(loop, found))
        finally:
            loop.set_task_factory(None)
            loop.close()
    return value, found


def factory(loop: Loop, make: Callable[[Coro], Any]) -> None:
    """Let `make(coro)` make the loop's tasks from now on."""
    loop.set_task_factory(lambda _, coro, **__: make(coro))


def clean(found: House) -> bool:
    """Whether nothing was left on the floor."""
    return found.residue == []


def play(row: Row) -> Played:
    """Close a bus twice under `row`, and say everything that came of it."""
    elsewhere = asyncio.new_event_loop()

    async def act(loop: Loop, found: House) -> Played:
        bus = Bus()
        bus.elsewhere = elsewhere
        bus.finished = Task(other())
        await ended(bus.finished)
        if row.in_flight:
            bus.dispatch()
            await asyncio.sleep(0)
        closing = Task(bus.close())
        if row.make is not None:
            make = row.make
            loop.set_task_factory(lambda loop, coro, **_: make(bus, loop, coro))
        if row.prepare is not None:
            row.prepare(bus, loop)
        first = await outcome(closing)
        state, calls = bus.state, list(bus.calls)
        again = Task(bus.close())
        second = await outcome(again)
        await turns()
        signals = sum(TAMPERED in each for each in found.signals)
        calls_after, record, touched = list(bus.calls), bus._teardown_error_kind, tuple(bus.touched)
        await _clear(bus, loop, [closing, again], found)
        return Played(first, second, state, calls, calls_after, record, signals, touched)

    try:
        played, found = run(act)
    finally:
        elsewhere.run_until_complete(turns(2))
        elsewhere.close()
    return played._replace(residue=tuple(found.residue))


async def _clear(bus: Bus, loop: Loop, closings: list[Task[Any]], found: House) -> None:
    """Give the loop back to itself, let everything end that was only held, and name whatever does not."""
    loop.set_task_factory(None)
    for name in ("create_future", "call_soon", "get_debug", "call_later", "time"):
        vars(loop).pop(name, None)
    bus.curtain.set()
    await turns()
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not Task.done(task)]
    for task in left:
        Task.cancel(task)
    found.residue += [f"left running: {task.get_coro().__qualname__}" for task in left if task not in closings]
    await turns(3)
    for task in closings:
        if task.done() and not task.cancelled():
            task.exception()
