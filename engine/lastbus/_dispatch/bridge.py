"""Bridge: publish from code that has no running loop, and wait, in bounds, for what that publish started."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from lastbus._clock import Clock
from lastbus._errors import SyncPublishError

logger = logging.getLogger("lastbus.dispatch")

LOOP_CHECK_SECONDS: Final = 0.5
FAREWELL_SECONDS: Final = 1.0
"""How long the private loop waits for the tasks that it cancels at its end."""

Result = TypeVar("Result")
Future = asyncio.Future[Any]
Loop = asyncio.AbstractEventLoop
_OURS: Final[contextvars.ContextVar[Loop | None]] = contextvars.ContextVar("lastbus_private_loop", default=None)
"""The private loop on which the running code is, or was called by a handler that is."""


class Bridge:
    """Runs a bus's coroutines for callers without a loop: on the bus's loop if it is alive, else on a private one."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._private: Loop | None = None

    def run(self, home: Loop | None, coro: Callable[[bool], Coroutine[Any, Any, Result]]) -> Result:
        """Run `coro(is_private)` to its end and return its result.

        `SyncPublishError` where that would block the loop that has to do the work. A private loop is its caller's and
        that of the handlers it runs; another thread takes its turn after it.

        Keeps: CORE-22, CORE-41, CORE-45.
        """
        is_alive = home is not None and home.is_running() and self._serves_caller(home)
        here = _running_loop()
        if here is not None and (here is home or not is_alive):
            raise SyncPublishError("publish_sync() was called inside a running event loop; use: await bus.publish(...)")
        if home is not None and is_alive:
            return _run_elsewhere(home, coro(False))
        with self._turn:
            self._private = asyncio.new_event_loop()
            try:
                context = contextvars.copy_context()
                context.run(_OURS.set, self._private)
                return context.run(run_privately, self._private, coro(True))
            finally:
                self._private = None

    def _serves_caller(self, home: Loop) -> bool:
        return home is not self._private or _OURS.get() is home


async def drain(ends: Collection[Future], timeout: float, clock: Clock) -> set[Future]:
    """Wait until every future is done, for at most `timeout` seconds; return those that are not. Nothing is cancelled.

    Keeps: CORE-23, CORE-24, CORE-25.
    """
    left = {end for end in ends if not end.done()}
    if not left:
        return left
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if not over.done():
            over.set_result(None)

    def ended(end: Future) -> None:
        left.discard(end)
        if not left:
            finish()

    for end in tuple(left):
        end.add_done_callback(ended)
    timer = clock.call_later(timeout, finish)
    try:
        await over
    finally:
        timer.cancel()
        for end in left:
            end.remove_done_callback(ended)
    return left


def run_privately(loop: Loop, coro: Coroutine[Any, Any, Result]) -> Result:
    """Run `coro` on a fresh loop; what it leaves running is cancelled, and awaited in bounds, when the loop ends.

    The loop that is set for this thread, if any, stays the one that is set: it is the caller's.

    Keeps: CORE-24.
    """
    try:
        return loop.run_until_complete(coro)
    finally:
        try:
            loop.run_until_complete(_dismiss_everybody())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


@asynccontextmanager
async def farewell(deliveries: Collection[Future]) -> AsyncIterator[None]:
    """On leaving the block, cancel the `deliveries` that still run, and wait for their ends in bounds.

    A private loop uses it while its connections are still there: what is cancelled has a claim to give back. All other
    tasks are cancelled when the loop ends.

    Keeps: CORE-24.
    """
    try:
        yield
    finally:
        await _dismiss(set(deliveries))


async def _dismiss(tasks: Collection[Future]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=FAREWELL_SECONDS)
        await asyncio.sleep(0)  # One turn for what their ends have called for.


async def _dismiss_everybody() -> None:
    await _dismiss(asyncio.all_tasks() - {asyncio.current_task()})


def _run_elsewhere(loop: Loop, coro: Coroutine[Any, Any, Result]) -> Result:
    """Run `coro` on a loop that another thread runs, and look now and then whether it still does.

    Keeps: CORE-41.
    """
    future = asyncio.run_coroutine_threadsafe(coro, loop)
    while not future.done():
        try:
            return future.result(LOOP_CHECK_SECONDS)
        except concurrent.futures.CancelledError:
            break
        except concurrent.futures.TimeoutError:
            if not future.done() and not loop.is_running():
                future.cancel()
    if future.cancelled():
        raise SyncPublishError("the bus's event loop stopped before the publish was done")
    return future.result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
