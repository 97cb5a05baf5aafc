"""Which numbers a caller may hand in."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from lastbus._model.numbers import (
    check_bound,
    check_count,
    check_optional_seconds,
    check_positive_seconds,
    check_seconds,
)

NEVER_A_NUMBER = [math.nan, math.inf, -math.inf, "1", None, True, [1], 10**400, 10**5000]


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize("bad", [*NEVER_A_NUMBER, -1, -1e-9], ids=lambda bad: type(bad).__name__)
def test_seconds_are_finite_and_not_negative(bad: Any) -> None:
    with pytest.raises(ValueError, match="grace"):
        check_seconds("grace", bad)


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize("good", [0, 0.0, 1, 2.5, 1e308])
def test_seconds_come_back_as_a_float(good: float) -> None:
    seconds = check_seconds("grace", good)

    assert seconds == good
    assert isinstance(seconds, float)


@pytest.mark.guarantee("CORE-36")
def test_a_limit_may_be_left_open() -> None:
    assert check_optional_seconds("grace", None) is None
    assert check_optional_seconds("grace", 2) == 2.0
    with pytest.raises(ValueError, match="grace"):
        check_optional_seconds("grace", -1)


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize("bad", [0, -1, 1.0, "1", None, True])
def test_a_count_is_a_whole_number_from_one(bad: Any) -> None:
    with pytest.raises(ValueError, match="slots"):
        check_count("slots", bad)


@pytest.mark.guarantee("CORE-36")
def test_a_count_may_start_at_zero_where_zero_makes_sense() -> None:
    assert check_count("limit", 0, at_least=0) == 0
    with pytest.raises(ValueError, match="limit"):
        check_count("limit", -1, at_least=0)


@pytest.mark.guarantee("CORE-36")
def test_a_bound_may_be_negative_or_open_but_not_infinite() -> None:
    assert check_bound("start", -5) == -5.0
    assert check_bound("start", 0) == 0.0
    assert check_bound("start", None) is None
    for bad in (value for value in NEVER_A_NUMBER if value is not None):
        with pytest.raises(ValueError, match="start"):
            check_bound("start", bad)


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize("check", [check_seconds, check_count, check_bound])
def test_a_refusal_stays_short(check: Callable[[str, Any], Any]) -> None:
    with pytest.raises(ValueError) as caught:
        check("grace", "x" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize(
    ("bad", "shown"),
    [
        (-1, "got -1"),
        ("one", "got 'one'"),
        ("x" * 500, f"got '{'x' * 79}"),
        (-(10**5000), "an integer too large to print"),
    ],
    ids=["number", "text", "long", "huge"],
)
def test_what_was_handed_in_is_shown_shortly(bad: Any, shown: str) -> None:
    with pytest.raises(ValueError, match="grace") as caught:
        check_seconds("grace", bad)

    assert str(caught.value).endswith(shown)


@pytest.mark.guarantee("CORE-36")
def test_a_limit_that_must_be_above_zero_comes_back_as_a_float() -> None:
    assert [check_positive_seconds("grace", good) for good in (1, 0.5)] == [1.0, 0.5]
    assert isinstance(check_positive_seconds("grace", 1), float)


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (0, "more than 0 seconds, got 0"),
        (0.0, "more than 0 seconds, got 0.0"),
        (-1, "0 or more, got -1"),
        (None, "None"),
    ],
)
def test_a_limit_that_must_be_above_zero_is_refused_by_name(bad: Any, words: str) -> None:
    with pytest.raises(ValueError, match=r"^grace must be ") as caught:
        check_positive_seconds("grace", bad)

    assert str(caught.value).endswith(words)


@pytest.mark.guarantee("CORE-36")
def test_a_count_is_one_or_more_unless_said_otherwise() -> None:
    assert check_count("limit", 1) == 1
    assert check_count("limit", 0, at_least=0) == 0
    with pytest.raises(ValueError, match=r"^limit must be a whole number, 1 or more, got 0$"):
        check_count("limit", 0)


@pytest.mark.guarantee("CORE-36")
def test_a_bound_that_is_refused_is_shown() -> None:
    with pytest.raises(ValueError, match=r"^since must be a finite number or None, got 'now'$"):
        check_bound("since", "now")
