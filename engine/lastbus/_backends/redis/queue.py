"""Task queue in Redis: one stream, one consumer group, and a second stream for what nobody could do.

An entry stays with the worker that took it until it is acknowledged. One that has been left lying for too long is
taken by whoever asks next; one that was delivered too often is moved to the dead letters. Each of these is judged and
written in one step at the server, by the server's clock.

Keeps: FLOW-18.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from redis.asyncio import Redis

from lastbus._backends.redis.connection import RedisBacked, RedisConnection
from lastbus._backends.redis.keys import check_prefix
from lastbus._backends.redis.scripts import Script
from lastbus._errors import EventError
from lastbus._model.numbers import check_count, check_seconds
from lastbus._model.task import FlowTask
from lastbus._ports.queue import DeadLetter, Delivery, TaskQueue

STREAM: Final = "plaita:flow:queue"
GROUP: Final = "plaita-workers"
KEEP_SECONDS_MIN: Final = 0.01
DEAD_LETTERS_MAX: Final = 10_000
"""How many dead letters are kept, the newest ones."""

_BURY: Final = """
local function bury(stream, dead, group, id, payload, reason, deliveries, keep)
  redis.call('XADD', dead, 'MAXLEN', keep, '*', 'payload', payload, 'reason', reason, 'source', id,
    'deliveries', deliveries)
  redis.call('XACK', stream, group, id)
  redis.call('XDEL', stream, id)
end
"""

TAKE: Final = Script(
    _BURY
    + """
local stream, dead = KEYS[1], KEYS[2]
local group, consumer, idle, deliveries_max, keep = unpack(ARGV)
local function payload_of(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'payload' then return fields[i + 1] end
  end
  return ''
end
redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
while true do
  local left = redis.call('XPENDING', stream, group, 'IDLE', idle, '-', '+', 1)[1]
  if not left then break end
  local id, deliveries = left[1], left[4]
  local entry = redis.call('XCLAIM', stream, group, consumer, 0, id)[1]
  if not entry then
    redis.call('XACK', stream, group, id)
  elseif deliveries >= tonumber(deliveries_max) then
    bury(stream, dead, group, id, payload_of(entry[2]), 'delivered too often', deliveries, keep)
  else
    return {id, payload_of(entry[2]), deliveries + 1}
  end
end
local fresh = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', 1, 'STREAMS', stream, '>')
if not fresh or not fresh[1] then return false end
local entry = fresh[1][2][1]
return {entry[1], payload_of(entry[2]), 1}
"""
)

KEEP: Final = Script(
    """
local stream, group, consumer, id = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local held = redis.call('XPENDING', stream, group, id, id, 1)[1]
if not held or held[2] ~= consumer then return 0 end
redis.call('XCLAIM', stream, group, consumer, 0, id, 'JUSTID')
return 1
"""
)

ACK: Final = Script(
    """
local acked = redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
redis.call('XDEL', KEYS[1], ARGV[2])
return acked
"""
)

BURY: Final = Script(
    _BURY
    + """
local group, id, payload, reason, deliveries, keep = unpack(ARGV)
bury(KEYS[1], KEYS[2], group, id, payload, reason, deliveries, keep)
return 1
"""
)


class RedisStreamTaskQueue(RedisBacked, TaskQueue):
    """A queue on one server for any number of workers.

    What is neither acknowledged nor kept for `claim_idle_seconds` is delivered again, up to `max_deliveries` times in
    all. Dead letters are in `dlq_key` (default: the stream's name and
    `:dlq`). Every method raises `EventStorageError` when the server fails. `client` is a redis-py asyncio client of
    yours, which `aclose` closes; `connection` shares the connection of a store.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        stream_key: str = STREAM,
        group_name: str = GROUP,
        consumer_name: str | None = None,
        claim_idle_seconds: float = 60.0,
        max_deliveries: int = 5,
        dlq_key: str | None = None,
        client: Redis | None = None,
        *,
        connection: RedisConnection | None = None,
    ) -> None:
        super().__init__(redis_url, client, connection)
        self._stream: Final = check_prefix("stream_key", stream_key)
        self._dead: Final = f"{stream_key}:dlq" if dlq_key is None else check_prefix("dlq_key", dlq_key)
        self._group: Final = check_prefix("group_name", group_name)
        self._consumer: Final = check_prefix("consumer_name", consumer_name or f"worker-{uuid4().hex}")
        self._idle_ms: Final = round(check_seconds("claim_idle_seconds", claim_idle_seconds) * 1000)
        self.keep_seconds = max(claim_idle_seconds / 3, KEEP_SECONDS_MIN)
        self._deliveries_max: Final = check_count("max_deliveries", max_deliveries)

    async def enqueue(self, task: FlowTask) -> str:
        """Append `task`. If the driver has to send it twice, it may be there twice."""
        entry_id: bytes = await self._connection.command("XADD", self._stream, "*", "payload", task.encode())
        return entry_id.decode()

    async def take(self) -> Delivery | None:
        """The next task in one step; one that was left lying comes first. What is no task becomes a dead letter.

        Keeps: FLOW-17, FLOW-18.
        """
        arguments = (self._group, self._consumer, self._idle_ms, self._deliveries_max, DEAD_LETTERS_MAX)
        while taken := await self._connection.run(TAKE, [self._stream, self._dead], *arguments):
            entry_id, payload, times = taken
            try:
                return Delivery(entry_id.decode(), FlowTask.decode(payload), times)
            except EventError:
                await self._bury(entry_id, payload, times)
        return None

    async def keep(self, entry_id: str) -> bool:
        """Begin the time of an entry anew, if it is still in the hands of this consumer.

        Keeps: FLOW-23.
        """
        return bool(await self._connection.run(KEEP, [self._stream], self._group, self._consumer, entry_id))

    async def ack(self, entry_id: str) -> bool:
        """Acknowledge an entry and remove it from the stream, in one step.

        Keeps: FLOW-17.
        """
        return bool(await self._connection.run(ACK, [self._stream], self._group, entry_id))

    async def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """The oldest dead letters that are kept."""
        check_count("limit", limit)
        entries = await self._connection.command("XRANGE", self._dead, "-", "+", "COUNT", limit)
        return [
            DeadLetter(
                entry_id.decode(),
                fields[b"payload"].decode(errors="replace"),
                fields[b"reason"].decode(),
                int(fields[b"deliveries"]),
            )
            for entry_id, fields in entries
        ]

    async def _bury(self, entry_id: bytes, payload: bytes, times: int) -> None:
        """Keeps: FLOW-18."""
        arguments = (self._group, entry_id, payload, "not a task", times, DEAD_LETTERS_MAX)
        await self._connection.run(BURY, [self._stream, self._dead], *arguments)
