"""What JSON can carry, and the encoder that is prepared once for all events."""

from __future__ import annotations

import json
import math

import pytest

from lastbus._model.payload import _prepare, as_json


@pytest.mark.guarantee("CORE-37")
@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True], "ü": "\u20ac"}, [], "x", {"1": {"b": {}}}], ids=repr)
def test_the_prepared_encoder_writes_compact_ascii_that_comes_back(value: object) -> None:
    text = _prepare()(value)

    assert text == json.dumps(value, separators=(",", ":"))
    assert json.loads(text) == value


@pytest.mark.guarantee("CORE-37")
def test_keys_stand_in_their_order_and_numbers_become_text() -> None:
    assert _prepare()({2: 1, "a": 2, None: 3}) == '{"2":1,"a":2,"null":3}'


@pytest.mark.guarantee("CORE-37")
@pytest.mark.parametrize(
    ("value", "error"),
    [(math.nan, ValueError), (math.inf, ValueError), ({1, 2}, TypeError), ({(1, 2): 1}, TypeError)],
    ids=["nan", "inf", "set", "tuple-key"],
)
def test_the_prepared_encoder_refuses_what_json_cannot_carry(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"JSON|keys must be"):
        _prepare()(value)


@pytest.mark.guarantee("CORE-37")
def test_without_the_fast_part_the_encoder_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)

    slow = _prepare()

    assert slow({"a": [1, "ü"]}) == '{"a":[1,"\\u00fc"]}'
    with pytest.raises(ValueError, match="JSON"):
        slow(math.nan)


@pytest.mark.guarantee("CORE-37")
def test_what_cannot_be_stored_is_named_with_its_field() -> None:
    with pytest.raises(ValueError, match=r"^results cannot be stored as JSON: "):
        as_json("results", object())
