"""Claims: the right to handle one event with one handler, held while the handler runs and renewed where it lapses.

A store that several processes share lets a claim lapse, so that a process that died does not keep an event from being
handled. While claims are held on such a store, one renewer per bus refreshes them at a third of their life.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Any, NamedTuple

from lastbus._clock import Clock
from lastbus._ports.tracker import EventProcessingTracker
from lastbus._tasks import spawn

logger = logging.getLogger("lastbus.dispatch")


class Claim(NamedTuple):
    """The pair that is claimed, and the token that proves whose claim it is."""

    event_id: str
    handler_id: str
    owner: str


class Claims:
    """The claims that one bus holds now."""

    def __init__(self, tracker: EventProcessingTracker, clock: Clock, instance_id: str) -> None:
        self._tracker = tracker
        self._clock = clock
        self._instance_id = instance_id
        self._serial = itertools.count()
        self._held: set[Claim] = set()
        self._renewer: dict[asyncio.Task[Any], None] = {}

    async def take(self, event_id: str, handler_id: str) -> Claim | None:
        """Claim the pair in one step; None if it is processed or somebody else's.

        Keeps: CORE-14, CORE-16.
        """
        claim = Claim(event_id, handler_id, f"{self._instance_id}-{next(self._serial)}")
        if not await self._tracker.claim_event(*claim):
            return None
        if self._tracker.claim_ttl is not None:
            self._hold(claim, self._tracker.claim_ttl)
        return claim

    async def mark(self, claim: Claim) -> None:
        """The handler succeeded: the pair is processed, and the claim ends.

        Keeps: CORE-14, CORE-16, CORE-40.
        """
        self._held.discard(claim)
        if not await self._tracker.mark_event_processed(claim.event_id, claim.handler_id, claim.owner):
            logger.warning(
                "event %s in handler %s was handled, but its claim had lapsed to another owner; it may run twice",
                claim.event_id,
                claim.handler_id,
            )

    async def give_back(self, claim: Claim) -> None:
        """The handler failed or was stopped: somebody may try again.

        Keeps: CORE-14.
        """
        self._held.discard(claim)
        await self._tracker.release_claim(*claim)

    def _hold(self, claim: Claim, ttl: float) -> None:
        """Have the claim renewed three times in its life.

        Keeps: CORE-40.
        """
        self._held.add(claim)
        if not self._renewer:
            spawn(
                self._renew(ttl / 3),
                name="lastbus claim renewer",
                owner=self._renewer,
                label=None,
                on_done=self._renewer.pop,
            )

    async def _renew(self, period: float) -> None:
        """Keeps every held claim alive; ends with the last of them.

        Keeps: CORE-40.
        """
        while self._held:
            await self._clock.sleep(period)
            for claim in tuple(self._held):
                try:
                    await self._tracker.renew_claim(*claim)
                except Exception:
                    logger.warning("the claim of %s could not be renewed", claim, exc_info=True)

    def renewers(self) -> list[asyncio.Task[Any]]:
        """The renewer, if it runs: it stops with the bus's listeners."""
        return list(self._renewer)
