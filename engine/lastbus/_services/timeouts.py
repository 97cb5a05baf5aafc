"""Time-outs: an execution whose event does not come in time is told so."""

from __future__ import annotations

import logging
from typing import Final

from lastbus._clock import Clock
from lastbus._model.subscription import EventSubscription
from lastbus._model.task import timeout_task
from lastbus._ports.storage import EventSubscriptionStorage
from lastbus._services.periodic import Periodic
from lastbus._services.resumptions import Resumptions

logger = logging.getLogger("lastbus.services")

TIMEOUT: Final = "timeout"
"""What answers a subscription that no event has answered."""


class SubscriptionTimeoutChecker(Periodic):
    """Every `interval` seconds, queues the resumption of each execution whose subscription has run out of time.

    Each look reads all subscriptions.
    """

    name = "subscription time-out checker"

    def __init__(
        self,
        subscription_storage: EventSubscriptionStorage,
        resumptions: Resumptions,
        *,
        interval: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(interval, clock)
        self._storage = subscription_storage
        self._resumptions = resumptions

    async def _round(self) -> int:
        return await self.check_once()

    async def check_once(self) -> int:
        """Queue what has run out of time and was not queued before; return how many that are.

        One that fails is named in a WARNING, stops no other, and is tried again by the next look.

        Keeps: FLOW-16.
        """
        now = self._clock.time()
        queued = 0
        for subscription in await self._storage.list_subscriptions():
            task = timeout_task(subscription) if _is_over(subscription, now) else None
            if task is None:
                continue
            try:
                queued += await self._resumptions.queue_once((task.subscription_id, TIMEOUT), task)
            except Exception:
                shown = subscription.subscription_id
                logger.warning("the time-out of subscription %s could not be queued", shown, exc_info=True)
        return queued


def _is_over(subscription: EventSubscription, now: float) -> bool:
    """Keeps: FLOW-16."""
    return subscription.timeout is not None and subscription.created_at + subscription.timeout <= now
