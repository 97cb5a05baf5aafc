"""Scripts: what must happen in one step at the server, in Lua that every server and fakeredis understand.

Each script is called by its digest, and sent whole only to a server that does not know it yet. Only `cjson` is used of
the optional libraries, and only to read: writing JSON in Lua would turn an empty list into an empty object.

Keeps: STORE-05, SUBS-16, IDX-01, IDX-02, IDX-03, IDX-04, IDX-05, IDX-08, IDX-10, IDX-29, IDX-32, IDX-34, IDX-37,
REDIS-10.
"""

from __future__ import annotations

import hashlib
from typing import Final


class Script:
    """One Lua program and the digest by which a server knows it."""

    __slots__ = ("digest", "text")

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.digest: Final = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


_OUTLIVE = """
local function outlive(key, milliseconds)
  if redis.call('PTTL', key) < tonumber(milliseconds) then
    redis.call('PEXPIRE', key, milliseconds)
  end
end
"""
"""An index must not lapse before its youngest member: its TTL is only ever extended."""

_READ = """
local function read(row)
  local ok, fields = pcall(cjson.decode, row or '')
  if ok and type(fields) == 'table' then return fields end
  return {}
end
"""
"""The fields of a stored row; none if there is no row, or if Lua cannot read it (readers check what they find)."""

STORE_EVENT: Final = Script(
    _READ
    + _OUTLIVE
    + """
local row, index = KEYS[1], KEYS[2]
local text, id, score, ttl, types, channel, extra, legacy = unpack(ARGV)
local old_type = read(redis.call('GET', row)).event_type
if type(old_type) == 'string' and types .. old_type ~= index then
  redis.call('ZREM', types .. old_type, id)
end
redis.call('SET', row, text, 'PX', ttl)
redis.call('ZADD', index, score, id)
outlive(index, ttl)
if channel ~= '' then
  redis.call('PUBLISH', channel, string.sub(text, 1, -2) .. extra)
end
if legacy ~= '' then
  redis.call('PUBLISH', legacy, text)
end
return 1
"""
)

DELETE_EVENT: Final = Script(
    _READ
    + """
local row, id, types = KEYS[1], ARGV[1], ARGV[2]
local event_type = read(redis.call('GET', row)).event_type
if type(event_type) == 'string' then
  redis.call('ZREM', types .. event_type, id)
end
return redis.call('DEL', row)
"""
)

PRUNE_EVENTS: Final = Script(
    """
local index, rows = KEYS[1], ARGV[1]
local gone = {}
for i = 2, #ARGV do
  if redis.call('EXISTS', rows .. ARGV[i]) == 0 then
    local score = redis.call('ZSCORE', index, ARGV[i])
    if score then
      redis.call('ZREM', index, ARGV[i])
      gone[#gone + 1] = ARGV[i]
      gone[#gone + 1] = score
    end
  end
end
return gone
"""
)

COPY_EVENT: Final = Script(
    _OUTLIVE
    + """
local source, row, index = KEYS[1], KEYS[2], KEYS[3]
local text, id, score, ttl, shortest = unpack(ARGV)
if redis.call('EXISTS', row) == 1 then return 0 end
local left = redis.call('PTTL', source)
if left == -2 then return -1 end
if left == -1 then left = tonumber(ttl) end
redis.call('SET', row, text, 'PX', math.max(left, tonumber(shortest)))
redis.call('ZADD', index, score, id)
outlive(index, ttl)
return 1
"""
)
"""Copies with the life that is left: a source that lapses on the way is not copied, and a row that is there stays."""

INDEX_EVENT: Final = Script(
    _OUTLIVE
    + """
local row, index = KEYS[1], KEYS[2]
local text, id, score, ttl = unpack(ARGV)
if redis.call('GET', row) ~= text then return 0 end
local added = 0
if not redis.call('ZSCORE', index, id) then added = redis.call('ZADD', index, score, id) end
outlive(index, math.max(redis.call('PTTL', row), tonumber(ttl)))
return added
"""
)
"""Restores what is missing for a row that still is as it was read."""

INDEX_SUBSCRIPTION: Final = Script(
    _OUTLIVE
    + """
local row = KEYS[1]
local text, id, ttl = unpack(ARGV)
if redis.call('GET', row) ~= text then return 0 end
local life = math.max(redis.call('PTTL', row), tonumber(ttl))
local added = 0
for i = 2, #KEYS do
  added = added + redis.call('SADD', KEYS[i], id)
  outlive(KEYS[i], life)
end
return added
"""
)

_UNINDEX = (
    _READ
    + """
local function unindex(row, id, correlations, types, flows, nodes)
  local old = read(redis.call('GET', row))
  local entries = {
    {correlations, old.correlation_id}, {types, old.event_type}, {flows, old.flow_id}, {nodes, old.node_id}
  }
  for _, entry in ipairs(entries) do
    if type(entry[2]) == 'string' then
      redis.call('SREM', entry[1] .. entry[2], id)
    end
  end
end
"""
)

STORE_SUBSCRIPTION: Final = Script(
    _UNINDEX
    + _OUTLIVE
    + """
local row, processed = KEYS[1], KEYS[2]
local text, id, ttl, correlations, types, flows, nodes = unpack(ARGV)
unindex(row, id, correlations, types, flows, nodes)
redis.call('DEL', processed)
redis.call('SET', row, text, 'PX', ttl)
for i = 3, #KEYS do
  redis.call('SADD', KEYS[i], id)
  outlive(KEYS[i], ttl)
end
return 1
"""
)

DELETE_SUBSCRIPTION: Final = Script(
    _UNINDEX
    + """
local row, processed = KEYS[1], KEYS[2]
local id, correlations, types, flows, nodes = unpack(ARGV)
unindex(row, id, correlations, types, flows, nodes)
redis.call('DEL', processed)
return redis.call('DEL', row)
"""
)

MARK_SUBSCRIPTION: Final = Script(
    _READ
    + """
local row, processed = KEYS[1], KEYS[2]
local event_id, mark = ARGV[1], ARGV[2]
local text = redis.call('GET', row)
if not text then return 0 end
local old = read(text).processed_events
if type(old) == 'table' then
  for _, known in ipairs(old) do
    if known == event_id then return 0 end
  end
end
if redis.call('HSETNX', processed, event_id, mark) == 0 then
  return redis.call('HGET', processed, event_id) == mark and 1 or 0
end
local ttl = redis.call('PTTL', row)
if ttl > 0 then redis.call('PEXPIRE', processed, ttl) end
return 1
"""
)

READ_MARKS: Final = Script(
    """
local processed = ARGV[1]
local found = {}
for i = 2, #ARGV do
  found[i - 1] = redis.call('HKEYS', processed .. ARGV[i])
end
return found
"""
)

PRUNE_SUBSCRIPTIONS: Final = Script(
    """
local index, rows = KEYS[1], ARGV[1]
local gone = {}
for i = 2, #ARGV do
  if redis.call('EXISTS', rows .. ARGV[i]) == 0 and redis.call('SREM', index, ARGV[i]) == 1 then
    gone[#gone + 1] = ARGV[i]
  end
end
return gone
"""
)

_CLAIM = """
local function holder(claims, handler)
  local claim = redis.call('HGET', claims, handler)
  if not claim then return nil end
  local lapses, call, owner = string.match(claim, '^(%S+) (%S+) (.*)$')
  return owner, tonumber(lapses), call
end
"""
"""A claim is stored as the time when it lapses, the call that took it, and its owner, with one space in between."""

CLAIM: Final = Script(
    _CLAIM
    + _OUTLIVE
    + """
local marks, claims = KEYS[1], KEYS[2]
local handler, owner, now, lapses, call, ttl = unpack(ARGV)
if redis.call('HEXISTS', marks, handler) == 1 then return 0 end
local other, stands, earlier = holder(claims, handler)
if other and stands > tonumber(now) and earlier ~= call then return 0 end
redis.call('HSET', claims, handler, lapses .. ' ' .. call .. ' ' .. owner)
outlive(claims, ttl)
return 1
"""
)

RENEW: Final = Script(
    _CLAIM
    + _OUTLIVE
    + """
local claims = KEYS[1]
local handler, owner, lapses, ttl = unpack(ARGV)
local holds, _, call = holder(claims, handler)
if holds ~= owner then return 0 end
redis.call('HSET', claims, handler, lapses .. ' ' .. call .. ' ' .. owner)
outlive(claims, ttl)
return 1
"""
)

RELEASE: Final = Script(
    _CLAIM
    + """
local claims, handler, owner = KEYS[1], ARGV[1], ARGV[2]
if holder(claims, handler) ~= owner then return 0 end
return redis.call('HDEL', claims, handler)
"""
)

_MARK = """
local function mark_pair(marks, claims, handler, mark, ttl, owner)
  local known = redis.call('HGET', marks, handler)
  if known then return known == mark and 1 or 0 end
  if owner then
    local other = holder(claims, handler)
    if other and other ~= owner then return 0 end
  end
  redis.call('HDEL', claims, handler)
  redis.call('HSET', marks, handler, mark)
  outlive(marks, ttl)
  return 1
end
"""

_RECORD = """
local function record(attempts, line, lines_max, ttl)
  redis.call('RPUSH', attempts, line)
  redis.call('LTRIM', attempts, -tonumber(lines_max), -1)
  outlive(attempts, ttl)
end
"""

MARK: Final = Script(
    _CLAIM
    + _OUTLIVE
    + _MARK
    + """
local handler, mark, ttl, owner = unpack(ARGV)
return mark_pair(KEYS[1], KEYS[2], handler, mark, ttl, owner)
"""
)

RECORD: Final = Script(
    _OUTLIVE
    + _RECORD
    + """
local line, lines_max, ttl = unpack(ARGV)
record(KEYS[1], line, lines_max, ttl)
return 1
"""
)

FINISH: Final = Script(
    _CLAIM
    + _OUTLIVE
    + _MARK
    + _RECORD
    + """
local handler, mark, ttl, owner, line, lines_max = unpack(ARGV)
if redis.call('HGET', KEYS[1], handler) == mark then return 1 end
record(KEYS[3], line, lines_max, ttl)
return mark_pair(KEYS[1], KEYS[2], handler, mark, ttl, owner)
"""
)
"""A call that the driver sends again finds its own mark, and appends no second line."""

FORGET: Final = Script(
    """
local marks, attempts, before = KEYS[1], KEYS[2], tonumber(ARGV[1])
local function is_old(line)
  local time = tonumber(string.match(line, '^(%S+) '))
  return time ~= nil and time < before
end
local forgotten = 0
local fields = redis.call('HGETALL', marks)
for i = 1, #fields, 2 do
  if is_old(fields[i + 1]) then forgotten = forgotten + redis.call('HDEL', marks, fields[i]) end
end
local line = redis.call('LINDEX', attempts, 0)
while line and is_old(line) do
  redis.call('LPOP', attempts)
  forgotten = forgotten + 1
  line = redis.call('LINDEX', attempts, 0)
end
return forgotten
"""
)
"""Marks and attempts both begin with the time when they were written, and one space."""
