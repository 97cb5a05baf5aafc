"""Execution storage in Redis: one hash for each execution, with its state and how often it was stored."""

from __future__ import annotations

from typing import Final

from redis.asyncio import Redis

from lastbus._backends.redis.connection import RedisBacked, RedisConnection
from lastbus._backends.redis.keys import check_prefix
from lastbus._backends.redis.lifetime import lifetime_ms
from lastbus._backends.redis.scripts import Script
from lastbus._model.execution import ExecutionState
from lastbus._model.names import check_name
from lastbus._ports.executions import ExecutionStorage

EXECUTION_PREFIX: Final = "plaita:execution:"

SAVE: Final = Script(
    """
local row, before, after, text, ttl = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local known = redis.call('HMGET', row, 'version', 'state')
if known[1] == after and known[2] == text then return 1 end
if (known[1] or '0') ~= before then return 0 end
redis.call('HSET', row, 'version', after, 'state', text)
if ttl > 0 then redis.call('PEXPIRE', row, ttl) else redis.call('PERSIST', row) end
return 1
"""
)
"""A call that the driver sends again finds its own state."""


class RedisExecutionStorage(RedisBacked, ExecutionStorage):
    """Keeps suspended executions until they go on, and ended ones for `ttl` seconds (`PLAITA_EVENT_TTL_SECONDS`).

    Every method raises `EventStorageError` when the server fails. `client` is a redis-py asyncio client of yours,
    which `aclose` closes; `connection` shares the connection of a store.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        key_prefix: str = EXECUTION_PREFIX,
        ttl: float | None = None,
        client: Redis | None = None,
        *,
        connection: RedisConnection | None = None,
    ) -> None:
        super().__init__(redis_url, client, connection)
        self._prefix: Final = check_prefix("key_prefix", key_prefix)
        self._ttl_ms: Final = lifetime_ms(ttl)

    async def load_execution(self, execution_id: str) -> ExecutionState | None:
        """The latest state, or None; `EventError` for one that cannot be read."""
        row = self._prefix + check_name("execution_id", execution_id)
        text = await self._connection.command("HGET", row, "state")
        return None if text is None else ExecutionState.decode(text)

    async def save_execution(self, state: ExecutionState) -> bool:
        """Keep `state` as the version after its own, unless the server has that already; then False.

        Keeps: FLOW-19.
        """
        row = self._prefix + check_name("execution_id", state.execution_id)
        after = state.model_copy(update={"version": state.version + 1})
        ttl = 0 if state.status == "suspended" else self._ttl_ms
        return bool(
            await self._connection.run(SAVE, [row], str(state.version), str(after.version), after.encode(), ttl)
        )
