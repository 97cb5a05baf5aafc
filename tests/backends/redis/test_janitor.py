"""Janitor: every index is reached, a little at a time, whatever else the server holds; it lives as long as its bus."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from lastbus import CloseError, Event, EventSubscription
from lastbus._backends.redis.bus import RedisEventBus
from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.janitor import IndexJanitor
from lastbus._backends.redis.metrics import (
    ERRORS_OF_SWEEP,
    EXAMINED_BY_SWEEP,
    PRUNED_BY_SWEEP,
    index_sweep_metrics,
)
from lastbus._backends.redis.migration import Migration
from lastbus._errors import EventStorageError
from lastbus._kit.servers import RedisServer
from lastbus._settings import SWEEP_BUDGET, SWEEP_INTERVAL, SWEEP_OFF
from lastbus.testing import ManualClock, everyone_blocked
from tests._backends.redis import RedisBackend
from tests.contract.waiting import until


class Spy(RedisConnection):
    """A connection that remembers which entries were examined, how many at a time, and what was sent to do it."""

    examined: list[list[str]]
    sent: list[tuple[Any, ...]]

    async def run(self, script: Any, keys: Any, *arguments: Any) -> Any:
        self.examined.append([each.decode() for each in arguments[1:]])
        return await super().run(script, keys, *arguments)

    async def command(self, *words: Any) -> Any:
        self.sent.append(words)
        return await super().command(*words)

    def count(self) -> int:
        """How many entries were examined since the last count."""
        seen = sum(map(len, self.examined))
        self.examined.clear()
        return seen


@pytest.fixture
def spy(redis: RedisBackend) -> Spy:
    spy = Spy(client=redis.client())
    spy.examined, spy.sent = [], []
    redis._connections.append(spy)
    return spy


@pytest.fixture
def janitor(redis: RedisBackend, spy: Spy, clock: ManualClock) -> IndexJanitor:
    """A janitor that sweeps when the test says so."""
    return make_janitor(redis, spy, clock)


def make_janitor(redis: RedisBackend, connection: RedisConnection, clock: ManualClock) -> IndexJanitor:
    stores = (redis.event_storage(clock=clock).holes, redis.subscription_storage().holes)
    return IndexJanitor(connection, stores, clock=clock, is_wanted=lambda: True)


async def bury_events(raw: RedisConnection, redis: RedisBackend, event_type: str, names: Iterable[str]) -> None:
    """Index entries of events that lapsed long ago."""
    words = [word for name in names for word in (1, name)]
    await raw.command("ZADD", f"{redis.prefix}event:types:{event_type}", *words)


async def bury_subscriptions(raw: RedisConnection, redis: RedisBackend, index: str, names: Iterable[str]) -> None:
    """Index entries of subscriptions that lapsed."""
    await raw.command("SADD", f"{redis.prefix}subscription:{index}", *names)


def numbered(count: int, name: str = "dead") -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def words(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == level]


# -- what a tick does -------------------------------------------------------------------------------------------


@pytest.mark.guarantee("IDX-16")
async def test_entries_that_nobody_asks_about_are_dropped_from_every_kind_of_index(
    redis: RedisBackend, raw: RedisConnection, janitor: IndexJanitor
) -> None:
    await bury_events(raw, redis, "cold:type", ["e"])
    for kind in ("type", "correlation", "flow", "node"):
        await bury_subscriptions(raw, redis, f"{kind}:cold:value", ["s"])

    swept = await janitor.sweep()

    assert swept == (5, 5, 0)
    assert await raw.scan(redis.prefix) == set()


@pytest.mark.guarantee("IDX-10", "IDX-16")
async def test_what_has_a_row_keeps_its_entries(
    redis: RedisBackend, raw: RedisConnection, janitor: IndexJanitor
) -> None:
    await redis.event_storage().store_event(Event("t", event_id="old", timestamp=1))
    stored = EventSubscription(event_type="t", subscription_id="s", correlation_id="c", flow_id="f", node_id="n")
    await redis.subscription_storage().store_subscription(stored)
    before = await raw.scan(redis.prefix)

    assert await janitor.sweep() == (5, 0, 0)
    assert await raw.scan(redis.prefix) == before


@pytest.mark.guarantee("IDX-10")
async def test_an_id_that_came_back_under_another_type_keeps_both_entries_and_is_listed_once(
    redis: RedisBackend, raw: RedisConnection, janitor: IndexJanitor
) -> None:
    storage, row = redis.event_storage(), f"{redis.prefix}event:events:e"
    await storage.store_event(Event("old", event_id="e", timestamp=1))
    await raw.command("DEL", row)
    again = Event("new", event_id="e", timestamp=1)
    await storage.store_event(again)

    assert (await janitor.sweep()).pruned == 0
    assert (await storage.list_events("old"), await storage.list_events("new")) == ([], [again])
    assert await storage.list_events() == [again]
    await raw.command("DEL", row)
    assert (await janitor.sweep()).pruned == 2


@pytest.mark.guarantee("IDX-06")
async def test_an_event_that_went_before_its_time_is_named_by_the_janitor_too(
    redis: RedisBackend,
    raw: RedisConnection,
    janitor: IndexJanitor,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await redis.event_storage(clock=clock).store_event(Event("t", event_id="lost", timestamp=clock.time()))
    await raw.command("DEL", f"{redis.prefix}event:events:lost")

    await janitor.sweep()
    await janitor.sweep()

    [word] = words(caplog, "ERROR")
    assert "lost" in word


@pytest.mark.guarantee("IDX-12")
async def test_a_tick_examines_no_more_than_its_budget_in_each_store(
    redis: RedisBackend, raw: RedisConnection, janitor: IndexJanitor, spy: Spy
) -> None:
    await bury_events(raw, redis, "t", numbered(1200, "e"))
    await bury_subscriptions(raw, redis, "type:t", numbered(1200, "s"))

    for _ in range(2):
        await janitor.sweep()
        examined = Counter(name[0] for page in spy.examined for name in page)
        spy.examined.clear()
        assert examined == {"e": 500, "s": 500}


@pytest.mark.guarantee("IDX-12")
async def test_a_small_index_that_the_server_shows_at_once_is_examined_in_parts(
    redis: RedisBackend, raw: RedisConnection, spy: Spy, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWEEP_BUDGET.name, "7")
    janitor = make_janitor(redis, spy, clock)
    await bury_subscriptions(raw, redis, "type:t", numbered(20))

    ticks = [(await janitor.sweep()).examined for _ in range(4)]

    assert ticks == [7, 7, 6, 0]
    assert sorted(itertools.chain(*spy.examined)) == sorted(numbered(20))


@pytest.mark.guarantee("IDX-13")
async def test_ten_indexes_are_covered_in_as_many_ticks_as_their_entries_need(
    redis: RedisBackend, raw: RedisConnection, janitor: IndexJanitor, spy: Spy
) -> None:
    for number in range(10):
        await bury_events(raw, redis, f"t{number}", numbered(100, f"t{number}-"))

    first, second = await janitor.sweep(), await janitor.sweep()

    assert (first, second) == ((500, 500, 0), (500, 500, 0))
    assert await raw.scan(redis.prefix) == set()


@pytest.mark.guarantee("IDX-14")
async def test_a_large_index_is_gone_through_from_where_the_last_tick_has_stopped(
    redis: RedisBackend, raw: RedisConnection, janitor: IndexJanitor, spy: Spy
) -> None:
    live = [Event("t", event_id=f"live{number}") for number in range(1200)]
    await redis.event_storage().batch_store_events(live)

    for _ in range(3):
        await janitor.sweep()

    assert set(itertools.chain(*spy.examined)) == {event.event_id for event in live}


@pytest.mark.guarantee("IDX-15")
async def test_where_the_janitor_is_is_known_to_itself_alone(
    redis: RedisBackend, raw: RedisConnection, spy: Spy, clock: ManualClock
) -> None:
    await redis.event_storage().batch_store_events(Event("t", event_id=f"e{number}") for number in range(700))
    before = await raw.scan(redis.prefix)

    await make_janitor(redis, spy, clock).sweep()
    first = set(itertools.chain(*spy.examined))
    spy.examined.clear()
    await make_janitor(redis, spy, clock).sweep()

    assert await raw.scan(redis.prefix) == before
    assert set(itertools.chain(*spy.examined)) == first
    assert {each[0] for each in spy.sent} == {"SCAN", "ZSCAN"}


@pytest.mark.guarantee("IDX-17")
@pytest.mark.parametrize("kind", ["event:types:", "subscription:flow:"])
async def test_an_index_that_is_none_is_named_and_passed_over(
    redis: RedisBackend, raw: RedisConnection, janitor: IndexJanitor, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    for name in ("a", "b", "c"):
        await bury_events(raw, redis, name, ["e"])
        await bury_subscriptions(raw, redis, f"flow:{name}", ["s"])
    broken = [f"{kind}broken", f"{kind}too"]
    for key in broken:
        await raw.command("SET", redis.prefix + key, "no index")
    errors = index_sweep_metrics()[ERRORS_OF_SWEEP]

    swept = await janitor.sweep()

    assert swept == (6, 6, 2)
    assert index_sweep_metrics()[ERRORS_OF_SWEEP] == errors + 2
    assert sorted("'broken'" in word for word in words(caplog, "WARNING")) == [False, True]
    assert await raw.scan(redis.prefix) == {key.encode() for key in broken}
    assert await janitor.sweep() == (0, 0, 2)


@pytest.mark.guarantee("IDX-17")
async def test_a_server_that_fails_ends_the_tick_with_one_warning_and_the_next_goes_on(
    redis: RedisBackend,
    raw: RedisConnection,
    janitor: IndexJanitor,
    spy: Spy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in range(5):
        await bury_events(raw, redis, f"t{number}", ["e"])
    run = spy.run

    async def fail(*_: Any) -> Any:
        raise EventStorageError("READONLY")

    monkeypatch.setattr(spy, "run", fail)
    assert await janitor.sweep() == (0, 0, 1)
    assert len(words(caplog, "WARNING")) == 1
    monkeypatch.setattr(spy, "run", run)

    assert (await janitor.sweep()).pruned == 4
    assert (await janitor.sweep()).pruned == 1
    assert await raw.scan(redis.prefix) == set()


@pytest.mark.guarantee("IDX-17")
async def test_an_outage_is_one_warning_however_long_it_takes(
    redis: RedisBackend,
    spy: Spy,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    janitor = IndexJanitor(spy, [redis.event_storage().holes], clock=clock, is_wanted=lambda: True)
    command = spy.command

    async def fail(*_: Any) -> Any:
        raise EventStorageError("gone")

    for _ in range(2):
        monkeypatch.setattr(spy, "command", fail)
        assert [await janitor.sweep() for _ in range(3)] == [(0, 0, 1)] * 3
        monkeypatch.setattr(spy, "command", command)
        assert await janitor.sweep() == (0, 0, 0)

    assert len(words(caplog, "WARNING")) == 2


@pytest.mark.guarantee("IDX-25")
async def test_what_a_tick_came_to_is_counted_and_told_in_one_line(
    redis: RedisBackend, raw: RedisConnection, janitor: IndexJanitor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await redis.event_storage().store_event(Event("t", event_id="live"))
    await bury_events(raw, redis, "t", ["dead"])
    await raw.command("SET", f"{redis.prefix}event:types:broken", "no index")
    before = index_sweep_metrics()

    await janitor.sweep()

    after = index_sweep_metrics()
    assert {name: count - before[name] for name, count in after.items()} == {
        EXAMINED_BY_SWEEP: 2,
        PRUNED_BY_SWEEP: 1,
        ERRORS_OF_SWEEP: 1,
    }
    [word] = words(caplog, "INFO")
    assert ("examined 2" in word, "dropped 1" in word, "1 errors" in word) == (True, True, True)


async def test_a_tick_looks_for_indexes_a_bounded_number_of_times(
    redis: RedisBackend, raw: RedisConnection, janitor: IndexJanitor, spy: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lastbus._backends.redis.janitor.LOOKS_MAX", 1)
    await bury_subscriptions(raw, redis, "node:n", ["s"])

    assert [(await janitor.sweep()).pruned for _ in range(4)].count(1) <= 1
    assert [each[0] for each in spy.sent].count("SCAN") <= 8


@pytest.mark.slow
@pytest.mark.guarantee("IDX-09")
async def test_thousands_of_dead_entries_are_dropped_in_portions(
    redis: RedisBackend, raw: RedisConnection, spy: Spy, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow: it takes more entries than the stack of one script holds."""
    monkeypatch.setenv(SWEEP_BUDGET.name, "10000")
    janitor = make_janitor(redis, spy, clock)
    for start in range(0, 8500, 500):
        await bury_subscriptions(raw, redis, "node:n", [f"dead{number}" for number in range(start, start + 500)])

    swept = await janitor.sweep()

    assert swept == (8500, 8500, 0)
    assert max(map(len, spy.examined)) <= 500
    assert await raw.scan(redis.prefix) == set()


# -- how it lives -----------------------------------------------------------------------------------------------


async def pauses(clock: ManualClock) -> None:
    """Return when the janitor waits for its next tick."""
    await until(lambda: clock.pending == 1 or not janitors())
    assert clock.pending == 1


def janitors() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "lastbus redis janitor"]


@pytest.mark.guarantee("IDX-11")
async def test_a_started_bus_sweeps_every_interval_and_no_longer_than_it_lives(
    redis: RedisBackend, raw: RedisConnection, clock: ManualClock
) -> None:
    bus = redis.make_bus(clock=clock, sweep_indexes=True)
    await bus.start()
    await bus._open()  # What two starts at once may come to.
    assert len(janitors()) == 1
    await pauses(clock)
    assert clock.sleeps == [60]
    index = f"{redis.prefix}event:types:t"

    for _ in range(2):
        await bury_events(raw, redis, "t", ["dead"])
        clock.advance(59)
        await everyone_blocked()
        assert await raw.command("ZCARD", index) == 1
        clock.advance(1)
        await pauses(clock)
        assert await raw.command("ZCARD", index) == 0

    await bus.close()
    assert janitors() == []
    assert clock.pending == 0


@pytest.mark.guarantee("IDX-11")
async def test_a_janitor_that_is_sweeping_ends_with_the_close(
    redis: RedisBackend, raw: RedisConnection, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = redis.make_bus(clock=clock, sweep_indexes=True)
    await bus.start()
    await pauses(clock)
    entered = asyncio.Event()

    async def hang(*_: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("lastbus._backends.redis.janitor.Round.sweep", hang)
    clock.advance(60)
    await entered.wait()

    await bus.close()
    assert janitors() == []


@pytest.mark.guarantee("IDX-11", "IDX-17")
async def test_whatever_a_tick_meets_the_next_one_comes(
    redis: RedisBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bus = redis.make_bus(clock=clock, sweep_indexes=True)
    await bus.start()
    await pauses(clock)
    ticks: list[int] = []

    async def fail(*_: Any) -> None:
        ticks.append(1)
        raise ZeroDivisionError

    monkeypatch.setattr("lastbus._backends.redis.janitor.Round.sweep", fail)
    for _ in range(2):
        clock.advance(60)
        await pauses(clock)

    assert len(ticks) == 2
    assert len(words(caplog, "ERROR")) == 2


@pytest.mark.guarantee("IDX-18")
async def test_a_janitor_that_is_turned_off_says_so_at_the_start_and_never_sweeps(
    redis: RedisBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SWEEP_OFF.name, "1")
    bus = redis.make_bus(clock=clock, sweep_indexes=True)

    await bus.start()

    assert janitors() == []
    [word] = words(caplog, "WARNING")
    assert SWEEP_OFF.name in word


async def test_a_bus_that_leaves_the_sweeping_to_others_says_nothing(
    redis: RedisBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SWEEP_OFF.name, "1")
    bus = redis.make_bus(clock=clock, sweep_indexes=False)

    await bus.start()

    assert janitors() == []
    assert words(caplog, "WARNING") == []


@pytest.mark.guarantee("IDX-19")
async def test_a_bus_takes_interval_and_budget_from_the_environment(
    redis: RedisBackend, raw: RedisConnection, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWEEP_INTERVAL.name, "2.5")
    monkeypatch.setenv(SWEEP_BUDGET.name, "3")
    await bury_events(raw, redis, "t", numbered(10))
    bus = redis.make_bus(clock=clock, sweep_indexes=True)
    await bus.start()
    await pauses(clock)

    assert clock.sleeps == [2.5]
    clock.advance(2.5)
    await pauses(clock)

    assert await raw.command("ZCARD", f"{redis.prefix}event:types:t") == 7


@pytest.mark.guarantee("IDX-11")
async def test_a_bus_that_was_closed_while_it_started_has_no_janitor(
    redis: RedisBackend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = redis.make_bus(clock=clock, sweep_indexes=True, close_timeout=0)
    connected = asyncio.Event()
    go_on = asyncio.Event()

    async def listen(*_: Any) -> None:
        connected.set()
        await go_on.wait()

    monkeypatch.setattr(bus, "_listen", listen)
    bus.add_handler("t", print)
    starting = asyncio.ensure_future(bus.start())
    await connected.wait()
    await bus.close()
    go_on.set()

    with pytest.raises(CloseError):
        await starting
    assert janitors() == []


def test_a_bus_that_changes_its_loop_has_one_janitor_there(own_server: RedisServer) -> None:
    bus = RedisEventBus(own_server.url, close_timeout=1)
    first = asyncio.new_event_loop()
    first.run_until_complete(bus.start())

    async def go_on() -> None:
        await bus.start()
        assert len(janitors()) == 1
        await bus.close()
        assert janitors() == []

    asyncio.run(asyncio.wait_for(go_on(), 5))
    left = asyncio.all_tasks(first)
    for task in left:
        task.cancel()
    first.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    first.run_until_complete(first.shutdown_asyncgens())
    first.close()


# -- in the long run --------------------------------------------------------------------------------------------


async def live_for_two_rounds(redis: RedisBackend, raw: RedisConnection, number: int) -> None:
    """Store 20 events of one type, and let those lapse that were stored two rounds ago."""
    batch = [Event("t", event_id=f"{number}-{each}", timestamp=number) for each in range(20)]
    await redis.event_storage().batch_store_events(batch)
    gone = [f"{redis.prefix}event:events:{number - 2}-{each}" for each in range(20)]
    await raw.command("DEL", *gone)


@pytest.mark.guarantee("IDX-36")
async def test_an_index_ends_as_large_as_what_lives(
    redis: RedisBackend, raw: RedisConnection, spy: Spy, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWEEP_BUDGET.name, "30")
    janitor = make_janitor(redis, spy, clock)
    sizes = []

    for number in range(40):
        await live_for_two_rounds(redis, raw, number)
        await janitor.sweep()
        sizes.append(await raw.command("ZCARD", f"{redis.prefix}event:types:t"))
    for _ in range(max(sizes) // 30 * 2):
        await janitor.sweep()

    assert max(sizes) < 400
    assert await raw.command("ZCARD", f"{redis.prefix}event:types:t") == 40


@pytest.mark.guarantee("IDX-36")
async def test_an_index_that_is_listed_needs_no_janitor(redis: RedisBackend, raw: RedisConnection) -> None:
    storage = redis.event_storage()

    for number in range(10):
        await live_for_two_rounds(redis, raw, number)
        assert len(await storage.list_events("t")) <= 40

    assert await raw.command("ZCARD", f"{redis.prefix}event:types:t") == 40


@pytest.mark.guarantee("IDX-37")
async def test_no_index_by_the_end_of_life_is_ever_written(
    redis: RedisBackend, raw: RedisConnection, janitor: IndexJanitor
) -> None:
    stored = EventSubscription(event_type="t", subscription_id="s", correlation_id="c", flow_id="f", node_id="n")
    subscriptions = redis.subscription_storage()
    for _ in range(2):
        await subscriptions.store_subscription(stored)
    await subscriptions.mark_event_processed("s", "e")
    await subscriptions.list_subscriptions(event_type="t")
    await Migration(raw, f"{redis.prefix}event:", f"{redis.prefix}subscription:", apply=True).reindex()
    await janitor.sweep()

    kept = {b"data:s", b"processed:s", b"type:t", b"correlation:c", b"flow:f", b"node:n"}
    assert await raw.scan(f"{redis.prefix}subscription:") == kept
    redis.writer().delete_subscription("s")
    assert await raw.scan(redis.prefix) == set()
