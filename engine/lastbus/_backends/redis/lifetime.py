"""Lifetime: how long what is stored here lives, in the milliseconds that Redis counts in."""

from __future__ import annotations

from typing import Final

from lastbus._model.numbers import check_seconds
from lastbus._settings import EVENT_TTL

LIFETIME_MS_MAX: Final = 2**53
"""About 285 000 years: the most that a script's numbers hold exactly."""


def lifetime_ms(seconds: float | None) -> int:
    """`seconds` (None: `PLAITA_EVENT_TTL_SECONDS`) as whole milliseconds; `ValueError` unless it is more than 0."""
    chosen = EVENT_TTL.read() if seconds is None else positive_seconds("ttl", seconds)
    return min(max(1, round(chosen * 1000)), LIFETIME_MS_MAX)


def positive_seconds(field: str, value: float) -> float:
    """Return `value` if it is a finite number of more than 0; else raise `ValueError` naming `field`."""
    if check_seconds(field, value) == 0:
        raise ValueError(f"{field} must be more than 0 seconds, got {value!r}")
    return float(value)
