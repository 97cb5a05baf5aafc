"""Processing tracker in Redis: claims that lapse, marks, and a bounded history, each judged and written in one step.

Handlers are fields of one hash per event, so that no two ids ever share a key; any text can name a handler. "Now" is
the caller's clock, sent along, so that all that compares times compares those of one clock.
"""

from __future__ import annotations

import json
from typing import Final, cast
from uuid import uuid4

from redis.asyncio import Redis

from lastbus._backends.redis.connection import RedisBacked, RedisConnection
from lastbus._backends.redis.keys import TRACKER_PREFIX, TrackerKeys, check_prefix
from lastbus._backends.redis.lifetime import lifetime_ms
from lastbus._backends.redis.scripts import CLAIM, FINISH, FORGET, MARK, RECORD, RELEASE, RENEW
from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._model.names import check_name
from lastbus._model.numbers import check_positive_seconds, check_seconds
from lastbus._ports.tracker import Attempt, EventProcessingTracker

CLAIM_SECONDS: Final = 60.0
ATTEMPTS_MAX: Final = 1000
"""How many attempts the history of one event keeps, the newest ones."""


class RedisProcessingTracker(RedisBacked, EventProcessingTracker):
    """Keeps marks and history for `ttl` seconds (default: `PLAITA_EVENT_TTL_SECONDS`), claims for `claim_ttl`.

    Every method raises `EventStorageError` when the server fails. `connection` shares the connection of another store;
    `client` is a redis-py asyncio client of yours, which `aclose` closes.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        key_prefix: str = TRACKER_PREFIX,
        ttl: float | None = None,
        claim_ttl: float = CLAIM_SECONDS,
        client: Redis | None = None,
        clock: Clock | None = None,
        *,
        connection: RedisConnection | None = None,
    ) -> None:
        super().__init__(redis_url, client, connection)
        self._keys: Final = TrackerKeys(check_prefix("key_prefix", key_prefix))
        self._ttl_ms: Final = lifetime_ms(ttl)
        self._clock: Final = SYSTEM_CLOCK if clock is None else clock
        self.claim_ttl: float = check_positive_seconds("claim_ttl", claim_ttl)

    async def claim_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Take the pair for `owner`, in one step: False if it is processed, or claimed by a claim that stands.

        A claim that the driver sends again, because the reply to the first was lost, is the same claim.

        Keeps: REDIS-10.
        """
        keys = [self._keys.marks(event_id), self._keys.claims(event_id)]
        now = self._clock.time()
        claim = (owner, repr(now), repr(now + self.claim_ttl), uuid4().hex)
        return bool(await self._connection.run(CLAIM, keys, handler_id, *claim, self._ttl_ms))

    async def renew_claim(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Let the claim stand for another `claim_ttl` from now; False if it is not `owner`'s any more."""
        lapses = repr(self._clock.time() + self.claim_ttl)
        keys = [self._keys.claims(event_id)]
        return bool(await self._connection.run(RENEW, keys, handler_id, owner, lapses, self._ttl_ms))

    async def release_claim(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Give the pair back; False, and no effect, if the claim is not `owner`'s any more."""
        return bool(await self._connection.run(RELEASE, [self._keys.claims(event_id)], handler_id, owner))

    async def mark_event_processed(self, event_id: str, handler_id: str, owner: str | None = None) -> bool:
        """Record that the handler succeeded, and end `owner`'s claim: True the first time, False again.

        With an `owner` whose claim was lost to another owner: False, and nothing is recorded.

        Keeps: REDIS-10.
        """
        keys = [self._keys.marks(event_id), self._keys.claims(event_id)]
        # The mark is this call's own, so that the server recognises the call when the driver sends it again.
        mark = f"{self._clock.time()!r} {uuid4().hex}"
        owners = () if owner is None else (owner,)
        return bool(await self._connection.run(MARK, keys, handler_id, mark, self._ttl_ms, *owners))

    async def finish_event(self, event_id: str, handler_id: str, owner: str) -> bool:
        """Mark the pair and append `success` to the history, in one round trip and one step.

        False if the claim was lost to another owner; the line is appended all the same.

        Keeps: REDIS-10, REDIS-16.
        """
        keys = [self._keys.marks(event_id), self._keys.claims(event_id), self._keys.attempts(event_id)]
        now = self._clock.time()
        mark = f"{now!r} {uuid4().hex}"
        line = _line(Attempt(event_id=event_id, handler_id=handler_id, status="success", error=None, timestamp=now))
        arguments = (handler_id, mark, self._ttl_ms, owner, line, ATTEMPTS_MAX)
        return bool(await self._connection.run(FINISH, keys, *arguments))

    async def is_event_processed(self, event_id: str, handler_id: str) -> bool:
        """Whether the pair is marked."""
        check_name("event_id", event_id)
        check_name("handler_id", handler_id)
        return bool(await self._connection.command("HEXISTS", self._keys.marks(event_id), handler_id))

    async def record_processing_attempt(
        self, event_id: str, handler_id: str, status: str, error: str | None = None
    ) -> None:
        """Append one line to the event's history, which keeps the newest `ATTEMPTS_MAX`."""
        now = self._clock.time()
        line = _line(Attempt(event_id=event_id, handler_id=handler_id, status=status, error=error, timestamp=now))
        await self._connection.run(RECORD, [self._keys.attempts(event_id)], line, ATTEMPTS_MAX, self._ttl_ms)

    async def get_processing_history(self, event_id: str) -> list[Attempt]:
        """The event's attempts in the order of their recording; unknown id: empty."""
        check_name("event_id", event_id)
        lines = await self._connection.command("LRANGE", self._keys.attempts(event_id), 0, -1)
        return [_attempt(line) for line in lines]

    async def cleanup_old_records(self, max_age_seconds: float = 86400) -> int:
        """Forget marks and history older than `max_age_seconds`; return how many events lost records."""
        before = repr(self._clock.time() - check_seconds("max_age_seconds", max_age_seconds))
        marked = await self._connection.scan(self._keys.all_marks)
        tried = await self._connection.scan(self._keys.all_attempts)
        forgotten = [await self._forget(event_id.decode(errors="replace"), before) for event_id in marked | tried]
        return sum(map(bool, forgotten))

    async def _forget(self, event_id: str, before: str) -> int:
        keys = [self._keys.marks(event_id), self._keys.attempts(event_id)]
        return int(await self._connection.run(FORGET, keys, before))


def _line(attempt: Attempt) -> str:
    """An attempt as it is stored: its time, one space, and its JSON."""
    return f"{attempt['timestamp']!r} {json.dumps(attempt)}"


def _attempt(line: bytes) -> Attempt:
    _, _, text = line.partition(b" ")
    return cast(Attempt, json.loads(text))
