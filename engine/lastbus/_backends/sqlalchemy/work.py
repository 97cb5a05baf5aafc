"""Work: what is done on one connection runs in a task of its own, so that a cancellation hits only what can bear it.

A driver that is cancelled while it connects may lose the connection that it is about to get: aiosqlite opens it in a
thread, and then nobody closes it. The same goes for giving a connection back, and a COMMIT that was cancelled might
still be on its way. So a caller's cancellation reaches the statements and nothing else: before them they are left
out, after them the rest is done. The caller waits for the end in bounds, and what it was doing has then happened or
not. Work that is not done by then is cancelled wherever it is, and is waited for again by whoever closes.

Keeps: SQL-06.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from lastbus._tasks import spawn

logger = logging.getLogger("lastbus.sqlalchemy")

LEAVE_SECONDS: Final = 5.0
"""How long a cancelled caller, or a close, waits for work to end. More than a driver needs to hang up by itself."""

Result = TypeVar("Result")


class _Job:
    """One piece of work, which knows whether it can bear a cancellation just now."""

    def __init__(self) -> None:
        self._executing: asyncio.Task[Any] | None = None
        self._is_refused = False

    async def run(self, engine: AsyncEngine, statements: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        """Connect, run `statements` within one transaction, and give the connection back."""
        pool = engine.pool
        connection = await engine.connect().start()
        try:
            async with connection.begin():
                if self._is_refused:
                    raise asyncio.CancelledError
                self._executing = asyncio.current_task()
                try:
                    return await statements(connection)
                finally:
                    self._executing = None
        finally:
            if engine.pool is not pool:  # The engine was disposed meanwhile: there is nothing to go back to.
                await connection.invalidate()
            await connection.close()

    def refuse(self) -> None:
        """Nobody wants the result any more: leave out the statements, or cancel the one that runs."""
        self._is_refused = True
        if self._executing is not None:
            self._executing.cancel()


class Workshop:
    """Owns the work of one database until it ends."""

    def __init__(self) -> None:
        self._running: Final[dict[asyncio.Task[Any], str]] = {}

    async def run(
        self, verb: str, engine: AsyncEngine, statements: Callable[[AsyncConnection], Awaitable[Result]]
    ) -> Result:
        """What `statements` returns, given a connection within one transaction that ends with it.

        Keeps: SQL-06.
        """
        job = _Job()
        return await self._watch(verb, job.run(engine, statements), job.refuse)

    async def finish(self, verb: str, ending: Coroutine[Any, Any, Result]) -> Result:
        """What `ending` returns. It is not cancelled with its caller, who waits for it in bounds."""
        return await self._watch(verb, ending, lambda: None)

    async def settle(self) -> None:
        """Wait, in bounds, for the work of this loop; what still stands after that is named in a WARNING.

        Keeps: SQL-05.
        """
        loop = asyncio.get_running_loop()
        ours = {task for task in self._running if task.get_loop() is loop}
        if ours:
            await asyncio.wait(ours, timeout=LEAVE_SECONDS)
        for task in ours:
            if not task.done():
                logger.warning("%s() is still at work on a database that is being closed", self._running[task])

    async def _watch(self, verb: str, work: Coroutine[Any, Any, Result], refuse: Callable[[], None]) -> Result:
        task: asyncio.Task[Result] = spawn(
            work, name=f"lastbus sql {verb}", owner=self._running, label=verb, on_done=self._let_go
        )
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            refuse()
            await _outlast(task)
            raise
        try:
            return task.result()
        finally:
            del task

    def _let_go(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled():
            task.exception()  # A caller that was cancelled does not ask for it.


async def _outlast(task: asyncio.Task[Any]) -> None:
    """Return when `task` is done, or has been cancelled after `LEAVE_SECONDS`. Who is leaving already just waits on."""
    loop = asyncio.get_running_loop()
    until = loop.time() + LEAVE_SECONDS
    while not task.done() and (left := until - loop.time()) > 0:
        with contextlib.suppress(asyncio.CancelledError):  # The caller raises one all the same, as soon as it may.
            await asyncio.wait({task}, timeout=left)
    if not task.done():
        task.cancel()
