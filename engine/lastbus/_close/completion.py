"""Completion: how a caller waits for the close, each on a future of its own.

The shared future is never awaited: cancelling one caller must not reach the teardown, nor any other caller.
"""

from __future__ import annotations

import asyncio

from lastbus._close.adoption import Adoption
from lastbus._close.refusal import refusal
from lastbus._close.state import Future, Task, is_future, is_task
from lastbus._errors import CloseError, CloseTimeout
from lastbus._model.numbers import check_optional_seconds


class Completion(Adoption):
    """`close()`: accept, then wait."""

    async def close(self, timeout: float | None = None) -> None:
        """Close the bus and return when everything is released; call it as often as you like.

        Running handlers are awaited for `close_timeout` seconds; overdue ones are named in a WARNING each and left
        running (`on_overdue="release"`) or cancelled (`"cancel"`). Listeners stop after that, components are released
        last. Cancelling the caller does not stop the close. With `timeout` (seconds) this caller gets `CloseTimeout`
        at its own deadline while the close goes on. A close that failed raises `CloseError`; calling again retries.
        A call for which a handler of this bus waits is refused without any effect: `self-close`; where that cannot be
        seen, `wake-graph-incomplete`, `self-close-budget` or `unsupported-runtime`. Call `request_close()` there.

        Keeps: CAP-12, CAP-14, CAP-15, CAP-16, CAP-17, CAP-31, CLOSE-46, CLOSE-78, CLOSE-80, CLOSE-92, RES-MEM, RES-R1,
        RES-R4, RES-R12a', RES-R15a, RES-T1, RES-T2.3, RES-T2.6, RES-TIMER, SELF-35.
        """
        limit = check_optional_seconds("timeout", timeout)
        Completion._refuse_from_inside(self)
        future = Completion.request_close(self)
        deadline = None if limit is None else asyncio.get_running_loop().time() + limit
        if not Future.done(future) and not await _ended_in_time(future, limit):
            assert limit is not None
            raise CloseTimeout(limit, self._outstanding_step)
        if Future.cancelled(future):
            await Completion._outlast(self, limit, deadline)
            return
        error = Future.exception(future)
        if error is not None:
            raise error

    async def _outlast(self, limit: float | None, deadline: float | None) -> None:
        """Wait for the teardown itself: somebody has cancelled the future that all share, as `asyncio.wait_for` does.

        The caller's `limit` still ends at its `deadline`. A teardown that reached its end has nothing outstanding. One
        that a task factory drives by hand has no task: it is called incomplete until it has reached its end.

        Keeps: CLOSE-92.
        """
        task = self._teardown_task
        left = None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time())
        if task is not None and is_task(task) and not Task.done(task) and not await _ended_in_time(task, left):
            assert limit is not None
            raise CloseTimeout(limit, self._outstanding_step)
        if self._outstanding_step != "nothing":
            raise CloseError("teardown-incomplete", f"it did not get past {self._outstanding_step}; call close() again")

    def _refuse_from_inside(self) -> None:
        """Refuse, before any effect, a call for which a handler waits; whatever cannot be seen is bounded by the drain.

        An idle bus is not asked, nor one whose close has an outcome: there is nothing to wait for. A future that was
        cancelled is none.

        Keeps: CLOSE-92, SELF-02, SELF-10, SELF-11, SELF-25, SELF-31, SELF-34, RES-T2.1, RES-T2.4, RES-T2.5.
        """
        field = self._close_future
        if field is not None and is_future(field) and Future.done(field) and not Future.cancelled(field):
            return
        in_flight = self._in_flight()
        error = refusal(self._is_inside_dispatch(), in_flight) if in_flight else None
        if error is not None:
            raise error


async def _ended_in_time(future: Future[None], limit: float | None) -> bool:
    """Wait for `future` on a future of our own; whether it ended within `limit`. None is for ever: no timer is made.

    Only class functions are used, on the future and for making one, so nothing in front of them is consulted.

    Keeps: CLOSE-15, CLOSE-77, CLOSE-78, CLOSE-79, RES-R15b.
    """
    waiter: Future[None] = Future()

    def wake(_: object = None) -> None:
        if not Future.done(waiter):
            Future.set_result(waiter, None)

    Future.add_done_callback(future, wake)
    timer = None if limit is None else asyncio.get_running_loop().call_later(limit, wake)
    try:
        await waiter
        return Future.done(future)
    finally:
        Future.remove_done_callback(future, wake)
        if timer is not None:
            timer.cancel()
