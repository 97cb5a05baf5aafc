"""Event storage, on every back end: what is kept, what is found, in which order, and for how long."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from lastbus import Event, EventStorage
from lastbus.testing import ManualClock
from tests._backends import Backend

# Whatever a key, a pattern, a path or a statement might trip over, and the longest name there is.
NAMES = [
    "a",
    "order:created",
    ":",
    "::a:",
    "plaita:event:types:x",
    "user.*",
    "*",
    "[a-z]?",
    "it's",
    '"quoted"',
    "100%",
    "%s",
    "{0}",
    "a\\b",
    "a/../b",
    "two words",
    " padded ",
    "tab\tnew\nline",
    "Größe",
    "订单",
    "👩‍🚒",
    "'; DROP TABLE events; --",
    "n" * 512,
    "é" * 256,
]
NO_NAMES: list[Any] = ["", "   ", "\t\n", "nul\0", "\ud800", "n" * 513, "é" * 257, 7, b"bytes", None]
DATA: list[dict[str, Any]] = [
    {},
    {"none": None, "true": True, "int": 2**63, "float": 0.1, "list": [1, [2, {"three": []}]], "dict": {"a": {}}},
    {"text": 'nul \0, surrogate \ud800, quote ", backslash \\, emoji 👩‍🚒'},
    {"": "empty key", "$where": 1, "a.b": 2},
]


def short(value: object) -> str:
    """A test's id for a value, without backslashes: a second run in the same process would not find it by its id."""
    return ascii(value)[:16].replace("\\", "/")


# Redis keeps time itself; tests/backends/redis asks it for its TTLs.
timed_by_the_clock = pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres"], indirect=True)


@pytest.fixture
def storage(backend: Backend) -> EventStorage:
    return backend.event_storage()


def made_at(timestamp: float, event_id: str, event_type: str = "tick") -> Event:
    return Event(event_type, event_id=event_id, timestamp=timestamp)


async def ids(storage: EventStorage, *filters: Any, **named: Any) -> list[str]:
    return [event.event_id for event in await storage.list_events(*filters, **named)]


# Keeping ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", DATA, ids=["nothing", "every JSON type", "hostile text", "odd keys"])
async def test_a_stored_event_comes_back_equal(storage: EventStorage, data: dict[str, Any]) -> None:
    event = Event("order.paid", data, correlation_id="c-1", source="till")

    assert await storage.store_event(event) == event.event_id

    assert await storage.get_event(event.event_id) == event
    assert await storage.list_events() == [event]


async def test_encoded_text_is_stored_as_it_is_given(storage: EventStorage) -> None:
    event = Event("order.paid", {"total": 3})

    assert await storage.store_encoded(event, event.model_dump_json()) == event.event_id

    assert await storage.get_event(event.event_id) == event
    assert await ids(storage, "order.paid") == [event.event_id]


async def test_what_comes_back_is_a_copy(storage: EventStorage) -> None:
    event = Event("order.paid", {"lines": [1]})
    await storage.store_event(event)
    first = await storage.get_event(event.event_id)

    first.data["lines"].append(2)
    event.data["lines"].append(3)

    assert (await storage.get_event(event.event_id)).data == {"lines": [1]}


@pytest.mark.guarantee("CORE-35")
async def test_any_name_is_kept_found_listed_and_deleted_as_itself(storage: EventStorage) -> None:
    for place, name in enumerate(NAMES):
        await storage.store_event(Event(name, event_id=name, correlation_id=name, timestamp=place))

    for name in NAMES:
        assert (await storage.get_event(name)).correlation_id == name
        assert await ids(storage, name) == [name]
    assert await ids(storage) == NAMES
    assert [await storage.delete_event(name) for name in NAMES] == [True] * len(NAMES)
    assert await ids(storage) == []


@pytest.mark.guarantee("CORE-35")
@pytest.mark.parametrize("field", ["event_type", "event_id", "correlation_id"])
async def test_what_is_no_name_is_refused_and_leaves_no_trace(storage: EventStorage, field: str) -> None:
    for value in NO_NAMES[:-1]:
        event = Event("order.paid")
        setattr(event, field, value)
        with pytest.raises(ValueError, match=f"^{field} "):
            await storage.store_event(event)

    assert await storage.list_events() == []


@pytest.mark.guarantee("CORE-35")
@pytest.mark.parametrize("value", NO_NAMES, ids=short)
async def test_nobody_can_ask_for_what_is_no_name(storage: EventStorage, value: Any) -> None:
    with pytest.raises(ValueError, match=r"^event_id "):
        await storage.get_event(value)
    with pytest.raises(ValueError, match=r"^event_id "):
        await storage.delete_event(value)
    if value is not None:
        with pytest.raises(ValueError, match=r"^event_type "):
            await storage.list_events(value)


@pytest.mark.guarantee("CORE-37")
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [math.nan], object, {1}, b"bytes"], ids=repr)
async def test_what_json_cannot_carry_is_refused_and_leaves_no_trace(storage: EventStorage, value: Any) -> None:
    with pytest.raises(ValueError, match="odd"):
        await storage.store_event(Event("odd", {"value": value}))

    assert await storage.list_events() == []


@pytest.mark.parametrize("timestamp", [math.nan, math.inf, True, "now"], ids=repr)
async def test_a_timestamp_that_is_no_time_is_refused(storage: EventStorage, timestamp: Any) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        await storage.store_event(Event("odd", timestamp=timestamp))

    assert await storage.list_events() == []


@pytest.mark.guarantee("SQL-07")
async def test_storing_an_id_again_replaces_the_event(storage: EventStorage) -> None:
    await storage.store_event(Event("draft", {"n": 1}, event_id="e", timestamp=5))
    again = Event("final", {"n": 2}, "c-1", "till", event_id="e", timestamp=3)

    await storage.store_event(again)

    assert await storage.get_event("e") == again
    assert await storage.list_events() == [again]
    assert await ids(storage, "final") == ["e"]
    assert await ids(storage, "draft") == []
    assert await ids(storage, start_time=4) == []


async def test_concurrent_stores_lose_nothing(storage: EventStorage) -> None:
    events = [made_at(place, f"{place:02}") for place in range(40)]

    stored = await asyncio.gather(*map(storage.store_event, events))

    assert stored == await ids(storage) == [event.event_id for event in events]


async def test_concurrent_stores_of_one_id_leave_one_event(storage: EventStorage) -> None:
    await asyncio.gather(*(storage.store_event(Event("tick", {"n": n}, event_id="e")) for n in range(10)))

    assert await ids(storage) == await ids(storage, "tick") == ["e"]


# Finding ------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("CORE-13")
async def test_an_unknown_id_is_none(storage: EventStorage) -> None:
    assert await storage.get_event("nobody") is None


async def test_the_oldest_come_first_and_equal_times_are_ordered_by_id(storage: EventStorage) -> None:
    # Ids are compared by code point: capitals before small letters, both before what is not ASCII.
    for timestamp, event_id in [(2, "A"), (1, "é"), (1, "b"), (1, "B"), (0.5, "z"), (1, "👩‍🚒"), (1, "a")]:
        await storage.store_event(made_at(timestamp, event_id))

    assert await ids(storage) == await ids(storage, "tick") == ["z", "B", "a", "b", "é", "👩‍🚒", "A"]


@pytest.mark.guarantee("STORE-04")
@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (None, None, "abcd"),
        (0, None, "bcd"),
        (None, 0, "ab"),
        (0, 0, "b"),
        (-1, 1.5, "abc"),
        (1.5000001, None, "d"),
        (3, 2, ""),
        (-1e12, 1e12, "abcd"),
    ],
)
async def test_both_bounds_are_inclusive_and_zero_is_a_bound(
    storage: EventStorage, start: float | None, end: float | None, found: str
) -> None:
    for timestamp, event_id in [(-1, "a"), (0, "b"), (1.5, "c"), (2, "d")]:
        await storage.store_event(made_at(timestamp, event_id))

    assert await ids(storage, start_time=start, end_time=end) == list(found)
    assert await ids(storage, "tick", start, end) == list(found)


@pytest.mark.guarantee("STORE-04")
async def test_every_given_filter_must_hold(storage: EventStorage) -> None:
    for timestamp in range(4):
        await storage.store_event(made_at(timestamp, f"tick-{timestamp}", "tick"))
        await storage.store_event(made_at(timestamp, f"tock-{timestamp}", "tock"))

    assert await ids(storage, "tock", 1, 2) == ["tock-1", "tock-2"]
    assert await ids(storage, "tock", 1, 2, 1) == ["tock-1"]
    assert await ids(storage, None, 1, 2, 3) == ["tick-1", "tock-1", "tick-2"]
    assert await ids(storage, "tac") == []


@pytest.mark.guarantee("STORE-04")
async def test_the_limit_keeps_the_oldest_and_is_100_unless_given(storage: EventStorage) -> None:
    await storage.batch_store_events(made_at(place, f"{place:03}") for place in range(105))

    assert await ids(storage) == await ids(storage, "tick") == [f"{place:03}" for place in range(100)]
    assert await ids(storage, limit=2) == ["000", "001"]
    assert await ids(storage, limit=0) == []
    assert len(await ids(storage, limit=10**30)) == 105


async def test_a_type_is_found_exactly_and_never_as_a_pattern(storage: EventStorage) -> None:
    for event_type in ["user.created", "user.*", "USER.CREATED", "user.create", "user.created:eu"]:
        await storage.store_event(made_at(1, event_type, event_type))

    assert await ids(storage, "user.created") == ["user.created"]
    assert await ids(storage, "user.*") == ["user.*"]
    assert await ids(storage, "*") == []


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize("limit", [-1, 1.5, True, "10", None, math.nan], ids=repr)
async def test_a_limit_that_is_no_count_is_refused(storage: EventStorage, limit: Any) -> None:
    with pytest.raises(ValueError, match=r"^limit "):
        await storage.list_events(limit=limit)


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize("bound", [math.nan, math.inf, -math.inf, True, "0"], ids=repr)
async def test_a_bound_that_is_no_time_is_refused(storage: EventStorage, bound: Any) -> None:
    with pytest.raises(ValueError, match=r"^start_time "):
        await storage.list_events(start_time=bound)
    with pytest.raises(ValueError, match=r"^end_time "):
        await storage.list_events(end_time=bound)


# Deleting and batches -----------------------------------------------------------------------------------------------


async def test_a_deleted_event_is_gone_everywhere_and_others_stay(storage: EventStorage) -> None:
    await storage.batch_store_events([made_at(1, "gone"), made_at(2, "kept")])

    assert await storage.delete_event("gone") is True

    assert await storage.get_event("gone") is None
    assert await ids(storage) == await ids(storage, "tick") == ["kept"]
    assert await storage.delete_event("gone") is False


async def test_one_of_concurrent_deletes_is_true(storage: EventStorage) -> None:
    await storage.store_event(made_at(1, "e"))

    assert sorted(await asyncio.gather(*(storage.delete_event("e") for _ in range(8)))) == [False] * 7 + [True]


async def test_a_batch_returns_the_ids_in_order_and_the_last_of_an_id_wins(storage: EventStorage) -> None:
    batch = [Event("tick", {"n": n}, event_id=event_id, timestamp=n) for n, event_id in enumerate("bab")]

    assert await storage.batch_store_events(batch) == ["b", "a", "b"]

    assert [dict(event.data) for event in await storage.list_events()] == [{"n": 1}, {"n": 2}]
    assert await storage.batch_store_events([]) == []


# Lifetime -----------------------------------------------------------------------------------------------------------


@timed_by_the_clock
@pytest.mark.guarantee("MEM-09")
async def test_an_event_is_found_until_its_time_has_passed(backend: Backend, clock: ManualClock) -> None:
    storage = backend.event_storage(clock, ttl=60)
    await storage.store_event(made_at(1, "e"))

    clock.advance(59)
    assert (await ids(storage), await storage.get_event("e")) == (["e"], made_at(1, "e"))

    clock.advance(1)
    assert (await ids(storage), await ids(storage, "tick"), await storage.get_event("e")) == ([], [], None)
    assert await storage.delete_event("e") is False


@timed_by_the_clock
async def test_storing_an_id_again_starts_its_life_again(backend: Backend, clock: ManualClock) -> None:
    storage = backend.event_storage(clock, ttl=60)
    await storage.store_event(made_at(1, "e"))
    clock.advance(59)

    await storage.store_event(made_at(1, "e"))

    clock.advance(59)
    assert await ids(storage) == ["e"]


@timed_by_the_clock
async def test_events_live_a_week_unless_the_environment_says_otherwise(
    backend: Backend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PLAITA_EVENT_TTL_SECONDS", raising=False)
    storage = backend.event_storage(clock)
    await storage.store_event(made_at(1, "e"))

    clock.advance(7 * 24 * 3600 - 1)
    assert await ids(storage) == ["e"]

    clock.advance(1)
    assert await ids(storage) == []


@timed_by_the_clock
async def test_the_environment_sets_the_lifetime(
    backend: Backend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAITA_EVENT_TTL_SECONDS", "5")
    storage = backend.event_storage(clock)
    await storage.store_event(made_at(1, "e"))

    clock.advance(5)

    assert await ids(storage) == []


async def test_closing_deletes_nothing_and_may_be_repeated(backend: Backend) -> None:
    storage = backend.event_storage()
    await storage.store_event(made_at(1, "e"))

    await storage.aclose()
    await storage.aclose()

    assert await ids(backend.event_storage()) == ["e"]
