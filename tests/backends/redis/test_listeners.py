"""The listener in trouble: cut off, alone, ignored. It comes back by itself, and nobody hears anything twice."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest

from lastbus import Event, EventStorageError
from lastbus._backends.redis import listeners
from lastbus._backends.redis.bus import RedisEventBus
from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.keys import Channels
from lastbus._backends.redis.listeners import Listener, Topic
from lastbus._kit.servers import RedisServer
from lastbus.testing import ManualClock, Recorder, everyone_blocked
from tests._backends.eventually import eventually
from tests._backends.redis import FakeRedisBackend
from tests.contract.waiting import settled, soon, until

LITTLE_SECONDS: Final = 0.2
"""How long what happens within this process may take; a listener looks up every 0.02 seconds."""


class NotingClock(ManualClock):
    """A manual clock that notes for how long timers were set."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float] = []

    def call_later(self, delay: float, callback: Callable[[], object]) -> object:  # type: ignore[override]
        self.delays.append(delay)
        return super().call_later(delay, callback)


@pytest.fixture
async def there(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RedisEventBus]:
    """The bus that listens, and that looks for its server often."""
    monkeypatch.setattr(listeners, "RECONNECT_SECONDS_MAX", listeners.RECONNECT_FIRST_SECONDS)
    async with RedisEventBus(own_server.url, close_timeout=0.2) as bus:
        yield bus


@pytest.fixture
async def here(own_server: RedisServer) -> AsyncIterator[RedisEventBus]:
    """A bus of another process, as it were."""
    async with RedisEventBus(own_server.url, close_timeout=0.2) as bus:
        yield bus


async def numsub(bus: RedisEventBus, event_type: str) -> int:
    return int((await bus._connection.command("PUBSUB", "NUMSUB", f"plaita:events:{event_type}"))[-1])


async def has_come_back(here: RedisEventBus, event_type: str, wildcards: int = 0) -> None:
    """Return when somebody is subscribed again."""

    async def is_heard() -> bool:
        patterns = await here._connection.command("PUBSUB", "NUMPAT")
        return await numsub(here, event_type) >= 1 and patterns >= wildcards

    assert await eventually(is_heard)


async def is_cut_off(bus: RedisEventBus) -> None:
    assert bus.pubsub is not None
    await until(lambda: bus.pubsub is not None and not bus.pubsub._confirmed)


@pytest.mark.guarantee("REDIS-06")
async def test_a_killed_connection_costs_no_registration_and_nothing_is_heard_twice(
    here: RedisEventBus, there: RedisEventBus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lastbus.redis")
    exact, wild = Recorder(), Recorder()
    await there.register_handler("t", exact)
    await there.register_handler("t*", wild)
    waiting = asyncio.ensure_future(there.wait_for_event("w", timeout=30))
    await until(lambda: there._topic("w") in there.pubsub._confirmed)

    for _ in range(3):
        await here._connection.command("CLIENT", "KILL", "TYPE", "pubsub")
        await is_cut_off(there)
        await has_come_back(here, "w", wildcards=1)

    events = [Event("t"), Event("t"), Event("w")]
    for event in events:
        await here.publish(event, prevent_duplicate_consumption=False)
    assert await waiting == events[2]
    await settled(there)
    assert exact.events == wild.events == events[:2]
    logged = [record.getMessage() for record in caplog.records]
    assert len([line for line in logged if "lost its connection" in line]) == 3
    assert len([line for line in logged if "connected again" in line]) == 3


@pytest.mark.guarantee("REDIS-06")
@pytest.mark.slow
async def test_a_restarted_server_costs_no_registration_and_nothing_is_heard_twice(
    own_server: RedisServer, here: RedisEventBus, there: RedisEventBus
) -> None:
    """Slow: a server is stopped and started."""
    exact, wild = Recorder(), Recorder()
    await there.register_handler("t", exact)
    await there.register_handler(None, wild)
    before = Event("t")
    await here.publish(before)
    await exact.has_heard()

    await asyncio.to_thread(own_server.restart)
    await has_come_back(here, "t", wildcards=1)
    after = Event("t")
    await here.publish(after, prevent_duplicate_consumption=False)

    await wild.has_heard(2)
    await settled(there)
    assert exact.events == wild.events == [before, after]


@pytest.mark.guarantee("REDIS-06")
@pytest.mark.slow
async def test_a_server_that_is_killed_in_mid_traffic_costs_no_registration_and_nothing_is_heard_twice(
    own_server: RedisServer, here: RedisEventBus, there: RedisEventBus
) -> None:
    """Slow: a server is killed and started."""
    exact, wild = Recorder(), Recorder()
    await there.register_handler("t", exact)
    await there.register_handler("t*", wild)
    is_talking = True

    async def talk() -> None:
        while is_talking:
            with contextlib.suppress(EventStorageError):
                await here.publish("t", prevent_duplicate_consumption=False)

    talking = [asyncio.ensure_future(talk()) for _ in range(3)]
    await exact.has_heard(10)
    await asyncio.to_thread(own_server.kill)
    await asyncio.to_thread(own_server.start)
    await has_come_back(here, "t", wildcards=1)
    is_talking = False
    await asyncio.gather(*talking)
    last = Event("t")
    await here.publish(last)

    await until(lambda: last in exact.events and last in wild.events)
    for recorder in (exact, wild):
        assert len({event.event_id for event in recorder.events}) == len(recorder.events)


@pytest.mark.guarantee("REDIS-07")
@pytest.mark.slow
async def test_a_server_that_stops_answering_is_left_and_found_again(
    here: RedisEventBus, there: RedisEventBus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slow: silence has to last before it means anything."""
    monkeypatch.setattr(listeners, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(listeners, "READ_SECONDS", 0.1 / 2)
    recorder = Recorder()
    await there.register_handler("t", recorder)

    await here._connection.command("CLIENT", "PAUSE", 700, "ALL")
    await until(lambda: "stopped answering" in caplog.text)
    await has_come_back(here, "t")
    await here.publish("t")

    await recorder.has_heard()
    await settled(there)
    assert len(recorder.events) == 1


@pytest.mark.guarantee("REDIS-07")
@pytest.mark.slow
async def test_a_silent_but_living_connection_is_kept(
    here: RedisEventBus, there: RedisEventBus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slow: several silences have to pass."""
    monkeypatch.setattr(listeners, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(listeners, "READ_SECONDS", 0.05 / 2)
    recorder = Recorder()
    await there.register_handler("t", recorder)
    pubsub = there.pubsub._pubsub
    pings = int((await stats(here)).get("ping", 0))

    async def are_asked_for_life() -> bool:
        return (await stats(here)).get("ping", 0) >= pings + 6

    assert await eventually(are_asked_for_life)
    await here.publish("t")

    assert len(await recorder.has_heard()) == 1
    assert there.pubsub._pubsub is pubsub
    assert caplog.records == []


async def stats(bus: RedisEventBus) -> dict[str, int]:
    lines = (await bus._connection.command("INFO", "commandstats")).items()
    return {name.removeprefix("cmdstat_"): counts["calls"] for name, counts in lines}


# -- time is the injected clock's -------------------------------------------------------------------------------


class Alone:
    """A listener without a bus, on fakeredis and a clock that the test moves."""

    def __init__(self, backend: FakeRedisBackend) -> None:
        self.clock = NotingClock()
        self.connection = backend.connection()
        self.wanted: set[Topic] = {Topic("c:t", False)}
        self.heard: list[Event] = []
        self.listener = Listener(
            self.connection,
            Channels("c:"),
            "wake:",
            origin="me",
            wanted=lambda: self.wanted,
            receive=self.receive,
            clock=self.clock,
        )

    async def receive(self, event: Event, deduplicate: bool, wildcard: bool) -> None:
        self.heard.append(event)


@pytest.fixture
async def backend() -> AsyncIterator[FakeRedisBackend]:
    async with FakeRedisBackend() as opened:
        yield opened


@pytest.fixture
async def alone(backend: FakeRedisBackend, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Alone]:
    # fakeredis shows that it has gone only to who asks.
    monkeypatch.setattr(listeners, "READ_SECONDS", 0.02)
    alone = Alone(backend)
    alone.listener.start()
    yield alone
    tasks = list(alone.listener.tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await alone.listener.aclose()


async def rests(alone: Alone) -> None:
    await until(lambda: alone.listener._pause is not None)


class Deaf:
    """Lets a listener ask and look for a message as often as it likes, and answers nothing."""

    def __init__(self, alone: Alone) -> None:
        assert alone.listener._pubsub is not None
        self._alone = alone
        self._look = alone.listener._pubsub.get_message
        self.asked = self.looks = 0
        alone.listener._pubsub.ping = self.ping  # type: ignore[method-assign]
        alone.listener._pubsub.get_message = self.get_message  # type: ignore[method-assign]

    async def ping(self) -> None:
        self.asked += 1

    async def get_message(self, timeout: float) -> Any:
        self.looks += 1
        return await self._look(timeout=timeout)

    async def is_looked_at(self) -> None:
        """Return when the listener has come to know of the time, and done about it what it does."""
        enough = self.looks + 3
        await until(lambda: self.looks >= enough or self._alone.listener._pause is not None)


@pytest.mark.guarantee("REDIS-07")
async def test_a_silent_server_is_asked_after_five_seconds_and_left_after_five_more(
    alone: Alone, caplog: pytest.LogCaptureFixture
) -> None:
    await alone.listener.confirm(alone.wanted)
    deaf = Deaf(alone)

    states = []

    for seconds in (4.9, 0.1, 4.9, 0.1):
        alone.clock.advance(seconds)
        await deaf.is_looked_at()
        states.append((deaf.asked, alone.listener._pause is not None))

    assert states == [(0, False), (1, False), (1, False), (1, True)]
    assert "stopped answering" in caplog.text


@pytest.mark.guarantee("REDIS-07")
async def test_a_server_that_answers_is_never_left_however_quiet_it_is(
    alone: Alone, caplog: pytest.LogCaptureFixture
) -> None:
    await alone.listener.confirm(alone.wanted)
    pubsub = alone.listener._pubsub

    for _ in range(4):
        alive_at = alone.clock.time()
        alone.clock.advance(10)
        await until(
            lambda before=alive_at: alone.listener.alive_at != before or alone.listener._pause is not None  # type: ignore[misc]
        )
        assert alone.listener.alive_at != alive_at

    assert alone.listener._pubsub is pubsub
    assert caplog.records == []


@pytest.mark.guarantee("REDIS-07")
async def test_attempts_to_reconnect_come_at_growing_bounded_intervals(
    backend: FakeRedisBackend, alone: Alone, caplog: pytest.LogCaptureFixture
) -> None:
    await alone.listener.confirm(alone.wanted)
    alone.clock.delays.clear()

    backend.server.connected = False
    for _ in range(9):
        await rests(alone)
        alone.clock.advance(3600)
        await until(lambda: alone.listener._pause is None)
    await rests(alone)

    assert alone.clock.delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]
    assert [record.levelname for record in caplog.records if "lost its connection" in record.message] == ["WARNING"]


@pytest.mark.guarantee("REDIS-07")
async def test_the_intervals_start_small_again_after_a_success(backend: FakeRedisBackend, alone: Alone) -> None:
    for _ in range(2):
        await alone.listener.confirm(alone.wanted)
        alone.clock.delays.clear()
        backend.server.connected = False
        await rests(alone)
        alone.clock.advance(0.1)
        await until(lambda: len(alone.clock.delays) == 2)
        await rests(alone)
        backend.server.connected = True
        assert alone.clock.delays == [0.1, 0.2]
        alone.clock.advance(0.2)


@pytest.mark.guarantee("REDIS-06")
async def test_after_a_cut_everything_that_is_wanted_is_asked_for_again(
    backend: FakeRedisBackend, alone: Alone
) -> None:
    await alone.listener.confirm(alone.wanted)
    [task] = [each for each in alone.listener.tasks if each.get_name() == "lastbus redis listener"]
    backend.server.connected = False
    await until(lambda: task.done() or alone.listener._pause is not None)
    assert not task.done()
    backend.server.connected = True

    confirming = asyncio.ensure_future(alone.listener.confirm(alone.wanted))
    await soon(confirming.done, LITTLE_SECONDS)

    assert confirming.done()
    event = Event("t")
    await alone.connection.command("PUBLISH", "c:t", event.model_dump_json())
    await until(lambda: alone.heard == [event])


@pytest.mark.guarantee("REDIS-06")
async def test_whoever_finds_the_server_back_ends_the_rest_of_the_listener(
    backend: FakeRedisBackend, alone: Alone
) -> None:
    await alone.listener.confirm(alone.wanted)
    backend.server.connected = False
    await rests(alone)
    backend.server.connected = True

    await alone.listener.confirm(alone.wanted)

    assert alone.clock.time() == 1_000_000.0


@pytest.mark.guarantee("REDIS-07")
async def test_a_subscription_that_is_not_confirmed_in_time_is_an_error(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Topic("c:silent", False)
    alone.wanted.add(silent)
    monkeypatch.setattr(alone.listener, "_answered", lambda topic, is_subscribed: None)
    confirming = asyncio.ensure_future(alone.listener.confirm({silent}))
    await until(lambda: bool(alone.listener._waiting))
    await everyone_blocked()

    alone.clock.advance(listeners.CONFIRM_SECONDS)
    await soon(confirming.done, LITTLE_SECONDS)

    assert confirming.done()
    with pytest.raises(EventStorageError, match="not confirmed"):
        await confirming
    assert alone.listener._waiting == {}


@pytest.mark.guarantee("REDIS-13")
async def test_nobody_waits_for_the_confirmation_of_what_is_not_wanted_any_more(alone: Alone) -> None:
    await alone.listener.confirm(alone.wanted)
    kept, given_up = Topic("c:kept", False), Topic("c:given up", False)
    confirming = asyncio.ensure_future(alone.listener.confirm({kept, given_up}))
    await everyone_blocked(1)

    alone.wanted.add(kept)
    alone.listener.touch()
    await soon(confirming.done, LITTLE_SECONDS)

    assert confirming.done()
    assert confirming.exception() is None


@pytest.mark.guarantee("REDIS-13")
async def test_many_wakes_at_once_become_few(alone: Alone) -> None:
    await alone.listener.confirm(alone.wanted)
    sent: list[object] = []
    command = alone.connection.command

    async def count(*words: object) -> object:
        sent.append(words)
        return await command(*words)

    alone.connection.command = count  # type: ignore[method-assign]
    new = [Topic(f"c:{number}", False) for number in range(50)]
    alone.wanted = {*alone.wanted, *new}

    await asyncio.gather(*(alone.listener.confirm({topic}) for topic in new))

    assert len(sent) <= 2


@pytest.mark.guarantee("REDIS-13")
async def test_a_confirmation_is_waited_for_no_longer_than_what_it_is_for(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = Topic("c:silent", False)
    alone.wanted.add(silent)
    monkeypatch.setattr(alone.listener, "_answered", lambda topic, is_subscribed: None)
    wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    confirming = asyncio.ensure_future(alone.listener.confirm({silent}, wait))
    await until(lambda: bool(alone.listener._waiting))

    wait.set_result(None)
    await soon(confirming.done, LITTLE_SECONDS)

    assert confirming.done()
    assert confirming.exception() is None


@pytest.mark.guarantee("REDIS-05")
async def test_a_cancelled_confirmation_leaves_nothing_behind(alone: Alone) -> None:
    await alone.listener.confirm(alone.wanted)
    timers = alone.clock.pending
    confirming = asyncio.ensure_future(alone.listener.confirm({Topic("c:never wanted", False)}))
    await until(lambda: bool(alone.listener._waiting))

    confirming.cancel()
    await asyncio.wait({confirming})

    assert alone.listener._waiting == {}
    assert alone.clock.pending == timers


@pytest.mark.guarantee("REDIS-12")
async def test_a_cancelled_listener_ends_at_once(alone: Alone) -> None:
    await alone.listener.confirm(alone.wanted)
    [task] = [each for each in alone.listener.tasks if each.get_name() == "lastbus redis listener"]

    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=1)

    assert done == {task}
    assert task.cancelled()


@pytest.mark.guarantee("REDIS-06")
async def test_a_connection_of_text_that_is_no_text_goes_on(alone: Alone, backend: FakeRedisBackend) -> None:
    await alone.listener.confirm(alone.wanted)
    say = RedisConnection(client=backend.client())
    await say.command("PUBLISH", "c:t", b"\xff\xfe")
    event = Event("t")
    await say.command("PUBLISH", "c:t", event.model_dump_json())

    await until(lambda: bool(alone.heard))

    assert alone.heard == [event]
    await say.aclose()
