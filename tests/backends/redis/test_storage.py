"""Event storage in Redis: the wire format, one row and one index entry per event, and lists without holes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

import pytest

from lastbus import Event, EventError
from lastbus._backends.redis.connection import RedisConnection
from lastbus._kit.servers import RedisServer
from lastbus.redis import RedisEventStorage
from lastbus.testing import ManualClock
from tests._backends.redis import RedisBackend
from tests.backends.redis.server import calls, requests

WEEK_MS = 604_800_000


def ids(events: list[Event]) -> list[str]:
    return [event.event_id for event in events]


async def is_about(raw: RedisConnection, key: str, milliseconds: int) -> bool:
    left = await raw.command("PTTL", key)
    return milliseconds - 60_000 < left <= milliseconds


@pytest.mark.guarantee("STORE-05", "STORE-06")
async def test_an_event_is_one_json_text_and_one_index_entry_under_the_well_known_names(
    redis: RedisBackend, raw: RedisConnection
) -> None:
    event = Event("order:paid", {"total": 3}, "c-1", "till", event_id="e:1", timestamp=1234.5678901)

    await redis.event_storage().store_event(event)

    row, index = f"{redis.prefix}event:events:e:1", f"{redis.prefix}event:types:order:paid"
    assert await raw.command("GET", row) == event.model_dump_json().encode()
    assert await raw.command("ZRANGE", index, 0, -1) == [b"e:1"]
    assert float(await raw.command("ZSCORE", index, "e:1")) == 1234.5678901
    assert await is_about(raw, row, WEEK_MS)
    assert await is_about(raw, index, WEEK_MS)


@pytest.mark.guarantee("STORE-05")
async def test_the_default_prefix_is_the_well_known_one(own_server: RedisServer) -> None:
    storage = RedisEventStorage(own_server.url)

    await storage.store_event(Event("t", event_id="e"))

    assert await storage._connection.scan("plaita:event:") == {b"events:e", b"types:t"}
    await storage.aclose()


@pytest.mark.guarantee("STORE-01", "STORE-10")
@pytest.mark.parametrize("event_type", ["order:created", "plain", "é.ü", "a b", "*", "[x]", "a\nb", ":"])
async def test_any_type_is_found_by_name_and_among_all(redis: RedisBackend, event_type: str) -> None:
    storage = redis.event_storage()
    await storage.store_event(Event(event_type, event_id="one"))
    await storage.store_event(Event("another", event_id="two"))

    assert ids(await storage.list_events(event_type)) == ["one"]
    assert sorted(ids(await storage.list_events())) == ["one", "two"]


async def test_more_types_than_ten_are_listed_oldest_first(redis: RedisBackend) -> None:
    storage = redis.event_storage()
    for number in range(25):
        await storage.store_event(Event(f"t{number}", event_id=f"e{number:02}", timestamp=100 - number))

    assert ids(await storage.list_events(limit=3)) == ["e24", "e23", "e22"]
    assert len(await storage.list_events()) == 25


@pytest.mark.guarantee("REDIS-14")
async def test_a_glob_in_the_prefix_finds_only_its_own_keys(redis: RedisBackend) -> None:
    wild = RedisEventStorage(key_prefix=f"{redis.prefix}[ab]*:", connection=redis.connection())
    other = RedisEventStorage(key_prefix=f"{redis.prefix}axx:", connection=redis.connection())
    await wild.store_event(Event("t", event_id="mine"))
    await other.store_event(Event("u", event_id="theirs"))

    assert ids(await wild.list_events()) == ["mine"]


@pytest.mark.guarantee("STORE-04")
async def test_bounds_are_inclusive_and_zero_is_a_bound(redis: RedisBackend) -> None:
    storage = redis.event_storage()
    for stamp in (-1, 0, 1, 2):
        await storage.store_event(Event("t", event_id=f"at {stamp}", timestamp=stamp))

    assert ids(await storage.list_events("t", start_time=0, end_time=1)) == ["at 0", "at 1"]
    assert ids(await storage.list_events(end_time=0)) == ["at -1", "at 0"]
    assert ids(await storage.list_events("t", limit=1)) == ["at -1"]
    assert await storage.list_events("t", limit=0) == []


async def test_events_of_one_moment_are_listed_by_id(redis: RedisBackend) -> None:
    storage = redis.event_storage()
    for event_id in ("b", "ä", "a", "B"):
        await storage.store_event(Event("t", event_id=event_id, timestamp=5))

    assert ids(await storage.list_events("t")) == ids(await storage.list_events()) == ["B", "a", "b", "ä"]


async def test_storing_an_id_again_moves_it_to_its_new_type(redis: RedisBackend, raw: RedisConnection) -> None:
    storage = redis.event_storage()
    await storage.store_event(Event("é:old", {"n": 1}, event_id="e"))
    await storage.store_event(Event("new", {"n": 2}, event_id="e"))

    assert await storage.list_events("é:old") == []
    assert [event.data for event in await storage.list_events()] == [{"n": 2}]
    assert await raw.command("EXISTS", f"{redis.prefix}event:types:é:old") == 0


async def test_an_old_row_that_lua_cannot_read_leaves_no_second_event(redis: RedisBackend) -> None:
    storage = redis.event_storage()
    await storage.store_event(Event("old", {"half": "\ud800"}, event_id="e"))
    await storage.store_event(Event("new", event_id="e"))

    assert await storage.list_events("old") == []
    assert ids(await storage.list_events()) == ["e"]


async def test_a_deleted_event_leaves_no_key(redis: RedisBackend, raw: RedisConnection) -> None:
    storage = redis.event_storage()
    await storage.store_event(Event("é:t", event_id="e"))

    assert await storage.delete_event("e") is True
    assert await storage.delete_event("e") is False
    assert await raw.scan(redis.prefix) == set()


@pytest.mark.guarantee("IDX-06")
async def test_a_hole_in_the_index_is_filled_named_once_and_closed(
    redis: RedisBackend, raw: RedisConnection, caplog: pytest.LogCaptureFixture
) -> None:
    storage = redis.event_storage()
    for number in range(5):
        await storage.store_event(Event("t", event_id=f"e{number}"))
    await raw.command("DEL", f"{redis.prefix}event:events:e2")

    found = await storage.list_events("t", limit=4)
    again = await storage.list_events("t", limit=4)

    assert ids(found) == ids(again) == ["e0", "e1", "e3", "e4"]
    assert [record.levelname for record in caplog.records if "e2" in record.getMessage()] == ["ERROR"]
    assert await raw.command("ZSCORE", f"{redis.prefix}event:types:t", "e2") is None


@pytest.mark.guarantee("IDX-06")
async def test_an_event_whose_time_is_over_leaves_the_index_in_silence(
    redis: RedisBackend, raw: RedisConnection, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    storage = redis.event_storage(clock=clock, ttl=10)
    await storage.store_event(Event("t", event_id="e", timestamp=clock.time()))
    await raw.command("DEL", f"{redis.prefix}event:events:e")
    clock.advance(11)

    assert await storage.list_events("t") == []
    assert caplog.records == []
    assert await raw.command("EXISTS", f"{redis.prefix}event:types:t") == 0


@pytest.mark.guarantee("IDX-08")
async def test_an_event_that_comes_back_while_holes_are_closed_stays_listed(
    redis: RedisBackend, raw: RedisConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, writer = redis.event_storage(), redis.event_storage()
    event = Event("t", event_id="e")
    await writer.store_event(event)
    await raw.command("DEL", f"{redis.prefix}event:events:e")
    run = storage._connection.run

    async def be_late(*call: Any) -> Any:
        await writer.store_event(event)
        return await run(*call)

    monkeypatch.setattr(storage._connection, "run", be_late)

    assert await storage.list_events("t") == []
    assert await storage.list_events("t") == [event]


@pytest.mark.guarantee("IDX-10")
async def test_an_old_event_that_is_there_stays_listed(redis: RedisBackend, clock: ManualClock) -> None:
    storage = redis.event_storage(clock=clock)
    await storage.store_event(Event("t", event_id="old", timestamp=1))

    assert ids(await storage.list_events("t")) == ids(await storage.list_events("t")) == ["old"]


@pytest.mark.guarantee("IDX-09")
async def test_holes_are_closed_five_hundred_at_a_time(
    redis: RedisBackend, raw: RedisConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = redis.event_storage()
    await raw.command("ZADD", f"{redis.prefix}event:types:t", *(word for n in range(1001) for word in (n, f"dead{n}")))
    run, sizes = storage._connection.run, []

    async def count(script: Any, keys: Any, rows: str, *members: bytes) -> Any:
        sizes.append(len(members))
        return await run(script, keys, rows, *members)

    monkeypatch.setattr(storage._connection, "run", count)

    assert await storage.list_events("t", limit=2000) == []
    assert sizes == [500, 500, 1]
    assert await raw.command("EXISTS", f"{redis.prefix}event:types:t") == 0


@pytest.mark.slow
@pytest.mark.guarantee("IDX-09")
async def test_thousands_of_holes_are_closed_in_one_listing(redis: RedisBackend, raw: RedisConnection) -> None:
    """Slow: it takes more holes than the stack of one script holds."""
    storage = redis.event_storage()
    await storage.store_event(Event("t", event_id="live", timestamp=9_000))
    index = f"{redis.prefix}event:types:t"
    for start in range(0, 8_500, 500):
        await raw.command("ZADD", index, *(word for n in range(start, start + 500) for word in (n, f"dead{n}")))

    assert ids(await storage.list_events("t", limit=1)) == ["live"]
    assert await raw.command("ZCARD", index) == 1


@pytest.mark.parametrize("row", [b"\xff{not json", b"[]", b'{"event_type": ""}'], ids=["bytes", "list", "empty"])
async def test_a_row_that_cannot_be_read_is_skipped_in_lists_and_named(
    redis: RedisBackend, raw: RedisConnection, caplog: pytest.LogCaptureFixture, row: bytes
) -> None:
    storage = redis.event_storage()
    await storage.store_event(Event("t", event_id="bad"))
    await storage.store_event(Event("t", event_id="good"))
    await raw.command("SET", f"{redis.prefix}event:events:bad", row)

    assert ids(await storage.list_events("t", limit=1)) == ["good"]
    assert [record.levelname for record in caplog.records if "bad" in record.getMessage()] == ["WARNING"]
    with pytest.raises(EventError):
        await storage.get_event("bad")


@pytest.mark.guarantee("IDX-01", "IDX-03")
async def test_an_index_outlives_its_longest_lived_member(redis: RedisBackend, raw: RedisConnection) -> None:
    index = f"{redis.prefix}event:types:t"

    await redis.event_storage(ttl=60).store_event(Event("t"))
    assert await is_about(raw, index, 60_000)
    await redis.event_storage(ttl=3600).store_event(Event("t"))
    assert await is_about(raw, index, 3_600_000)
    await redis.event_storage(ttl=60).store_event(Event("t"))
    assert await is_about(raw, index, 3_600_000)


@pytest.mark.guarantee("IDX-04")
async def test_an_index_without_a_time_to_live_gets_one(redis: RedisBackend, raw: RedisConnection) -> None:
    index = f"{redis.prefix}event:types:t"
    await redis.event_storage().store_event(Event("t"))
    await raw.command("PERSIST", index)

    await redis.event_storage(ttl=60).store_event(Event("t"))

    assert await is_about(raw, index, 60_000)


async def test_a_row_of_other_software_with_keys_of_its_own_is_an_event(
    redis: RedisBackend, raw: RedisConnection
) -> None:
    event = Event("t", {"n": 1}, event_id="e")
    row = json.dumps(event.model_dump() | {"tenant": "x"})
    await raw.command("SET", f"{redis.prefix}event:events:e", row)

    assert await redis.event_storage().get_event("e") == event


async def test_lifetimes_are_measured_by_the_server(redis: RedisBackend, clock: ManualClock) -> None:
    storage = redis.event_storage(clock=clock, ttl=60)
    await storage.store_event(Event("t", event_id="e"))

    clock.advance(61)

    assert await storage.get_event("e") is not None


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf"), True, "60"])
def test_a_lifetime_that_cannot_be_is_refused(ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl"):
        RedisEventStorage("redis://localhost", ttl=ttl)


@pytest.mark.guarantee("REDIS-01")
async def test_storing_is_one_round_trip_from_the_second_time_on(own_server: RedisServer) -> None:
    storage = RedisEventStorage(own_server.url)
    await storage.store_event(Event("t"))
    before, requests_before = await calls(storage._connection), await requests(storage._connection)

    for number in range(10):
        await storage.store_event(Event("t", {"n": number}))

    assert await requests(storage._connection) - requests_before == 10 + 1
    # What runs inside the script counts as calls as well; only EVALSHA came over the wire.
    spent = {name: count - before.get(name, 0) for name, count in (await calls(storage._connection)).items()}
    assert spent.pop("evalsha") == spent.pop("set") == spent.pop("zadd") == 10
    assert {name for name, count in spent.items() if count} <= {"get", "pttl", "pexpire", "info"}
    await storage.aclose()


@pytest.mark.guarantee("REDIS-01")
async def test_a_batch_is_stored_in_one_round_trip_in_order(redis: RedisBackend) -> None:
    storage = redis.event_storage()
    trips: list[object] = []
    commands = storage._connection.commands

    async def count(batch: Iterable[tuple[str | bytes | float, ...]]) -> list[object]:
        trips.append(batch)
        return await commands(batch)

    storage._connection.commands = count  # type: ignore[method-assign]
    events = [Event("t", {"n": number}, event_id=f"e{number:03}", timestamp=number) for number in range(100)]

    assert await storage.batch_store_events(iter(events)) == ids(events)
    assert len(trips) == 1
    assert await storage.list_events("t") == events


async def test_a_batch_with_an_event_that_has_no_json_stores_nothing(redis: RedisBackend) -> None:
    storage = redis.event_storage()

    with pytest.raises(ValueError, match="data"):
        await storage.batch_store_events([Event("t"), Event("t", {"n": float("nan")})])
    assert await storage.list_events() == []


async def test_nothing_is_logged_by_ordinary_work(redis: RedisBackend, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    storage = redis.event_storage()
    await storage.store_event(Event("t", event_id="e"))
    await storage.list_events()

    assert [record for record in caplog.records if record.name.startswith("lastbus")] == []
