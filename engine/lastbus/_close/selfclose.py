"""Selfclose: whether a handler of a bus waits, directly or through others, for whoever calls `close()` now.

Two questions are asked. *Lineage*: does the running code descend from a handler of the bus? A handler's context carries
its bus, and tasks that the handler starts inherit it. *Wake cone*: if the calling task ended now, which futures and
tasks would that wake, and which would these wake? A handler among them waits for the caller.

The answers only let a close be refused early and by name. What keeps a bus safe is the order of its teardown, whatever
this module says: it may be wrong about shapes that it cannot see, and then the drain's bound holds.

Stdlib only, so that this file can be loaded by its path on any CPython from 3.10 on, with nothing installed.

Keeps: SELF-28.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

IN_DISPATCH: Final[contextvars.ContextVar[object | None]] = contextvars.ContextVar("lastbus_in_dispatch", default=None)
"""The bus in whose handler the current context runs; every context that is copied from it says the same."""

MAX_NODES: Final = 65_536
"""Futures, tasks and primitives in one cone, the calling task included; a larger cone is refused, honest or not."""

MAX_DEPTH: Final = 64
"""How deep methods, partials and closures may hold each other before a node; chains of nodes are not limited by it."""


def descends_from(bus: object) -> bool:
    """Whether the current context is, or was copied from, that of a handler of `bus`.

    Keeps: SELF-04, SELF-05, SELF-07, SELF-08.
    """
    return IN_DISPATCH.get() is bus


class Verdict(NamedTuple):
    """What a walk found: `in-graph` a handler is woken, `incomplete` and `over-budget` it cannot be told."""

    word: Literal["clean", "in-graph", "incomplete", "over-budget"]
    detail: str = ""


class Kind(NamedTuple):
    """A class of asyncio whose bookkeeping is known: what it must have, what of it is woken, and how to get one.

    Something `unclaimed` and nobody to wake for it means that whoever will wait has not begun to.
    """

    attributes: tuple[str, ...]
    wakes: tuple[str, ...]
    sample: Callable[[], object]
    unclaimed: str | None = None


def _kinds() -> dict[type, Kind]:
    """The known kinds of this Python; what it does not have is left out.

    Keeps: SELF-14, SELF-26, SELF-29, SELF-32.
    """
    newest: Any = asyncio  # Some of it is not in Python 3.10.
    waiters = ("_waiters",)
    callbacks = ("_callbacks",)
    kinds: dict[type, Kind] = {
        asyncio.Task: Kind(callbacks, callbacks, lambda: asyncio.current_task() or asyncio.Future()),
        asyncio.Future: Kind(callbacks, callbacks, asyncio.Future),
        asyncio.Queue: Kind(("_getters", "_putters"), ("_getters", "_putters"), asyncio.Queue),
        asyncio.Event: Kind(waiters, waiters, asyncio.Event),
        asyncio.Condition: Kind(waiters, waiters, asyncio.Condition),
        asyncio.Semaphore: Kind(waiters, waiters, asyncio.Semaphore),
        asyncio.Lock: Kind(waiters, waiters, asyncio.Lock),
        asyncio.StreamReader: Kind(("_waiter",), ("_waiter",), asyncio.StreamReader),
    }
    if hasattr(newest, "Barrier"):
        kinds[newest.Barrier] = Kind(("_cond",), ("_cond",), lambda: newest.Barrier(1))
    if hasattr(newest, "TaskGroup"):
        books = ("_tasks", "_on_completed_fut")
        kinds[newest.TaskGroup] = Kind(books, ("_on_completed_fut",), newest.TaskGroup, "_tasks")
    if hasattr(newest.tasks, "_AsCompletedIterator"):
        # Nothing public leads to the class itself; without it an iterator is a stranger, and refused as one.
        kinds[newest.tasks._AsCompletedIterator] = Kind(
            ("_done", "_todo"), ("_done",), lambda: asyncio.as_completed([asyncio.Future()])
        )
    return kinds


KINDS: Final = _kinds()
_FUTURE: Final = KINDS[asyncio.Future]
_BUILT_IN: Final = (types.BuiltinMethodType, types.MethodWrapperType)
_WAKES_NOBODY: Final = (asyncio.AbstractEventLoop, types.ModuleType)
"""Held by nearly everything; who holds a loop or a module does not thereby hold what it knows."""


class _Incomplete(Exception):
    """The cone cannot be enumerated."""


def wake_verdict(caller: object, dispatches: Iterable[object]) -> Verdict:
    """Walk what the end of `caller` (the task that calls `close()`) would wake, and look for `dispatches` there.

    Whatever goes wrong on the way is an `incomplete`: what cannot be read cannot be cleared. Costs some microseconds
    for an ordinary caller, and grows with the number of nodes only.

    Keeps: SELF-13, SELF-24.
    """
    try:
        return _Cone(dispatches).walk(caller)
    except _Incomplete as found:
        return Verdict("incomplete", str(found))
    except Exception as error:
        return Verdict("incomplete", f"{type(error).__name__} while looking at what the caller wakes")


class _Cone:
    """One walk. Everything met is kept until it ends, so that no id is met twice for two things."""

    def __init__(self, dispatches: Iterable[object]) -> None:
        self._dispatches = {id(each): each for each in dispatches}
        self._nodes: dict[int, object] = {}
        self._holders: dict[int, object] = {}
        self._doubts: list[tuple[object, object]] = []

    def walk(self, caller: object) -> Verdict:
        """Enumerate the cone with a list of what is still to be looked at: a chain may be longer than a stack is deep.

        The caller itself is no find: whether it is a handler, lineage has answered.

        Keeps: SELF-20, SELF-21, SELF-22, RES-T2.2.
        """
        self._nodes[id(caller)] = caller
        ahead = [caller]
        while ahead:
            for node in self._expand(_woken_by(ahead.pop())):
                if id(node) in self._nodes:
                    continue
                if id(node) in self._dispatches:
                    return Verdict("in-graph")
                if len(self._nodes) == MAX_NODES:
                    return Verdict("over-budget", f"more than {MAX_NODES} tasks and futures")
                self._nodes[id(node)] = node
                ahead.append(node)
        return self._settle_doubts()

    def _expand(self, things: Iterable[object]) -> Iterator[object]:
        """The nodes that `things` are or hold. Every holder is opened once.

        Keeps: SELF-13, SELF-17, SELF-19, SELF-23, SELF-33.
        """
        ahead = [(each, 0) for each in things]
        while ahead:
            thing, depth = ahead.pop()
            if kind_of(thing) is not None:
                yield thing
            elif id(thing) not in self._holders:
                self._holders[id(thing)] = thing
                if depth > MAX_DEPTH:
                    raise _Incomplete(f"callbacks that hold each other more than {MAX_DEPTH} deep")
                held = _held_by(thing)
                if held is None:
                    self._doubts += [(thing, value) for value in _armed_attributes(thing)]
                else:
                    ahead += [(each, depth + 1) for each in held]

    def _settle_doubts(self) -> Verdict:
        """A stranger that holds something armed may wake it; if all that was enumerated anyway, nothing is left open.

        Keeps: SELF-17, SELF-18, SELF-33.
        """
        for holder, armed in self._doubts:
            if id(armed) not in self._nodes:
                return Verdict("incomplete", f"a {type(holder).__name__} holds a waiting {type(armed).__name__}")
        return Verdict("clean")


def kind_of(thing: object) -> Kind | None:
    """The known kind that `thing` is of, by its true class; None for a stranger.

    Keeps: SELF-14.
    """
    mine = type(thing)
    if mine in KINDS:
        return KINDS[mine]
    for each in type.__dict__["__mro__"].__get__(mine):
        if each in KINDS:
            return KINDS[each]
    # What asyncio itself would take for a future, though it inherits from none.
    return _FUTURE if getattr(mine, "_asyncio_future_blocking", None) is not None else None


def _woken_by(node: object) -> list[object]:
    """What `node` would wake, as its kind keeps books of it; a book that is missing is never an empty one.

    Keeps: SELF-15, SELF-16, SELF-24.
    """
    kind = kind_of(node)
    if kind is None:
        raise _Incomplete("the call is made by no task")
    books: dict[str, Any] = {}
    for name in kind.attributes:
        books[name] = getattr(node, name, _Incomplete)
        if books[name] is _Incomplete:
            raise _Incomplete(f"{type(node).__name__} has no {name}")
    if kind.unclaimed and books[kind.unclaimed] and all(books[name] is None for name in kind.wakes):
        raise _Incomplete(f"a {type(node).__name__} whose tasks nobody waits for yet")
    woken: list[object] = []
    for name in kind.wakes:
        book = books[name]
        if name == "_callbacks":
            woken += [callback for callback, _ in book or ()]
        elif book is not None:
            woken += book if kind_of(book) is None else [book]
    return woken


def _held_by(thing: Any) -> Iterable[object] | None:
    """What a callback holds for certain: a method its object, a partial its parts, a function its closure's cells.

    None for a stranger. Containers among them stay closed: they would make siblings of the caller look woken.

    Keeps: SELF-13, SELF-19, SELF-36.
    """
    mine = type(thing)  # Not isinstance(): that would believe what the thing says of its class.
    if issubclass(mine, _WAKES_NOBODY):
        return ()
    if issubclass(mine, types.FunctionType):
        return [each for cell in thing.__closure__ or () for each in _content(cell)]
    if issubclass(mine, types.MethodType):
        return (thing.__self__, thing.__func__)
    if issubclass(mine, _BUILT_IN):
        return (thing.__self__,)
    if issubclass(mine, functools.partial):
        return (thing.func, *thing.args, *thing.keywords.values())
    return None


def _content(cell: types.CellType) -> tuple[object, ...]:
    """Keeps: SELF-13, SELF-19, RES-T2.5."""
    try:
        return (cell.cell_contents,)
    except ValueError:  # It is empty: its variable has no value yet, or no longer.
        return ()


def _armed_attributes(stranger: object) -> list[object]:
    """Attributes of an unknown object for which somebody waits; one level, and none that live in slots.

    Keeps: SELF-17, SELF-18, SELF-33.
    """
    return [value for value in list(getattr(stranger, "__dict__", {}).values()) if _is_armed(value)]


def _is_armed(thing: Any) -> bool:
    """Whether `thing` is a future that is not done, or a primitive for which somebody waits.

    Keeps: SELF-17, SELF-18.
    """
    kind = kind_of(thing)
    if kind is None:
        return False
    return not thing.done() if "_callbacks" in kind.wakes else any(map(_is_armed, _woken_by(thing)))


_ANSWER: list[str | None] = []
"""What `missing_in_runtime` found, once it could look."""


def missing_in_runtime() -> str | None:
    """The first thing that this Python's asyncio lacks for a walk, such as `Queue._getters`; None if it has all.

    Fresh instances are looked at, once per process. That takes a running loop that makes futures; without one just that
    is missing, and the answer is not kept.

    Keeps: SELF-24, SELF-25, SELF-26, SELF-27.
    """
    if not _ANSWER:
        try:
            _ANSWER.append(_first_missing())
        except Exception as error:
            return f"a running event loop that makes futures ({type(error).__name__})"
    return _ANSWER[0]


def _first_missing() -> str | None:
    """Keeps: SELF-25, SELF-26, SELF-27."""
    asyncio.get_running_loop()  # Without one, a future makes a loop of its own.
    for known, kind in KINDS.items():
        sample = kind.sample()
        for name in kind.attributes:
            if not hasattr(sample, name):
                return f"{known.__name__}.{name}"
    return None
