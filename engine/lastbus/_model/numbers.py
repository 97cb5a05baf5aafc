"""Durations and counts: which numbers a caller may hand in."""

from __future__ import annotations

import math
from typing import TypeGuard


def is_finite_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is an int or float, neither nan nor infinite, and not beyond what a float can hold.

    Keeps: CORE-36.
    """
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, int | float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # An integer past the largest float.
        return False


def check_seconds(field: str, value: object) -> float:
    """Return `value` as seconds if it is a finite number of at least 0; else raise `ValueError` naming `field`.

    Keeps: CORE-36.
    """
    if not is_finite_number(value) or value < 0:
        raise ValueError(f"{field} must be a finite number of seconds, 0 or more, got {_shown(value)}")
    return float(value)


def check_positive_seconds(field: str, value: object) -> float:
    """Return `value` as seconds if it is a finite number of more than 0; else raise `ValueError` naming `field`.

    Keeps: CORE-36, MEM-10.
    """
    if check_seconds(field, value) == 0:
        raise ValueError(f"{field} must be more than 0 seconds, got {value!r}")
    return check_seconds(field, value)


def check_optional_seconds(field: str, value: object) -> float | None:
    """Like `check_seconds`, for a limit that may be None (no limit)."""
    return None if value is None else check_seconds(field, value)


def check_count(field: str, value: object, at_least: int = 1) -> int:
    """Return `value` if it is a whole number of at least `at_least`; else raise `ValueError` naming `field`.

    Keeps: CORE-36.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ValueError(f"{field} must be a whole number, {at_least} or more, got {_shown(value)}")
    return value


def check_bound(field: str, value: object) -> float | None:
    """Return a time bound (any finite number, or None); else raise `ValueError` naming `field`.

    Keeps: CORE-36.
    """
    if value is None:
        return None
    if not is_finite_number(value):
        raise ValueError(f"{field} must be a finite number or None, got {_shown(value)}")
    return float(value)


def _shown(value: object) -> str:
    """A short text for the error; some integers are too long to be turned into text at all."""
    try:
        return f"{value!r:.80}"
    except ValueError:
        return "an integer too large to print"
