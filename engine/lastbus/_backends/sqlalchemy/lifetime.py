"""Lifetime: for how many seconds rows are kept, unless a constructor says otherwise."""

from __future__ import annotations

from lastbus._model.numbers import check_seconds
from lastbus._settings import EVENT_TTL


def lifetime(ttl: float | None) -> float:
    """`ttl` if it is a positive finite number, the events' lifetime of the settings for None; else `ValueError`."""
    return EVENT_TTL.read() if ttl is None else positive_seconds("ttl", ttl)


def positive_seconds(field: str, value: float) -> float:
    """Return `value` if it is a finite number of more than 0; else raise `ValueError` naming `field`."""
    if check_seconds(field, value) == 0:
        raise ValueError(f"{field} must be more than 0 seconds, got {value!r}")
    return float(value)
