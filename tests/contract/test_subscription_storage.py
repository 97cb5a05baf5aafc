"""Subscription storage, on every back end: what is kept, who is found, and who has had which event."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from lastbus import Event, EventSubscription, EventSubscriptionStorage
from tests._backends import Backend
from tests.contract.test_event_storage import NAMES, NO_NAMES, short

FIELDS = ("event_type", "correlation_id", "flow_id", "node_id")


@pytest.fixture
def storage(backend: Backend) -> EventSubscriptionStorage:
    return backend.subscription_storage()


def wish(subscription_id: str, event_type: str = "order.paid", **fields: Any) -> EventSubscription:
    fields.setdefault("created_at", 1.0)
    return EventSubscription(subscription_id=subscription_id, event_type=event_type, **fields)


async def store(storage: EventSubscriptionStorage, *subscriptions: EventSubscription) -> None:
    for each in subscriptions:
        await storage.store_subscription(each)


async def ids(storage: EventSubscriptionStorage, **filters: Any) -> list[str]:
    return [each.subscription_id for each in await storage.list_subscriptions(**filters)]


async def found(storage: EventSubscriptionStorage, event: Event, context: Any = None) -> list[str]:
    return [each.subscription_id for each in await storage.find_matching_subscriptions(event, context)]


# Keeping ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"correlation_id": "c", "flow_id": "f", "node_id": "n", "created_at": 12.5, "timeout": 0.0},
        {"filter_condition": {}},
        {"filter_condition": {"a": [1, {"b": None}], "": 'nul \0, surrogate \ud800, "👩‍🚒"', "c": True, "d": 0.1}},
        {"timeout": 3600.5, "processed_events": {"e-1", "it's", "👩‍🚒"}},
    ],
    ids=["bare", "every name", "empty condition", "hostile condition", "marks"],
)
async def test_a_stored_subscription_comes_back_equal(
    storage: EventSubscriptionStorage, fields: dict[str, Any]
) -> None:
    subscription = EventSubscription(event_type="order.paid", **fields)

    assert await storage.store_subscription(subscription) == subscription.subscription_id

    assert await storage.get_subscription(subscription.subscription_id) == subscription
    assert await storage.list_subscriptions() == [subscription]


async def test_what_comes_back_is_a_copy(storage: EventSubscriptionStorage) -> None:
    subscription = wish("s", filter_condition={"lines": [1]})
    await storage.store_subscription(subscription)
    first = await storage.get_subscription("s")

    first.filter_condition["lines"].append(2)
    first.mark_event_processed("e")
    subscription.filter_condition["lines"].append(3)

    assert await storage.get_subscription("s") == wish("s", filter_condition={"lines": [1]})


@pytest.mark.guarantee("CORE-35", "SUBS-09")
async def test_any_name_is_kept_found_listed_and_deleted_as_itself(storage: EventSubscriptionStorage) -> None:
    for place, name in enumerate(NAMES):
        await storage.store_subscription(
            wish(name, name, correlation_id=name, flow_id=name, node_id=name, created_at=place)
        )

    for name in NAMES:
        assert (await storage.get_subscription(name)).event_type == name
        for field in FIELDS:
            assert await ids(storage, **{field: name}) == [name]
    assert await ids(storage) == NAMES
    assert [await storage.delete_subscription(name) for name in NAMES] == [True] * len(NAMES)
    assert await ids(storage) == []


@pytest.mark.guarantee("CORE-35")
@pytest.mark.parametrize("value", NO_NAMES, ids=short)
async def test_nobody_can_ask_for_what_is_no_name(storage: EventSubscriptionStorage, value: Any) -> None:
    await storage.store_subscription(wish("s"))
    for ask in (storage.get_subscription, storage.delete_subscription):
        with pytest.raises(ValueError, match=r"^subscription_id "):
            await ask(value)
    with pytest.raises(ValueError, match=r"^subscription_id "):
        await storage.mark_event_processed(value, "e")
    with pytest.raises(ValueError, match=r"^event_id "):
        await storage.mark_event_processed("s", value)
    for field in FIELDS if value is not None else ():
        with pytest.raises(ValueError, match=f"^{field} "):
            await storage.list_subscriptions(**{field: value})


@pytest.mark.guarantee("SQL-07", "SUBS-16")
async def test_storing_an_id_again_replaces_the_subscription_and_its_marks(storage: EventSubscriptionStorage) -> None:
    await storage.store_subscription(wish("s", "draft", correlation_id="c", flow_id="f", node_id="n"))
    await storage.mark_event_processed("s", "e-1")
    again = wish("s", "final", correlation_id="d", processed_events={"e-2"})

    await storage.store_subscription(again)

    assert await storage.get_subscription("s") == again
    assert await ids(storage) == await ids(storage, event_type="final", correlation_id="d") == ["s"]
    for old in ({"event_type": "draft"}, {"correlation_id": "c"}, {"flow_id": "f"}, {"node_id": "n"}):
        assert await ids(storage, **old) == []


async def test_concurrent_stores_lose_nothing(storage: EventSubscriptionStorage) -> None:
    names = [f"{place:02}" for place in range(30)]

    await asyncio.gather(*(storage.store_subscription(wish(name, correlation_id="c")) for name in names))

    assert await ids(storage) == await ids(storage, correlation_id="c") == names


# Finding ------------------------------------------------------------------------------------------------------------


async def test_an_unknown_id_is_none(storage: EventSubscriptionStorage) -> None:
    assert await storage.get_subscription("nobody") is None


@pytest.mark.guarantee("SUBS-02", "SUBS-03", "SUBS-08", "SUBS-18")
async def test_every_combination_of_filters_finds_what_satisfies_all_of_them(storage: EventSubscriptionStorage) -> None:
    rows = list(itertools.product(("t1", "t2"), ("c1", None), ("f1", "f2"), ("n1", None)))
    for place, row in enumerate(rows):
        await storage.store_subscription(wish(f"{place:02}", **dict(zip(FIELDS, row, strict=True))))

    for asked in itertools.product(("t1", None), ("c1", "c2", None), ("f2", None), ("n1", None)):
        expected = [
            f"{place:02}"
            for place, row in enumerate(rows)
            if all(want in (None, has) for want, has in zip(asked, row, strict=True))
        ]
        assert await ids(storage, **dict(zip(FIELDS, asked, strict=True))) == expected


async def test_the_oldest_come_first_and_equal_times_are_ordered_by_id(storage: EventSubscriptionStorage) -> None:
    for created_at, name in [(2, "A"), (1, "é"), (1, "b"), (1, "B"), (0.5, "z"), (1, "👩‍🚒")]:
        await storage.store_subscription(wish(name, correlation_id="c", created_at=created_at))

    assert await ids(storage) == await ids(storage, correlation_id="c") == ["z", "B", "b", "é", "👩‍🚒", "A"]
    assert await found(storage, Event("order.paid", correlation_id="c")) == ["z", "B", "b", "é", "👩‍🚒", "A"]


async def test_a_listing_by_type_holds_only_what_is_stored_under_that_very_type(
    storage: EventSubscriptionStorage,
) -> None:
    await store(storage, wish("1", "user.created"), wish("2", "user.*"), wish("3", "*"), wish("4", "USER.CREATED"))

    assert await ids(storage, event_type="user.created") == ["1"]
    assert await ids(storage, event_type="user.*") == ["2"]
    assert await ids(storage, event_type="*") == ["3"]


@pytest.mark.guarantee("CORE-03")
async def test_a_star_alone_matches_every_type_and_no_other_pattern_matches_anything(
    storage: EventSubscriptionStorage,
) -> None:
    await store(storage, wish("1", "user.created"), wish("2", "user.*"), wish("3", "*"), wish("4", "us?r.created"))

    assert await found(storage, Event("user.created")) == ["1", "3"]
    assert await found(storage, Event("user.*")) == ["2", "3"]
    assert await found(storage, Event("*")) == ["3"]


async def test_a_match_needs_every_field_that_the_subscription_names(storage: EventSubscriptionStorage) -> None:
    await store(
        storage,
        wish("any"),
        wish("mine", correlation_id="c", flow_id="f", node_id="n", filter_condition={"total": 3}),
        wish("other correlation", correlation_id="d"),
        wish("other flow", flow_id="g"),
        wish("other node", node_id="m"),
        wish("other data", filter_condition={"total": 4}),
        wish("other type", "order.lost"),
    )
    context = {"$FLOW_ID": "f", "$LAST_NODE": "n"}

    event = Event("order.paid", {"total": 3}, "c")
    assert await found(storage, event, context) == ["any", "mine"]
    handed_out = await storage.find_unprocessed_matching_subscriptions(event, context)
    assert [each.subscription_id for each in handed_out] == ["any", "mine"]


@pytest.mark.guarantee("CORE-05")
async def test_what_the_context_does_not_say_does_not_filter(storage: EventSubscriptionStorage) -> None:
    await store(storage, wish("1", flow_id="f"), wish("2", node_id="n"))

    assert await found(storage, Event("order.paid")) == ["1", "2"]
    assert await found(storage, Event("order.paid"), {}) == ["1", "2"]
    assert await found(storage, Event("order.paid"), {"$FLOW_ID": "other"}) == ["2"]


# Deleting -----------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("SUBS-16")
async def test_a_deleted_subscription_is_gone_everywhere_and_others_stay(storage: EventSubscriptionStorage) -> None:
    names = {"correlation_id": "c", "flow_id": "f", "node_id": "n"}
    await store(storage, wish("gone", **names), wish("kept", **names))

    assert await storage.delete_subscription("gone") is True

    assert await storage.get_subscription("gone") is None
    for filters in ({}, {"event_type": "order.paid"}, *({field: value} for field, value in names.items())):
        assert await ids(storage, **filters) == ["kept"]
    assert await storage.delete_subscription("gone") is False


async def test_deleting_forgets_the_marks_too(storage: EventSubscriptionStorage) -> None:
    await storage.store_subscription(wish("s"))
    await storage.mark_event_processed("s", "e")
    await storage.delete_subscription("s")

    await storage.store_subscription(wish("s"))

    assert (await storage.get_subscription("s")).processed_events == set()
    assert await storage.mark_event_processed("s", "e") is True


# Marking ------------------------------------------------------------------------------------------------------------


async def test_a_mark_is_true_the_first_time_and_false_again(storage: EventSubscriptionStorage) -> None:
    await store(storage, wish("s"), wish("t"))

    assert await storage.mark_event_processed("s", "e") is True
    assert await storage.mark_event_processed("s", "e") is False
    assert await storage.mark_event_processed("s", "f") is True
    assert await storage.mark_event_processed("t", "e") is True


async def test_an_unknown_subscription_cannot_be_marked(storage: EventSubscriptionStorage) -> None:
    assert await storage.mark_event_processed("nobody", "e") is False
    assert await storage.get_subscription("nobody") is None
    assert await storage.list_subscriptions() == []


@pytest.mark.guarantee("CORE-35")
async def test_events_of_any_name_can_be_marked(storage: EventSubscriptionStorage) -> None:
    await storage.store_subscription(wish("s"))

    assert [await storage.mark_event_processed("s", name) for name in NAMES] == [True] * len(NAMES)
    assert (await storage.get_subscription("s")).processed_events == set(NAMES)


async def test_marks_come_back_with_their_subscription(storage: EventSubscriptionStorage) -> None:
    await store(storage, wish("s", correlation_id="c"), wish("t"))
    await storage.mark_event_processed("s", "e")
    await storage.mark_event_processed("s", "f")

    assert (await storage.get_subscription("s")).processed_events == {"e", "f"}
    assert [each.processed_events for each in await storage.list_subscriptions()] == [{"e", "f"}, set()]
    assert [each.processed_events for each in await storage.list_subscriptions(correlation_id="c")] == [{"e", "f"}]


async def test_exactly_one_of_concurrent_marks_is_true(backend: Backend) -> None:
    storages = [backend.subscription_storage() for _ in range(3)]
    await storages[0].store_subscription(wish("s"))

    marks = await asyncio.gather(*(each.mark_event_processed("s", "e") for each in storages * 5))

    assert sorted(marks) == [False] * 14 + [True]


async def test_no_mark_outlives_a_delete_that_it_races_with(storage: EventSubscriptionStorage) -> None:
    for _ in range(5):
        await storage.store_subscription(wish("s"))
        await asyncio.gather(
            *(storage.mark_event_processed("s", f"e-{n}") for n in range(5)), storage.delete_subscription("s")
        )
        await storage.store_subscription(wish("s"))

        assert (await storage.get_subscription("s")).processed_events == set()


async def test_a_batch_of_marks_is_true_if_every_one_was_the_first(storage: EventSubscriptionStorage) -> None:
    await storage.store_subscription(wish("s"))

    assert await storage.batch_mark_processed("s", ["e", "f"]) is True
    assert await storage.batch_mark_processed("s", ["f", "g"]) is False
    assert await storage.batch_mark_processed("s", []) is True
    assert (await storage.get_subscription("s")).processed_events == {"e", "f", "g"}


async def test_a_match_is_handed_out_once_ever(backend: Backend) -> None:
    storages = [backend.subscription_storage() for _ in range(3)]
    await store(storages[0], wish("1"), wish("2", "*"), wish("3", "other"))
    event = Event("order.paid")

    rounds = await asyncio.gather(*(each.find_unprocessed_matching_subscriptions(event) for each in storages))

    assert sorted(each.subscription_id for found in rounds for each in found) == ["1", "2"]
    assert await storages[0].find_unprocessed_matching_subscriptions(event) == []
    assert (await storages[0].get_subscription("2")).processed_events == {event.event_id}


async def test_closing_deletes_nothing_and_may_be_repeated(backend: Backend) -> None:
    storage = backend.subscription_storage()
    await storage.store_subscription(wish("s"))

    await storage.aclose()
    await storage.aclose()

    assert await ids(backend.subscription_storage()) == ["s"]


@pytest.mark.guarantee("SUBS-10")
@pytest.mark.parametrize("event_type", ["", "  "], ids=["empty", "blank"])
async def test_a_subscription_made_past_its_validation_is_refused_without_a_type(
    backend: Backend, event_type: str
) -> None:
    storage = backend.subscription_storage()
    subscription = EventSubscription(event_type="job").model_copy(update={"event_type": event_type})

    with pytest.raises(ValueError, match="event_type"):
        await storage.store_subscription(subscription)

    assert await storage.list_subscriptions() == []
