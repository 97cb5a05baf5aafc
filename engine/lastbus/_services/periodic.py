"""Periodic: a service that does one round after another in a task of its own, between `start` and `stop`."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._model.numbers import check_positive_seconds
from lastbus._tasks import spawn

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger("lastbus.services")


class Periodic(ABC):
    """Does a round, sleeps `interval` seconds, and so on. Use it as `async with service:`, or start and stop it."""

    name: str
    begins_with_a_round = True
    """Whether the first round comes at once, or after the first interval."""

    def __init__(self, interval: float, clock: Clock | None) -> None:
        self._interval = check_positive_seconds("interval", interval)
        self._clock = SYSTEM_CLOCK if clock is None else clock
        self._loop: dict[asyncio.Task[Any], None] = {}
        self._is_failing = False

    @abstractmethod
    async def _round(self) -> object:
        """What there is to do, once."""

    @property
    def is_running(self) -> bool:
        """Whether it has been started and not been stopped."""
        return bool(self._loop)

    async def start(self) -> None:
        """Begin with the first round; harmless when called again."""
        if not self._loop:
            spawn(self._run(), name=f"lastbus {self.name}", owner=self._loop, label=None, on_done=self._forget)

    async def stop(self) -> None:
        """Cancel what is being done and return when it has ended, however long that takes; harmless when called again.

        Keeps: FLOW-11.
        """
        running = list(self._loop)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _run(self) -> None:
        """The next round is tried as if the last one had not failed. Of failures in a row the first is a WARNING.

        Keeps: FLOW-11.
        """
        if not self.begins_with_a_round:
            await self._clock.sleep(self._interval)
        while True:
            try:
                await self._round()
            except Exception:
                level = logging.DEBUG if self._is_failing else logging.WARNING
                logger.log(
                    level, "the %s failed; it is tried again every %g s", self.name, self._interval, exc_info=True
                )
                self._is_failing = True
            else:
                self._is_failing = False
            await self._clock.sleep(self._interval)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._loop.pop(task, None)
        if not task.cancelled():
            task.exception()
