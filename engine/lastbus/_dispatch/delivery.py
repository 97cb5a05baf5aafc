"""Delivery: one event to one handler, at most once successfully: claim, run, mark, record.

The order is the guarantee. The claim is taken in one step before the handler runs, so two deliveries of the same pair
cannot both run it; the mark follows the handler's success, so a crash in between costs a second run, never the event.
"""

from __future__ import annotations

import logging

from lastbus._dispatch.attempts import Attempts
from lastbus._dispatch.claims import Claim, Claims
from lastbus._dispatch.registry import Registration
from lastbus._model.event import Event
from lastbus._ports.tracker import EventProcessingTracker

logger = logging.getLogger("lastbus.dispatch")


class Delivery:
    """Delivers for one bus."""

    def __init__(self, tracker: EventProcessingTracker, claims: Claims, attempts: Attempts) -> None:
        self._tracker = tracker
        self._claims = claims
        self._attempts = attempts

    async def deliver(self, event: Event, registration: Registration, deduplicate: bool) -> None:
        """Run the handler on the event unless the pair is done or in somebody's hands. Failures are logged, not raised.

        The mark follows the success, and nothing else; whatever else happened, the claim is given back. With
        `deduplicate` off the handler simply runs, and leaves no mark.

        Keeps: CORE-14, CORE-15, CORE-16, CORE-50, DISP-11, DISP-12, REDIS-20, FAULT-05.
        """
        if not deduplicate:
            if await self._attempts.run(event, registration) is None:
                await self._attempts.record(event, registration, "success", None)
            return
        claim = self._claims.draw(event.event_id, registration.handler_id)
        try:
            await self._deliver_once(claim, event, registration)
        finally:
            self._claims.settle(claim)

    async def _deliver_once(self, claim: Claim, event: Event, registration: Registration) -> None:
        try:
            if not await self._tracker.claim_event(*claim):
                self._claims.watcher.refused(event, registration)
                return
        except Exception:
            logger.exception("event %s was not handed to handler %s: its claim could not be taken", *claim[:2])
            self._claims.watcher.untaken(event, registration)
            return
        succeeded = False
        try:
            self._claims.hold(claim)
            succeeded = await self._attempts.run(event, registration) is None
        finally:
            self._claims.drop(claim)
            await self._end(claim, succeeded)

    async def _end(self, claim: Claim, succeeded: bool) -> None:
        """Mark the pair, or give it back; a store that refuses costs a second run at most.

        It is stored whether or not the bus has closed meanwhile, even if that connects its store again.

        Keeps: CORE-14, CORE-16, CORE-40, CORE-50, DISP-10, DISP-11, REDIS-20, FAULT-05.
        """
        try:
            if not succeeded:
                await self._tracker.release_claim(*claim)
            elif not await self._tracker.finish_event(*claim):
                logger.warning(
                    "event %s in handler %s was handled, but its claim had lapsed to another owner; it may run twice",
                    *claim[:2],
                )
        except Exception:
            logger.exception("event %s in handler %s: its end could not be stored; it may run again", *claim[:2])
            self._claims.watcher.unended(claim, succeeded)
