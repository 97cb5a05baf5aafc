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

logger = logging.getLogger("lastbus.dispatch")


class Delivery:
    """Delivers for one bus."""

    def __init__(self, claims: Claims, attempts: Attempts) -> None:
        self._claims = claims
        self._attempts = attempts

    async def deliver(self, event: Event, registration: Registration, deduplicate: bool) -> None:
        """Run the handler on the event unless the pair is done or in somebody's hands. Failures are logged, not raised.

        The mark follows the success, and nothing else; whatever else happened, the claim is given back. With
        `deduplicate` off the handler simply runs, and leaves no mark.

        Keeps: CORE-14, CORE-15, CORE-16, CORE-50.
        """
        claim = None
        if deduplicate:
            claim = await self._take(event, registration)
            if claim is None:
                return
        succeeded = False
        try:
            succeeded = await self._attempts.run(event, registration) is None
        finally:
            if claim is not None:
                await self._end(claim, succeeded)
        if succeeded:
            await self._attempts.record(event, registration, "success", None)

    async def _take(self, event: Event, registration: Registration) -> Claim | None:
        try:
            return await self._claims.take(event.event_id, registration.handler_id)
        except Exception:
            logger.exception(
                "event %s was not handed to handler %s: its claim could not be taken",
                event.event_id,
                registration.handler_id,
            )
            return None

    async def _end(self, claim: Claim, succeeded: bool) -> None:
        try:
            if succeeded:
                await self._claims.mark(claim)
            else:
                await self._claims.give_back(claim)
        except Exception:
            logger.exception(
                "event %s in handler %s: its end could not be stored; it may run again",
                claim.event_id,
                claim.handler_id,
            )
