"""Events as values: what fills itself in, what is refused, what survives the way through storage."""

from __future__ import annotations

import json
import time

import pytest

from lastbus import Event, EventError


@pytest.mark.guarantee("CORE-01")
def test_an_event_gets_an_id_and_a_time_of_its_own() -> None:
    before = time.time()
    first, second = Event("order.paid", {"n": 1}), Event("order.paid", {"n": 1})
    after = time.time()

    assert first.event_id
    assert isinstance(first.event_id, str)
    assert first.event_id != second.event_id
    assert before <= first.timestamp <= second.timestamp <= after


@pytest.mark.guarantee("CORE-01")
def test_an_event_survives_its_stored_form_in_every_field() -> None:
    event = Event("order.paid", {"n": 1}, "c-1", "till", event_id="e-1", timestamp=12.5)

    stored = event.model_dump_json()

    assert Event.model_validate_json(stored) == event
    assert json.loads(stored) == {
        "event_type": "order.paid",
        "data": {"n": 1},
        "correlation_id": "c-1",
        "source": "till",
        "event_id": "e-1",
        "timestamp": 12.5,
    }


@pytest.mark.guarantee("CORE-01")
def test_what_the_author_leaves_out_is_empty() -> None:
    event = Event("order.paid")

    assert (event.data, event.correlation_id, event.source) == ({}, None, "")


@pytest.mark.guarantee("CORE-01")
def test_events_differ_if_any_field_does() -> None:
    event = Event("a", {"n": 1}, "c", "s", event_id="e", timestamp=1.0)
    fields = event.model_dump()

    for name, other in {**dict.fromkeys(fields, "other"), "data": {"n": 2}, "timestamp": 2.0}.items():
        assert Event(**{**fields, name: other}) != event, name
    assert Event(**fields) == event


@pytest.mark.guarantee("CORE-35")
@pytest.mark.parametrize("field", ["event_type", "event_id", "correlation_id"])
@pytest.mark.parametrize(
    "bad",
    ["", " \t", "a\0b", "\ud83d", "é" * 257, 7, b"x"],
    ids=["empty", "blank", "nul", "surrogate", "long", "number", "bytes"],
)
def test_an_event_with_an_unusable_name_has_no_stored_form(field: str, bad: object) -> None:
    fields = {"event_type": "t", "event_id": "i", "correlation_id": "c", field: bad}

    with pytest.raises(ValueError, match=field):
        Event(**fields).model_dump_json()  # type: ignore[arg-type]


@pytest.mark.guarantee("CORE-35")
@pytest.mark.parametrize("good", ["a:b", "%3A", "plaita:event:1", "日本", "*", "a\nb", " x ", "é" * 256, "a" * 512])
def test_any_other_text_is_a_name(good: str) -> None:
    event = Event(good, event_id=good, correlation_id=good)

    assert Event.model_validate_json(event.model_dump_json()) == event


@pytest.mark.guarantee("CORE-37")
@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), float("-inf"), b"bytes", {1, 2}, object(), {"deep": [{"x": float("nan")}]}],
    ids=["nan", "inf", "-inf", "bytes", "set", "object", "deep"],
)
def test_data_that_json_cannot_carry_is_refused_by_the_type_of_its_event(value: object) -> None:
    with pytest.raises(ValueError, match=r"order\.paid.*JSON"):
        Event("order.paid", {"v": value}).model_dump_json()


@pytest.mark.guarantee("CORE-37")
def test_data_that_holds_itself_is_refused() -> None:
    data: dict[str, object] = {}
    data["self"] = data

    with pytest.raises(ValueError, match="JSON"):
        Event("loop", data).model_dump_json()


@pytest.mark.guarantee("CORE-37")
@pytest.mark.parametrize("data", [{1: "x"}, {None: "x"}, ["a"], "text", 7])
def test_data_is_a_mapping_with_text_keys(data: object) -> None:
    with pytest.raises(ValueError, match="data"):
        Event("t", data).model_dump_json()  # type: ignore[arg-type]


@pytest.mark.guarantee("CORE-37")
@pytest.mark.parametrize(
    "value",
    ["a\0b", "\ud83d", "😀", 2**60, 10**400, -0.5, [1, [2]], {"k\0": None}, True],
    ids=["nul", "surrogate", "emoji", "big", "huge", "float", "list", "nul key", "true"],
)
def test_whatever_json_can_carry_comes_back_equal(value: object) -> None:
    event = Event("t", {"v": value}, source="\ud83d")

    assert Event.model_validate_json(event.model_dump_json()) == event


@pytest.mark.guarantee("CORE-37")
def test_the_stored_form_is_ascii() -> None:
    assert Event("日本", {"é": "😀"}).model_dump_json().isascii()


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize("stamp", [float("nan"), float("inf"), 10**400, "1", True, [1]], ids=range(6))
def test_a_timestamp_that_is_no_finite_number_is_refused(stamp: object) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        Event("t", timestamp=stamp).model_dump_json()  # type: ignore[arg-type]


@pytest.mark.guarantee("CORE-37")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        b"\xff{",
        "[]",
        "null",
        "{}",
        '{"event_type":"t","event_id":"i","timestamp":1}',
        '{"event_type":"","event_id":"i","data":{},"timestamp":1}',
        '{"event_type":"t","event_id":"i","data":{},"timestamp":NaN}',
        '{"event_type":"t","event_id":"i","data":{},"timestamp":1' + "0" * 400 + "}",
        '{"event_type":"t","event_id":"i","data":{"x":Infinity},"timestamp":1}',
        '{"event_type":"t","event_id":"i","data":[],"timestamp":1}',
        "[" * 100_000,
    ],
    ids=range(13),
)
def test_anything_that_is_no_stored_event_is_an_event_error_with_its_cause(text: str | bytes) -> None:
    with pytest.raises(EventError, match="not a stored event") as caught:
        Event.model_validate_json(text)
    assert caught.value.__cause__ is not None


@pytest.mark.guarantee("CORE-37")
def test_keys_that_a_later_version_adds_are_ignored() -> None:
    event = Event("t", {"n": 1})
    newer = {**json.loads(event.model_dump_json()), "priority": 9}

    assert Event.model_validate_json(json.dumps(newer)) == event


def test_an_event_shows_its_type_and_its_id_and_no_data() -> None:
    event = Event("order.paid", {"card": "4111"}, event_id="e-1")

    assert repr(event) == "Event('order.paid', event_id='e-1')"


@pytest.mark.guarantee("CORE-35", "CORE-37")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"event_type": ""}, "ValueError: event_type must not be empty"),
        ({"event_id": ""}, "ValueError: event_id must not be empty"),
        ({"correlation_id": ""}, "ValueError: correlation_id must not be empty"),
        ({"source": 7}, "ValueError: source must be text, got 7"),
        ({"timestamp": "now"}, "ValueError: timestamp must be a finite number of seconds, got str"),
        ({"timestamp": None, "data": {"x": float("nan")}}, "ValueError: NaN is not JSON"),
    ],
    ids=["type", "id", "correlation", "source", "timestamp", "constant"],
)
def test_a_stored_event_that_is_none_is_refused_by_the_field_and_the_reason(
    changes: dict[str, object], words: str
) -> None:
    stored = json.dumps({**json.loads(Event("t").model_dump_json()), **changes})

    with pytest.raises(EventError) as caught:
        Event.model_validate_json(stored)

    assert str(caught.value).startswith(f"not a stored event ({words}")
    assert str(caught.value).endswith(f": {stored[:80]!r}")


@pytest.mark.guarantee("CORE-01")
def test_a_stored_event_without_a_source_has_an_empty_one() -> None:
    stored = json.loads(Event("t", source="till").model_dump_json())
    del stored["source"]

    assert Event.model_validate_json(json.dumps(stored)).source == ""


@pytest.mark.guarantee("CORE-35")
@pytest.mark.parametrize("field", ["event_type", "event_id", "correlation_id"])
def test_an_event_that_cannot_be_stored_is_refused_by_its_field(field: str) -> None:
    event = Event("t")
    setattr(event, field, "")

    with pytest.raises(ValueError, match=rf"^{field} must not be empty"):
        event.model_dump_json()
