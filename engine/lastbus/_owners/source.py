"""Source: something that runs beside a bus, and the one object that starts it, stops it and waits for its end.

Stopping has two cancellations to tell apart: the one that `on_stop` sends to its own task, and one that somebody sends
to the caller of `on_stop` meanwhile. Awaiting the task would raise `CancelledError` for both. So `on_stop` waits for
the task's *end* on a future of its own: the task's cancellation is then an outcome to look at, and a `CancelledError`
that is raised here can only be the caller's.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Any

from lastbus._tasks import spawn

logger = logging.getLogger("lastbus.owners")


class Source(ABC):
    """Override `run`; call `on_start` and `on_stop`, or use it as `async with source:`.

    Keeps: CAP-18, CAP-19.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = type(self).__name__ if name is None else name
        self._task: asyncio.Task[Any] | None = None
        self._owned: dict[asyncio.Task[Any], None] = {}

    @abstractmethod
    async def run(self) -> None:
        """The work; it ends by returning, or with its cancellation."""

    @property
    def is_running(self) -> bool:
        """Whether the task has been started and has not ended."""
        return self._task is not None and not self._task.done()

    async def on_start(self) -> None:
        """Start the task; while one is running this starts nothing.

        Keeps: CAP-19.
        """
        if not self.is_running:
            name = f"lastbus source {self.name}"
            self._task = spawn(self.run(), name=name, owner=self._owned, label=None, on_done=self._on_ended)

    async def on_stop(self) -> None:
        """Cancel the task and return when it has ended; harmless before the start and when called again.

        If the caller is cancelled while it waits, `CancelledError` is raised here; the task has been told to stop.

        Keeps: CAP-18, CAP-19, CAP-20.
        """
        task, self._task = self._task, None
        if task is None:
            return
        if not task.done():
            task.cancel()
        await ended(task)

    def _on_ended(self, task: asyncio.Task[Any]) -> None:
        del self._owned[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("source %s ended with an error", self.name, exc_info=error)

    async def __aenter__(self) -> Source:
        await self.on_start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.on_stop()


async def ended(task: asyncio.Task[Any]) -> None:
    """Return when `task` has ended, however it ended; leave it alone if the caller is cancelled meanwhile.

    Keeps: CAP-20.
    """
    if task.done():
        return
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(_: asyncio.Task[Any]) -> None:
        if not over.done():
            over.set_result(None)

    task.add_done_callback(tell)
    await over
