"""Resumptions: a task for the queue, once for each pair of what happened and the subscription that it answers.

The pair is claimed, the task is queued, and then the pair is marked. A process that dies between claim and mark leaves
a claim that lapses, so that whoever looks again queues the task, perhaps for the second time: the worker knows an
execution that has gone on already. So a crash may cost a look, and never costs the resumption.
"""

from __future__ import annotations

import itertools
import logging
from uuid import uuid4

from lastbus._errors import EventError
from lastbus._model.task import FlowTask
from lastbus._ports.queue import TaskQueue
from lastbus._ports.tracker import EventProcessingTracker

logger = logging.getLogger("lastbus.services")


class Resumptions:
    """Queues the resumptions of one process."""

    def __init__(self, queue: TaskQueue, tracker: EventProcessingTracker) -> None:
        self._queue = queue
        self._tracker = tracker
        self._instance_id = str(uuid4())
        self._serial = itertools.count()

    async def queue_once(self, pair: tuple[str, str], task: FlowTask) -> bool:
        """Queue `task`, which `pair` alone asks for, unless that was done before: then False.

        `EventError` if another process has it in its hands: nobody knows yet whether it will succeed. If this raises,
        the pair is free again, or will be when the claim has lapsed.

        Keeps: FLOW-12, FLOW-13.
        """
        owner = f"{self._instance_id}-{next(self._serial)}"
        if not await self._tracker.claim_event(*pair, owner):
            if await self._tracker.is_event_processed(*pair):
                return False
            raise EventError(f"the resumption that {pair} asks for is in other hands")
        try:
            await self._queue.enqueue(task)
        except BaseException:
            await self._give_back(pair, owner)
            raise
        await self._tracker.mark_event_processed(*pair, owner)
        return True

    async def _give_back(self, pair: tuple[str, str], owner: str) -> None:
        """Keeps: FLOW-13."""
        try:
            await self._tracker.release_claim(*pair, owner)
        except Exception:
            logger.warning("the claim of %s could not be given back; it has to lapse", pair, exc_info=True)
