"""Teardown: drain, then listeners, then release; in this order, each once, and no wait without a bound.

Handlers may still need the listeners' connections and the stores, listeners may still feed handlers: so what depends
on the most goes first. There are exactly two timed waits here; releasing a component has no timer of ours.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from lastbus._close.completion import Completion
from lastbus._close.release import release
from lastbus._close.state import Future, is_accepted, is_future, settle
from lastbus._errors import CloseError

logger = logging.getLogger("lastbus.close")


class Teardown(Completion):
    """The steps that the teardown task runs."""

    async def _teardown(self) -> None:
        """Drain, stop listeners, release; whatever happens, the round is settled before the task ends.

        Keeps: CLOSE-09, CLOSE-12, CLOSE-15, CLOSE-27, CLOSE-28, CLOSE-31, CLOSE-84,
        CLOSE-89.
        """
        self._teardown_runs += 1
        field = self._close_future
        error: BaseException | None = None
        try:
            late = await self._drain()
            await self._stop_listeners(late)
            await self._release()
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._settle_round(field, error)

    def _settle_round(self, field: Any, error: BaseException | None) -> None:
        """Settle the future that this run found when it began: an old run must not decide a retry.

        Keeps: CLOSE-28, CLOSE-29.
        """
        if not is_future(field):
            return
        if error is None:
            settle(field, None)
            return
        failure = CloseError(
            "teardown-incomplete", f"{type(error).__name__} in the teardown; call close() again to retry"
        )
        failure.__cause__ = error
        settle(field, failure)
        if field is self._close_future and is_accepted(field):
            self._close_future = None

    async def _drain(self) -> set[Future[Any]]:
        """Wait for what is in flight, in bounds; name what is overdue; return what was cancelled for it.

        What a loop that is closed has left behind is named and not waited for.

        Keeps: CAP-12, CAP-13, CAP-14, CAP-33, CAP-35, CLOSE-13, CLOSE-35, DISP-04, DISP-05, DISP-06, DISP-09,
        DISP-13, RES-T1, SELF-01, SELF-30.
        """
        self._outstanding_step = "running handlers"
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limit()
        stranded = {each for each in self._in_flight() if _is_stranded(each)}
        late: set[Future[Any]] = set()
        while not late and (own := set(self._in_flight()) - stranded):
            _, late = await asyncio.wait(own, timeout=max(0.0, deadline - loop.time()))
        if stranded and not late:
            self._name_stranded()
        if not late:
            return set()
        verb = "cancelled" if self._on_overdue == "cancel" else "left to finish and recorded"
        for event_id, handler_id in self._name_overdue():
            logger.warning(
                "close: event %s in handler %s is not done after %g s; %s", event_id, handler_id, self._limit(), verb
            )
        return self._cancel_overdue(late) if self._on_overdue == "cancel" else set()

    def _name_stranded(self) -> None:
        for label in self._name_overdue():
            logger.warning("close: event %s in handler %s was left behind by an event loop that is closed", *label)

    def _cancel_overdue(self, late: set[Future[Any]]) -> set[Future[Any]]:
        for task in late:
            task.cancel()
        return late

    async def _stop_listeners(self, late: set[Future[Any]]) -> None:
        """Cancel the listeners, and wait in bounds for them and for the handlers that were cancelled.

        Keeps: CAP-13, CAP-18, CLOSE-14, CLOSE-35, CLOSE-91.
        """
        self._outstanding_step = "listeners and cancelled handlers"
        listeners = self._running_listeners()
        listeners = [each for each in listeners if not _is_stranded(each)]
        for listener in listeners:
            listener.cancel()
        stopping = {*listeners, *late}
        if not stopping:
            return
        _, left = await asyncio.wait(stopping, timeout=self._limit())
        for task in left:
            label = self._pending_tasks.get(task, task)
            logger.warning("close: %s ignores its cancellation for %g s and is left behind", label, self._limit())

    async def _release(self) -> None:
        """Release one component after the other, and forget those that will not be needed again.

        Keeps: CLOSE-16, CLOSE-25, CLOSE-26, CLOSE-30.
        """
        for slot in self._SLOTS:
            component = getattr(self, slot, None)
            if component is None:
                continue
            self._outstanding_step = f"the release of {slot}"
            await release(slot, component)
            if slot in self._EMPTIED:
                setattr(self, slot, None)
        self._outstanding_step = "nothing"


def _is_stranded(future: Future[Any]) -> bool:
    """Whether the loop of `future` is closed, so that it can neither end nor be cancelled."""
    return future.get_loop().is_closed()
