"""Laws of the pure values: what must hold for every input, not only for the examples."""

from __future__ import annotations

import copy
import math
from fnmatch import fnmatchcase
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lastbus import Event, EventBus, EventError, EventSubscription, RetryPolicy
from lastbus._model.matching import data_matches
from lastbus._model.names import NAME_BYTES_MAX, check_name
from lastbus._model.normalize import normalize
from lastbus._model.patterns import is_exact
from tests.property.profile import deterministic

any_text = st.text(st.characters(), max_size=20)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20).filter(
    str.strip
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text
payloads = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3), max_leaves=8
)
data = st.dictionaries(any_text, payloads, max_size=4)
small_data = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), max_size=3)
seconds = st.floats(0, 1e6)


@pytest.mark.guarantee("CORE-06")
@deterministic
@given(small_data, small_data)
def test_a_filter_matches_exactly_the_data_that_contains_it(condition: dict[str, int], facts: dict[str, int]) -> None:
    assert data_matches(condition, facts) is (condition.items() <= facts.items())


@pytest.mark.guarantee("CORE-06")
@deterministic
@given(small_data, small_data, small_data)
def test_more_conditions_never_match_more(
    condition: dict[str, int], more: dict[str, int], facts: dict[str, int]
) -> None:
    if data_matches({**more, **condition}, facts):
        assert data_matches(condition, facts)


@pytest.mark.guarantee("CORE-06")
@deterministic
@given(data, data)
def test_data_matches_itself_and_whatever_is_added_to_it(condition: dict[str, Any], extra: dict[str, Any]) -> None:
    assert data_matches(condition, condition)
    assert data_matches(condition, {**extra, **condition})


@pytest.mark.guarantee("CORE-04", "CORE-05")
@deterministic
@given(*[st.none() | st.sampled_from("ab")] * 6)
def test_a_subscription_matches_unless_a_field_that_it_sets_differs(
    correlation: str | None, flow: str | None, node: str | None, theirs: str | None, runs: str | None, last: str | None
) -> None:
    subscription = EventSubscription(event_type="t", correlation_id=correlation, flow_id=flow, node_id=node)
    context = {key: value for key, value in (("$FLOW_ID", runs), ("$LAST_NODE", last)) if value is not None}

    expected = (
        correlation in (None, theirs)
        and (None in (flow, runs) or flow == runs)
        and (None in (node, last) or node == last)
    )
    assert subscription.matches_event(Event("t", correlation_id=theirs), context) is expected


@pytest.mark.guarantee("CORE-19")
@deterministic
@given(st.floats(0, 1e3), st.floats(0, 1e3), seconds, st.integers(0, 300))
def test_the_delay_is_the_law_as_far_as_a_float_can_say_it(
    initial: float, factor: float, cap: float, retry: int
) -> None:
    policy = RetryPolicy(initial_delay=initial, backoff_factor=factor, max_delay=cap)
    exact = min(Fraction(initial) * Fraction(factor) ** retry, Fraction(cap))

    assert math.isclose(policy.delay(retry), float(exact), rel_tol=1e-9, abs_tol=1e-200)


@pytest.mark.guarantee("CORE-19")
@deterministic
@given(seconds, st.floats(1, 1e6), seconds, st.integers(0, 5000), st.integers(0, 5000))
@example(0.0, 2.0, 60.0, 1, 5000)
@example(0.1, 2.0, 60.0, 1023, 1024)
def test_the_delay_never_shrinks_and_never_passes_the_cap(
    initial: float, factor: float, cap: float, retry: int, later: int
) -> None:
    policy = RetryPolicy(initial_delay=initial, backoff_factor=factor, max_delay=cap)
    first, second = policy.delay(min(retry, later)), policy.delay(max(retry, later))

    assert 0 <= first <= second <= cap


@pytest.mark.guarantee("CORE-01", "CORE-37")
@deterministic
@given(names, data, st.none() | names, any_text, names, st.floats(allow_nan=False, allow_infinity=False))
def test_every_event_that_has_a_stored_form_comes_back_equal(
    event_type: str, facts: dict[str, Any], correlation: str | None, source: str, event_id: str, stamp: float
) -> None:
    event = Event(event_type, facts, correlation, source, event_id=event_id, timestamp=stamp)

    stored = event.model_dump_json()

    assert Event.model_validate_json(stored) == event
    assert Event.model_validate_json(stored.encode()).model_dump_json() == stored


@pytest.mark.guarantee("CORE-37")
@deterministic
@given(
    st.text(max_size=20)
    | st.binary(max_size=20)
    | small_data.map(lambda facts: Event("t", facts).model_dump_json()[:-1])
)
def test_text_that_is_no_stored_event_is_never_anything_but_an_event_error(text: str | bytes) -> None:
    with pytest.raises(EventError):
        Event.model_validate_json(text)


@pytest.mark.guarantee("CORE-35")
@deterministic
@given(st.text(st.characters(), max_size=8) | st.text("aé日😀", max_size=600))
def test_a_text_is_a_name_if_and_only_if_the_four_rules_hold(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = NAME_BYTES_MAX + 1
    is_name = bool(text.strip()) and "\0" not in text and size <= NAME_BYTES_MAX

    if is_name:
        assert check_name("field", text) is text
    else:
        with pytest.raises(ValueError, match=r"^field ") as caught:
            check_name("field", text)
        assert str(caught.value).isascii()
        assert len(str(caught.value)) < 200


@pytest.mark.guarantee("CORE-38")
@deterministic
@given(data, data, names, st.none() | names, st.none() | any_text)
def test_normalize_changes_no_input_and_loses_no_key(
    facts: dict[str, Any], keywords: dict[str, Any], event_type: str, correlation: str | None, source: str | None
) -> None:
    own = {"event_type": event_type, "correlation_id": correlation, "source": source}
    mapping = {**facts, **{key: value for key, value in own.items() if value is not None}}
    before = copy.deepcopy((mapping, keywords))

    event = normalize(MappingProxyType(mapping), MappingProxyType(keywords))

    assert (mapping, keywords) == before
    everything = {**mapping, **keywords}
    assert event.data == {key: value for key, value in everything.items() if key not in own}
    assert event.event_type == everything["event_type"]
    assert event.correlation_id == everything.get("correlation_id")
    assert event.source == everything.get("source", "")


@pytest.mark.guarantee("CORE-08", "CORE-09")
@deterministic
@given(st.text("ab.*?[]!", min_size=1, max_size=8).filter(str.strip), st.text("ab.*?[]!", min_size=1, max_size=8))
def test_a_handler_matches_as_fnmatchcase_does_and_a_subscription_by_equality(pattern: str, event_type: str) -> None:
    as_handler = EventBus.matches_event_type(pattern, event_type)
    as_subscription = EventSubscription(event_type=pattern).matches_event(Event(event_type))

    assert as_handler is fnmatchcase(event_type, pattern)
    assert as_subscription is (pattern in (event_type, "*"))
    if is_exact(pattern):
        assert as_handler is (pattern == event_type)
