"""Alarm: one moment to come, by the bus's clock, and whether it has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lastbus._clock import Clock, Timer


class Alarm:
    """Off, set, or ringing until it is turned off; `wake` is called when it begins to ring.

    It rings once: a timer that set itself again would ring without end when a clock is moved far ahead.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None] | None = None) -> None:
        self.is_ringing = False
        self._clock: Final = clock
        self._wake: Final = wake
        self._timer: Timer | None = None

    @property
    def is_set(self) -> bool:
        """Whether it is going to ring."""
        return self._timer is not None

    def set(self, seconds: float) -> None:
        """Ring in so many seconds, unless it rings or is set already."""
        if not self.is_ringing and self._timer is None:
            self._timer = self._clock.call_later(seconds, self.ring)

    def ring(self) -> None:
        """Ring now."""
        self.off()
        self.is_ringing = True
        if self._wake is not None:
            self._wake()

    def off(self) -> None:
        """Neither ring nor be set."""
        self.is_ringing = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
