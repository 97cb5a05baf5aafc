"""What a publisher may hand in, and that it stays as it was."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from lastbus import Event
from lastbus._model.normalize import normalize


@pytest.mark.guarantee("CORE-38")
def test_an_event_is_taken_as_it_is() -> None:
    event = Event("t", {"n": 1})

    assert normalize(event, {}) is event


@pytest.mark.guarantee("CORE-38")
def test_a_mapping_keeps_every_key_but_three_as_data() -> None:
    event = normalize({"event_type": "t", "correlation_id": "c", "source": "s", "event_id": "x", "data": {"n": 1}}, {})

    assert (event.event_type, event.correlation_id, event.source) == ("t", "c", "s")
    assert event.data == {"event_id": "x", "data": {"n": 1}}
    assert event.event_id != "x"


@pytest.mark.guarantee("CORE-38")
def test_a_type_takes_its_data_from_keywords() -> None:
    event = normalize("t", {"n": 1, "correlation_id": "c", "source": "s"})

    assert (event.event_type, event.data, event.correlation_id, event.source) == ("t", {"n": 1}, "c", "s")


@pytest.mark.guarantee("CORE-38")
def test_keywords_come_on_top_of_a_mapping() -> None:
    assert normalize({"event_type": "t", "n": 1, "m": 1}, {"n": 2}).data == {"n": 2, "m": 1}


@pytest.mark.guarantee("CORE-38")
def test_the_publishers_mapping_stays_as_it_was_and_is_not_shared() -> None:
    mapping: dict[str, Any] = {"event_type": "t", "n": 1}

    event = normalize(mapping, {})
    mapping["n"] = 2
    normalize(mapping, {"n": 3, "m": 1})

    assert event.data == {"n": 1}
    assert normalize(MappingProxyType(mapping), {}).data == {"n": 2}
    assert mapping == {"event_type": "t", "n": 2}


@pytest.mark.guarantee("CORE-38")
def test_an_event_takes_no_keywords() -> None:
    with pytest.raises(ValueError, match="extra"):
        normalize(Event("t"), {"extra": 1})


@pytest.mark.guarantee("CORE-38")
def test_a_mapping_without_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match="event_type"):
        normalize({"type": "t"}, {})


@pytest.mark.guarantee("CORE-38")
@pytest.mark.parametrize("bad", [None, 7, b"t", ["t"], object])
def test_anything_else_is_a_type_error(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"Event.*mapping"):
        normalize(bad, {})


@pytest.mark.guarantee("CORE-38")
def test_a_refusal_names_what_was_handed_in() -> None:
    with pytest.raises(ValueError, match=r"unexpected keywords: a, b$"):
        normalize(Event("t"), {"b": 1, "a": 2})
    with pytest.raises(TypeError, match=r"got list$"):
        normalize(["t"], {})  # type: ignore[arg-type]


@pytest.mark.guarantee("CORE-38")
@pytest.mark.parametrize("event", ["t", {"event_type": "t"}], ids=["type", "mapping"])
def test_what_names_no_source_and_no_correlation_has_none(event: Any) -> None:
    made = normalize(event, {})

    assert (made.source, made.correlation_id) == ("", None)
