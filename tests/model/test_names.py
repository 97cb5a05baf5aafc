"""What an error shows of a name that is refused."""

from __future__ import annotations

import pytest

from lastbus._model.names import check_name


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize(
    ("bad", "shown"),
    [(" ", "got ' '"), (7, "got 7"), ("ü" * 600, "...")],
    ids=["blank", "number", "long"],
)
def test_a_refused_name_is_shown_in_ascii_and_shortly(bad: object, shown: str) -> None:
    with pytest.raises(ValueError, match="event_type") as caught:
        check_name("event_type", bad)

    assert str(caught.value).endswith(shown)
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 200


@pytest.mark.guarantee("CORE-35")
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (7, "must be text"),
        ("", "must not be empty or blank"),
        (" \t", "must not be empty or blank"),
        ("a\0b", "must not contain NUL"),
        ("a\ud800", "must not contain a lone surrogate"),
        ("x" * 513, "must be at most 512 UTF-8 bytes"),
        ("ü" * 257, "must be at most 512 UTF-8 bytes"),
    ],
    ids=["number", "empty", "blank", "nul", "surrogate", "long", "long-in-bytes"],
)
def test_a_refusal_names_the_field_and_the_reason(bad: object, reason: str) -> None:
    with pytest.raises(ValueError, match="flow_id") as caught:
        check_name("flow_id", bad)

    assert str(caught.value).startswith(f"flow_id {reason}, got ")


@pytest.mark.guarantee("CORE-35")
@pytest.mark.parametrize("good", ["x", "x" * 512, "ü" * 256, " x "], ids=["one", "most", "most-in-bytes", "padded"])
def test_a_name_comes_back_as_it_is(good: str) -> None:
    assert check_name("flow_id", good) is good


@pytest.mark.parametrize(
    ("bad", "shown"), [(["x" * 76], f"['{'x' * 76}']"), (["x" * 77], f"['{'x' * 75}...")], ids=["80", "81"]
)
def test_more_than_eighty_characters_are_cut_to_eighty(bad: object, shown: str) -> None:
    assert len(shown) == 80
    with pytest.raises(ValueError, match="event_type") as caught:
        check_name("event_type", bad)

    assert str(caught.value) == f"event_type must be text, got {shown}"
