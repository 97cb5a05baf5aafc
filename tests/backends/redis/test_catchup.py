"""Catching up: what was stored while nobody heard it is handed on later, oldest first, and once.

The listening bus lives by a manual clock: cut off, it stays away until the test moves the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lastbus import BusClosedError, Event, EventStorageError
from lastbus._backends.redis import catchup, connection, handing, missed, window
from lastbus._backends.redis.bus import RedisEventBus
from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.keys import EventKeys
from lastbus._kit.servers import RedisServer
from lastbus.testing import FaultProxy, Gate, ManualClock, Recorder, everyone_blocked
from tests._backends.redis import RedisBackend
from tests.contract.waiting import hears, settled, until


@pytest.fixture
async def here(own_server: RedisServer) -> AsyncIterator[RedisEventBus]:
    """A bus of another process, as it were."""
    async with RedisEventBus(own_server.url, close_timeout=0.2) as bus:
        yield bus


@pytest.fixture
async def there(own_server: RedisServer, clock: ManualClock) -> AsyncIterator[RedisEventBus]:
    """The bus that listens, and is cut off now and then."""
    async with RedisEventBus(own_server.url, close_timeout=0.2, clock=clock, sweep_indexes=False) as bus:
        yield bus


@pytest.fixture
def server(here: RedisEventBus) -> RedisConnection:
    return here._connection


def event(clock: ManualClock, number: int, ago: float = 0.0, event_type: str = "t") -> Event:
    """An event that says when it happened by the clock of the bus that listens."""
    return Event(event_type, {"n": number}, event_id=f"event {number}", timestamp=clock.time() - ago)


def numbers(recorder: Recorder | Gate) -> list[int]:
    events = recorder.events if isinstance(recorder, Recorder) else recorder.entered
    return [each.data["n"] for each in events]


async def cut_off(there: RedisEventBus, server: RedisConnection) -> None:
    """The server kills the listener's connection, and the listener rests."""
    await server.command("CLIENT", "KILL", "TYPE", "pubsub")
    await until(lambda: there.pubsub is not None and there.pubsub._pause is not None)


async def reconnected(there: RedisEventBus, clock: ManualClock) -> None:
    clock.advance(0.1)
    await until(lambda: there.pubsub is not None and there.pubsub._is_alive)


async def caught_up(there: RedisEventBus) -> None:
    """Return when nothing is left to be made up for, and what was has been handled."""
    await until(lambda: there._catch_up._nap is not None and not there._catch_up._has_work())
    await settled(there)


async def back(there: RedisEventBus, clock: ManualClock) -> None:
    await reconnected(there, clock)
    await until(lambda: there.pubsub is not None and there.pubsub.hears(there._wanted()))
    await caught_up(there)


# -- a listener that was away -----------------------------------------------------------------------------------


@pytest.mark.guarantee("REDIS-17")
async def test_what_was_stored_while_the_listener_was_cut_off_is_handed_on(
    here: RedisEventBus, there: RedisEventBus, server: RedisConnection, clock: ManualClock
) -> None:
    exact, wild, filtered, other = Recorder(), Recorder(), Recorder(), Recorder()
    await there.register_handler("t", exact)
    await there.register_handler("t*", wild)
    await there.register_handler("t", filtered, filter_condition={"n": 2})
    await there.register_handler("u", other)
    await here.publish(event(clock, 0))
    await hears(exact)
    await hears(wild)

    await cut_off(there, server)
    for number in (1, 2):
        await here.publish(event(clock, number))
    await here.publish(event(clock, 3, event_type="tt"))
    assert len(exact.events) == 1
    await back(there, clock)

    assert sorted(numbers(exact)) == [0, 1, 2]
    assert sorted(numbers(wild)) == [0, 1, 2, 3]
    assert numbers(filtered) == [2]
    assert other.events == []


@pytest.mark.guarantee("REDIS-17")
async def test_a_waiter_gets_what_came_after_it_had_begun_to_wait(
    here: RedisEventBus, there: RedisEventBus, server: RedisConnection, clock: ManualClock
) -> None:
    await here.publish(event(clock, 0, ago=1))
    waiting = asyncio.ensure_future(there.wait_for_event("t", timeout=3600, condition=lambda each: each.data["n"] != 1))
    await until(lambda: there.pubsub is not None and there.pubsub.hears({there._topic_of_type("t")}))

    await cut_off(there, server)
    for number in (1, 2, 3):
        await here.publish(event(clock, number))
    await reconnected(there, clock)

    await until(waiting.done)
    assert waiting.result().data["n"] == 2


@pytest.mark.guarantee("REDIS-17")
async def test_who_came_while_the_listener_was_away_has_missed_nothing_that_was_before(
    here: RedisEventBus, there: RedisEventBus, server: RedisConnection, clock: ManualClock
) -> None:
    old, new = Recorder(), Recorder()
    await there.register_handler("t", old)
    await cut_off(there, server)
    await here.publish(event(clock, 1))

    there.add_handler("t", new)
    await back(there, clock)
    await here.publish(event(clock, 2))

    await hears(new)
    await hears(old, 2)
    assert numbers(new) == [2]


@pytest.mark.guarantee("REDIS-17")
async def test_clocks_may_differ_by_a_minute_and_the_look_back_ends_somewhere(
    here: RedisEventBus, there: RedisEventBus, server: RedisConnection, clock: ManualClock
) -> None:
    recorder = Recorder()
    await there.register_handler("t", recorder)

    await cut_off(there, server)
    await here.publish(event(clock, 1, ago=61))
    await here.publish(event(clock, 2, ago=59))
    await here.publish(event(clock, 3, ago=-4000))
    await back(there, clock)

    assert sorted(numbers(recorder)) == [2, 3]


@pytest.mark.guarantee("REDIS-17")
async def test_what_is_older_than_the_look_back_is_not_made_up_for(
    here: RedisEventBus, own_server: RedisServer, server: RedisConnection, clock: ManualClock
) -> None:
    recorder = Recorder()
    async with RedisEventBus(own_server.url, clock=clock, catch_up=10, sweep_indexes=False) as there:
        await there.register_handler("t", recorder)
        await cut_off(there, server)
        await here.publish(event(clock, 1, ago=11))
        await here.publish(event(clock, 2, ago=9))

        await back(there, clock)

        assert numbers(recorder) == [2]


@pytest.mark.guarantee("REDIS-17")
async def test_without_a_look_back_nothing_is_made_up_for(
    here: RedisEventBus, own_server: RedisServer, server: RedisConnection, clock: ManualClock
) -> None:
    recorder = Recorder()
    async with RedisEventBus(own_server.url, clock=clock, catch_up=0, sweep_indexes=False) as there:
        await there.register_handler("t", recorder, handler_id="mine")
        await cut_off(there, server)
        await here.publish(event(clock, 1))
        await reconnected(there, clock)
        await until(lambda: there.pubsub is not None and there.pubsub.hears(there._wanted()))
        await here.publish(event(clock, 2))

        await hears(recorder)
        assert numbers(recorder) == [2]
        assert there._catch_up.tasks == {}


@pytest.mark.guarantee("REDIS-17")
async def test_a_gap_is_closed_only_when_its_handlers_hear_again(
    here: RedisEventBus,
    there: RedisEventBus,
    server: RedisConnection,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Recorder()
    await there.register_handler("t", recorder)
    await cut_off(there, server)
    await here.publish(event(clock, 1))
    assert there.pubsub is not None

    with monkeypatch.context() as unanswered:
        unanswered.setattr(there.pubsub, "_answered", lambda topic, is_subscribed: None)
        await reconnected(there, clock)
        for _ in range(20):
            await server.command("PING")
        assert recorder.events == []
    await cut_off(there, server)
    await back(there, clock)

    assert numbers(recorder) == [1]


@pytest.mark.guarantee("REDIS-17")
async def test_a_catch_up_that_fails_goes_on_where_it_was(
    here: RedisEventBus,
    there: RedisEventBus,
    server: RedisConnection,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(window, "PAGE_EVENTS", 1)
    recorder = Recorder()
    await there.register_handler("t", recorder)
    await cut_off(there, server)
    for number in (1, 2, 3):
        await here.publish(event(clock, number, ago=-number))
    pages_read: list[object] = []
    command = there._connection.command

    async def fail_once(*words: Any) -> Any:
        if words[0] == "MGET":
            pages_read.append(words)
            if len(pages_read) == 2:
                raise EventStorageError("the line is dead")
        return await command(*words)

    monkeypatch.setattr(there._connection, "command", fail_once)
    await reconnected(there, clock)
    await until(lambda: there._catch_up._rest.is_set)
    assert [each.data["n"] for each in await hears(recorder)] == [1]
    clock.advance(5)
    await caught_up(there)

    assert numbers(recorder) == [1, 2, 3]
    assert [str(each[1]).count("event 1") for each in pages_read] == [1, 0, 1, 0, 0]  # type: ignore[index]
    assert len([each for each in caplog.messages if "has to wait" in each]) == 1


@pytest.mark.guarantee("REDIS-17")
@pytest.mark.parametrize(
    ("environment", "given", "seconds"),
    [
        ({}, None, 3600),
        ({"PLAITA_EVENT_CATCH_UP_SECONDS": "60"}, None, 60),
        ({"PLAITA_EVENT_CATCH_UP_SECONDS": "60"}, 7, 7),
        ({"PLAITA_EVENT_CATCH_UP_SECONDS": "-1"}, None, 3600),
        ({"PLAITA_EVENT_CATCH_UP_SECONDS": "0"}, None, 3600),
        ({}, 0, 0),
        ({"PLAITA_DISABLE_EVENT_CATCH_UP": "1"}, None, 0),
    ],
)
def test_the_look_back_is_said_by_the_caller_or_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], given: float | None, seconds: float
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert RedisEventBus("redis://localhost", catch_up=given)._catch_up._look_back == seconds


@pytest.mark.guarantee("REDIS-17")
@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "60"])
def test_a_look_back_that_is_no_time_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="catch_up"):
        RedisEventBus("redis://localhost", catch_up=bad)


@pytest.mark.guarantee("REDIS-17")
def test_the_time_between_two_loops_is_a_gap(own_server: RedisServer) -> None:
    bus, recorder = RedisEventBus(own_server.url, sweep_indexes=False), Recorder()

    async def publish(number: int) -> None:
        async with RedisEventBus(own_server.url, sweep_indexes=False) as other:
            await other.publish("t", n=number)

    async def begin() -> None:
        await bus.register_handler("t", recorder)
        await publish(1)
        await hears(recorder)
        await settled(bus)

    async def go_on() -> None:
        await bus.start()
        await caught_up(bus)
        await bus.close()

    asyncio.run(begin())
    asyncio.run(publish(2))
    asyncio.run(go_on())

    assert numbers(recorder) == [1, 2]


# -- a process that was away ------------------------------------------------------------------------------------


@pytest.mark.guarantee("REDIS-18")
@pytest.mark.parametrize("way", ["registered", "registered later", "added before the start"])
async def test_an_id_of_its_own_gets_what_was_stored_while_its_process_was_away(redis: RedisBackend, way: str) -> None:
    clock, first, second = ManualClock(), Recorder(), Recorder()
    here = redis.make_bus()
    await here.publish(event(clock, 0, ago=1))
    before = redis.make_bus(clock=clock)
    await before.register_handler("t", first, handler_id="mailer")
    await here.publish(event(clock, 1))
    await hears(first)
    await settled(before)
    await before.close()

    clock.advance(100)
    await here.publish(event(clock, 2))
    after = redis.make_bus(clock=clock)
    if way == "registered later":
        await after.register_handler("u", Recorder())
    if way == "added before the start":
        after.add_handler("t", second, handler_id="mailer")
        await after.start()
    else:
        await after.register_handler("t", second, handler_id="mailer")
    await caught_up(after)

    assert numbers(first) == [1]
    assert numbers(second) == [2]


@pytest.mark.guarantee("REDIS-18")
async def test_an_id_that_is_new_gets_what_comes_from_then_on(redis: RedisBackend, recorder: Recorder) -> None:
    clock = ManualClock()
    here, there = redis.make_bus(), redis.make_bus(clock=clock)
    await here.publish(event(clock, 1))

    await there.register_handler("t", recorder, handler_id="mailer")
    await caught_up(there)
    await here.publish(event(clock, 2))

    await hears(recorder)
    assert numbers(recorder) == [2]


@pytest.mark.guarantee("REDIS-18")
async def test_an_id_is_known_for_an_hour_longer_than_events_live_and_that_is_renewed(
    redis: RedisBackend, recorder: Recorder
) -> None:
    clock = ManualClock()
    bus, raw = redis.make_bus(clock=clock, ttl=100), redis.connection()
    await bus.register_handler("t", recorder, handler_id="mailer")
    key = f"{redis.prefix}processed:handlers:mailer"
    first = await raw.command("GET", key)
    assert 3_650_000 < await raw.command("PTTL", key) <= 3_700_000

    await raw.command("PEXPIRE", key, 10_000)
    clock.advance(600)
    await caught_up(bus)

    assert await raw.command("PTTL", key) > 3_650_000
    assert await raw.command("GET", key) == first


@pytest.mark.guarantee("REDIS-18")
async def test_an_id_that_comes_back_to_the_same_bus_has_not_been_away(redis: RedisBackend, recorder: Recorder) -> None:
    clock = ManualClock()
    here, there = redis.make_bus(), redis.make_bus(clock=clock)
    await there.register_handler("t", recorder, handler_id="mailer")
    await there.unregister_handler("mailer")
    await here.publish(event(clock, 1))

    await there.register_handler("t", recorder, handler_id="mailer")
    await caught_up(there)

    assert recorder.events == []


@pytest.mark.guarantee("REDIS-18")
async def test_an_id_that_goes_and_comes_back_during_an_outage_has_not_been_away_either(
    here: RedisEventBus, there: RedisEventBus, server: RedisConnection, clock: ManualClock, recorder: Recorder
) -> None:
    await there.register_handler("t", Recorder(), handler_id="mailer")
    await cut_off(there, server)
    await there.unregister_handler("mailer")
    await here.publish(event(clock, 1))

    there.add_handler("t", recorder, handler_id="mailer")
    await back(there, clock)
    await here.publish(event(clock, 2))

    await hears(recorder)
    assert numbers(recorder) == [2]


@pytest.mark.guarantee("REDIS-17")
async def test_a_gap_is_closed_as_soon_as_its_handler_hears(redis: RedisBackend, recorder: Recorder) -> None:
    clock = ManualClock()
    here, there = redis.make_bus(), redis.make_bus(clock=clock)
    await there.register_handler("u", Recorder())
    await caught_up(there)
    await here.publish(event(clock, 1))
    deaf = there.add_handler("t", recorder)
    there._catch_up.gaps.open(deaf, clock.time() - 60)

    there.pubsub.touch()

    await hears(recorder)
    assert numbers(recorder) == [1]


@pytest.mark.guarantee("REDIS-18")
async def test_the_look_back_of_a_restart_ends_somewhere(redis: RedisBackend, recorder: Recorder) -> None:
    clock = ManualClock()
    before = redis.make_bus(clock=clock)
    await before.register_handler("t", Recorder(), handler_id="mailer")
    await before.close()
    clock.advance(5000)
    here, after = redis.make_bus(), redis.make_bus(clock=clock)
    await here.publish(event(clock, 1, ago=3601))
    await here.publish(event(clock, 2, ago=3599))

    await after.register_handler("t", recorder, handler_id="mailer")
    await caught_up(after)

    assert numbers(recorder) == [2]


# -- once -------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("REDIS-20")
async def test_what_was_handled_is_not_handed_on_again(
    here: RedisEventBus, there: RedisEventBus, server: RedisConnection, clock: ManualClock
) -> None:
    recorder, own = Recorder(), Recorder()
    await there.register_handler("t", recorder)
    await there.register_handler("own", own)
    await here.publish(event(clock, 1))
    await hears(recorder)

    for number in (2, 3):
        await cut_off(there, server)
        await here.publish(event(clock, number))
        await there.publish(event(clock, 10 + number, event_type="own"))
        await back(there, clock)

    assert numbers(recorder) == [1, 2, 3]
    assert numbers(own) == [12, 13]


@pytest.mark.guarantee("REDIS-19")
async def test_what_ran_without_deduplication_is_not_made_up_for(
    here: RedisEventBus, there: RedisEventBus, server: RedisConnection, clock: ManualClock
) -> None:
    recorder, own = Recorder(), Recorder()
    await there.register_handler("t", recorder)
    await there.register_handler("own", own)
    await here.publish(event(clock, 1), prevent_duplicate_consumption=False)
    await hears(recorder)
    await settled(there)
    await server.command("DEL", "plaita:processed:attempts:event 1")

    await cut_off(there, server)
    await here.publish(event(clock, 2), prevent_duplicate_consumption=False)
    await there.publish(event(clock, 3, event_type="own"), prevent_duplicate_consumption=False)
    await settled(there)
    await server.command("DEL", "plaita:processed:attempts:event 3")
    await back(there, clock)

    assert numbers(recorder) == [1, 2]
    assert numbers(own) == [3]


@pytest.mark.guarantee("REDIS-19")
async def test_what_another_process_had_without_deduplication_is_known_by_its_history(redis: RedisBackend) -> None:
    clock, first, second = ManualClock(), Recorder(), Recorder()
    here, before, after = redis.make_bus(), redis.make_bus(clock=clock), redis.make_bus(clock=clock)
    await before.register_handler("t", first, handler_id="mailer")
    await here.publish(event(clock, 1), prevent_duplicate_consumption=False)
    await hears(first)
    await settled(before)
    await before.close()
    await here.publish(event(clock, 2), prevent_duplicate_consumption=False)

    await after.register_handler("t", second, handler_id="mailer")
    await caught_up(after)

    assert numbers(second) == [2]


@pytest.mark.guarantee("REDIS-19")
async def test_an_announcement_that_comes_late_is_not_handed_on_again_for_a_minute(
    here: RedisEventBus, there: RedisEventBus, server: RedisConnection, clock: ManualClock
) -> None:
    recorder = Recorder()
    await there.register_handler("t", recorder)
    await cut_off(there, server)
    missed_one = event(clock, 1)
    await here.publish(missed_one, prevent_duplicate_consumption=False)
    await back(there, clock)
    assert numbers(recorder) == [1]

    await here.publish(missed_one, prevent_duplicate_consumption=False)
    await here.publish(event(clock, 2))
    await hears(recorder, 2)
    await settled(there)
    assert numbers(recorder) == [1, 2]

    clock.advance(61)
    await here.publish(missed_one, prevent_duplicate_consumption=False)
    assert [each.data["n"] for each in await hears(recorder, 3)] == [1, 2, 1]


@pytest.mark.guarantee("REDIS-17")
async def test_a_wait_that_is_over_has_missed_nothing() -> None:
    loop, gaps = asyncio.get_running_loop(), missed.Gaps()
    over, going_on = loop.create_future(), loop.create_future()
    gaps.wait(over, "t", 1.0)
    gaps.wait(going_on, "t", 2.0)

    gaps.begin([])
    over.cancel()
    await asyncio.sleep(0)
    gaps.end(0.0)
    assert gaps.waiters == {going_on: missed.Wait("t", 2.0)}

    going_on.cancel()
    await asyncio.sleep(0)
    assert gaps.waiters == {}


@pytest.mark.guarantee("REDIS-19")
def test_only_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed, "RECENT_MAX", 2)
    recent: missed.Recent[str] = missed.Recent()

    for time, key in enumerate(("a", "b", "a", "c")):
        recent.note(key, time)

    assert [recent.get(key) for key in ("a", "b", "c")] == [2, None, 3]
    recent.forget("a")
    assert recent.get("a") is None


# -- claims -----------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("REDIS-20")
async def test_what_a_dead_process_held_is_handed_on_when_its_claim_has_lapsed(redis: RedisBackend) -> None:
    clock, recorder = ManualClock(), Recorder()
    here, before, after = redis.make_bus(), redis.make_bus(clock=clock), redis.make_bus(clock=clock)
    await before.register_handler("t", Recorder(), handler_id="mailer")
    await before.close()
    await here.publish(event(clock, 1))
    assert await redis.tracker(clock).claim_event("event 1", "mailer", "the dead")

    await after.register_handler("t", recorder, handler_id="mailer")
    await caught_up(after)
    assert recorder.events == []
    clock.advance(60)
    await caught_up(after)

    assert numbers(recorder) == [1]


@pytest.mark.guarantee("REDIS-20")
async def test_what_somebody_holds_who_dies_is_handed_on_by_whoever_was_refused(redis: RedisBackend) -> None:
    clock, recorder, other = ManualClock(), Recorder(), Recorder()
    here, there = redis.make_bus(), redis.make_bus(clock=clock)
    tracker = redis.tracker(clock)
    await there.register_handler("t", recorder, handler_id="mailer")
    await there.register_handler("t", other)
    assert await tracker.claim_event("event 1", "mailer", "somebody")

    await here.publish(event(clock, 1))
    await hears(other)
    await settled(there)
    assert recorder.events == []
    clock.advance(50)
    await tracker.renew_claim("event 1", "mailer", "somebody")
    clock.advance(10)
    await caught_up(there)
    assert recorder.events == []
    clock.advance(60)
    await caught_up(there)

    assert numbers(recorder) == [1]
    assert there._catch_up._held == {}


@pytest.mark.guarantee("REDIS-20")
async def test_what_somebody_else_has_done_is_not_looked_at_for_ever(redis: RedisBackend) -> None:
    clock, recorder, other = ManualClock(), Recorder(), Recorder()
    here, there = redis.make_bus(), redis.make_bus(clock=clock)
    tracker = redis.tracker(clock)
    await there.register_handler("t", recorder, handler_id="mailer")
    await there.register_handler("t", other)
    assert await tracker.mark_event_processed("event 1", "mailer")

    await here.publish(event(clock, 1))
    await hears(other)
    await settled(there)
    assert list(there._catch_up._held) == [("event 1", "mailer")]
    clock.advance(60)
    await caught_up(there)

    assert recorder.events == []
    assert there._catch_up._held == {}


@pytest.mark.guarantee("REDIS-20")
async def test_what_runs_here_is_not_started_again_though_its_claim_is_gone(
    here: RedisEventBus, there: RedisEventBus, server: RedisConnection, clock: ManualClock, gate: Gate
) -> None:
    await there.register_handler("t", gate.hold)
    await here.publish(event(clock, 1))
    await gate.has_entered()
    await cut_off(there, server)
    await server.command("DEL", "plaita:processed:claims:event 1")

    await reconnected(there, clock)
    await until(lambda: there._catch_up._nap is not None and not there._catch_up._has_work())
    gate.open()
    await settled(there)

    assert numbers(gate) == [1]


@pytest.fixture
async def link(own_server: RedisServer) -> AsyncIterator[FaultProxy]:
    """The way to the server, which can be closed."""
    async with FaultProxy(own_server.port) as link:
        yield link


@pytest.fixture
async def beyond(
    own_server: RedisServer, link: FaultProxy, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RedisEventBus]:
    """A bus that listens at the other end of the link. Its driver tries again at once, and gives up as soon."""
    monkeypatch.setattr(connection, "RETRY_SECONDS_MAX", 0.001)
    bus = RedisEventBus(link.through(own_server.url), close_timeout=0.2, clock=clock, sweep_indexes=False)
    async with bus:
        yield bus
        link.is_refusing = False


async def shut(link: FaultProxy, bus: RedisEventBus) -> None:
    link.is_refusing = True
    link.cut()
    await until(lambda: bus.pubsub is not None and bus.pubsub._pause is not None)


async def open_again(link: FaultProxy, bus: RedisEventBus, clock: ManualClock) -> None:
    link.is_refusing = False
    clock.advance(5)
    await until(lambda: bus.pubsub is not None and bus.pubsub.hears(bus._wanted()))
    await caught_up(bus)


@pytest.mark.guarantee("REDIS-20")
async def test_an_end_that_could_not_be_stored_is_stored_when_the_server_is_back(
    here: RedisEventBus, beyond: RedisEventBus, link: FaultProxy, clock: ManualClock, gate: Gate
) -> None:
    handler_id = await beyond.register_handler("t", gate.hold)
    await here.publish(event(clock, 1))
    await gate.has_entered()
    await shut(link, beyond)
    gate.open()
    await until(lambda: bool(beyond._catch_up._unended))
    clock.advance(70)

    await open_again(link, beyond, clock)

    assert numbers(gate) == [1]
    assert await here.processing_tracker.is_event_processed("event 1", handler_id)
    assert [each["status"] for each in await here.processing_tracker.get_processing_history("event 1")] == ["success"]
    assert beyond._catch_up._unended == {}


@pytest.mark.guarantee("REDIS-20")
async def test_a_failure_that_could_not_be_stored_gives_its_claim_back(
    here: RedisEventBus, beyond: RedisEventBus, link: FaultProxy, clock: ManualClock, gate: Gate
) -> None:

    async def fail_at_first(each: Event) -> None:
        is_first = not gate.entered
        await gate.hold(each)
        if is_first:
            raise ValueError("not today")

    handler_id = await beyond.register_handler("t", fail_at_first)
    await here.publish(event(clock, 1))
    await gate.has_entered()
    await shut(link, beyond)
    gate.open()
    await until(lambda: bool(beyond._catch_up._unended))

    await open_again(link, beyond, clock)

    assert numbers(gate) == [1, 1]
    assert await here.processing_tracker.is_event_processed("event 1", handler_id)


@pytest.mark.guarantee("REDIS-20")
async def test_pairs_that_are_held_are_bounded_and_the_oldest_is_named(
    redis: RedisBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(catchup, "HELD_MAX", 2)
    clock = ManualClock()
    bus = redis.make_bus(clock=clock)
    await bus.register_handler("t", Recorder(), handler_id="mailer")
    registration = bus._registry.get("mailer")
    assert registration is not None

    for number in range(3):
        bus._catch_up.refused(event(clock, number), registration)

    assert [event_id for event_id, _ in bus._catch_up._held] == ["event 1", "event 2"]
    assert "event event 0 in handler mailer is left to whoever holds it" in caplog.text


# -- capacity, closing ------------------------------------------------------------------------------------------


@pytest.mark.guarantee("REDIS-21")
async def test_what_is_made_up_for_waits_for_a_slot(
    here: RedisEventBus, own_server: RedisServer, server: RedisConnection, clock: ManualClock, gate: Gate
) -> None:
    async with RedisEventBus(
        own_server.url, close_timeout=0.2, clock=clock, max_pending_callbacks=1, sweep_indexes=False
    ) as there:
        await there.register_handler("t", gate.hold)
        await cut_off(there, server)
        for number in range(5):
            await here.publish(event(clock, number))
        await reconnected(there, clock)
        await gate.has_entered()
        await until(lambda: bool(there._slots.waiting) or len(gate.entered) > 1)
        assert numbers(gate) == [0]

        gate.open()
        await caught_up(there)

        assert numbers(gate) == [0, 1, 2, 3, 4]
        assert there._slots.taken == 0


@pytest.mark.guarantee("REDIS-21")
async def test_a_catch_up_does_not_start_everything_at_once(
    here: RedisEventBus,
    there: RedisEventBus,
    server: RedisConnection,
    clock: ManualClock,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handing, "AT_ONCE", 2)
    await there.register_handler("t", gate.hold)
    await cut_off(there, server)
    for number in range(5):
        await here.publish(event(clock, number))
    await reconnected(there, clock)
    await gate.has_entered(2)
    for _ in range(50):
        await server.command("PING")
    assert sorted(numbers(gate)) == [0, 1]

    gate.open()
    await caught_up(there)

    assert sorted(numbers(gate)) == [0, 1, 2, 3, 4]


@pytest.mark.guarantee("REDIS-21")
async def test_what_has_started_belongs_to_the_drain_and_nothing_starts_once_a_close_has_begun(
    here: RedisEventBus, own_server: RedisServer, server: RedisConnection, clock: ManualClock, gate: Gate
) -> None:
    there = RedisEventBus(own_server.url, clock=clock, max_pending_callbacks=1, close_timeout=30, sweep_indexes=False)
    await there.register_handler("t", gate.hold)
    await cut_off(there, server)
    for number in range(3):
        await here.publish(event(clock, number))
    await reconnected(there, clock)
    await gate.has_entered()
    await until(lambda: bool(there._slots.waiting))

    closing = asyncio.ensure_future(there.close())
    await everyone_blocked()
    assert not closing.done()
    gate.open()
    await closing

    assert numbers(gate) == [0]
    assert [each.data["n"] for each in gate.left] == [0]
    assert there._slots.taken == 0
    assert there._catch_up.tasks == {}


@pytest.mark.guarantee("REDIS-21")
async def test_nothing_that_was_missed_starts_once_a_close_has_begun(redis: RedisBackend, recorder: Recorder) -> None:
    bus = redis.make_bus(max_pending_callbacks=1)
    await bus.register_handler("t", recorder)
    await bus._slots.take()
    making_up = asyncio.ensure_future(bus._foreign.make_up(Event("t"), tuple(bus._registry)))
    await everyone_blocked()

    bus._slots.give_back()
    bus.request_close()

    with pytest.raises(BusClosedError):
        await making_up
    assert bus._slots.taken == 0
    await bus.close()
    assert recorder.events == []


@pytest.mark.guarantee("REDIS-21")
async def test_what_was_started_on_a_loop_that_is_gone_does_not_count(
    redis: RedisBackend, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing, "AT_ONCE", 1)
    gone = asyncio.new_event_loop()
    bus = redis.make_bus()
    bus._catch_up._handing._running.add(gone.create_future())
    gone.close()
    await bus.register_handler("t", recorder)

    starting = asyncio.ensure_future(bus._catch_up._handing._start(Event("t"), tuple(bus._registry)))

    await until(starting.done)
    assert len(await recorder.has_heard()) == 1


@pytest.mark.guarantee("REDIS-21")
async def test_a_handler_that_is_gone_costs_no_slot(redis: RedisBackend, recorder: Recorder) -> None:
    bus = redis.make_bus(max_pending_callbacks=1)
    handler_id = await bus.register_handler("t", recorder)
    handlers = tuple(bus._registry)
    await bus.unregister_handler(handler_id)

    assert await bus._foreign.make_up(Event("t"), handlers) == []
    assert bus._slots.taken == 0


# -- reading a window -------------------------------------------------------------------------------------------


async def read(raw: RedisConnection, prefix: str, types: list[str], since: float = 0.0) -> list[str]:
    found: list[str] = []
    async for page in window.pages(raw, EventKeys(f"{prefix}event:"), types, since):
        assert len(page) <= window.PAGE_EVENTS
        found += [each.event_id for each in page]
    return found


@pytest.mark.guarantee("REDIS-22")
async def test_a_window_is_read_oldest_first_whatever_the_type(
    redis: RedisBackend, raw: RedisConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "PAGE_EVENTS", 3)
    storage = redis.event_storage()
    for number in range(20):
        await storage.store_event(Event("abc"[number * 7 % 3], event_id=f"{number:02}", timestamp=1000 - number))

    found = await read(raw, redis.prefix, ["a", "b", "c", "nobody's"], since=985)

    assert found == [f"{number:02}" for number in range(15, -1, -1)]


@pytest.mark.guarantee("REDIS-22")
async def test_a_page_ends_where_an_older_event_may_still_be_to_be_read(
    redis: RedisBackend, raw: RedisConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "PAGE_EVENTS", 3)
    storage = redis.event_storage()
    for event_type, times in (("a", (1, 2, 4, 5, 6)), ("b", (3, 10, 11, 12))):
        for time in times:
            await storage.store_event(Event(event_type, event_id=f"{time}", timestamp=time))

    assert await read(raw, redis.prefix, ["a", "b"]) == ["1", "2", "3", "4", "5", "6", "10", "11", "12"]


@pytest.mark.guarantee("REDIS-22")
async def test_more_events_of_one_time_than_a_page_holds_are_all_read_once(
    redis: RedisBackend, raw: RedisConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "PAGE_EVENTS", 3)
    storage = redis.event_storage()
    times = [1.0] * 2 + [2.0] * 10 + [3.0] * 4
    for number, time in enumerate(times):
        await storage.store_event(Event("a", event_id=f"{number:02}", timestamp=time))

    assert await read(raw, redis.prefix, ["a"], since=1.0) == [f"{number:02}" for number in range(16)]


@pytest.mark.guarantee("REDIS-22")
async def test_what_comes_while_a_window_is_read_does_not_keep_it_from_its_end(
    redis: RedisBackend, raw: RedisConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "PAGE_EVENTS", 2)
    storage = redis.event_storage()
    for number in range(4):
        await storage.store_event(Event("a", event_id=f"{number}", timestamp=number))

    found: list[str] = []
    async for page in window.pages(raw, EventKeys(f"{redis.prefix}event:"), ["a"], 0.0):
        found += [each.event_id for each in page]
        for _ in page:
            await storage.store_event(Event("a", event_id=f"later {len(found)}", timestamp=100 + len(found)))
        assert len(found) < 20

    assert found == ["0", "1", "2", "3"]


@pytest.mark.guarantee("REDIS-22")
async def test_rows_that_are_gone_damaged_or_of_another_type_are_passed_over(
    redis: RedisBackend, raw: RedisConnection, caplog: pytest.LogCaptureFixture
) -> None:
    storage = redis.event_storage()
    for number in range(5):
        await storage.store_event(Event("a", event_id=f"{number}", timestamp=number))
    await raw.command("DEL", f"{redis.prefix}event:events:1")
    await raw.command("SET", f"{redis.prefix}event:events:2", "rubbish")
    await raw.command("SET", f"{redis.prefix}event:events:3", Event("b", event_id="3").model_dump_json())
    caplog.set_level(logging.WARNING, "lastbus.redis")

    assert await read(raw, redis.prefix, ["a"]) == ["0", "4"]
    assert [record.getMessage()[:7] for record in caplog.records] == ["event 2"]
