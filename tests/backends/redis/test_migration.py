"""Migration: what consoles left behind is copied once, with the life it has left; wherever a run stops, the next one
does the rest."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lastbus import Event, EventStorageError, EventSubscription
from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.migration import Migration, Tally
from lastbus._kit.servers import RedisServer
from lastbus.redis import list_events_of_consoles_too
from scripts.migrate_console_events import main
from tests._backends.redis import RedisBackend

DAY_MS = 86_400_000
WEEK_MS = 604_800_000
SUBSCRIPTION = EventSubscription(
    event_type="a:b", subscription_id="s:1", correlation_id="c:1", flow_id="f:1", node_id="n:1"
)


class Fragile(RedisConnection):
    """A connection that breaks at the command that comes after so many; counts the commands that were sent."""

    left: int | None = None
    sent: int = 0
    words: list[tuple[Any, ...]]

    def _pass(self, batch: list[tuple[Any, ...]]) -> None:
        self.words += batch
        self.sent += 1
        if self.left is not None:
            if self.left == 0:
                raise EventStorageError("cut off")
            self.left -= 1

    async def command(self, *words: Any) -> Any:
        self._pass([words])
        return await super().command(*words)

    async def commands(self, batch: Any) -> list[Any]:
        # One command at a time, so that a run can be cut off between any two of them.
        replies = []
        for words in batch:
            self._pass([words])
            [reply] = await super().commands([words])
            replies.append(reply)
        return replies


@pytest.fixture
def fragile(redis: RedisBackend) -> Fragile:
    fragile = Fragile(client=redis.client())
    fragile.words = []
    redis._connections.append(fragile)
    return fragile


def migration(redis: RedisBackend, connection: RedisConnection, apply: bool = True) -> Migration:
    return Migration(connection, f"{redis.prefix}event:", f"{redis.prefix}subscription:", apply=apply)


async def leave_behind(
    raw: RedisConnection, redis: RedisBackend, event_id: str, life_ms: int = DAY_MS, **fields: Any
) -> None:
    """An event as a console has stored it."""
    body = {"event_id": event_id, "event_type": "t", "data": {}, "timestamp": 5, **fields}
    text = json.dumps({name: value for name, value in body.items() if value is not ...})
    await raw.command("SET", f"{redis.prefix}event:{event_id}", text, "PX", life_ms)
    await raw.command("ZADD", f"{redis.prefix}event:type:{body['event_type']}", 5, event_id)


async def dump(raw: RedisConnection, redis: RedisBackend) -> dict[bytes, Any]:
    """Every key with its value."""
    found: dict[bytes, Any] = {}
    for rest in await raw.scan(redis.prefix):
        key = redis.prefix.encode() + rest
        kind = await raw.command("TYPE", key)
        words = {b"string": ("GET", key), b"zset": ("ZRANGE", key, 0, -1, "WITHSCORES"), b"set": ("SMEMBERS", key)}
        found[rest] = await raw.command(*words[kind])
    return found


async def life(raw: RedisConnection, redis: RedisBackend, rest: str) -> int:
    return int(await raw.command("PTTL", f"{redis.prefix}{rest}"))


# -- copying ----------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("IDX-31")
async def test_without_apply_nothing_is_written_and_everything_is_counted(
    redis: RedisBackend, raw: RedisConnection, fragile: Fragile
) -> None:
    for event_id in ("new", "there", "hidden"):
        await leave_behind(raw, redis, event_id)
    for event_id in ("there", "hidden"):
        await redis.event_storage().store_event(Event("t", event_id=event_id))
    await raw.command("ZREM", f"{redis.prefix}event:types:t", "hidden")
    await redis.subscription_storage().store_subscription(SUBSCRIPTION)
    await raw.command("DEL", f"{redis.prefix}subscription:node:n:1")
    before = await dump(raw, redis)

    copied = await migration(redis, fragile, apply=False).copy()
    reindexed = await migration(redis, fragile, apply=False).reindex()

    assert copied == Tally(found=3, copied=1, skipped_existing=2, index_repaired=1)
    assert reindexed == Tally(found=3, reindexed=2)
    assert {words[0] for words in fragile.words} <= {"SCAN", "MGET", "EXISTS", "ZSCORE", "SISMEMBER"}
    assert await dump(raw, redis) == before


@pytest.mark.guarantee("IDX-32")
async def test_an_event_is_copied_once_and_the_old_keys_stay(
    redis: RedisBackend, raw: RedisConnection, fragile: Fragile
) -> None:
    await leave_behind(raw, redis, "e:1", event_type="order:paid", data={"n": 1}, correlation_id="c", source="console")
    before = await dump(raw, redis)

    first = await migration(redis, fragile).copy()
    second = await migration(redis, fragile).copy()

    assert first == Tally(found=1, copied=1)
    assert second == Tally(found=1, skipped_existing=1)
    event = Event("order:paid", {"n": 1}, "c", "console", event_id="e:1", timestamp=5)
    assert await redis.event_storage().list_events("order:paid") == [event]
    assert await redis.event_storage().get_event("e:1") == event
    assert before.items() <= (await dump(raw, redis)).items()
    assert {words[0] for words in fragile.words}.isdisjoint({"DEL", "UNLINK", "RENAME", "EXPIRE"})


@pytest.mark.guarantee("IDX-32")
async def test_an_event_that_does_not_say_its_id_has_that_of_its_key(redis: RedisBackend, raw: RedisConnection) -> None:
    await leave_behind(raw, redis, "by:key")
    await raw.command("SET", f"{redis.prefix}event:by:key", '{"event_type": "t", "timestamp": 5}', "PX", DAY_MS)

    for _ in range(2):
        await migration(redis, raw).copy()

    assert await redis.event_storage().list_events("t") == [Event("t", event_id="by:key", timestamp=5)]


@pytest.mark.guarantee("IDX-05", "IDX-32")
async def test_a_copy_lives_as_long_as_what_it_was_copied_from_and_its_index_as_usual(
    redis: RedisBackend, raw: RedisConnection
) -> None:
    await leave_behind(raw, redis, "day", DAY_MS)
    await leave_behind(raw, redis, "minute", 60_000)
    await leave_behind(raw, redis, "forever")
    await raw.command("PERSIST", f"{redis.prefix}event:forever")

    await migration(redis, raw).copy()

    assert DAY_MS - 60_000 < await life(raw, redis, "event:events:day") <= DAY_MS
    assert 30_000 < await life(raw, redis, "event:events:minute") <= 60_000
    assert WEEK_MS - 60_000 < await life(raw, redis, "event:events:forever") <= WEEK_MS
    assert WEEK_MS - 60_000 < await life(raw, redis, "event:types:t") <= WEEK_MS


@pytest.mark.guarantee("IDX-05")
async def test_an_index_lives_longer_than_the_copy_that_it_was_made_for(
    redis: RedisBackend, raw: RedisConnection
) -> None:
    await leave_behind(raw, redis, "e", 60_000)

    await migration(redis, raw).copy()

    assert 30_000 < await life(raw, redis, "event:events:e") <= 60_000
    assert WEEK_MS - 60_000 < await life(raw, redis, "event:types:t") <= WEEK_MS


@pytest.mark.guarantee("IDX-05")
async def test_a_copy_of_what_is_about_to_lapse_lives_for_a_second(
    redis: RedisBackend, raw: RedisConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lastbus._backends.redis.migration.LIFE_MS_MIN", 50_000)
    await leave_behind(raw, redis, "e", 10_000)

    await migration(redis, raw).copy()

    assert 40_000 < await life(raw, redis, "event:events:e") <= 50_000


def test_a_copy_lives_for_a_second_at_least() -> None:
    from lastbus._backends.redis import migration

    assert migration.LIFE_MS_MIN == 1000


@pytest.mark.guarantee("IDX-32")
async def test_what_the_engine_has_is_never_overwritten(redis: RedisBackend, raw: RedisConnection) -> None:
    engines = Event("t", {"whose": "engine"}, event_id="e")
    await leave_behind(raw, redis, "e", data={"whose": "console"})
    await redis.event_storage().store_event(engines)

    await migration(redis, raw).copy()

    assert await redis.event_storage().get_event("e") == engines


@pytest.mark.guarantee("IDX-32")
async def test_an_event_that_is_stored_while_the_migration_runs_stays(
    redis: RedisBackend, raw: RedisConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = Event("t", {"whose": "engine"}, event_id="e")
    await leave_behind(raw, redis, "e", data={"whose": "console"})
    run_all = raw.run_all

    async def be_late(*call: Any) -> Any:
        await redis.event_storage().store_event(engines)
        return await run_all(*call)

    monkeypatch.setattr(raw, "run_all", be_late)

    assert await migration(redis, raw).copy() == Tally(found=1, skipped_existing=1)
    assert await redis.event_storage().get_event("e") == engines


@pytest.mark.guarantee("IDX-33")
async def test_the_index_of_an_event_that_is_there_already_is_repaired(
    redis: RedisBackend, raw: RedisConnection
) -> None:
    stored = Event("moved:since", event_id="e", timestamp=9.25)
    await leave_behind(raw, redis, "e")
    await redis.event_storage().store_event(stored)
    await raw.command("DEL", f"{redis.prefix}event:types:moved:since")

    assert await migration(redis, raw).copy() == Tally(found=1, skipped_existing=1, index_repaired=1)
    assert await redis.event_storage().list_events("moved:since") == [stored]
    assert await migration(redis, raw).copy() == Tally(found=1, skipped_existing=1)


@pytest.mark.parametrize("text", [b"\xff{no json", b"[]", b"{}", b'{"event_type": "t"}', b'{"event_type": 7}'])
async def test_what_cannot_be_read_is_named_and_left(
    redis: RedisBackend, raw: RedisConnection, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    await raw.command("SET", f"{redis.prefix}event:odd", text)
    await leave_behind(raw, redis, "good")

    assert await migration(redis, raw).copy() == Tally(found=2, copied=1, unreadable=1)
    assert [record.levelname for record in caplog.records if "odd" in record.getMessage()] == ["WARNING"]
    assert await raw.command("GET", f"{redis.prefix}event:odd") == text


@pytest.mark.guarantee("IDX-32", "IDX-33", "IDX-34")
async def test_a_run_that_is_cut_off_anywhere_is_finished_by_the_next(
    redis: RedisBackend, raw: RedisConnection, fragile: Fragile
) -> None:
    async def prepare() -> None:
        for key in await raw.scan(redis.prefix):
            await raw.command("DEL", redis.prefix.encode() + key)
        for event_id in ("a", "b", "hidden"):
            await leave_behind(raw, redis, event_id)
        for event_id in ("hidden", "lost"):
            await redis.event_storage().store_event(Event("t", event_id=event_id, timestamp=7))
        await raw.command("DEL", f"{redis.prefix}event:types:t")
        await redis.subscription_storage().store_subscription(SUBSCRIPTION)
        for kind in ("type:a:b", "flow:f:1", "node:n:1"):
            await raw.command("DEL", f"{redis.prefix}subscription:{kind}")

    async def run() -> None:
        await migration(redis, fragile).copy()
        await migration(redis, fragile).reindex()

    await prepare()
    await run()
    whole, commands = await dump(raw, redis), fragile.sent

    for cut in range(commands):
        await prepare()
        before = await dump(raw, redis)
        fragile.left = cut
        with pytest.raises(EventStorageError, match="cut off"):
            await run()
        assert {key: before[key] for key in before if b"event:type:" in key or b"events:" in key}.items() <= (
            await dump(raw, redis)
        ).items()
        fragile.left = None
        await run()
        assert await dump(raw, redis) == whole


# -- restoring indexes ------------------------------------------------------------------------------------------


@pytest.mark.guarantee("IDX-34", "IDX-35")
async def test_lost_indexes_come_back_and_the_engine_finds_everything_again(
    redis: RedisBackend, raw: RedisConnection
) -> None:
    events, subscriptions = redis.event_storage(), redis.subscription_storage()
    stored = [Event(kind, event_id=f"e:{kind}", timestamp=3.5) for kind in ("plain", "order:paid", "é")]
    for event in stored:
        await events.store_event(event)
    await subscriptions.store_subscription(SUBSCRIPTION)
    whole = await dump(raw, redis)
    for rest in whole:
        if b"event:types:" in rest or (b"subscription:" in rest and b"data:" not in rest):
            await raw.command("DEL", redis.prefix.encode() + rest)

    assert await migration(redis, raw).reindex() == Tally(found=4, reindexed=7)

    assert await dump(raw, redis) == whole
    assert await events.list_events() == sorted(stored, key=lambda event: event.event_id)
    for asked in ({"event_type": "a:b"}, {"correlation_id": "c:1"}, {"flow_id": "f:1"}, {"node_id": "n:1"}):
        assert await subscriptions.list_subscriptions(**asked) == [SUBSCRIPTION]
    assert await migration(redis, raw).reindex() == Tally(found=4)


@pytest.mark.guarantee("IDX-34")
async def test_reindexing_leaves_lives_of_rows_alone_and_only_extends_those_of_indexes(
    redis: RedisBackend, raw: RedisConnection
) -> None:
    await redis.event_storage(ttl=3600).store_event(Event("short", event_id="e1"))
    await redis.event_storage(ttl=2_000_000).store_event(Event("long", event_id="e2"))
    await raw.command("DEL", f"{redis.prefix}event:types:short")
    await raw.command("PEXPIRE", f"{redis.prefix}event:types:long", 1_900_000_000)

    await migration(redis, raw).reindex()

    assert 3_500_000 < await life(raw, redis, "event:events:e1") <= 3_600_000
    assert 1_999_900_000 < await life(raw, redis, "event:events:e2") <= 2_000_000_000
    assert WEEK_MS - 60_000 < await life(raw, redis, "event:types:short") <= WEEK_MS
    assert 1_999_900_000 < await life(raw, redis, "event:types:long") <= 2_000_000_000


@pytest.mark.guarantee("IDX-34")
@pytest.mark.parametrize("store", ["events", "subscriptions"])
async def test_a_row_that_goes_while_indexes_come_back_gets_no_entry(
    redis: RedisBackend, raw: RedisConnection, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    if store == "events":
        await redis.event_storage().store_event(Event("t", event_id="e"))
    else:
        await redis.subscription_storage().store_subscription(SUBSCRIPTION)
    for rest in await raw.scan(redis.prefix):
        if b"data:" not in rest and b"events:" not in rest:
            await raw.command("DEL", redis.prefix.encode() + rest)
    run_all = raw.run_all

    async def be_late(*call: Any) -> Any:
        await raw.command("DEL", f"{redis.prefix}event:events:e", f"{redis.prefix}subscription:data:s:1")
        return await run_all(*call)

    monkeypatch.setattr(raw, "run_all", be_late)

    assert (await migration(redis, raw).reindex()).reindexed == 0
    assert await raw.scan(redis.prefix) == set()


# -- what consoles show -----------------------------------------------------------------------------------------


@pytest.mark.guarantee("IDX-28")
async def test_a_console_lists_both_shapes_and_each_event_once(redis: RedisBackend, raw: RedisConnection) -> None:
    storage = redis.event_storage()
    engines = [Event("t", {"whose": "engine"}, event_id=event_id, timestamp=6) for event_id in ("both", "new")]
    for event in engines:
        await storage.store_event(event)
    await leave_behind(raw, redis, "both", data={"whose": "console"}, timestamp=2)
    await leave_behind(raw, redis, "old", data={"whose": "console"}, timestamp=4)
    await leave_behind(raw, redis, "another", event_type="u", timestamp=8)
    before = await dump(raw, redis)

    async def shown(*asked: Any) -> list[tuple[str, Any]]:
        found = await list_events_of_consoles_too(storage, raw, f"{redis.prefix}event:", *asked)
        return [(event.event_id, event.data.get("whose")) for event in found]

    assert await shown("t") == [("old", "console"), ("both", "engine"), ("new", "engine")]
    assert [event_id for event_id, _ in await shown()] == ["old", "both", "new", "another"]
    assert await shown("t", 5, None) == [("both", "engine"), ("new", "engine")]
    assert await shown("t", None, 4) == [("old", "console")]
    assert await shown("t", None, None, 2) == [("old", "console"), ("both", "engine")]
    assert await dump(raw, redis) == before


# -- the program ------------------------------------------------------------------------------------------------


async def prepared(server: RedisServer) -> RedisConnection:
    raw = RedisConnection(server.url)
    await raw.command("SET", "plaita:event:e:1", '{"event_type": "t", "timestamp": 5}', "PX", DAY_MS)
    return raw


def test_the_program_says_what_it_would_do_and_does_it_when_told(
    own_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async def keys() -> set[bytes]:
        raw = await prepared(own_server)
        found = await raw.scan("plaita:")
        await raw.aclose()
        return found

    asyncio.run(keys())
    assert main(["--redis-url", own_server.url]) == 0
    said = capsys.readouterr()
    assert "dry run" in said.out
    assert "copied  1" in said.out
    assert asyncio.run(keys()) == {b"event:e:1"}
    assert main(["--redis-url", own_server.url, "--apply"]) == 0
    assert asyncio.run(keys()) == {b"event:e:1", b"event:events:e:1", b"event:types:t"}
    assert main(["--redis-url", own_server.url, "--apply", "--reindex"]) == 0
    assert "1/1" in capsys.readouterr().err


def test_the_program_tells_what_it_could_not_read_and_when_the_server_is_gone(
    own_server: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async def spoil() -> None:
        raw = await prepared(own_server)
        await raw.command("SET", "plaita:event:odd", "{}")
        await raw.aclose()

    asyncio.run(spoil())
    assert main(["--redis-url", own_server.url]) == 1
    own_server.stop()
    assert main(["--redis-url", own_server.url]) == 3
    assert "run it again" in capsys.readouterr().err
