"""Tracker port: who may handle which event now, who has handled it, and what happened on the way.

A delivery first *claims* the pair (event id, handler id) in one step, runs the handler, and then either *marks* the
pair as processed or *releases* the claim. On a store that several processes share, a claim lapses after `claim_ttl`
seconds unless its owner renews it: a process that dies between claim and mark costs a redelivery, never the event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypedDict


class Attempt(TypedDict):
    """One line of an event's history. `status` is `success`, `error` (one call failed) or `failed` (given up)."""

    event_id: str
    handler_id: str
    status: str
    error: str | None
    timestamp: float


class EventProcessingTracker(ABC):
    """Remembers claims, marks and attempts, each per (event id, handler id)."""

    claim_ttl: float | None = None
    """Seconds after which an unrenewed claim lapses; None: a claim of this store never lapses."""

    @abstractmethod
    async def claim_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Take the pair for `owner`, in one step: False if it is processed, or claimed by a claim that stands."""

    @abstractmethod
    async def renew_claim(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Let the claim stand for another `claim_ttl`; False if it is not `owner`'s any more."""

    @abstractmethod
    async def release_claim(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Give the pair back; False, and no effect, if the claim is not `owner`'s any more."""

    @abstractmethod
    async def mark_event_processed(self, event_id: str, handler_id: str, owner: str | None = None) -> bool:
        """Record that the handler succeeded, and end `owner`'s claim: True the first time, False again.

        With an `owner` whose claim was lost to another owner: False, and nothing is recorded.
        """

    async def finish_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Mark the pair and append `success` to the event's history; override it to do both in one step.

        False if the claim was lost to another owner; the handler has succeeded all the same, and history says so.
        """
        marked = await self.mark_event_processed(event_id, handler_id, owner)
        await self.record_processing_attempt(event_id, handler_id, "success")
        return marked

    @abstractmethod
    async def is_event_processed(self, event_id: str, handler_id: str) -> bool:
        """Whether the pair is marked."""

    @abstractmethod
    async def record_processing_attempt(
        self, event_id: str, handler_id: str, status: str, error: str | None = None
    ) -> None:
        """Append one line to the event's history."""

    @abstractmethod
    async def get_processing_history(self, event_id: str) -> list[Attempt]:
        """The event's attempts in the order of their recording; unknown id: empty."""

    async def aclose(self) -> None:
        """Let go of connections; harmless when called again. Closing does not forget anything."""

    @abstractmethod
    async def cleanup_old_records(self, max_age_seconds: float = 86400) -> int:
        """Forget marks and history older than `max_age_seconds`; return how many events lost records."""
