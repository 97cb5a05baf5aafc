"""Matching: the shallow equality filter that handlers and subscriptions share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MISSING = object()


def data_matches(condition: Mapping[str, Any] | None, data: Mapping[str, Any]) -> bool:
    """Whether `data` holds every key of `condition` with an equal value. No condition matches everything.

    Values are compared whole: a nested mapping must be equal, not a subset, and text is never evaluated.

    Keeps: CORE-06.
    """
    if not condition:
        return True
    return all(data.get(key, _MISSING) == value for key, value in condition.items())
