"""Writer: what plain synchronous code stores is what the engine stores, and its housekeeping never hurts a write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from lastbus import Event, EventStorageError, EventSubscription
from lastbus._backends.redis import connection
from lastbus._backends.redis.announcements import read_note
from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.scripts import PRUNE_EVENTS, STORE_EVENT
from lastbus._backends.redis.writer import TYPES_MAX, Turns
from lastbus._kit.servers import RedisServer
from lastbus._settings import PRUNE_ON_WRITE_OFF
from lastbus.redis import RedisEventStorage, RedisEventWriter, event_index_pruned_metrics
from lastbus.testing import ManualClock, Recorder
from tests._backends.redis import RedisBackend
from tests.backends.redis.server import clients, comes_down_to
from tests.contract.waiting import hears, settled

EVENTS = [
    Event("plain", event_id="e1", timestamp=7),
    Event("order:created", {"n": 1, "é": [None, True, 1.5]}, "c:1", "till", event_id="e:2", timestamp=1234.5678901),
    Event("é.ü", {"half": "\ud800"}, event_id="ü", timestamp=-1.5),
    Event("plain", {"again": 1}, event_id="e1", timestamp=9),
    Event("moved", event_id="ü", timestamp=3),
]


class Spy:
    """A synchronous client that remembers what is sent, and can be made to fail."""

    def __init__(self, client: Redis) -> None:
        self.connection_pool = client.connection_pool
        self.sent: list[tuple[Any, ...]] = []
        self.fails: Callable[[tuple[Any, ...]], BaseException | None] = lambda words: None
        self._client = client

    def execute_command(self, *words: Any, **options: Any) -> Any:
        self.sent.append(words)
        error = self.fails(words)
        if error is not None:
            raise error
        return self._client.execute_command(*words, **options)


async def dump(raw: RedisConnection, prefix: str) -> dict[bytes, tuple[Any, int]]:
    """Every key behind `prefix` with its value and its life in minutes."""
    found: dict[bytes, tuple[Any, int]] = {}
    for rest in await raw.scan(prefix):
        key = prefix.encode() + rest
        kind = await raw.command("TYPE", key)
        words = ("GET", key) if kind == b"string" else ("ZRANGE", key, 0, -1, "WITHSCORES")
        found[rest] = (await raw.command(*words), round(await raw.command("PTTL", key) / 60_000))
    return found


@pytest.mark.guarantee("STORE-07")
@pytest.mark.parametrize("ttl", [None, 3600])
async def test_both_writers_leave_the_same_keys_values_scores_and_lives(
    redis: RedisBackend, raw: RedisConnection, ttl: float | None
) -> None:
    here, there = f"{redis.prefix}a:", f"{redis.prefix}b:"
    storage = RedisEventStorage(key_prefix=here, ttl=ttl, connection=raw)
    writer = RedisEventWriter(event_key_prefix=there, client=redis.sync_client(), ttl=ttl)

    for event in EVENTS:
        assert await storage.store_event(event) == writer.store_event(event) == event.event_id

    written = await dump(raw, there)
    assert written == await dump(raw, here)
    assert {b"events:e1", b"events:e:2", "events:ü".encode(), b"types:plain", b"types:order:created"} < set(written)
    writer.close()


@pytest.mark.guarantee("STORE-07")
async def test_a_shorter_life_leaves_the_index_its_longer_one(redis: RedisBackend, raw: RedisConnection) -> None:
    await redis.event_storage().store_event(Event("t"))

    redis.writer(ttl=60).store_event(Event("t"))

    assert await raw.command("PTTL", f"{redis.prefix}event:types:t") > 600_000_000


@pytest.mark.guarantee("STORE-07")
@pytest.mark.parametrize("decode", [False, True], ids=["bytes", "str"])
async def test_a_client_of_str_writes_and_looks_through_like_one_of_bytes(
    redis: RedisBackend, raw: RedisConnection, caplog: pytest.LogCaptureFixture, decode: bool
) -> None:
    await raw.command("ZADD", f"{redis.prefix}event:types:t", 9e9, "lost")
    writer = redis.writer(redis.sync_client(decode_responses=decode))

    writer.store_event(Event("t", event_id="live"))

    assert await raw.command("ZRANGE", f"{redis.prefix}event:types:t", 0, -1) == [b"live"]
    assert [record.levelname for record in caplog.records if "lost" in record.getMessage()] == ["ERROR"]


@pytest.mark.guarantee("STORE-07")
def test_what_cannot_be_stored_is_refused_before_anything_is_sent() -> None:
    with RedisEventWriter("redis://127.0.0.1:1/0") as writer:
        for bad in (Event(" "), Event("t", {"n": float("nan")})):
            with pytest.raises(ValueError):
                writer.store_event(bad)
            with pytest.raises(ValueError):
                writer.publish(bad)
        with pytest.raises(TypeError):
            writer.publish(7)  # type: ignore[arg-type]


@pytest.mark.guarantee("STORE-07")
def test_a_server_that_is_gone_is_an_error_without_any_secret(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RETRY_SECONDS_MAX", 0.001)
    with RedisEventWriter(f"redis://:geheim@127.0.0.1:{own_server.port}/0") as writer:
        own_server.stop()
        with pytest.raises(EventStorageError) as caught:
            writer.store_event(Event("t"))

        assert "geheim" not in f"{caught.value} {caught.value!r} {writer!r}"


@pytest.mark.guarantee("STORE-08")
async def test_an_event_whose_notice_nobody_heard_is_found_by_the_engine(redis: RedisBackend) -> None:
    event_id = redis.writer().publish("order:paid", total=3)

    bus = redis.make_bus()

    found = await bus.get_event(event_id)
    assert (found.event_type, found.data) == ("order:paid", {"total": 3})
    assert await bus.event_storage.list_events("order:paid") == [found]
    assert await bus.event_storage.list_events(start_time=found.timestamp, end_time=found.timestamp) == [found]


@pytest.mark.guarantee("STORE-08", "IDX-29")
async def test_what_is_published_is_heard_once_by_every_handler(redis: RedisBackend) -> None:
    bus, exact, wild, last = redis.make_bus(), Recorder(), Recorder(), Recorder()
    await bus.register_handler("t", exact)
    await bus.register_handler("*", wild)
    await bus.register_handler("last", last)
    writer = redis.writer()

    event_id = writer.publish("t", n=1)
    writer.publish("last")
    await hears(last)
    await hears(wild, 2)
    await settled(bus)

    assert [event.event_id for event in exact.events] == [event_id]
    assert sorted(event.event_type for event in wild.events) == ["last", "t"]


@pytest.mark.guarantee("IDX-29")
async def test_a_notice_goes_to_both_well_known_channels_once(own_server: RedisServer) -> None:
    client = Redis.from_url(own_server.url)
    ear = client.pubsub()
    ear.psubscribe("*")
    event = Event("a:b", {"n": 1})

    with RedisEventWriter(own_server.url) as writer:
        writer.publish(event, prevent_duplicate_consumption=False)
    client.publish("the end", "")

    heard: list[tuple[str, bytes]] = []
    while not heard or heard[-1][0] != "the end":
        message = ear.get_message(timeout=5)
        assert message is not None
        if message["type"] == "pmessage":
            heard.append((message["channel"].decode(), message["data"]))
    (canonical, announced), (legacy, plain), _ = heard
    assert (canonical, legacy) == ("plaita:events:a:b", "plaita:event:channel:a:b")
    assert Event.model_validate_json(announced) == event
    assert read_note(announced).deduplicate is False
    assert plain.decode() == event.model_dump_json()
    ear.close()
    client.close()


@pytest.mark.guarantee("IDX-29")
async def test_where_the_channels_are_one_the_notice_is_one(redis: RedisBackend) -> None:
    listener = redis.sync_client()
    ear = listener.pubsub()
    ear.subscribe(f"{redis.prefix}event:channel:t", f"{redis.prefix}the end")

    redis.writer().publish("t")
    listener.publish(f"{redis.prefix}the end", "")

    channels: list[str] = []
    while not channels or not channels[-1].endswith("the end"):
        message = ear.get_message(timeout=5)
        assert message is not None
        if message["type"] == "message":
            channels.append(message["channel"].decode())
    assert len(channels) == 2
    ear.unsubscribe()
    ear.close()
    listener.close()


@pytest.mark.guarantee("IDX-30")
async def test_publishing_writes_no_key_but_the_well_known_ones(own_server: RedisServer) -> None:
    with RedisEventWriter(own_server.url) as writer:
        writer.publish(Event("t", event_id="e"))

    raw = RedisConnection(own_server.url)
    assert await raw.scan("") == {b"plaita:event:events:e", b"plaita:event:types:t"}
    await raw.aclose()


@pytest.mark.guarantee("IDX-27")
async def test_a_subscription_that_is_deleted_leaves_no_key(redis: RedisBackend, raw: RedisConnection) -> None:
    stored = EventSubscription(
        event_type="a:b", subscription_id="s:1", correlation_id="c:1", flow_id="f:1", node_id="n:1"
    )
    storage = redis.subscription_storage()
    await storage.store_subscription(stored)
    await storage.mark_event_processed("s:1", "e")
    writer = redis.writer()

    assert writer.delete_subscription("s:1") is True
    assert writer.delete_subscription("s:1") is False
    assert await raw.scan(redis.prefix) == set()


async def test_a_closed_writer_leaves_no_connection_at_the_server_and_connects_again(own_server: RedisServer) -> None:
    watch = RedisConnection(own_server.url)
    before = await clients(watch)

    with RedisEventWriter(own_server.url) as writer:
        writer.store_event(Event("t"))
        assert await clients(watch) > before
    assert await comes_down_to(before, watch)

    writer.store_event(Event("t"))
    writer.close()
    assert await comes_down_to(before, watch)
    await watch.aclose()


# -- housekeeping -----------------------------------------------------------------------------------------------


@pytest.fixture
def spy(redis: RedisBackend) -> Iterator[Spy]:
    client = redis.sync_client()
    yield Spy(client)
    client.close()


async def bury(raw: RedisConnection, redis: RedisBackend, event_type: str = "t", count: int = 20) -> str:
    """An index with dead entries of old; returns its key."""
    index = f"{redis.prefix}event:types:{event_type}"
    await raw.command("ZADD", index, *(word for number in range(count) for word in (number, f"dead{number:02}")))
    return index


def write(redis: RedisBackend, spy: Spy, clock: ManualClock) -> RedisEventWriter:
    return RedisEventWriter(event_key_prefix=f"{redis.prefix}event:", client=spy, clock=clock)  # type: ignore[arg-type]


@pytest.mark.guarantee("IDX-20")
async def test_a_write_drops_a_few_of_its_type_once_a_minute(
    redis: RedisBackend, raw: RedisConnection, spy: Spy, clock: ManualClock
) -> None:
    index, other = await bury(raw, redis), await bury(raw, redis, "other")
    writer = write(redis, spy, clock)
    left = []

    for seconds in (0, 30, 29.9, 0.1, 60):
        clock.advance(seconds)
        writer.store_event(Event("t", event_id="live", timestamp=clock.time()))
        left.append(await raw.command("ZCARD", index) - 1)

    assert left == [12, 12, 12, 4, 0]
    assert await raw.command("ZCARD", other) == 20
    writer.store_event(Event("other", timestamp=clock.time()))
    assert await raw.command("ZCARD", other) == 13


@pytest.mark.guarantee("IDX-20")
def test_a_clock_that_was_put_back_does_not_make_anybody_wait(clock: ManualClock) -> None:
    turns = Turns(clock)
    assert turns.is_due("t")

    clock.advance(-3600)

    assert turns.is_due("t")
    assert not turns.is_due("t")


@pytest.mark.guarantee("IDX-20")
def test_of_types_without_number_only_the_latest_are_remembered(clock: ManualClock) -> None:
    turns = Turns(clock)

    for number in range(TYPES_MAX + 1):
        assert turns.is_due(f"t{number}")

    assert turns.is_due("t0")
    assert not turns.is_due(f"t{TYPES_MAX}")


@pytest.mark.guarantee("IDX-20")
async def test_what_has_a_row_is_left_alone_however_old(
    redis: RedisBackend, raw: RedisConnection, spy: Spy, clock: ManualClock
) -> None:
    await redis.event_storage().batch_store_events(Event("t", event_id=f"e{n}", timestamp=n) for n in range(5))

    write(redis, spy, clock).store_event(Event("t", event_id="new", timestamp=clock.time()))

    assert await raw.command("ZCARD", f"{redis.prefix}event:types:t") == 6


@pytest.mark.guarantee("IDX-24")
async def test_what_a_write_drops_is_counted(
    redis: RedisBackend, raw: RedisConnection, spy: Spy, clock: ManualClock
) -> None:
    await bury(raw, redis, count=3)
    before = event_index_pruned_metrics()

    write(redis, spy, clock).store_event(Event("t", timestamp=clock.time()))

    after = event_index_pruned_metrics()
    assert {kind: after[kind] - before[kind] for kind in after if after[kind] != before[kind]} == {"event_type": 3}


@pytest.mark.guarantee("IDX-21")
async def test_looking_for_holes_can_be_turned_off(
    redis: RedisBackend, raw: RedisConnection, spy: Spy, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = await bury(raw, redis)
    writer = write(redis, spy, clock)
    writer.store_event(Event("warm up"))
    spy.sent.clear()
    monkeypatch.setenv(PRUNE_ON_WRITE_OFF.name, "1")

    write(redis, spy, clock).store_event(Event("t", timestamp=clock.time()))

    assert [words[:2] for words in spy.sent] == [("EVALSHA", STORE_EVENT.digest)]
    assert await raw.command("ZCARD", index) == 21


@pytest.mark.guarantee("IDX-22")
@pytest.mark.parametrize("step", ["ZRANGE", PRUNE_EVENTS.digest])
async def test_a_failure_to_look_for_holes_is_a_warning_and_no_more(
    redis: RedisBackend,
    raw: RedisConnection,
    spy: Spy,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    step: str,
) -> None:
    await bury(raw, redis)
    spy.fails = lambda words: ConnectionResetError("gone") if step in words else None

    assert write(redis, spy, clock).store_event(Event("t", event_id="live", timestamp=clock.time())) == "live"

    assert await redis.event_storage().get_event("live") is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'t'" in caplog.text


@pytest.mark.guarantee("IDX-23")
async def test_holes_are_looked_for_when_the_event_is_stored(
    redis: RedisBackend, raw: RedisConnection, spy: Spy, clock: ManualClock
) -> None:
    await bury(raw, redis)
    writer = write(redis, spy, clock)
    writer.store_event(Event("warm up"))
    spy.sent.clear()

    writer.store_event(Event("t", timestamp=clock.time()))

    steps = [words[1] if words[0] == "EVALSHA" else words[0] for words in spy.sent]
    assert steps[:3] == [STORE_EVENT.digest, "ZRANGE", PRUNE_EVENTS.digest]


@pytest.mark.guarantee("IDX-23")
async def test_a_write_that_fails_looks_for_nothing(redis: RedisBackend, spy: Spy, clock: ManualClock) -> None:
    spy.fails = lambda words: ConnectionResetError("gone") if STORE_EVENT.digest in words else None

    with pytest.raises(EventStorageError):
        write(redis, spy, clock).store_event(Event("t"))

    assert [words[0] for words in spy.sent] == ["EVALSHA"]


def test_one_writer_serves_many_threads(own_server: RedisServer) -> None:
    with RedisEventWriter(own_server.url) as writer:
        threads = [threading.Thread(target=writer.publish, args=("t",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)

    client = Redis.from_url(own_server.url)
    assert client.zcard("plaita:event:types:t") == 8
    client.close()
