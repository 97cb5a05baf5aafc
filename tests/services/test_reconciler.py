"""The reconciler: what no listener has heard is handed on, and nothing that failed is left behind."""

from __future__ import annotations

import pytest

from lastbus import Event
from lastbus.services import EventNode, EventReconciler, Flow
from lastbus.testing import ManualClock
from tests._backends import Backend
from tests.contract.waiting import until
from tests.services.shop import Shop

HOUR = 3600


class Replay:
    """Notes what it was handed, and fails for what it is told to fail for."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.failing: set[str] = set()

    async def __call__(self, event: Event) -> int:
        self.seen.append(event.event_id)
        if event.event_id in self.failing:
            raise ConnectionError("not now")
        return 1

    def since(self) -> list[str]:
        """What it was handed since the last call of this."""
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture
def replay() -> Replay:
    return Replay()


async def store(backend: Backend, clock: ManualClock, *events: tuple[str, float]) -> None:
    """Store events by id and age in seconds."""
    storage = backend.event_storage(clock)
    for event_id, age in events:
        await storage.store_event(Event("job", event_id=event_id, timestamp=clock.time() - age))


def reconciler(backend: Backend, clock: ManualClock, replay: Replay, **options: int) -> EventReconciler:
    return EventReconciler(backend.event_storage(clock), replay, clock=clock, **options)


@pytest.mark.guarantee("STORE-03")
async def test_two_missed_events_are_replayed_one_of_a_type_with_colons(shop: Shop) -> None:
    await shop.suspend("e1")
    shop.flow = Flow("purchase", [EventNode("approval", "order:approved:now")])
    await shop.suspend("e2")
    await shop.bus.publish(shop.approval("e1"))
    colons = shop.approval("e2")
    colons.event_type = "order:approved:now"
    await shop.bus.publish(colons)

    service = shop.filter()

    assert [await service.reconciler.scan_once(), await service.reconciler.scan_once()] == [2, 0]
    assert len(await shop.tasks()) == 2


@pytest.mark.guarantee("FLOW-14")
async def test_the_first_look_goes_back_and_the_next_goes_on_with_a_minute_of_overlap(
    backend: Backend, clock: ManualClock, replay: Replay
) -> None:
    await store(backend, clock, ("old", HOUR + 1), ("edge", HOUR), ("late", 60), ("new", 0))
    service = reconciler(backend, clock, replay, backfill_seconds=HOUR)

    assert await service.scan_once() == 3
    assert replay.since() == ["edge", "late", "new"]

    clock.advance(100)
    await store(backend, clock, ("before the overlap", 161), ("stored late", 160), ("fresh", 50))
    await service.scan_once()
    assert replay.since() == ["late", "stored late", "new", "fresh"]


@pytest.mark.guarantee("FLOW-14")
async def test_an_event_that_fails_stops_no_other_and_holds_the_cursor_until_it_succeeds(
    backend: Backend, clock: ManualClock, replay: Replay, caplog: pytest.LogCaptureFixture
) -> None:
    await store(backend, clock, ("a", 300), ("b", 200), ("c", 100))
    replay.failing = {"a", "b"}
    service = reconciler(backend, clock, replay, backfill_seconds=HOUR)

    assert await service.scan_once() == 1
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"event {event_id} could not be replayed; it is tried again") for event_id in ("a", "b")
    ]
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["not now", "not now"]
    clock.advance(10 * HOUR)
    replay.failing = {"b"}
    replay.since()
    await service.scan_once()
    assert replay.since() == ["a", "b", "c"]
    clock.advance(10 * HOUR)
    replay.failing = set()
    await service.scan_once()
    assert "b" in replay.since()
    await service.scan_once()
    assert replay.since() == []


@pytest.mark.guarantee("FLOW-14")
async def test_how_often_and_how_far_back_is_a_setting(
    backend: Backend, clock: ManualClock, replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAITA_EVENT_RECONCILE_INTERVAL", "7")
    monkeypatch.setenv("PLAITA_EVENT_RECONCILE_BACKFILL", "50")
    await store(backend, clock, ("old", 51), ("new", 50))

    async with reconciler(backend, clock, replay):
        await until(lambda: bool(clock.sleeps))
        assert 7 in clock.sleeps

    assert replay.since() == ["new"]


@pytest.mark.guarantee("FLOW-14")
async def test_without_a_setting_the_first_look_goes_an_hour_back_and_the_next_is_in_five_minutes(
    backend: Backend, clock: ManualClock, replay: Replay
) -> None:
    await store(backend, clock, ("old", HOUR + 1), ("new", HOUR))

    async with reconciler(backend, clock, replay):
        await until(lambda: 300 in clock.sleeps)

    assert replay.since() == ["new"]


class FailingStorage:
    """A storage that fails at its second page, until it is told not to."""

    def __init__(self, target: object) -> None:
        self.target = target
        self.calls = 0
        self.works = False

    async def list_events(self, **bounds: float) -> list[Event]:
        self.calls += 1
        if self.calls > 1 and not self.works:
            raise ConnectionError("away")
        return await self.target.list_events(**bounds)  # type: ignore[attr-defined]


@pytest.mark.guarantee("FLOW-14")
async def test_a_storage_that_fails_leaves_the_cursor_where_it_is(
    backend: Backend, clock: ManualClock, replay: Replay
) -> None:
    await store(backend, clock, ("a", 1800), ("b", 1000))
    storage = FailingStorage(backend.event_storage(clock))
    service = EventReconciler(storage, replay, batch_size=1, clock=clock)  # type: ignore[arg-type]

    with pytest.raises(ConnectionError):
        await service.scan_once()
    storage.works = True
    await service.scan_once()

    assert set(replay.since()) == {"a", "b"}


@pytest.mark.guarantee("FLOW-14")
@pytest.mark.parametrize("batch_size", [1, 2, 3, 200])
async def test_more_events_of_one_timestamp_than_a_batch_are_each_handed_on_once(
    backend: Backend, clock: ManualClock, replay: Replay, batch_size: int
) -> None:
    same = [(f"same {n}", 50) for n in range(7)]
    await store(backend, clock, ("first", 90), *same, ("last", 10))
    service = reconciler(backend, clock, replay, batch_size=batch_size)

    await service.scan_once()

    assert replay.since() == ["first", *(event_id for event_id, _ in same), "last"]


@pytest.mark.guarantee("FLOW-14")
@pytest.mark.parametrize("option", ["backfill_seconds", "batch_size", "interval"])
async def test_an_option_that_is_out_of_range_is_refused_by_its_name(
    backend: Backend, clock: ManualClock, replay: Replay, option: str
) -> None:
    with pytest.raises(ValueError, match=f"^{option} "):
        reconciler(backend, clock, replay, **{option: -1})


@pytest.mark.guarantee("FLOW-14")
async def test_one_look_finds_more_events_than_a_store_lists_unless_it_is_asked_for_more(
    backend: Backend, clock: ManualClock, replay: Replay
) -> None:
    await store(backend, clock, *((f"event {n}", 200 - n) for n in range(101)))

    assert await reconciler(backend, clock, replay).scan_once() == 101


@pytest.mark.guarantee("FLOW-14")
async def test_an_event_that_is_stamped_in_the_future_is_handed_on_when_its_time_has_come(
    backend: Backend, clock: ManualClock, replay: Replay
) -> None:
    await store(backend, clock, ("early", -10))
    service = reconciler(backend, clock, replay)

    assert await service.scan_once() == 0
    clock.advance(10)
    assert await service.scan_once() == 1


@pytest.mark.guarantee("FLOW-14")
async def test_a_clock_that_is_set_back_costs_no_event(backend: Backend, clock: ManualClock, replay: Replay) -> None:
    service = reconciler(backend, clock, replay)
    await service.scan_once()
    clock._now -= HOUR
    await store(backend, clock, ("in the past", 0))

    for _ in range(2):
        await service.scan_once()

    assert replay.since() == ["in the past"]
