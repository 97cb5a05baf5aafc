"""Acceptance: a close begins in one synchronous step, or not at all."""

from __future__ import annotations

import asyncio
from typing import Final

from lastbus._close.state import ACCEPTED, CloseState, Future, Task, is_accepted, is_future, is_task
from lastbus._errors import CloseError

_ELSEWHERE: Final = (
    "the bus is at work on another event loop; hand the close over with that loop's call_soon_threadsafe()"
)


class Acceptance(CloseState):
    """What `request_close()` may touch: flag, credential and teardown task, all three or none."""

    def request_close(self) -> asyncio.Future[None]:
        """Begin to close and return the future of the outcome; every further call returns the same future.

        The bus refuses new work from now on. May be called from a handler. Raises a named `CloseError`, without any
        effect, outside a loop (`no-running-loop`), while the bus works or closes on another loop
        (`cross-loop-close`), and when no teardown could be started (`teardown-spawn-failed`).

        Keeps: CAP-11, CAP-14, CAP-16, CAP-34, CLOSE-01, CLOSE-02, CLOSE-05, CLOSE-06, CLOSE-07, CLOSE-08, CLOSE-09,
        CLOSE-10, CLOSE-11, CLOSE-32, CLOSE-36, CLOSE-82, CLOSE-89, CLOSE-90, RES-R12a'.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise CloseError("no-running-loop", "call it inside a running event loop") from None
        if self._close_future is not None:
            return self._standing_credential(loop)
        self._refuse_other_loop(loop)
        before = self._closing, self._close_future, self._teardown_task
        future: Future[None] = Future()
        ACCEPTED[id(future)] = future
        self._closing, self._close_future, self._teardown_task = True, future, None
        try:
            task = self._spawn_teardown(loop, future)
        except BaseException:
            self._closing, self._close_future, self._teardown_task = before
            raise
        if task is None:
            self._tell_waiters()  # Its coroutine ran within the factory, so nobody has bound it to a task.
        elif is_task(task) and not Task.done(task):
            self._teardown_task = task
        return future

    def _standing_credential(self, loop: asyncio.AbstractEventLoop) -> Future[None]:
        """The future of the close that has begun; only while it is pending it belongs to one loop.

        Its loop is read through the class: what stands in front of the method on the future is not consulted.

        Keeps: CAP-14, CAP-36, CLOSE-34, CLOSE-81.
        """
        field = self._close_future
        assert field is not None
        usable = is_accepted(field) or (is_future(field) and not Future.cancelled(field))
        if not usable:
            raise CloseError("credential-replaced", "something else was put where the close's future belongs")
        if not Future.done(field) and Future.get_loop(field) is not loop:
            raise CloseError("cross-loop-close", _ELSEWHERE)
        return field

    def _refuse_other_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Refuse while anything runs or waits on another loop; what was left on a loop that is gone is past helping.

        It comes before anything is accepted: work that cannot be asked for its loop raises what it raises, and the bus
        stays as it was.

        Keeps: CAP-36, CLOSE-33, CLOSE-35, CLOSE-82.
        """
        loops = set(map(Future.get_loop, (*self._in_flight(), *self._waiting())))
        for at_work in loops:
            if at_work is not loop and not at_work.is_closed():
                raise CloseError("cross-loop-close", _ELSEWHERE)

    def _spawn_teardown(self, loop: asyncio.AbstractEventLoop, future: Future[None]) -> Task[None] | None:
        """Start the teardown; see adoption."""
        raise NotImplementedError
