"""Claims: the right to handle one event with one handler, held while the handler runs and renewed where it lapses.

A store that several processes share lets a claim lapse, so that a process that died does not keep an event from being
handled. While claims are held on such a store, one renewer per bus refreshes them at a third of their life.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Any

from lastbus._clock import Clock
from lastbus._dispatch.registry import Registration
from lastbus._model.event import Event
from lastbus._ports.tracker import EventProcessingTracker
from lastbus._tasks import spawn

logger = logging.getLogger("lastbus.dispatch")

Claim = tuple[str, str, str]
"""The event's id and the handler's, and the token that proves whose claim it is."""


class ClaimWatcher:
    """Is told of claims that did not go the usual way; this one lets it rest there."""

    def refused(self, event: Event, registration: Registration) -> None:
        """Somebody else has handled the pair, or holds it."""

    def untaken(self, event: Event, registration: Registration) -> None:
        """The store could not be asked for the claim: the handler has not run."""

    def unended(self, claim: Claim, succeeded: bool) -> None:
        """The store could not be told that the claim's handler has come to its end."""


class Claims:
    """The claims that one bus holds now."""

    def __init__(self, tracker: EventProcessingTracker, clock: Clock, instance_id: str) -> None:
        self._tracker = tracker
        self._clock = clock
        self._instance_id = instance_id
        self._serial = itertools.count()
        self._drawn: set[Claim] = set()
        self._held: set[Claim] = set()
        self._renewer: dict[asyncio.Task[Any], None] = {}
        self.watcher = ClaimWatcher()

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """(event id, handler id) of every delivery that has begun and not ended, whatever the store says of it."""
        return {(event_id, handler_id) for event_id, handler_id, _ in self._drawn}

    def is_ours(self, owner: str) -> bool:
        """Whether this bus has drawn the token."""
        return owner.startswith(f"{self._instance_id}-")

    def draw(self, event_id: str, handler_id: str) -> Claim:
        """A claim to ask the tracker for, and to settle at the end: nobody else has its token.

        Keeps: CORE-16.
        """
        claim = (event_id, handler_id, f"{self._instance_id}-{next(self._serial)}")
        self._drawn.add(claim)
        return claim

    def settle(self, claim: Claim) -> None:
        """The delivery has ended."""
        self._drawn.discard(claim)

    def hold(self, claim: Claim) -> None:
        """The tracker has granted the claim: it is renewed three times in its life until `drop`, where claims lapse.

        Keeps: CORE-40.
        """
        ttl = self._tracker.claim_ttl
        if ttl is None:
            return
        self._held.add(claim)
        if not self._renewer:
            spawn(
                self._renew(ttl / 3),
                name="lastbus claim renewer",
                owner=self._renewer,
                label=None,
                on_done=self._renewer.pop,
            )

    def drop(self, claim: Claim) -> None:
        """The claim is about to end.

        Keeps: CORE-40.
        """
        self._held.discard(claim)

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
