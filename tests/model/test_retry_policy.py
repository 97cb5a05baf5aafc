"""Retry policies: the defaults, the law of the delay, the values that are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lastbus import RetryPolicy


@pytest.mark.guarantee("CORE-18")
def test_a_policy_retries_three_times_from_one_second_doubling_up_to_a_minute() -> None:
    policy = RetryPolicy()

    assert (policy.max_retries, policy.initial_delay, policy.backoff_factor, policy.max_delay) == (3, 1.0, 2.0, 60.0)


@pytest.mark.guarantee("CORE-19")
def test_the_delay_doubles_until_the_cap() -> None:
    assert [RetryPolicy().delay(retry) for retry in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.guarantee("CORE-19")
def test_the_delay_stays_at_the_cap_where_the_power_is_beyond_every_float() -> None:
    policy = RetryPolicy(initial_delay=0.1)
    delays = [policy.delay(retry) for retry in (1, 50, 1023, 1024, 10_000)]

    assert delays == sorted(delays)
    assert delays[-3:] == [60, 60, 60]


@pytest.mark.guarantee("CORE-19")
def test_no_delay_grows_to_no_delay() -> None:
    policy = RetryPolicy(initial_delay=0)

    assert [policy.delay(retry) for retry in (0, 1, 10_000)] == [0, 0, 0]


@pytest.mark.guarantee("CORE-19")
def test_a_cap_below_the_first_delay_holds_from_the_start() -> None:
    assert RetryPolicy(initial_delay=5, max_delay=2).delay(0) == 2


@pytest.mark.guarantee("CORE-18")
@pytest.mark.parametrize("field", ["initial_delay", "backoff_factor", "max_delay"])
@pytest.mark.parametrize("bad", [-1, -0.001, math.nan, math.inf, -math.inf, "much", None])
def test_a_delay_that_is_no_finite_duration_is_refused_by_name(field: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=field):
        RetryPolicy(**{field: bad})


@pytest.mark.guarantee("CORE-18")
@pytest.mark.parametrize("bad", [-1, 1.5, "3", True, None])
def test_a_number_of_retries_is_a_whole_number(bad: Any) -> None:
    with pytest.raises(ValueError, match="max_retries"):
        RetryPolicy(max_retries=bad)


@pytest.mark.guarantee("CORE-18")
def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(ValueError, match="max_attempts"):
        RetryPolicy(max_attempts=3)  # type: ignore[call-arg]


@pytest.mark.guarantee("CORE-18")
def test_a_policy_cannot_be_changed_under_the_bus() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RetryPolicy().max_retries = 5
