"""Lifetime: how long what is stored here lives, in the milliseconds that Redis counts in."""

from __future__ import annotations

from typing import Final

from lastbus._ports.lifetime import lifetime

LIFETIME_MS_MAX: Final = 2**53
"""About 285 000 years: the most that a script's numbers hold exactly."""


def lifetime_ms(seconds: float | None) -> int:
    """`seconds` (None: `PLAITA_EVENT_TTL_SECONDS`) as whole milliseconds; `ValueError` unless it is more than 0."""
    return min(max(1, round(lifetime(seconds) * 1000)), LIFETIME_MS_MAX)
