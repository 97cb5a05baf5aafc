"""The load of a benchmark: every contender carries the same events, and what is counted is what was handled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus._kit.bench import contenders
from lastbus._kit.bench.contenders import RIVALS, Lastbus, Raw
from lastbus._kit.bench.cost import Unusable
from lastbus._kit.bench.flatness import _loaded
from lastbus._kit.bench.load import EVENT_TYPES, Contender, Tally, burst, make_event, steady
from lastbus._kit.bench.memory import _stop_at
from lastbus._kit.bench.throughput import SAMPLE_CPU_SECONDS, WARM_UP_EVENTS, _affordable, _sample
from lastbus.memory import InMemoryEventBus
from lastbus.testing import everyone_blocked

CONTENDERS = {"raw": Raw, "lastbus": lambda: Lastbus(InMemoryEventBus), **RIVALS}
BOUND_SECONDS = 10


@pytest.fixture(params=CONTENDERS)
def contender(request: pytest.FixtureRequest) -> Contender:
    """One after the other; a bus that is not installed is skipped."""
    try:
        return CONTENDERS[request.param]()
    except Unusable as absence:
        pytest.skip(str(absence))


@pytest.mark.parametrize("load", [steady, burst])
async def test_every_contender_brings_every_event_to_every_handler(contender: Contender, load: Any) -> None:
    tally = Tally()
    seen: list[int] = []

    async def handle(event: Any) -> None:
        seen.append(event.order if hasattr(event, "order") else event.data["order"])
        tally.count()

    async def handle_too(event: Any) -> None:
        await handle(event)

    await contender.open([handle, handle_too])
    try:
        await asyncio.wait_for(load(contender, tally, 20, 2), BOUND_SECONDS)
    finally:
        await contender.close()

    assert sorted(seen) == sorted([*range(20), *range(20)])


async def test_a_contender_that_is_closed_leaves_no_task_behind(contender: Contender) -> None:
    before = asyncio.all_tasks()
    tally = Tally()
    await contender.open(tally.handlers(1))
    await steady(contender, tally, 3, handlers=1)

    await contender.close()

    assert asyncio.all_tasks() - before == set()


async def test_a_bus_is_closed_with_its_contender() -> None:
    ours = Lastbus(InMemoryEventBus)
    await ours.open([])

    await ours.close()

    with pytest.raises(RuntimeError, match="closed"):
        await ours.bus.publish("job")


async def test_the_rivals_are_let_go_by_their_own_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[tuple[str, dict[str, Any]]] = []

    class Rival:
        def __init__(self, **_: Any) -> None:
            """Takes whatever it is made with."""

        def __getattr__(self, name: str) -> Any:
            async def leave(**options: Any) -> None:
                gone.append((name, options))

            return leave

    class Module:
        AsyncIOEventEmitter = EventBus = InMemoryEventBus = Rival
        BaseEvent = DomainEvent = object

    monkeypatch.setattr(contenders, "_module", lambda *_: Module)

    for make in RIVALS.values():
        await make().close()

    assert gone == [("wait_for_complete", {}), ("stop", {"clear": True}), ("shutdown", {})]


def test_events_take_turns_with_their_types() -> None:
    events = [make_event(number) for number in range(10)]

    assert [event.event_type for event in events] == [*EVENT_TYPES, *EVENT_TYPES[:2]]
    assert events[9].data == {"order": 9, "state": "paid"}


async def test_a_tally_wakes_whoever_waits_when_the_count_is_reached_and_no_sooner() -> None:
    tally = Tally()
    first, second = tally.handlers(2)
    waiting = asyncio.ensure_future(tally.reaches(3))

    for handle in (first, second):
        await handle(None)
        await asyncio.sleep(0)
    assert not waiting.done()
    await first(None)
    await asyncio.wait_for(waiting, BOUND_SECONDS)
    await asyncio.wait_for(tally.reaches(2), BOUND_SECONDS)
    assert tally.handled == 3
    assert (first.__name__, second.__qualname__) == ("count_0", "count_1")


async def test_a_tally_tells_how_many_were_in_hands_at_once() -> None:
    tally = Tally()

    await asyncio.gather(*(tally.watch(None) for _ in range(4)))
    await tally.watch(None)

    assert (tally.running_max, tally.running, tally.handled) == (4, 0, 5)


async def test_a_loaded_bus_has_what_was_stored_and_patterns_that_complain_when_they_match(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with _loaded(InMemoryEventBus, stored=3, patterns=2) as (contender, tally):
        assert (tally.handled, caplog.records) == (3, [])
        assert len(await contender.bus.event_storage.list_events(EVENT_TYPES[0])) == 1
        await contender.bus.publish("elsewhere.1.x")

    assert "a handler of another pattern got" in caplog.text


@pytest.mark.parametrize(
    ("seconds_each", "events"),
    [(0.0, 1000), (SAMPLE_CPU_SECONDS / 5000, 1000), (SAMPLE_CPU_SECONDS / 100, 100), (60.0, WARM_UP_EVENTS)],
    ids=["no-time", "quick", "slow", "very-slow"],
)
def test_a_rival_gets_as_many_events_as_fit_into_a_sample(seconds_each: float, events: int) -> None:
    assert _affordable(1000, seconds_each) == events


async def test_only_a_rival_is_granted_fewer_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastbus._kit.bench.throughput._affordable", lambda *_: 1)
    monkeypatch.setattr("lastbus._kit.bench.throughput.RIVALS", {"rival": Raw})
    least = {"rival": 5, "raw": 5}

    for name in least:
        assert await _sample(name, Raw, "burst", 1, least)() > 0

    assert least == {"rival": 1, "raw": 5}


async def test_a_handler_whose_memory_is_measured_is_counted_and_then_stays_until_it_is_let_go() -> None:
    gate, tally = asyncio.Event(), Tally()
    handling = asyncio.ensure_future(_stop_at(gate, tally)(None))

    await everyone_blocked()
    assert (tally.handled, handling.done()) == (1, False)
    gate.set()
    await everyone_blocked()
    assert handling.done()
