"""Standing: how a pair of event and handler stands at the server, and since when a handler's id is known there.

Done is what is marked, and what the event's history calls a success: a delivery without deduplication leaves no mark.

Keeps: REDIS-18, REDIS-19, REDIS-20, FAULT-07, FAULT-08.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.keys import TrackerKeys
from lastbus._backends.redis.scripts import Script


class State(Enum):
    """How a pair stands."""

    DONE = b"done"
    OWED = b"owed"
    HELD = b"held"
    BROKEN = b"broken"


class Standing(NamedTuple):
    """A state; `note` is the owner of what is held, and the server's error for what is broken."""

    state: State
    note: str


STAND: Final = Script(
    """
local marks, claims, attempts = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
local succeeded
local function has_succeeded(handler)
  if not succeeded then
    succeeded = {}
    local lines = redis.pcall('LRANGE', attempts, 0, -1)
    if lines.err then return lines end
    for _, line in ipairs(lines) do
      local ok, fields = pcall(cjson.decode, string.match(line, '^%S+ (.*)$') or '')
      if ok and type(fields) == 'table' and fields.status == 'success' then succeeded[fields.handler_id] = true end
    end
  end
  return succeeded[handler]
end
local function stand(handler)
  local marked = redis.pcall('HEXISTS', marks, handler)
  if type(marked) == 'table' then return 'broken ' .. marked.err end
  if marked == 1 then return 'done ' end
  local claim = redis.pcall('HGET', claims, handler)
  if type(claim) == 'table' then return 'broken ' .. claim.err end
  if claim then
    local lapses, owner = string.match(claim, '^(%S+) %S+ (.*)$')
    if lapses and tonumber(lapses) > now then return 'held ' .. owner end
  end
  local success = has_succeeded(handler)
  if type(success) == 'table' then return 'broken ' .. success.err end
  return success and 'done ' or 'owed '
end
local answers = {}
for i = 2, #ARGV do answers[#answers + 1] = stand(ARGV[i]) end
return answers
"""
)
"""It writes nothing, so that a server that is full or a replica answers it too."""

GREET: Final = Script(
    """
local known = redis.call('GET', KEYS[1])
if known then redis.call('PEXPIRE', KEYS[1], ARGV[2]) else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return known
"""
)


async def standings(
    connection: RedisConnection, keys: TrackerKeys, now: float, wanted: Sequence[tuple[str, Sequence[str]]]
) -> list[list[Standing]]:
    """How each event id stands with each of its handler ids, in one round trip.

    Keeps: REDIS-18, REDIS-20, FAULT-08.
    """
    calls: list[tuple[str | bytes | float, ...]] = [
        (3, keys.marks(event_id), keys.claims(event_id), keys.attempts(event_id), repr(now), *handler_ids)
        for event_id, handler_ids in wanted
    ]
    replies = await connection.run_all(STAND, calls) if calls else []
    return [[_standing(each) for each in reply] for reply in replies]


async def greet(
    connection: RedisConnection, keys: TrackerKeys, now: float, life_ms: int, handler_ids: Sequence[str]
) -> list[float | None]:
    """Since when each handler id has been known (None: only now), and let it be known for `life_ms` more.

    Keeps: REDIS-18.
    """
    calls = [(1, keys.handler(each), repr(now), life_ms) for each in handler_ids]
    replies = await connection.run_all(GREET, calls) if calls else []
    return [None if reply is None else float(reply) for reply in replies]


def _standing(answer: bytes) -> Standing:
    state, _, note = answer.partition(b" ")
    return Standing(State(state), note.decode(errors="replace"))
