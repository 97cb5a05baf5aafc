"""Subscription storage in Redis: the indexes, what a question costs, and marks that are made exactly once."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from typing import Any

import pytest

from lastbus import EventError, EventSubscription
from lastbus._backends.redis.connection import RedisConnection
from lastbus._kit.servers import RedisServer
from lastbus.redis import RedisEventSubscriptionStorage
from tests._backends.redis import RedisBackend

FIELDS = ("event_type", "correlation_id", "flow_id", "node_id")


def subscription(subscription_id: str, event_type: str = "t", **fields: Any) -> EventSubscription:
    return EventSubscription(subscription_id=subscription_id, event_type=event_type, **fields)


def ids(found: list[EventSubscription]) -> list[str]:
    return [each.subscription_id for each in found]


class Spy(RedisConnection):
    """A connection that remembers the commands it sent, those of one round trip in one list."""

    trips: list[list[tuple[Any, ...]]]

    async def command(self, *words: Any) -> Any:
        self.trips.append([words])
        return await super().command(*words)

    async def commands(self, batch: Any) -> Any:
        self.trips.append(list(batch))
        return await super().commands(self.trips[-1])

    async def run_beside(self, script: Any, batch: Any) -> Any:
        self.trips.append(list(batch))
        return await super().run_beside(script, self.trips[-1])


@pytest.fixture
def spy(redis: RedisBackend) -> Spy:
    spy = Spy(client=redis.client())
    spy.trips = []
    redis._connections.append(spy)
    return spy


@pytest.fixture
def spied(redis: RedisBackend, spy: Spy) -> RedisEventSubscriptionStorage:
    return RedisEventSubscriptionStorage(key_prefix=f"{redis.prefix}subscription:", connection=spy)


@pytest.mark.guarantee("SUBS-16")
async def test_a_subscription_is_one_json_text_in_four_sets(redis: RedisBackend, raw: RedisConnection) -> None:
    storage = redis.subscription_storage()
    stored = subscription("s:1", "a:b", correlation_id="c:1", flow_id="f:1", node_id="n:1", filter_condition={"x": []})

    await storage.store_subscription(stored)

    prefix = f"{redis.prefix}subscription:"
    indexes = {b"type:a:b", b"correlation:c:1", b"flow:f:1", b"node:n:1"}
    assert await raw.scan(prefix) == {b"data:s:1", *indexes}
    assert EventSubscription.model_validate_json(await raw.command("GET", f"{prefix}data:s:1")) == stored
    for index in indexes:
        assert await raw.command("SMEMBERS", prefix.encode() + index) == {b"s:1"}
        assert 0 < await raw.command("PTTL", prefix.encode() + index) <= 604_800_000


@pytest.mark.guarantee("CORE-29", "SUBS-16")
async def test_a_deleted_subscription_leaves_no_key(redis: RedisBackend, raw: RedisConnection) -> None:
    storage = redis.subscription_storage()
    await storage.store_subscription(subscription("s", "é", correlation_id="c", flow_id="f", node_id="n"))
    await storage.mark_event_processed("s", "e")

    assert await storage.delete_subscription("s") is True
    assert await storage.delete_subscription("s") is False
    assert await raw.scan(redis.prefix) == set()


@pytest.mark.guarantee("SUBS-16")
async def test_storing_an_id_again_replaces_fields_indexes_and_marks(redis: RedisBackend, raw: RedisConnection) -> None:
    storage = redis.subscription_storage()
    await storage.store_subscription(subscription("s", "old", correlation_id="c", flow_id="f", node_id="n"))
    await storage.mark_event_processed("s", "e")

    await storage.store_subscription(subscription("s", "new", flow_id="g"))

    assert await raw.scan(f"{redis.prefix}subscription:") == {b"data:s", b"type:new", b"flow:g"}
    assert await storage.mark_event_processed("s", "e") is True


@pytest.mark.guarantee("SUBS-01")
@pytest.mark.parametrize("given", [c for n in range(5) for c in itertools.combinations(FIELDS, n)], ids="+".join)
async def test_the_most_selective_given_index_is_read(
    redis: RedisBackend, spied: RedisEventSubscriptionStorage, spy: Spy, given: tuple[str, ...]
) -> None:
    await spied.list_subscriptions(**dict.fromkeys(given, "x"))

    order = [("correlation_id", "correlation"), ("event_type", "type"), ("flow_id", "flow"), ("node_id", "node")]
    chosen = next((kind for field, kind in order if field in given), None)
    first = spy.trips[0][0]
    assert first[0] == ("SMEMBERS" if chosen else "SCAN")
    if chosen:
        assert [trip[0][1] for trip in spy.trips] == [f"{redis.prefix}subscription:{chosen}:x"]


@pytest.mark.guarantee("SUBS-02", "SUBS-03", "SUBS-08")
async def test_every_combination_of_filters_finds_what_has_all_of_them(redis: RedisBackend) -> None:
    storage = redis.subscription_storage()
    stored = [
        subscription(f"s{number}", values[0], **dict(zip(FIELDS[1:], values[1:], strict=True)))
        for number, values in enumerate(itertools.product(("a", "a:b"), (None, "a"), (None, "b"), (None, "a:b")))
    ]
    for each in stored:
        await storage.store_subscription(each)

    for values in itertools.product((None, "a", "a:b"), (None, "a"), (None, "b"), (None, "a:b", "zz")):
        asked = {field: value for field, value in zip(FIELDS, values, strict=True) if value is not None}
        expected = {
            each.subscription_id
            for each in stored
            if all(getattr(each, field) == value for field, value in asked.items())
        }
        assert set(ids(await storage.list_subscriptions(**asked))) == expected


@pytest.mark.guarantee("SUBS-04", "SUBS-05", "SUBS-06", "SUBS-07")
async def test_a_question_reads_its_candidates_in_one_mget_however_many_filters(
    spied: RedisEventSubscriptionStorage, spy: Spy
) -> None:
    for number in range(20):
        await spied.store_subscription(subscription(f"s{number}", "t", correlation_id="few" if number < 2 else "many"))
    costs = []

    for asked in ({"correlation_id": "few"}, {"correlation_id": "few", "event_type": "t"}, {"event_type": "t"}):
        spy.trips.clear()
        await spied.list_subscriptions(**asked)
        mgets = [words for trip in spy.trips for words in trip if words[0] == "MGET"]
        assert not [words for trip in spy.trips for words in trip if words[0] == "GET"]
        costs.append((len(spy.trips), len(mgets), len(mgets[0]) - 1))

    assert costs == [(2, 1, 2), (2, 1, 2), (2, 1, 20)]


@pytest.mark.guarantee("SUBS-04", "SUBS-05", "SUBS-07")
@pytest.mark.parametrize(("candidates", "commands"), [(1, 3), (500, 3), (501, 4)])
async def test_a_question_is_three_commands_on_two_trips_for_up_to_five_hundred_candidates(
    spied: RedisEventSubscriptionStorage, spy: Spy, raw: RedisConnection, candidates: int, commands: int
) -> None:
    await spied.store_subscription(subscription("other", correlation_id="other"))
    await spied.store_subscription(subscription("marked", correlation_id="c"))
    await spied.mark_event_processed("marked", "e")
    index = spied._keys.index("correlation", "c")
    for number in range(1, candidates):
        await raw.command("SADD", index, f"gone{number}")
    spy.trips.clear()

    [found] = await spied.list_subscriptions(correlation_id="c")

    assert found.processed_events == {"e"}
    assert (len(spy.trips), sum(map(len, spy.trips))) == (2, commands)


@pytest.mark.guarantee("SUBS-05")
async def test_a_server_that_has_forgotten_its_scripts_still_answers(
    own_server: RedisServer,
) -> None:
    storage = RedisEventSubscriptionStorage(own_server.url)
    await storage.store_subscription(subscription("s"))
    for _ in range(2):
        assert ids(await storage.list_subscriptions(event_type="t")) == ["s"]
        await storage._connection.command("SCRIPT", "FLUSH")
    await storage.aclose()


@pytest.mark.guarantee("SUBS-09")
async def test_ids_with_colons_are_found_among_all(redis: RedisBackend) -> None:
    storage = redis.subscription_storage()
    for subscription_id in ("1:", ":", "a:b:c", "data:x"):
        await storage.store_subscription(subscription(subscription_id))

    assert sorted(ids(await storage.list_subscriptions())) == ["1:", ":", "a:b:c", "data:x"]


async def test_lists_are_oldest_first(redis: RedisBackend) -> None:
    storage = redis.subscription_storage()
    for subscription_id, created_at in (("b", 2.0), ("c", 1.0), ("a", 2.0)):
        await storage.store_subscription(subscription(subscription_id, created_at=created_at))

    assert ids(await storage.list_subscriptions()) == ids(await storage.list_subscriptions("t")) == ["c", "a", "b"]


@pytest.mark.guarantee("IDX-07")
async def test_a_lapsed_row_is_dropped_from_the_index_that_was_asked(redis: RedisBackend, raw: RedisConnection) -> None:
    storage = redis.subscription_storage()
    await storage.store_subscription(subscription("gone", correlation_id="c"))
    await storage.store_subscription(subscription("here", correlation_id="c"))
    await raw.command("DEL", f"{redis.prefix}subscription:data:gone")

    assert ids(await storage.list_subscriptions("t", correlation_id="c")) == ["here"]
    assert await raw.command("SMEMBERS", f"{redis.prefix}subscription:correlation:c") == {b"here"}
    assert await raw.command("SMEMBERS", f"{redis.prefix}subscription:type:t") == {b"gone", b"here"}


@pytest.mark.guarantee("IDX-08")
async def test_a_subscription_that_comes_back_while_holes_are_closed_stays_listed(
    redis: RedisBackend, raw: RedisConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, writer = redis.subscription_storage(), redis.subscription_storage()
    await writer.store_subscription(subscription("s"))
    await raw.command("DEL", f"{redis.prefix}subscription:data:s")
    run = storage._connection.run

    async def be_late(*call: Any) -> Any:
        await writer.store_subscription(subscription("s"))
        return await run(*call)

    monkeypatch.setattr(storage._connection, "run", be_late)

    assert await storage.list_subscriptions("t") == []
    assert ids(await storage.list_subscriptions("t")) == ["s"]


@pytest.mark.guarantee("SUBS-13")
async def test_a_row_that_cannot_be_read_is_skipped_in_lists_and_named(
    redis: RedisBackend, raw: RedisConnection, caplog: pytest.LogCaptureFixture
) -> None:
    storage = redis.subscription_storage()
    await storage.store_subscription(subscription("bad"))
    await storage.store_subscription(subscription("good"))
    await raw.command("SET", f"{redis.prefix}subscription:data:bad", b'{"event_type": ""}')

    assert ids(await storage.list_subscriptions("t")) == ["good"]
    assert [record.levelname for record in caplog.records if "bad" in record.getMessage()] == ["WARNING"]
    with pytest.raises(EventError):
        await storage.get_subscription("bad")


async def test_the_first_mark_is_true_and_every_other_false(redis: RedisBackend) -> None:
    storage = redis.subscription_storage()
    await storage.store_subscription(subscription("s", processed_events={"before"}))

    assert await storage.mark_event_processed("s", "e:1") is True
    assert await storage.mark_event_processed("s", "e:1") is False
    assert await storage.mark_event_processed("s", "before") is False
    assert await storage.mark_event_processed("nobody", "e:1") is False
    found = await storage.get_subscription("s")
    assert found is not None
    assert found.processed_events == {"before", "e:1"}
    assert (await storage.list_subscriptions("t"))[0].processed_events == {"before", "e:1"}


async def test_of_concurrent_marks_exactly_one_is_true(redis: RedisBackend) -> None:
    storages = [redis.subscription_storage() for _ in range(5)]
    await storages[0].store_subscription(subscription("s"))

    marks = await asyncio.gather(*(each.mark_event_processed("s", "e") for each in storages * 4))

    assert sorted(marks) == [False] * 19 + [True]


@pytest.mark.guarantee("REDIS-10")
async def test_a_mark_that_the_driver_sends_twice_is_still_the_first(
    redis: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = redis.subscription_storage()
    await storage.store_subscription(subscription("s"))
    send = storage._connection._send

    async def send_twice(words: tuple[Any, ...]) -> Any:
        await send(words)
        return await send(words)

    monkeypatch.setattr(storage._connection, "_send", send_twice)

    assert await storage.mark_event_processed("s", "e") is True


async def test_a_mark_leaves_the_row_and_its_time_to_live_alone(redis: RedisBackend, raw: RedisConnection) -> None:
    storage = redis.subscription_storage()
    row, marks = f"{redis.prefix}subscription:data:s", f"{redis.prefix}subscription:processed:s"
    await storage.store_subscription(subscription("s", filter_condition={"tags": [], "size": 2**53 + 1}))
    text = await raw.command("GET", row)
    await raw.command("PEXPIRE", row, 50_000)

    await storage.mark_event_processed("s", "e")

    assert await raw.command("GET", row) == text
    assert 0 < await raw.command("PTTL", row) <= 50_000
    assert 0 < await raw.command("PTTL", marks) <= 50_000


async def test_a_subscription_outlives_its_own_timeout(redis: RedisBackend, raw: RedisConnection) -> None:
    await redis.subscription_storage().store_subscription(subscription("s", timeout=864_000))

    assert await raw.command("PTTL", f"{redis.prefix}subscription:data:s") > 864_000_000


@pytest.mark.guarantee("IDX-02")
async def test_an_index_outlives_its_longest_lived_member(redis: RedisBackend, raw: RedisConnection) -> None:
    for ttl in (3600, 60):
        storage = RedisEventSubscriptionStorage(
            key_prefix=f"{redis.prefix}subscription:", ttl=ttl, connection=redis.connection()
        )
        await storage.store_subscription(subscription(f"s{ttl}"))

    assert await raw.command("PTTL", f"{redis.prefix}subscription:type:t") > 3_000_000


@pytest.mark.guarantee("SUBS-10")
@pytest.mark.parametrize("event_type", ["", "   ", "\t"])
async def test_a_model_without_a_type_is_refused_before_anything_is_stored(
    redis: RedisBackend, raw: RedisConnection, event_type: str
) -> None:
    forged = EventSubscription.model_construct(**{**subscription("s").model_dump(), "event_type": event_type})

    with pytest.raises(ValueError, match="event_type"):
        await redis.subscription_storage().store_subscription(forged)
    assert await raw.scan(redis.prefix) == set()


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}], ids=["nan", "object", "set"])
async def test_a_filter_that_json_cannot_carry_is_refused(redis: RedisBackend, value: object) -> None:
    with pytest.raises(ValueError, match="cannot be stored as JSON"):
        await redis.subscription_storage().store_subscription(subscription("s", filter_condition={"x": value}))


async def test_a_row_of_other_software_is_found_and_its_marks_count(redis: RedisBackend, raw: RedisConnection) -> None:
    storage = redis.subscription_storage()
    row = {"subscription_id": "s", "event_type": "t", "created_at": 1.0, "processed_events": ["e"], "tenant_id": None}
    await raw.command("SET", f"{redis.prefix}subscription:data:s", json.dumps(row))
    await raw.command("SADD", f"{redis.prefix}subscription:type:t", "s")

    assert ids(await storage.list_subscriptions("t")) == ["s"]
    assert await storage.mark_event_processed("s", "e") is False
    assert await storage.mark_event_processed("s", "f") is True


async def test_nothing_is_logged_by_ordinary_work(redis: RedisBackend, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    storage = redis.subscription_storage()
    await storage.store_subscription(subscription("s"))
    await storage.list_subscriptions()

    assert [record for record in caplog.records if record.name.startswith("lastbus")] == []


@pytest.mark.guarantee("IDX-04")
@pytest.mark.parametrize("kind", ["type:t", "correlation:c", "flow:f", "node:n"])
async def test_an_index_without_a_time_to_live_gets_one(redis: RedisBackend, raw: RedisConnection, kind: str) -> None:
    storage, index = redis.subscription_storage(), f"{redis.prefix}subscription:{kind}"
    fields = {"correlation_id": "c", "flow_id": "f", "node_id": "n"}
    await storage.store_subscription(subscription("s", **fields))
    await raw.command("PERSIST", index)

    await storage.store_subscription(subscription("u", **fields))

    assert 0 < await raw.command("PTTL", index) <= 604_800_000
