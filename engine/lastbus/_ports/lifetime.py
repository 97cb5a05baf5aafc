"""Lifetime: for how many seconds a store keeps things, unless its constructor says otherwise."""

from __future__ import annotations

from lastbus._model.numbers import check_positive_seconds
from lastbus._settings import EVENT_TTL


def lifetime(ttl: float | None) -> float:
    """`ttl` if it is a finite number of more than 0, the events' lifetime of the settings for None; else `ValueError`.

    Keeps: MEM-10.
    """
    return EVENT_TTL.read() if ttl is None else check_positive_seconds("ttl", ttl)
