"""Faults: servers that die, refuse or forget, links that are slow or half-open, clocks that go back, strange keys.

Each test owns its server. Where nothing is said of a clock, time is real: drivers and servers know no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from lastbus import EventStorageError
from lastbus._backends.redis import connection, listeners
from lastbus._backends.redis.bus import RedisEventBus
from lastbus._backends.redis.connection import RedisConnection
from lastbus._kit.ports import free_port
from lastbus._kit.servers import RedisServer, ServerUnavailable, missing
from lastbus.testing import DOWN, FaultProxy, Gate, ManualClock, Recorder
from tests.backends.redis.test_catchup import back, caught_up, cut_off, event, numbers
from tests.contract.waiting import hears, settled, soon, until

LOAD: int = 3
"""How many publish at once."""


@pytest.fixture
async def server(own_server: RedisServer) -> AsyncIterator[RedisConnection]:
    """A way of the test's own to the server, which no fault befalls."""
    direct = RedisConnection(own_server.url)
    yield direct
    await direct.aclose()


@pytest.fixture
async def link(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FaultProxy]:
    """A way to the server that can be made a bad one. Drivers try as often as ever, but without a pause."""
    monkeypatch.setattr(connection, "RETRY_SECONDS_MAX", 0.001)
    async with FaultProxy(own_server.port) as link:
        yield link


@asynccontextmanager
async def bus_at(url: str | None = None, **options: Any) -> AsyncIterator[RedisEventBus]:
    async with RedisEventBus(url, close_timeout=0.2, sweep_indexes=False, **options) as bus:
        yield bus


@pytest.fixture
async def here(own_server: RedisServer) -> AsyncIterator[RedisEventBus]:
    async with bus_at(own_server.url) as bus:
        yield bus


@pytest.fixture
async def there(own_server: RedisServer, clock: ManualClock) -> AsyncIterator[RedisEventBus]:
    async with bus_at(own_server.url, clock=clock) as bus:
        yield bus


class Publishers:
    """Several who publish one event after the other until they are stopped, and note what came of it."""

    def __init__(self, bus: RedisEventBus) -> None:
        self._bus = bus
        self._is_over = False
        self.returned: list[str] = []
        self.raised: list[EventStorageError] = []
        self._tasks = [asyncio.ensure_future(self._publish()) for _ in range(LOAD)]

    async def stop(self) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)

    async def have_published(self, more: int) -> None:
        enough = len(self.returned) + more
        await until(lambda: len(self.returned) >= enough)

    async def _publish(self) -> None:
        while not self._is_over:
            try:
                self.returned.append(await self._bus.publish("t"))
            except EventStorageError as error:
                self.raised.append(error)


def ids(recorder: Recorder) -> list[str]:
    return sorted(each.event_id for each in recorder.events)


async def stored(server: RedisConnection) -> list[str]:
    return sorted(each.decode() for each in await server.scan("plaita:event:events:"))


# -- servers that die -------------------------------------------------------------------------------------------


@pytest.mark.guarantee("FAULT-01")
@pytest.mark.slow
async def test_a_server_that_is_killed_in_mid_publish_costs_nobody_an_event_that_it_still_has(
    own_server: RedisServer, here: RedisEventBus, server: RedisConnection
) -> None:
    """Slow: a server is killed and started, twice."""
    async with bus_at(own_server.url) as there:
        own, exact, wild, stable = (Recorder() for _ in range(4))
        await here.register_handler("t", own)
        await there.register_handler("t", exact)
        await there.register_handler("*", wild)
        await there.register_handler("t", stable, handler_id="mailer")
        publishers = Publishers(here)

        for _ in range(2):
            await publishers.have_published(5)
            await asyncio.to_thread(own_server.kill)
            await asyncio.to_thread(own_server.start)
        await publishers.have_published(5)
        await publishers.stop()

        kept = await stored(server)
        assert set(publishers.returned) <= set(kept)
        for recorder in (own, exact, wild, stable):
            await soon(lambda each=recorder: len(each.events) >= len(kept), 9)  # type: ignore[misc]
            await settled(here)
            await settled(there)
            assert ids(recorder) == kept


@pytest.mark.guarantee("FAULT-01")
@pytest.mark.slow
async def test_what_a_server_has_only_in_memory_is_gone_with_it_and_the_rest_goes_on() -> None:
    """Slow: a server is killed and started."""
    try:
        forgetful = RedisServer()
    except ServerUnavailable as absence:
        missing(absence)
    with forgetful:
        async with bus_at(forgetful.url) as here, bus_at(forgetful.url) as there:
            recorder = Recorder()
            await there.register_handler("t", recorder, handler_id="mailer")
            await here.publish("t", n=1)
            await hears(recorder)
            await settled(there)

            await asyncio.to_thread(forgetful.kill)
            await asyncio.to_thread(forgetful.start)
            await until(lambda: there.pubsub is not None and there.pubsub.hears(there._wanted()))
            await caught_up(there)
            await here.publish("t", n=2)

            assert [each.data["n"] for each in await hears(recorder, 2)] == [1, 2]
            assert [each.data["n"] for each in await here.event_storage.list_events("t")] == [2]
            assert await there._connection.command("EXISTS", "plaita:processed:handlers:mailer") == 1


@pytest.mark.guarantee("FAULT-01")
@pytest.mark.parametrize("deduplicate", [True, False])
async def test_a_publish_that_was_stored_although_it_raised_is_handled_here_too(
    own_server: RedisServer, link: FaultProxy, clock: ManualClock, deduplicate: bool
) -> None:
    own, other = Recorder(), Recorder()
    async with bus_at(own_server.url) as there, bus_at(link.through(own_server.url), clock=clock) as here:
        await here.register_handler("t", own)
        await there.register_handler("t", other)
        await here.publish("warm-up")
        link.hold(DOWN)

        publishing = asyncio.ensure_future(here.publish(event(clock, 1, ago=100), deduplicate))
        await hears(other)
        link.is_refusing = True
        link.cut()
        link.release()
        with pytest.raises(EventStorageError):
            await publishing
        assert own.events == []
        link.is_refusing = False
        clock.advance(5)

        assert [each.data["n"] for each in await hears(own)] == [1]
        await caught_up(here)
        assert (numbers(own), numbers(other)) == ([1], [1])


@pytest.mark.guarantee("FAULT-01", "REDIS-20")
async def test_a_claim_that_was_granted_in_silence_does_not_have_to_lapse(
    own_server: RedisServer, here: RedisEventBus, link: FaultProxy, clock: ManualClock
) -> None:
    recorder = Recorder()
    async with bus_at(link.through(own_server.url), clock=clock) as there:
        handler_id = await there.register_handler("t", recorder)
        granted = there.processing_tracker.claim_event

        async def grant_in_silence(*claim: str) -> bool:
            there.processing_tracker.claim_event = granted  # type: ignore[method-assign]
            assert await granted(*claim)
            raise EventStorageError("the line is dead")

        there.processing_tracker.claim_event = grant_in_silence  # type: ignore[method-assign]
        await here.publish(event(clock, 1))
        await until(lambda: there._catch_up._rest.is_set)
        assert recorder.events == []
        clock.advance(5)

        await hears(recorder)
        await settled(there)
        assert await here.processing_tracker.is_event_processed("event 1", handler_id)


# -- connections that are killed --------------------------------------------------------------------------------


def of_bytes(url: str, **options: Any) -> Redis:
    """A client of somebody's, who has it repeat what was cut off."""
    retry = Retry(ExponentialBackoff(cap=0.5, base=0.05), 3)
    again = [RedisConnectionError, RedisTimeoutError]
    pool = BlockingConnectionPool.from_url(url, retry=retry, retry_on_error=again, socket_timeout=5, **options)
    return Redis(connection_pool=pool)


def of_text(url: str) -> Redis:
    return of_bytes(url, decode_responses=True)


@pytest.mark.guarantee("FAULT-02")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["NORMAL", "PUBSUB"])
@pytest.mark.parametrize("make", [None, of_bytes, of_text], ids=["url", "bytes", "text"])
async def test_a_connection_that_is_killed_under_load_costs_nobody_an_event(
    own_server: RedisServer, server: RedisConnection, make: Callable[[str], Redis] | None, kind: str
) -> None:
    """Slow: connections are killed again and again."""
    urls: dict[str, Any] = {"url": own_server.url} if make is None else {}
    clients: list[dict[str, Any]] = [{} if make is None else {"client": make(own_server.url)} for _ in range(2)]
    async with bus_at(**urls, **clients[0]) as here, bus_at(**urls, **clients[1]) as there:
        exact, wild, own = Recorder(), Recorder(), Recorder()
        await there.register_handler("t", exact)
        await there.register_handler("t*", wild)
        await here.register_handler("t", own)
        publishers = Publishers(here)

        for _ in range(connection.RETRIES):
            await publishers.have_published(5)
            await server.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "YES")
        await publishers.have_published(5)
        await publishers.stop()

        assert publishers.raised == []
        for recorder in (exact, wild, own):
            await soon(lambda each=recorder: len(each.events) >= len(publishers.returned), 9)  # type: ignore[misc]
            await settled(here)
            await settled(there)
            assert ids(recorder) == sorted(publishers.returned)


@pytest.mark.guarantee("FAULT-02")
async def test_a_call_that_is_cut_off_in_the_middle_is_repeated_and_counts_once(
    own_server: RedisServer, here: RedisEventBus, link: FaultProxy
) -> None:
    recorder = Recorder()
    await here.register_handler("t", recorder)
    async with bus_at(link.through(own_server.url)) as there:
        await there.publish("warm-up")
        link.hold(DOWN)

        publishing = asyncio.ensure_future(there.publish("t", prevent_duplicate_consumption=False))
        await hears(recorder)
        link.cut()
        link.release()

        await until(publishing.done)
        assert publishing.result() == recorder.events[0].event_id
        await settled(here)
        assert len(recorder.events) == 1


# -- links that are slow or half-open ---------------------------------------------------------------------------


@pytest.mark.guarantee("FAULT-03")
@pytest.mark.slow
async def test_a_slow_link_costs_time(
    own_server: RedisServer, link: FaultProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slow: that is what the link is. A message takes longer than one look for messages lasts."""
    monkeypatch.setattr(listeners, "READ_SECONDS", 0.02)
    recorder, wild = Recorder(), Recorder()
    async with bus_at(link.through(own_server.url)) as here, bus_at(link.through(own_server.url)) as there:
        await there.register_handler("t", recorder)
        await there.register_handler("*", wild)
        await here.publish("t", n=0)
        await hears(wild)
        link.delay_seconds, link.portion_bytes = 0.05, 50

        event_id = await here.publish("t", n=1)

        assert (await asyncio.wait_for(recorder.has_heard(2), 9))[1].event_id == event_id
        await asyncio.wait_for(wild.has_heard(2), 9)
        await settled(there, seconds=9)
        link.delay_seconds = 0
        assert [each.data["n"] for each in recorder.events] == [each.data["n"] for each in wild.events] == [0, 1]
        assert caplog.records == []


@pytest.mark.guarantee("FAULT-03")
async def test_a_reply_may_be_slow(own_server: RedisServer, link: FaultProxy) -> None:
    async with bus_at(link.through(own_server.url)) as here:
        await here.publish("warm-up")
        link.delay_seconds = 0.3

        event_id = await here.publish("t")

        link.delay_seconds = 0
        assert (await here.get_event(event_id)).event_type == "t"


@pytest.mark.guarantee("FAULT-04")
@pytest.mark.slow
async def test_a_call_over_a_half_open_link_ends(
    own_server: RedisServer, link: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow: four attempts have to time out."""
    monkeypatch.setattr(connection, "SOCKET_SECONDS", 0.2)
    async with bus_at(link.through(own_server.url)) as here:
        link.hold()

        publishing = asyncio.ensure_future(here.publish("t"))
        assert await soon(publishing.done, 2)

        link.release()
        assert isinstance(publishing.exception(), EventStorageError)


@pytest.mark.guarantee("FAULT-04")
async def test_a_listener_leaves_a_half_open_link_and_catches_up_when_there_is_another(
    own_server: RedisServer,
    here: RedisEventBus,
    link: FaultProxy,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(listeners, "READ_SECONDS", 0.02)
    recorder = Recorder()
    async with bus_at(link.through(own_server.url), clock=clock) as there:
        await there.register_handler("t", recorder)
        link.hold()
        await here.publish(event(clock, 1, ago=55))

        assert await soon(lambda: _leaves(there, clock))
        assert "stopped answering" in caplog.text
        assert recorder.events == []
        link.cut()
        link.release()
        await back(there, clock)

        assert numbers(recorder) == [1]


def _leaves(bus: RedisEventBus, clock: ManualClock) -> bool:
    """Let time pass until the listener has had enough."""
    clock.advance(0.1)
    return bus.pubsub is not None and bus.pubsub._pause is not None


# -- servers that refuse ----------------------------------------------------------------------------------------


async def fill(server: RedisConnection) -> Callable[[], Any]:
    await server.command("CONFIG", "SET", "maxmemory", 1)
    return lambda: server.command("CONFIG", "SET", "maxmemory", 0)


async def demote(server: RedisConnection) -> Callable[[], Any]:
    await server.command("REPLICAOF", "127.0.0.1", free_port())
    return lambda: server.command("REPLICAOF", "NO", "ONE")


REFUSALS = pytest.mark.parametrize(("refuse", "word"), [(fill, "OOM"), (demote, "READONLY")], ids=["OOM", "READONLY"])


def says(word: str) -> str:
    """What redis-py makes of the server's word: it drops some of them."""
    return {"OOM": "command not allowed|OOM", "READONLY": "read.?only|READONLY"}[word]


@pytest.mark.guarantee("FAULT-05")
@REFUSALS
async def test_a_publish_that_the_server_refuses_raises_its_word_and_stores_nothing(
    here: RedisEventBus, there: RedisEventBus, server: RedisConnection, refuse: Callable[..., Any], word: str
) -> None:
    own, other = Recorder(), Recorder()
    await here.register_handler("t", own)
    await there.register_handler("t", other)
    relent = await refuse(server)

    with pytest.raises(EventStorageError, match=says(word)):
        await here.publish("t")
    await relent()
    await here.publish("t", n=2)

    assert [each.data for each in await hears(other)] == [{"n": 2}]
    await settled(here)
    assert [each.data for each in own.events] == [{"n": 2}]
    assert len(await stored(server)) == 1
    assert here._catch_up._held == {}


@pytest.mark.guarantee("FAULT-05")
@REFUSALS
async def test_what_the_server_refuses_to_claim_or_to_mark_is_handed_on_and_marked_when_it_is_well(
    own_server: RedisServer,
    here: RedisEventBus,
    server: RedisConnection,
    clock: ManualClock,
    gate: Gate,
    refuse: Callable[..., Any],
    word: str,
) -> None:
    async with bus_at(own_server.url, clock=clock, max_pending_callbacks=1) as there:
        handler_id = await there.register_handler("t", gate.hold)
        await here.publish(event(clock, 1))
        await here.publish(event(clock, 2))
        await gate.has_entered()
        await until(lambda: bool(there._slots.waiting))
        relent = await refuse(server)
        gate.open()
        await until(lambda: there._catch_up._rest.is_set and not there._pending_tasks and bool(there._catch_up._held))

        await relent()
        clock.advance(5)
        await until(lambda: len(gate.left) == 2)
        await caught_up(there)

        assert numbers(gate) == [1, 2]
        for number in (1, 2):
            assert await here.processing_tracker.is_event_processed(f"event {number}", handler_id)


@pytest.mark.guarantee("FAULT-05")
async def test_the_rests_of_a_catch_up_grow_to_a_minute_and_begin_anew(
    there: RedisEventBus, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await there.register_handler("t", Recorder(), handler_id="mailer")
    registration = there._registry.get("mailer")
    assert registration is not None
    rests: list[float] = []

    def refuse() -> None:
        there._catch_up.untaken(event(clock, 1), registration)
        timer = there._catch_up._rest._timer
        rests.append(timer.due - clock.time())  # type: ignore[union-attr]

    for _ in range(6):
        refuse()
        refuse()
        clock.advance(rests[-1])
        await caught_up(there)
    clock.advance(60)
    refuse()

    assert rests[::2] == [5, 10, 20, 40, 60, 60, 5]


class SlowReader(RedisServer):
    """A server that takes its time to read its files."""

    def _config(self, port: int) -> list[str]:
        return [*super()._config(port), "key-load-delay 6000", "loading-process-events-interval-bytes 1024"]


@pytest.fixture
def slow_reader() -> Iterator[RedisServer]:
    try:
        server = SlowReader()
    except ServerUnavailable as absence:
        missing(absence)
    with server:
        yield server


@pytest.mark.guarantee("FAULT-05")
@pytest.mark.slow
async def test_a_server_that_reads_its_files_refuses_and_is_found_well(slow_reader: RedisServer) -> None:
    """Slow: the server needs a few seconds for its files."""
    recorder = Recorder()
    async with bus_at(slow_reader.url) as here, bus_at(slow_reader.url) as there:
        await there.register_handler("t", recorder, handler_id="mailer")
        await here.publish("t", n=1)
        await hears(recorder)
        await settled(there)
        fillers = {f"filler:{number}": f"{number}" * 500 for number in range(500)}
        await here._connection.command("MSET", *(word for filler in fillers.items() for word in filler))
        await here._connection.command("SAVE")
        await asyncio.to_thread(slow_reader.kill)

        publishers = Publishers(here)
        await asyncio.to_thread(slow_reader.start)
        await publishers.have_published(3)
        await publishers.stop()

        assert [error for error in publishers.raised if "oading" in str(error)]
        kept = await stored(there._connection)
        assert set(publishers.returned) < set(kept)
        await soon(lambda: len(recorder.events) >= len(kept), 9)
        await settled(there)
        assert ids(recorder) == kept


# -- servers that forget ----------------------------------------------------------------------------------------


@pytest.mark.guarantee("FAULT-06")
async def test_a_server_that_forgets_the_scripts_is_told_again(
    here: RedisEventBus, there: RedisEventBus, server: RedisConnection, clock: ManualClock
) -> None:
    recorder = Recorder()
    await there.register_handler("t", recorder)
    await here.publish(event(clock, 1))
    await hears(recorder)
    await settled(there)

    await server.command("SCRIPT", "FLUSH")
    await here.publish(event(clock, 2))
    await hears(recorder, 2)
    await settled(there)
    await cut_off(there, server)
    await here.publish(event(clock, 3))
    await server.command("SCRIPT", "FLUSH")
    await back(there, clock)

    assert numbers(recorder) == [1, 2, 3]
    for number in (1, 2, 3):
        handler_id = next(iter(there._registry)).handler_id
        assert await here.processing_tracker.is_event_processed(f"event {number}", handler_id)


# -- clocks that go back ----------------------------------------------------------------------------------------


class SetClock(ManualClock):
    """A clock that somebody sets, while timers run on as they were."""

    offset = 0.0

    def time(self) -> float:
        return super().time() + self.offset


@pytest.mark.guarantee("FAULT-07")
async def test_a_clock_that_is_moved_back_during_an_absence_hides_nothing(
    own_server: RedisServer, here: RedisEventBus, server: RedisConnection
) -> None:
    clock, recorder = SetClock(), Recorder()
    async with bus_at(own_server.url, clock=clock) as there:
        await there.register_handler("t", recorder)
        await cut_off(there, server)
        await here.publish(event(clock, 1))
        clock.offset = -3600
        await here.publish(event(clock, 2))

        await back(there, clock)

        assert sorted(numbers(recorder)) == [1, 2]


@pytest.mark.guarantee("FAULT-07")
async def test_a_clock_that_is_moved_back_and_on_again_during_an_absence_hides_nothing(
    own_server: RedisServer, here: RedisEventBus, link: FaultProxy
) -> None:
    clock, recorder = SetClock(), Recorder()
    async with bus_at(link.through(own_server.url), clock=clock, catch_up=7200) as there:
        await there.register_handler("t", recorder)
        link.is_refusing = True
        link.cut()
        await until(lambda: there.pubsub is not None and there.pubsub._pause is not None)
        clock.offset = -3600
        await here.publish(event(clock, 1))
        first = there.pubsub._pause if there.pubsub else None
        clock.advance(0.1)
        await until(lambda: there.pubsub is not None and there.pubsub._pause not in (None, first))
        clock.offset = 0
        link.is_refusing = False

        clock.advance(5)
        await until(lambda: there.pubsub is not None and there.pubsub.hears(there._wanted()))
        await caught_up(there)

        assert numbers(recorder) == [1]


@pytest.mark.guarantee("FAULT-07")
async def test_a_clock_that_is_moved_back_while_a_process_is_away_hides_nothing(
    own_server: RedisServer, here: RedisEventBus
) -> None:
    clock, recorder = SetClock(), Recorder()
    async with bus_at(own_server.url, clock=clock) as before:
        await before.register_handler("t", Recorder(), handler_id="mailer")
    clock.offset = -3600
    await here.publish(event(clock, 1))
    clock.advance(5)

    async with bus_at(own_server.url, clock=clock) as after:
        await after.register_handler("t", recorder, handler_id="mailer")
        await caught_up(after)

    assert numbers(recorder) == [1]


@pytest.mark.guarantee("FAULT-07")
async def test_a_claim_of_a_dead_process_stands_by_the_clock_that_it_was_made_with(
    own_server: RedisServer, here: RedisEventBus
) -> None:
    clock, recorder = SetClock(), Recorder()
    async with bus_at(own_server.url, clock=clock) as there:
        await there.register_handler("t", recorder, handler_id="mailer")
        await there.processing_tracker.claim_event("event 1", "mailer", "the dead")
        clock.offset = -3600
        await here.publish(event(clock, 1))
        await until(lambda: bool(there._catch_up._held))

        clock.advance(60)
        await caught_up(there)
        assert recorder.events == []
        for _ in range(60):
            clock.advance(60)
            await caught_up(there)

        assert numbers(recorder) == [1]


# -- strange keys -----------------------------------------------------------------------------------------------


@pytest.mark.guarantee("FAULT-08")
async def test_a_key_of_another_kind_costs_what_is_under_it(
    here: RedisEventBus,
    there: RedisEventBus,
    server: RedisConnection,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder()
    await there.register_handler("*", recorder)
    await cut_off(there, server)
    for number in (1, 2, 3, 4):
        await here.publish(event(clock, number, ago=-number))
    await server.command("SET", "plaita:event:types:strange", "no index")
    for number, key in ((1, "events"), (2, "claims"), (3, "attempts")):
        await server.command("SET", f"plaita:processed:{key}:event {number}", "no such thing")

    with pytest.raises(EventStorageError, match="WRONGTYPE"):
        await here.publish("strange")
    await back(there, clock)

    assert numbers(recorder) == [4]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 4
    for name in ("'strange'", "event event 1", "event event 2", "event event 3"):
        assert len([each for each in errors if name in each and "WRONGTYPE" in each]) == 1


@pytest.mark.guarantee("FAULT-08")
async def test_an_end_that_can_never_be_stored_keeps_nothing_else_from_its_end(
    here: RedisEventBus,
    there: RedisEventBus,
    server: RedisConnection,
    clock: ManualClock,
    gate: Gate,
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler_id = await there.register_handler("t", gate.hold)
    await here.publish(event(clock, 1))
    await gate.has_entered()
    await server.command("SET", "plaita:processed:events:event 1", "no marks")
    gate.open()
    await until(lambda: bool(there._catch_up._unended))

    clock.advance(5)
    await caught_up(there)
    assert there._catch_up._unended == {}
    assert "its end can never be stored" in caplog.text
    await cut_off(there, server)
    await here.publish(event(clock, 2))
    await back(there, clock)

    assert numbers(gate) == [1, 2]
    assert await here.processing_tracker.is_event_processed("event 2", handler_id)
