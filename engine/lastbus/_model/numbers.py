"""Durations and counts: which numbers a caller may hand in."""

from __future__ import annotations

import math


def check_seconds(field: str, value: object) -> float:
    """Return `value` as seconds if it is a finite number of at least 0; else raise `ValueError` naming `field`.

    Keeps: CORE-36.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{field} must be a finite number of seconds, 0 or more, got {value!r}")
    return float(value)


def check_optional_seconds(field: str, value: object) -> float | None:
    """Like `check_seconds`, for a limit that may be None (no limit)."""
    return None if value is None else check_seconds(field, value)


def check_count(field: str, value: object, at_least: int = 1) -> int:
    """Return `value` if it is a whole number of at least `at_least`; else raise `ValueError` naming `field`.

    Keeps: CORE-36.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ValueError(f"{field} must be a whole number, {at_least} or more, got {value!r}")
    return value


def check_bound(field: str, value: object) -> float | None:
    """Return a time bound (any finite number, or None); else raise `ValueError` naming `field`.

    Keeps: CORE-36.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{field} must be a finite number or None, got {value!r}")
    return float(value)
