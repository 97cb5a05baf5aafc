"""Watchdog: one round of closing is judged when its task ends, by what its own closure remembers.

The verdict reads nothing but the round's future, which lives in the closure: no field of the bus, no attribute of the
task. Verdict and settlement come first; everything that is merely good to know is recorded afterwards and may fail.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Coroutine
from typing import Any

from lastbus._close.state import CloseState, Future, Task, is_accepted, settle
from lastbus._errors import CloseError

logger = logging.getLogger("lastbus.close")


def bind(
    bus: CloseState, task: Task[Any] | None, future: Future[None], coro: Coroutine[Any, Any, None], runs_before: int
) -> None:
    """Tie this round's `future` to the end of `task`; from here on nothing rolls the acceptance back.

    Without a task somebody else has driven `coro`: acceptance tells those who wait, and if it is over already, the
    round is judged here and now.

    Keeps: CLOSE-43, CLOSE-44, CLOSE-45, CLOSE-47, CLOSE-48, CLOSE-50, CLOSE-51, CLOSE-52, CLOSE-53, CLOSE-57, CLOSE-61,
    CLOSE-62, CLOSE-65, CLOSE-68, CLOSE-70, CLOSE-75, CLOSE-76, CLOSE-77, CLOSE-83, CLOSE-87, CLOSE-88, RES-R2,
    RES-R12a, RES-R13a, RES-R13b, RES-R13c, RES-R13d, RES-R14a, RES-R15c.
    """
    decoys: list[Any] = []
    judged = False
    field = bus._close_future
    if field is not None and field is not future:
        decoys.append(field)
        bus._close_future = future
    if task is not None:
        bus._tell_waiters()

    def judge(ended: Task[Any] | None) -> None:
        nonlocal judged
        never_entered = not Future.done(future)
        settle(future, CloseError("teardown-never-entered", "the loop never ran the teardown; call close() again"))
        try:
            tampered = not judged and not never_entered and bus._teardown_runs == runs_before
            judged = True
            if inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
                coro.close()
            _tidy(bus, ended, future, decoys, never_entered)
            _mirror(future, decoys)
            _record(bus, ended, future, tampered)
        except Exception:
            logger.debug("the end of a teardown could not be recorded", exc_info=True)

    if task is None:
        if inspect.getcoroutinestate(coro) == inspect.CORO_CLOSED:
            judge(None)
    elif Task.done(task):
        judge(task)
    else:
        Task.add_done_callback(task, judge)


def _tidy(
    bus: CloseState, ended: Task[Any] | None, future: Future[None], decoys: list[Any], never_entered: bool
) -> None:
    """Leave the bus with a credential that has an outcome, or with none, so that the next close is bounded.

    Keeps: CLOSE-63, CLOSE-64, CLOSE-74.
    """
    if ended is not None and bus._teardown_task is ended:
        bus._teardown_task = None
    field = bus._close_future
    if _is_decoy(field, future):
        decoys.append(field)
        bus._close_future = future
    elif never_entered and field is future:
        bus._close_future = None


def _is_decoy(field: object, future: Future[None]) -> bool:
    """Whether `field` was put there by a stranger. None is not a decoy, nor is the credential of a later round.

    Keeps: CLOSE-66, CLOSE-67, CLOSE-68, CLOSE-69, CLOSE-71, CLOSE-73, CLOSE-74.
    """
    return field is not None and field is not future and not is_accepted(field)


def _mirror(future: Future[None], decoys: list[Any]) -> None:
    """Whoever waits on something that was put in the future's place gets the true outcome too.

    Keeps: CLOSE-65, CLOSE-72.
    """
    error = _error_of(future)
    for decoy in decoys:
        try:
            if Future.done(decoy):
                continue
            if Future.cancelled(future):
                Future.cancel(decoy)
            elif error is None:
                Future.set_result(decoy, None)
            else:
                Future.set_exception(decoy, error)
                Future.exception(decoy)
        except Exception:
            logger.debug("something that is no future stood where the close's future belongs", exc_info=True)


def _error_of(future: Future[None]) -> BaseException | None:
    """The error with which a round ended. The future is in everybody's hands: one that was cancelled has none."""
    return None if Future.cancelled(future) else Future.exception(future)


def _cause(future: Future[None]) -> BaseException | None:
    """What broke a teardown that no task of ours ran, as far as its future knows."""
    error = _error_of(future)
    return None if error is None else error.__cause__


def _record(bus: CloseState, task: Task[Any] | None, future: Future[None], tampered: bool) -> None:
    """Note how the task ended, say if somebody else has settled the close, and let observers know.

    Keeps: CLOSE-83, CLOSE-84, CLOSE-85, CLOSE-87, RES-R12a.
    """
    if task is not None and Task.cancelled(task):
        bus._teardown_error_kind, bus._teardown_task_error = "cancelled", None
    else:
        error = _cause(future) if task is None else Task.exception(task)
        bus._teardown_error_kind = None if error is None else type(error).__name__
        bus._teardown_task_error = error
    if tampered:
        bus._teardown_error_kind = "teardown-settlement-tampered"
        logger.warning("teardown-settlement-tampered: a close was reported as done although no teardown ran")
    if task is not None:
        bus._on_teardown_done(task)
