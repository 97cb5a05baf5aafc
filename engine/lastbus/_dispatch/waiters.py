"""Waiters: callers that want the next event of one type, and nothing of them is left when they are gone."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Iterator

from lastbus._dispatch.capacity import fail
from lastbus._model.event import Event
from lastbus._ports.bus import Condition


class Waiters:
    """The pending `wait_for_event` calls of one bus, by exact event type."""

    def __init__(self) -> None:
        self._by_type: dict[str, dict[asyncio.Future[Event], Condition | None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_type.values()))

    def __iter__(self) -> Iterator[asyncio.Future[Event]]:
        return itertools.chain.from_iterable(tuple(self._by_type.values()))

    def add(self, event_type: str, condition: Condition | None) -> asyncio.Future[Event]:
        """A future of the next event of this type for which `condition` holds; `discard` it when done."""
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._by_type.setdefault(event_type, {})[future] = condition
        return future

    def discard(self, event_type: str, future: asyncio.Future[Event]) -> None:
        """Forget a waiter, whatever became of it.

        Keeps: CORE-28.
        """
        waiting = self._by_type.get(event_type, {})
        waiting.pop(future, None)
        if not waiting:
            self._by_type.pop(event_type, None)

    def resolve(self, event: Event) -> None:
        """Hand `event` to every waiter that wants it; an error of a condition goes to its own waiter.

        A waiter on another event loop is woken there; one whose loop is closed can want nothing any more.

        Keeps: CORE-27, CORE-53, MEM-01.
        """
        waiting = self._by_type.get(event.event_type)
        if waiting is None:
            return
        for future in list(waiting):
            self.offer(event, future)

    def offer(self, event: Event, future: asyncio.Future[Event]) -> None:
        """Hand `event` to one waiter of its type, if that still waits and wants it.

        Keeps: CORE-27, CORE-53, MEM-01.
        """
        waiting = self._by_type.get(event.event_type, {})
        if future.done() or future not in waiting:
            return
        condition = waiting[future]
        try:
            wanted = condition is None or condition(event)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # A condition is its caller's code: its failure is the caller's to see.
            fail(future, _raisable(error))
            return
        if wanted:
            _hand_over(future, event)

    def refuse_all(self, error: Callable[[], BaseException]) -> None:
        """Fail every pending waiter.

        Keeps: CAP-10.
        """
        for waiting in self._by_type.values():
            for future in waiting:
                fail(future, error())


def _hand_over(future: asyncio.Future[Event], event: Event) -> None:
    loop = future.get_loop()
    if loop is asyncio.get_running_loop():
        _set_result(future, event)
    elif not loop.is_closed():
        loop.call_soon_threadsafe(_set_result, future, event)


def _set_result(future: asyncio.Future[Event], event: Event) -> None:
    if not future.done():
        future.set_result(event)


def _raisable(error: BaseException) -> BaseException:
    """`error`, unless it is the one that a future cannot carry; then what a coroutine would make of it."""
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("condition raised StopIteration")
    wrapped.__cause__ = error
    return wrapped


def check_condition(condition: object) -> None:
    """Raise `TypeError` unless `condition` is None or a plain callable: a coroutine would always count as true.

    Keeps: CORE-27.
    """
    if condition is None:
        return
    if not callable(condition):
        raise TypeError(f"condition must be callable or None, got {condition!r:.80}")
    if inspect.iscoroutinefunction(condition):
        raise TypeError(f"condition must be a plain function, not an async one, got {condition!r:.80}")
