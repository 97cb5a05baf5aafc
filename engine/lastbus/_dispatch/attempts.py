"""Attempts: call a handler, again if its policy says so, and say how it ended. Its failure is data, never raised."""

from __future__ import annotations

import asyncio
import inspect
import logging

from lastbus._clock import Clock
from lastbus._dispatch.pool import HandlerPool
from lastbus._dispatch.registry import Registration
from lastbus._model.event import Event
from lastbus._ports.tracker import EventProcessingTracker

logger = logging.getLogger("lastbus.dispatch")


class Attempts:
    """Runs handlers for one bus."""

    def __init__(self, tracker: EventProcessingTracker, clock: Clock, pool: HandlerPool) -> None:
        self._tracker = tracker
        self._clock = clock
        self._pool = pool

    async def run(self, event: Event, registration: Registration) -> BaseException | None:
        """Call the handler up to 1 + `max_retries` times; return None, or the last error after logging it once.

        Without a policy there is one call. Only an `Exception` is retried. Cancellation, `KeyboardInterrupt` and
        `SystemExit` pass through.

        Keeps: CORE-20, CORE-21, CORE-46, CORE-50, CAP-02, CAP-04, MEM-08.
        """
        policy = registration.retry_policy
        retries = 0 if policy is None else policy.max_retries
        for retry in range(retries + 1):
            try:
                if registration.is_async:
                    await registration.handler(event)
                else:
                    await self._call_in_thread(event, registration)
                return None
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as raised:  # A handler is user code: its failure is data, not ours.
                error = raised
            await self.record(event, registration, "error", error)
            if retry == retries or not isinstance(error, Exception):
                break
            assert policy is not None
            await self._clock.sleep(policy.delay(retry))
        if policy is not None:
            await self.record(event, registration, "failed", error)
        logger.error(
            "handler %s failed on event %s (%s)",
            registration.handler_id,
            event.event_id,
            event.event_type,
            exc_info=error,
        )
        return error

    async def _call_in_thread(self, event: Event, registration: Registration) -> None:
        """Call a plain function in the pool; what it returns is awaited if it can be.

        Keeps: CORE-11, CORE-51.
        """
        result = await self._pool.run(registration.handler, event)
        if inspect.isawaitable(result):
            await result

    async def record(self, event: Event, registration: Registration, status: str, error: BaseException | None) -> None:
        """Append to the event's history; a store that refuses costs a WARNING, not the delivery.

        Keeps: CORE-50.
        """
        text = None if error is None else f"{type(error).__name__}: {error}"
        try:
            await self._tracker.record_processing_attempt(event.event_id, registration.handler_id, status, text)
        except Exception:
            logger.warning("attempt %s of event %s was not recorded", status, event.event_id, exc_info=True)
