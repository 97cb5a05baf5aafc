"""Which event a subscription wants: type, correlation, flow and node, filter, in this order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lastbus import Event, EventBus, EventSubscription
from lastbus._model.subscription import _named


class WatchedData(Mapping[str, Any]):
    """Data that notes who looks at it."""

    def __init__(self, **data: Any) -> None:
        self.data = data
        self.lookups: list[str] = []

    def __getitem__(self, key: str) -> Any:
        self.lookups.append(key)
        return self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


def wants(event: Event, context: Mapping[str, Any] | None = None, event_type: str = "t", **fields: Any) -> bool:
    return EventSubscription(event_type=event_type, **fields).matches_event(event, context)


@pytest.mark.guarantee("CORE-02")
def test_types_are_compared_exactly() -> None:
    assert wants(Event("user.created"), event_type="user.created")
    assert not wants(Event("user.updated"), event_type="user.created")
    assert not wants(Event("USER.created"), event_type="user.created")
    assert not wants(Event("user.created"), event_type="user.created ")


@pytest.mark.guarantee("CORE-03")
def test_a_pattern_in_a_subscription_matches_only_itself() -> None:
    assert not wants(Event("user.created"), event_type="user.*")
    assert not wants(Event("user.created"), event_type="user.create?")
    assert wants(Event("user.*"), event_type="user.*")


@pytest.mark.guarantee("CORE-03")
def test_a_star_on_its_own_means_every_type() -> None:
    assert wants(Event("user.created"), event_type="*")
    assert wants(Event("*"), event_type="*")
    assert not wants(Event("user.created"), event_type="**")


@pytest.mark.guarantee("CORE-04")
def test_a_subscription_without_correlation_wants_every_correlation() -> None:
    assert wants(Event("t", correlation_id="C1"))
    assert wants(Event("t"))


@pytest.mark.guarantee("CORE-04")
def test_a_subscription_with_correlation_wants_no_other() -> None:
    assert wants(Event("t", correlation_id="C1"), correlation_id="C1")
    assert not wants(Event("t", correlation_id="C2"), correlation_id="C1")
    assert not wants(Event("t"), correlation_id="C1")


@pytest.mark.guarantee("CORE-05")
def test_flow_and_node_are_compared_with_their_own_keys_of_the_context() -> None:
    context = {"$FLOW_ID": "f", "$LAST_NODE": "n"}

    assert wants(Event("t"), context, flow_id="f")
    assert not wants(Event("t"), context, flow_id="n")
    assert wants(Event("t"), context, node_id="n")
    assert not wants(Event("t"), context, node_id="f")
    assert not wants(Event("t"), context, flow_id="f", node_id="other")
    assert wants(Event("t"), context)


@pytest.mark.guarantee("CORE-05")
@pytest.mark.parametrize("context", [None, {}, {"other": "x"}])
def test_a_key_that_the_context_lacks_does_not_filter(context: dict[str, str] | None) -> None:
    assert wants(Event("t"), context, flow_id="f", node_id="n")


@pytest.mark.guarantee("CORE-06")
def test_every_key_of_a_filter_must_be_there_and_equal() -> None:
    assert wants(Event("t", {"a": 1, "b": 2}), filter_condition={"a": 1})
    assert not wants(Event("t", {"a": 2}), filter_condition={"a": 1})
    assert not wants(Event("t", {}), filter_condition={"a": 1})
    assert not wants(Event("t", {"a": 1}), filter_condition={"a": 1, "b": 2})
    assert not wants(Event("t", {}), filter_condition={"a": None})
    assert wants(Event("t", {"a": None}), filter_condition={"a": None})


@pytest.mark.guarantee("CORE-06")
def test_a_filter_compares_whole_values_and_evaluates_nothing() -> None:
    assert not wants(Event("t", {"a": {"x": 1, "y": 2}}), filter_condition={"a": {"x": 1}})
    assert wants(Event("t", {"a": {"x": 1}}), filter_condition={"a": {"x": 1}})
    assert not wants(Event("t", {"a": 2}), filter_condition={"a": "> 1"})
    assert wants(Event("t", {"a": "> 1"}), filter_condition={"a": "> 1"})


@pytest.mark.guarantee("CORE-06")
@pytest.mark.parametrize("empty", [None, {}])
def test_no_filter_lets_everything_through(empty: dict[str, Any] | None) -> None:
    assert wants(Event("t", {"a": 1}), filter_condition=empty)


@pytest.mark.guarantee("CORE-07")
def test_the_filter_is_not_looked_at_when_the_type_differs() -> None:
    data = WatchedData(a=1)

    assert not wants(Event("other", data), filter_condition={"a": 1})
    assert data.lookups == []


@pytest.mark.guarantee("CORE-07")
def test_the_filter_is_not_looked_at_when_correlation_flow_or_node_differ() -> None:
    data = WatchedData(a=1)
    event = Event("t", data, "C1")
    context = {"$FLOW_ID": "f", "$LAST_NODE": "n"}

    for fields in ({"correlation_id": "C2"}, {"flow_id": "g"}, {"node_id": "m"}):
        assert not wants(event, context, filter_condition={"a": 1}, **fields)
    assert data.lookups == []
    assert wants(event, context, filter_condition={"a": 1})
    assert data.lookups == ["a"]


@pytest.mark.guarantee("CORE-09")
def test_the_same_pattern_matches_for_a_handler_and_not_for_a_subscription() -> None:
    assert EventBus.matches_event_type("user.*", "user.created")
    assert not wants(Event("user.created"), event_type="user.*")


@pytest.mark.guarantee("CORE-35")
@pytest.mark.parametrize("field", ["event_type", "subscription_id", "correlation_id", "flow_id", "node_id"])
@pytest.mark.parametrize("bad", ["", "  ", "a\0b", "x" * 513])
def test_an_unusable_name_is_refused_where_it_stands(field: str, bad: str) -> None:
    with pytest.raises(ValueError, match=field):
        EventSubscription(**{"event_type": "t", field: bad})  # type: ignore[arg-type]


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize("field", ["timeout", "created_at"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_time_that_is_no_finite_number_is_refused(field: str, bad: float) -> None:
    with pytest.raises(ValueError, match=field):
        EventSubscription(**{"event_type": "t", field: bad})  # type: ignore[arg-type]


@pytest.mark.guarantee("CORE-37")
@pytest.mark.parametrize("value", [float("nan"), object(), b"x", {1}], ids=["nan", "object", "bytes", "set"])
def test_a_filter_that_json_cannot_carry_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="filter_condition"):
        EventSubscription(event_type="t", filter_condition={"a": value})


@pytest.mark.guarantee("CORE-37")
def test_a_filter_is_kept_as_json_keeps_it_before_it_is_stored() -> None:
    subscription = EventSubscription(event_type="t", filter_condition={"a": (1, {2: 3})})

    assert subscription.filter_condition == {"a": [1, {"2": 3}]}
    assert EventSubscription.model_validate_json(subscription.model_dump_json()) == subscription


def test_a_copy_notes_which_events_were_handled() -> None:
    subscription = EventSubscription(event_type="t")

    subscription.mark_event_processed("e-1")
    subscription.mark_event_processed("e-1")

    assert subscription.is_event_processed("e-1")
    assert not subscription.is_event_processed("e-2")
    assert subscription.processed_events == {"e-1"}


@pytest.mark.guarantee("CORE-35")
@pytest.mark.parametrize("field", ["subscription_id", "correlation_id", "flow_id", "node_id"])
def test_an_id_that_is_no_name_is_refused_by_its_field(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must not be empty or blank, got ' '"):
        EventSubscription(**{"event_type": "t", field: " "})


@pytest.mark.guarantee("CORE-35")
def test_a_subscription_to_nothing_is_told_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"event_type must not be empty.*; .* waits for, or say '\*' for every type"):
        EventSubscription(event_type="")


@pytest.mark.guarantee("CORE-37")
def test_a_filter_that_cannot_be_stored_is_refused_by_its_field() -> None:
    with pytest.raises(ValueError, match="filter_condition cannot be stored as JSON"):
        EventSubscription(event_type="t", filter_condition={"a": {1}})


@pytest.mark.guarantee("CORE-35")
def test_what_makes_a_field_a_name_is_made_with_its_field() -> None:
    validator = _named("flow_id").func

    assert validator("order") == "order"  # type: ignore[call-arg, arg-type]
    with pytest.raises(ValueError, match=r"^flow_id must be text, got 7$"):
        validator(7)  # type: ignore[call-arg, arg-type]


@pytest.mark.guarantee("SUBS-10")
def test_one_that_was_made_past_its_validation_is_checked_without_a_warning() -> None:
    past = EventSubscription(event_type="t").model_copy(update={"processed_events": ["e-1", "e-1"]})

    assert past.checked().processed_events == {"e-1"}
    with pytest.raises(ValueError, match="event_type"):
        past.model_copy(update={"event_type": ""}).checked()
