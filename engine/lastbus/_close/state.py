"""State: what a bus remembers about its own closing, and nothing else.

The four fields that matter to an observer are the state tuple: `_closing`, `_close_future` (the credential),
`_teardown_task` and `_teardown_runs`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import weakref
from typing import Any, Final, Literal

from lastbus._errors import CloseError
from lastbus._model.numbers import check_optional_seconds

logger = logging.getLogger("lastbus.close")

DISPATCH_DRAIN_TIMEOUT_SECONDS: float = 5.0

OnOverdue = Literal["release", "cancel"]
Future = asyncio.Future
Task = asyncio.Task

ACCEPTED: Final[weakref.WeakValueDictionary[int, Future[None]]] = weakref.WeakValueDictionary()
"""Every credential that an acceptance made, by identity: neither hash nor equality of a stranger is ever asked."""


def is_accepted(field: object) -> bool:
    """Whether `field` is a credential that some acceptance made."""
    return field is not None and ACCEPTED.get(id(field)) is field


def is_future(thing: object) -> bool:
    """Whether `thing` truly is an `asyncio.Future`, whatever its `__class__` claims."""
    return Future in type.__dict__["__mro__"].__get__(type(thing))


def is_task(thing: object) -> bool:
    """Whether `thing` truly is an `asyncio.Task`, whatever its `__class__` claims."""
    return Task in type.__dict__["__mro__"].__get__(type(thing))


def settle(future: Future[None], error: CloseError | None) -> None:
    """Give `future` its outcome unless it has one; its exception counts as retrieved, however few wait for it.

    Keeps: CLOSE-86.
    """
    if Future.done(future):
        return
    if error is None:
        Future.set_result(future, None)
    else:
        Future.set_exception(future, error)
        Future.exception(future)


class CloseState:
    """The fields of a closing bus, and the three places where a subclass says what there is to close."""

    _SLOTS: tuple[str, ...] = ("pubsub", "redis", "event_storage", "subscription_storage", "processing_tracker")
    """The components in the order of their release; a slot that is missing or None is passed over."""

    _EMPTIED: frozenset[str] = frozenset({"pubsub", "redis"})
    """The slots that are set to None once their release has ended; storages stay in place and close again."""

    def __init__(self, *, close_timeout: float | None = None, on_overdue: OnOverdue = "release") -> None:
        if on_overdue not in ("release", "cancel"):
            raise ValueError(f"on_overdue must be 'release' or 'cancel', got {on_overdue!r}")
        self._close_timeout = check_optional_seconds("close_timeout", close_timeout)
        self._on_overdue = on_overdue
        self._closing = False
        self._close_future: Future[None] | None = None
        self._teardown_task: Task[None] | None = None
        self._teardown_runs = 0
        self._teardown_error_kind: str | None = None
        self._teardown_task_error: BaseException | None = None
        self._pending_tasks: dict[Future[Any], tuple[str, str]] = {}
        self._listeners: list[Task[Any]] = []
        self._outstanding_step = "the start of the teardown"
        self._owner_context = contextvars.copy_context()

    def _limit(self) -> float:
        """Seconds that each of the two bounded waits may take.

        Keeps: CLOSE-13.
        """
        return DISPATCH_DRAIN_TIMEOUT_SECONDS if self._close_timeout is None else self._close_timeout

    def _in_flight(self) -> list[Future[Any]]:
        """Everything that the drain has to wait for, now; may be asked from the thread of another loop.

        Keeps: CLOSE-33.
        """
        return [task for task in list(self._pending_tasks) if not task.done()]

    def _waiting(self) -> list[Future[Any]]:
        """Whoever waits on the bus without being drained: a close fails them, on the loop on which they wait."""
        return []

    def _running_listeners(self) -> list[Task[Any]]:
        """The tasks that serve the bus itself; they are cancelled once the drain is over."""
        return [task for task in self._listeners if not task.done()]

    def _tell_waiters(self) -> None:
        """The close has begun; a bus that cannot say so to everybody closes all the same.

        Keeps: CLOSE-42.
        """
        try:
            self._on_round_bound()
        except Exception:
            logger.warning("close: whoever waits on the bus could not be told", exc_info=True)

    def _on_round_bound(self) -> None:
        """Called once when a close has begun for good: fail whoever waits on the bus. It must not raise."""

    def _name_overdue(self) -> list[tuple[str, str]]:
        """(event id, handler id) of all that is still out when the drain's time is over."""
        return [label for task, label in self._pending_tasks.items() if not task.done()]

    def _is_inside_dispatch(self) -> bool:
        """Whether the caller runs inside a handler of this bus, or in a task that one has started.

        Keeps: SELF-03.
        """
        return asyncio.current_task() in self._pending_tasks

    def _on_teardown_done(self, task: Task[None]) -> None:
        """Called after a round was judged and recorded; a seam for observers."""
