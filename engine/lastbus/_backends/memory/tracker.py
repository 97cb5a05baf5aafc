"""Processing tracker in memory: claims never lapse, because whoever holds one dies with the store."""

from __future__ import annotations

from collections import OrderedDict

from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._model.names import check_name
from lastbus._model.numbers import check_seconds
from lastbus._ports.lifetime import lifetime
from lastbus._ports.tracker import Attempt, EventProcessingTracker

_Line = tuple[str, str, str | None, float]
"""Handler id, status, error, timestamp."""


class _Record:
    """What is known of one event: for each handler its claim's owner, or None once it is marked; and the attempts."""

    __slots__ = ("attempts", "handlers", "updated_at")

    def __init__(self, now: float) -> None:
        self.updated_at = now
        self.handlers: dict[str, str | None] = {}
        self.attempts: list[_Line] | None = None

    def add(self, handler_id: str, status: str, error: str | None) -> None:
        """Append a line, of the time of the last news."""
        if self.attempts is None:
            self.attempts = []
        self.attempts.append((handler_id, status, error, self.updated_at))


class InMemoryProcessingTracker(EventProcessingTracker):
    """Keeps what it knows of an event for `ttl` seconds after the last news of it (None: as long as events live)."""

    def __init__(self, ttl: float | None = None, clock: Clock | None = None) -> None:
        self._ttl = lifetime(ttl)
        self._clock = SYSTEM_CLOCK if clock is None else clock
        self._records: OrderedDict[str, _Record] = OrderedDict()

    async def claim_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        """False if the pair is marked or claimed.

        Keeps: CORE-14, CORE-16.
        """
        record = self._touch(event_id)
        if handler_id in record.handlers:
            return False
        record.handlers[handler_id] = owner
        return True

    async def renew_claim(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Whether the claim is `owner`'s; it needs no renewal here."""
        record = self._records.get(event_id)
        return record is not None and record.handlers.get(handler_id) == owner

    async def release_claim(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Give the pair back if the claim is `owner`'s."""
        if not await self.renew_claim(event_id, handler_id, owner):
            return False
        del self._records[event_id].handlers[handler_id]
        return True

    async def mark_event_processed(self, event_id: str, handler_id: str, owner: str | None = None) -> bool:
        """True the first time.

        Keeps: CORE-14, CORE-16.
        """
        record = self._touch(event_id)
        holder = record.handlers.get(handler_id, "")
        if holder is None or (owner is not None and holder not in ("", owner)):
            return False
        record.handlers[handler_id] = None
        return True

    async def finish_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Mark the pair and append a line, with nothing in between.

        Keeps: CORE-14, CORE-40, CORE-50.
        """
        marked = await self.mark_event_processed(event_id, handler_id, owner)
        self._touch(event_id).add(handler_id, "success", None)
        return marked

    async def is_event_processed(self, event_id: str, handler_id: str) -> bool:
        """Whether the pair is marked."""
        record = self._records.get(check_name("event_id", event_id))
        return record is not None and record.handlers.get(check_name("handler_id", handler_id), "") is None

    async def record_processing_attempt(
        self, event_id: str, handler_id: str, status: str, error: str | None = None
    ) -> None:
        """Append one line."""
        self._touch(event_id).add(handler_id, status, error)

    async def get_processing_history(self, event_id: str) -> list[Attempt]:
        """The event's lines, oldest first."""
        record = self._records.get(check_name("event_id", event_id))
        lines = () if record is None else record.attempts or ()
        return [
            Attempt(event_id=event_id, handler_id=handler_id, status=status, error=error, timestamp=timestamp)
            for handler_id, status, error, timestamp in lines
        ]

    async def cleanup_old_records(self, max_age_seconds: float = 86400) -> int:
        """Forget events without news for more than `max_age_seconds`."""
        return self._forget_until(self._clock.time() - check_seconds("max_age_seconds", max_age_seconds))

    def _touch(self, event_id: str) -> _Record:
        """The event's record, with news of now; a new one first makes room of those whose time is over.

        Keeps: MEM-11.
        """
        now = self._clock.time()
        record = self._records.get(event_id)
        if record is None:
            self._forget_until(now - self._ttl)
            record = self._records[event_id] = _Record(now)
        else:
            self._records.move_to_end(event_id)
            record.updated_at = now
        return record

    def _forget_until(self, time: float) -> int:
        """Records without news since before `time`; those with a claim are in use and stay."""
        forgotten = 0
        for event_id in self._stale(time):
            if not any(self._records[event_id].handlers.values()):
                del self._records[event_id]
                forgotten += 1
        return forgotten

    def _stale(self, time: float) -> list[str]:
        stale = []
        for event_id, record in self._records.items():
            if record.updated_at >= time:
                break
            stale.append(event_id)
        return stale
