"""Patterns: which handlers an event type concerns. Handlers use shell wildcards; subscriptions never do."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

EVERY_TYPE: Final = "*"
_WILD: Final = frozenset("*?[")


def is_exact(pattern: str) -> bool:
    """Whether a handler's pattern can match only itself, so that no wildcard has to be tried."""
    return _WILD.isdisjoint(pattern)


def matches_event_type(pattern: str | None, event_type: str) -> bool:
    """Whether a handler registered for `pattern` gets events of `event_type`.

    `*`, `?` and `[…]` work as in a shell, on every platform case-sensitively; None means every type.

    Keeps: CORE-08, CORE-09.
    """
    return pattern is None or fnmatchcase(event_type, pattern)
