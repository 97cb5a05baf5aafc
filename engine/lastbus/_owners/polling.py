"""Polling source: asks several targets round by round, and lets none of them stop the others."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._model.numbers import check_seconds
from lastbus._owners.source import Source

logger = logging.getLogger("lastbus.owners")

Target = TypeVar("Target")


class PollingSource(Source, Generic[Target]):
    """Override `poll`; every target is polled once per round, with `interval` seconds between two rounds.

    `targets` is read anew in each round, so a collection that you keep may grow and shrink. Time is the `clock`'s.
    """

    def __init__(
        self, targets: Iterable[Target], interval: float, *, clock: Clock | None = None, name: str | None = None
    ) -> None:
        super().__init__(name)
        self.targets = targets
        self.interval = check_seconds("interval", interval)
        self._clock = SYSTEM_CLOCK if clock is None else clock

    @abstractmethod
    async def poll(self, target: Target) -> None:
        """Ask one target. What it raises is logged with the target, and the next round asks again."""

    async def run(self) -> None:
        """Rounds without end; the cancellation ends them.

        Keeps: CAP-21.
        """
        while True:
            for target in tuple(self.targets):
                try:
                    await self.poll(target)
                except Exception:  # A target is somebody else's: its failure must not cost the others their turn.
                    logger.warning("source %s could not poll %r", self.name, target, exc_info=True)
            await self._clock.sleep(self.interval)
