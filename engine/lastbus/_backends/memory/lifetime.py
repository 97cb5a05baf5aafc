"""Lifetime: for how many seconds the memory stores keep things."""

from __future__ import annotations

from lastbus._model.numbers import check_seconds
from lastbus._settings import EVENT_TTL


def lifetime(ttl: float | None) -> float:
    """`ttl` if it is a finite number of more than 0, the events' lifetime of the settings for None; else `ValueError`.

    Keeps: MEM-10.
    """
    if ttl is None:
        return EVENT_TTL.read()
    if check_seconds("ttl", ttl) == 0:
        raise ValueError(f"ttl must be more than 0 seconds, got {ttl!r}")
    return float(ttl)
