"""Retry policy: how often a failing handler is called again, and how long the bus waits in between."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field


class RetryPolicy(BaseModel):
    """`max_retries=N` means up to N more calls after the first; delays are in seconds.

    The delay before retry n (counted from 0) is `initial_delay * backoff_factor ** n`, never more than `max_delay`.
    Negative, nan and infinite values are refused with a `ValidationError` (a `ValueError`).

    Keeps: CORE-18.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="forbid")

    max_retries: int = Field(default=3, ge=0, strict=True)
    initial_delay: float = Field(default=1.0, ge=0)
    backoff_factor: float = Field(default=2.0, ge=0)
    max_delay: float = Field(default=60.0, ge=0)

    def delay(self, retry: int) -> float:
        """Seconds to wait before retry number `retry`, counted from 0; never more than `max_delay`.

        Keeps: CORE-19.
        """
        try:
            growth = self.backoff_factor**retry
        except OverflowError:  # A power too large for a float is past any cap, unless it multiplies nothing.
            growth = math.inf
        return min(self.initial_delay * growth, self.max_delay) if self.initial_delay else 0.0
