"""The Redis bus: one round trip per publish, announcements that others can read, and a listener that hears once."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

import lastbus
from lastbus import BusClosedError, Event, EventStorageError
from lastbus._backends.redis.announcements import Note, Remembered, announce, read_note
from lastbus._backends.redis.bus import RedisEventBus
from lastbus._backends.redis.connection import RedisConnection
from lastbus._kit.servers import RedisServer
from lastbus.testing import Gate, ManualClock, Recorder, everyone_blocked
from tests._backends.eventually import eventually
from tests._backends.redis import FakeRedisBackend, RedisBackend
from tests.backends.redis.server import LOOKS_MAX, calls, clients, comes_down_to, requests
from tests.contract.waiting import settled, until

OURS = Note("some bus", "some bus-1")


def message(event: Event, note: Note | None = OURS) -> str:
    """What another process publishes; without a note it is other software."""
    text = event.model_dump_json()
    return text if note is None else text[:-1] + announce("", note).ending


async def say(raw: RedisConnection, redis: RedisBackend, event_type: str, data: str | bytes) -> int:
    return int(await raw.command("PUBLISH", f"{redis.prefix}event:channel:{event_type}", data))


async def heard(redis: RedisBackend, recorder: Recorder, bus: Any) -> list[Event]:
    """What `recorder` has heard when everything that was announced before has passed through `bus`."""
    last = Recorder()
    last_id = await bus.register_handler("the end", last)
    await redis.make_bus().publish("the end")
    await last.has_heard()
    await bus.unregister_handler(last_id)
    await settled(bus)
    return recorder.events


# -- the wire ---------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("REDIS-02")
async def test_an_announcement_is_the_event_with_one_more_key(redis: RedisBackend) -> None:
    bus, client = redis.make_bus(), redis.client()
    event = Event("order:paid", {"n": 1}, "c", "s")
    ear = client.pubsub()
    await ear.subscribe(f"{redis.prefix}event:channel:order:paid")
    while (await ear.get_message(timeout=5))["type"] != "subscribe":
        pass

    await bus.publish(event, prevent_duplicate_consumption=False)

    data = (await ear.get_message(timeout=5))["data"]
    assert Event.model_validate_json(data) == event
    assert set(json.loads(data)) == {*event.model_dump(), "lastbus"}
    note = read_note(data)
    assert note.origin == bus.instance_id
    assert note.deduplicate is False
    await RedisConnection(client=client).aclose()
    await ear.unsubscribe()
    await client.connection_pool.disconnect()


@pytest.mark.guarantee("REDIS-02")
@pytest.mark.parametrize(
    ("prefixes", "channel"),
    [
        ({}, "plaita:events:t"),
        ({"event_key_prefix": "my:"}, "my:channel:t"),
        ({"event_key_prefix": "my:", "channel_prefix": "plaita:events:"}, "plaita:events:t"),
        ({"channel_prefix": "my:"}, "my:t"),
    ],
    ids=["default", "moved", "stays", "given"],
)
def test_a_custom_event_prefix_moves_the_channel_unless_one_is_given(prefixes: dict[str, str], channel: str) -> None:
    bus = RedisEventBus("redis://localhost", **prefixes)

    assert bus._topic("t").name == channel


@pytest.mark.guarantee("REDIS-01")
async def test_a_publish_is_one_round_trip(own_server: RedisServer) -> None:
    async with RedisEventBus(own_server.url) as bus:
        await bus.publish("t")
        before, requests_before = await calls(bus._connection), await requests(bus._connection)

        for number in range(10):
            await bus.publish("t", n=number)

        assert await requests(bus._connection) - requests_before == 10 + 1
        # What runs inside the script counts as calls as well; only EVALSHA came over the wire.
        spent = {name: count - before.get(name, 0) for name, count in (await calls(bus._connection)).items()}
        assert spent.pop("evalsha") == spent.pop("set") == spent.pop("zadd") == spent.pop("publish") == 10
        assert {name for name, count in spent.items() if count} <= {"get", "pttl", "pexpire", "info"}


@pytest.mark.guarantee("REDIS-11")
async def test_the_three_stores_of_a_bus_share_its_connections(own_server: RedisServer) -> None:
    watch = RedisConnection(own_server.url)
    async with RedisEventBus(own_server.url) as bus:
        await bus.publish("t")
        await bus.register_subscription("t")
        await bus.processing_tracker.is_event_processed("e", "h")

        assert await clients(watch) == 2
    await watch.aclose()


# -- who hears what ---------------------------------------------------------------------------------------------


@pytest.mark.guarantee("REDIS-04")
async def test_every_handler_of_another_process_hears_an_event_once(redis: RedisBackend) -> None:
    here, there = redis.make_bus(), redis.make_bus()
    recorders = {pattern: Recorder() for pattern in ("user.created", "user.*", "*", None, "other", "user.[a-c]*")}
    for pattern, recorder in recorders.items():
        await there.register_handler(pattern, recorder)

    await here.publish("user.created")

    for pattern, recorder in recorders.items():
        events = await heard(redis, recorder, there)
        assert len([each for each in events if each.event_type == "user.created"]) == (pattern != "other")


@pytest.mark.guarantee("REDIS-03")
async def test_its_own_events_come_to_a_bus_once(redis: RedisBackend, recorder: Recorder) -> None:
    bus = redis.make_bus()
    await bus.register_handler("t", recorder)
    await bus.register_handler("t*", recorder)

    await bus.publish("t", prevent_duplicate_consumption=False)

    assert len([each for each in await heard(redis, recorder, bus) if each.event_type == "t"]) == 2


@pytest.mark.guarantee("REDIS-02")
async def test_an_event_of_other_software_is_heard_and_deduplicated(
    redis: RedisBackend, raw: RedisConnection, recorder: Recorder
) -> None:
    bus = redis.make_bus()
    await bus.register_handler("t", recorder)
    event = Event("t", {"n": 1})

    for _ in range(3):
        await say(raw, redis, "t", message(event, note=None))

    assert await heard(redis, recorder, bus) == [event]


@pytest.mark.guarantee("CORE-15")
async def test_the_switch_for_deduplication_travels_with_the_announcement(
    redis: RedisBackend, recorder: Recorder
) -> None:
    here, there = redis.make_bus(), redis.make_bus()
    await there.register_handler("t", recorder)
    event = Event("t")

    for _ in range(2):
        await here.publish(event, prevent_duplicate_consumption=False)
        await settled(there)

    assert len(await heard(redis, recorder, there)) == 2


@pytest.mark.guarantee("REDIS-03")
async def test_an_announcement_that_the_driver_publishes_twice_is_heard_once(
    redis: RedisBackend, raw: RedisConnection
) -> None:
    bus, exact, wild = redis.make_bus(), Recorder(), Recorder()
    await bus.register_handler("t", exact)
    await bus.register_handler("?", wild)
    twice = message(Event("t"), Note("some bus", "some bus-1", deduplicate=False))

    await say(raw, redis, "t", twice)
    await say(raw, redis, "t", twice)

    assert len(await heard(redis, exact, bus)) == len(await heard(redis, wild, bus)) == 1


@pytest.mark.guarantee("REDIS-03")
def test_a_listener_remembers_only_the_latest_announcements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastbus._backends.redis.announcements.REMEMBERED_MAX", 3)
    remembered = Remembered()

    assert [remembered.is_new(each, False) for each in ("a", "b", "c", "a", "d", "a")] == [
        True,
        True,
        True,
        False,
        True,
        True,
    ]
    assert remembered.is_new("d", True)
    assert remembered.is_new(None, True)
    assert remembered.is_new(None, True)


@pytest.mark.guarantee("REDIS-02")
@pytest.mark.parametrize(
    "garbage",
    [b"\xff\x00", b"", b"[]", b'"text"', b"{}", b'{"event_type": 3}', b"[" * 5000],
    ids=["bytes", "empty", "list", "text", "object", "type", "deep"],
)
async def test_garbage_is_named_and_passed_over(
    redis: RedisBackend,
    raw: RedisConnection,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
    garbage: bytes,
) -> None:
    bus = redis.make_bus()
    await bus.register_handler("t", recorder)

    await say(raw, redis, "t", garbage)
    await say(raw, redis, "t", message(Event("t")))

    assert len(await heard(redis, recorder, bus)) == 1
    assert [record.levelname for record in caplog.records if "skipped" in record.getMessage()] == ["WARNING"]


@pytest.mark.guarantee("REDIS-02")
async def test_an_event_on_the_channel_of_another_type_is_passed_over(
    redis: RedisBackend, raw: RedisConnection, recorder: Recorder
) -> None:
    bus = redis.make_bus()
    await bus.register_handler("a", recorder)
    await bus.register_handler("b", recorder)

    await say(raw, redis, "a", message(Event("b")))

    assert await heard(redis, recorder, bus) == []


@pytest.mark.guarantee("REDIS-02")
@pytest.mark.parametrize("note", [None, 3, "x", {}, {"origin": 1, "id": 2}, {"origin": "x"}], ids=str)
def test_a_note_that_is_not_ours_is_as_good_as_none(note: object) -> None:
    text = json.dumps({"event_id": "e", "lastbus": note})

    assert read_note(text) == Note(None, None, True)


@pytest.mark.guarantee("REDIS-04")
@pytest.mark.parametrize("event_type", ["order:paid", "é.ü", "a\nb", " x ", "a]b", "t" * 512])
async def test_any_type_is_heard_by_name_and_by_wildcard(redis: RedisBackend, event_type: str) -> None:
    here, there, exact, wild = redis.make_bus(), redis.make_bus(), Recorder(), Recorder()
    await there.register_handler(event_type, exact)
    await there.register_handler("*", wild)

    await here.publish(event_type, msg="日本")

    assert [each.data for each in await exact.has_heard()] == [{"msg": "日本"}]
    assert [each.data for each in await wild.has_heard()] == [{"msg": "日本"}]


@pytest.mark.guarantee("STORE-02", "REDIS-08")
@pytest.mark.parametrize("decode", [False, True], ids=["bytes", "str"])
async def test_a_bus_on_a_client_of_either_kind_hears(redis: RedisBackend, recorder: Recorder, decode: bool) -> None:
    prefix = f"{redis.prefix}event:"
    async with RedisEventBus(None, prefix, client=redis.client(decode_responses=decode)) as bus:
        await bus.register_handler("é.*", recorder)
        await bus.register_handler("é.ü", recorder)
        event = Event("é.ü", {"msg": "日本"})

        await redis.make_bus().publish(event, prevent_duplicate_consumption=False)

        assert await recorder.has_heard(2) == [event, event]


@pytest.mark.guarantee("REDIS-14")
async def test_a_glob_in_the_prefix_hears_only_its_own_channels(redis: RedisBackend, recorder: Recorder) -> None:
    async with (
        RedisEventBus(None, f"{redis.prefix}[ab]*:", client=redis.client()) as wild,
        RedisEventBus(None, f"{redis.prefix}[ab]*:", client=redis.client()) as same,
        RedisEventBus(None, f"{redis.prefix}axx:", client=redis.client()) as other,
    ):
        await wild.register_handler("*", recorder)

        await other.publish("theirs")
        await same.publish("ours")

        assert [each.event_type for each in await recorder.has_heard()] == ["ours"]


@pytest.mark.guarantee("REDIS-15")
async def test_a_full_bus_stops_reading_and_loses_nothing(redis: RedisBackend, gate: Gate) -> None:
    here, there = redis.make_bus(), redis.make_bus(max_pending_callbacks=1)
    await there.register_handler("t", gate.hold)

    for number in range(20):
        await here.publish("t", n=number)
    await gate.has_entered()
    await everyone_blocked()
    assert len(gate.entered) == 1
    gate.open()

    await gate.has_left(20)
    assert [each.data["n"] for each in gate.left] == list(range(20))


@pytest.mark.guarantee("REDIS-15")
async def test_a_full_bus_confirms_a_new_type_when_it_reads_again(
    redis: RedisBackend, raw: RedisConnection, gate: Gate, recorder: Recorder, clock: ManualClock
) -> None:
    here, there = redis.make_bus(), redis.make_bus(max_pending_callbacks=1, clock=clock)
    await there.register_handler("t", gate.hold)
    for number in range(3):
        await here.publish("t", n=number)
    await gate.has_entered()

    registering = asyncio.ensure_future(there.register_handler("u", recorder))
    await until(lambda: bool(there.pubsub._waiting))
    for _ in range(50):
        await raw.command("PING")
        await asyncio.sleep(0)  # A server in this process may answer without giving the listener a turn.
    assert (await raw.command("PUBSUB", "NUMSUB", f"{redis.prefix}event:channel:u"))[-1] == 0
    clock.advance(5)

    with pytest.raises(EventStorageError, match="not confirmed"):
        await registering
    gate.open()
    assert await there.register_handler("u", recorder)
    await here.publish("u")
    assert len(await recorder.has_heard()) == 1


# -- subscriptions at the server --------------------------------------------------------------------------------


@pytest.mark.guarantee("REDIS-04", "REDIS-05")
async def test_a_registration_returns_when_the_server_has_confirmed_it(
    redis: RedisBackend, raw: RedisConnection, recorder: Recorder
) -> None:
    bus, prefix = redis.make_bus(), f"{redis.prefix}event:channel:"

    await bus.register_handler("t", recorder)
    assert bus._topic("t") in bus.pubsub._confirmed
    assert (await raw.command("PUBSUB", "NUMSUB", f"{prefix}t"))[-1] == 1
    await bus.register_handler("*", recorder)
    assert bus._topic("*") in bus.pubsub._confirmed
    assert await raw.command("PUBSUB", "NUMPAT") >= 1


@pytest.mark.guarantee("REDIS-05", "REDIS-13")
async def test_a_waiter_is_subscribed_while_it_waits(redis: RedisBackend, raw: RedisConnection) -> None:
    bus, channel = redis.make_bus(), f"{redis.prefix}event:channel:t"
    waiting = [asyncio.ensure_future(bus.wait_for_event("t", timeout=30)) for _ in range(3)]
    await until(lambda: bus.pubsub is not None and bus._topic("t") in bus.pubsub._confirmed)
    assert (await raw.command("PUBSUB", "NUMSUB", channel))[-1] == 1

    event = Event("t")
    await say(raw, redis, "t", message(event))

    assert await asyncio.gather(*waiting) == [event] * 3
    await bus.register_handler("other", Recorder())
    assert (await raw.command("PUBSUB", "NUMSUB", channel))[-1] == 0


@pytest.mark.guarantee("REDIS-13")
async def test_a_handler_that_is_gone_is_unsubscribed(redis: RedisBackend, raw: RedisConnection) -> None:
    bus, channel = redis.make_bus(), f"{redis.prefix}event:channel:t"
    first = await bus.register_handler("t", Recorder())
    second = await bus.register_handler("t", Recorder())

    await bus.unregister_handler(first)
    await bus.register_handler("u", Recorder())
    assert (await raw.command("PUBSUB", "NUMSUB", channel))[-1] == 1
    await bus.unregister_handler(second)
    await bus.register_handler("v", Recorder())
    assert (await raw.command("PUBSUB", "NUMSUB", channel))[-1] == 0


@pytest.mark.guarantee("REDIS-13")
async def test_a_busy_bus_unsubscribes_as_well(redis: RedisBackend, raw: RedisConnection, recorder: Recorder) -> None:
    bus, channel = redis.make_bus(), f"{redis.prefix}event:channel:t"
    await bus.register_handler("u", recorder)
    gone = await bus.register_handler("t", Recorder())

    await bus.unregister_handler(gone)
    for heard_so_far in (1, 2):
        await say(raw, redis, "u", message(Event("u"), Note("some bus", f"some bus-{heard_so_far}")))
        await recorder.has_heard(heard_so_far)

    async def is_left() -> bool:
        return (await raw.command("PUBSUB", "NUMSUB", channel))[-1] == 0

    assert await eventually(is_left, LOOKS_MAX)


@pytest.mark.guarantee("REDIS-13")
async def test_a_type_that_is_dropped_and_wanted_again_is_heard(redis: RedisBackend, recorder: Recorder) -> None:
    here, there = redis.make_bus(), redis.make_bus()
    for _ in range(5):
        handler_id = await there.register_handler("t", Recorder())
        await there.unregister_handler(handler_id)
        await there.register_handler("u", Recorder(), handler_id=f"wakes {_}")
    await there.register_handler("t", recorder)

    await here.publish("t")

    assert len(await recorder.has_heard()) == 1


@pytest.mark.guarantee("REDIS-13")
async def test_a_bus_that_only_publishes_does_not_listen(redis: RedisBackend) -> None:
    bus = redis.make_bus()

    await bus.publish("t")

    assert bus.pubsub is None


@pytest.mark.guarantee("REDIS-05")
async def test_handlers_that_were_there_before_the_start_are_heard_after_it(
    redis: RedisBackend, recorder: Recorder
) -> None:
    here, there = redis.make_bus(), redis.make_bus()
    there.add_handler("t", recorder)
    there.add_handler("u*", recorder)

    await there.start()
    assert there.pubsub is not None
    assert there.pubsub._confirmed == {there._topic("t"), there._topic("u*")}
    await here.publish("t")
    await here.publish("uu")

    assert {each.event_type for each in await recorder.has_heard(2)} == {"t", "uu"}


# -- close ------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("REDIS-11")
@pytest.mark.parametrize("is_given", [False, True], ids=["own client", "given client"])
async def test_a_closed_bus_leaves_no_connection_at_the_server(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture, is_given: bool
) -> None:
    watch = RedisConnection(own_server.url)
    assert await clients(watch) == 1
    bus = RedisEventBus(own_server.url, client=Redis.from_url(own_server.url) if is_given else None)
    await bus.register_handler("t", Recorder())
    await asyncio.gather(*(bus.publish("t") for _ in range(5)))
    assert await clients(watch) > 2

    await bus.close()

    assert bus.pubsub is None
    assert bus.redis is None
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert await comes_down_to(1, watch)
    await watch.aclose()


@pytest.mark.guarantee("REDIS-11")
def test_what_nobody_has_closed_is_closed_as_the_loop_ends(own_server: RedisServer) -> None:
    bus = RedisEventBus(own_server.url)

    async def forget_to_close() -> None:
        await bus.register_handler("t", Recorder())
        await bus.publish("u")

    async def count() -> bool:
        async with RedisEventBus(own_server.url) as watch:
            return await comes_down_to(1, watch._connection)

    asyncio.run(forget_to_close())

    assert asyncio.run(count())


async def test_a_bus_that_was_never_used_closes(own_server: RedisServer) -> None:
    bus = RedisEventBus(own_server.url)

    await bus.close()

    assert bus.redis is None


async def test_a_registration_that_waits_for_the_server_fails_when_the_bus_closes(
    redis: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = redis.make_bus()
    await bus.register_handler("t", Recorder())
    assert bus.pubsub is not None
    monkeypatch.setattr(bus.pubsub, "_answered", lambda *_: None)
    registering = asyncio.ensure_future(bus.register_handler("u", Recorder()))
    await until(lambda: bool(bus.pubsub._waiting))

    await bus.close()

    with pytest.raises(BusClosedError):
        await registering


@pytest.mark.guarantee("REDIS-11")
def test_a_bus_lives_on_in_the_next_loop(own_server: RedisServer) -> None:
    bus, recorder = RedisEventBus(own_server.url), Recorder()

    async def first() -> None:
        await bus.register_handler("t", recorder)

    async def second() -> None:
        await bus.start()
        async with RedisEventBus(own_server.url) as other:
            await other.publish("t")
            while not recorder.events:
                await asyncio.sleep(0)
        await bus.close()

    asyncio.run(first())
    asyncio.run(second())

    assert len(recorder.events) == 1


@pytest.mark.guarantee("REDIS-11")
@pytest.mark.slow
@pytest.mark.parametrize("last_words", ["await bus.close()", "pass"], ids=["closed", "left open"])
def test_a_program_that_ends_says_nothing(own_server: RedisServer, last_words: str) -> None:
    """Slow: it is a program of its own, in development mode."""
    program = f"""
import asyncio, gc
from lastbus.redis import RedisEventBus

async def main():
    bus = RedisEventBus({own_server.url!r})
    await bus.register_handler("t*", print)
    await bus.publish("u")
    {last_words}

asyncio.run(main())
asyncio.run(main())
gc.collect()
"""
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(lastbus.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (ran.returncode, ran.stdout) == (0, "")
    assert [line for line in ran.stderr.splitlines() if "took" not in line] == []


# -- trouble ----------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("REDIS-12")
@pytest.mark.parametrize("turns", range(0, 12, 2))
async def test_a_publish_cancelled_anywhere_leaves_nothing_for_the_next(redis: RedisBackend, turns: int) -> None:
    bus = redis.make_bus()
    publishing = asyncio.ensure_future(bus.publish("t", n=0))
    for _ in range(turns):
        await asyncio.sleep(0)
    publishing.cancel()
    await asyncio.wait({publishing})

    event = Event("t", {"n": 99})
    await bus.publish(event)

    assert await bus.get_event(event.event_id) == event


@pytest.mark.guarantee("REDIS-05")
async def test_a_registration_without_a_server_is_an_error_and_registers_nothing() -> None:
    backend = FakeRedisBackend()
    async with backend:
        bus = backend.make_bus()
        backend.server.connected = False

        with pytest.raises(EventStorageError):
            await bus.register_handler("t", Recorder())

        assert len(bus._registry) == 0
        backend.server.connected = True
        assert await bus.register_handler("t", Recorder())


@pytest.mark.guarantee("REDIS-06")
async def test_an_unknown_failure_of_a_receiver_does_not_end_the_listener(
    redis: RedisBackend, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = redis.make_bus(), redis.make_bus()
    await there.register_handler("t", recorder)
    assert there.pubsub is not None
    receive = there.pubsub._receive

    async def fail_once(event: Event, deduplicate: bool, wildcard: bool) -> None:
        if event.data.get("n") == 0:
            raise KeyError("a bug")
        await receive(event, deduplicate, wildcard)

    monkeypatch.setattr(there.pubsub, "_receive", fail_once)

    await here.publish("t", n=0)
    await here.publish("t", n=1)

    assert [each.data["n"] for each in await heard(redis, recorder, there)] == [1]
    assert "could not be handed on" in caplog.text
