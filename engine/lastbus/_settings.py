"""Settings: the one table of what the environment may say, with default, unit and treatment of bad values.

`docs/SETTINGS.md` is written from it.
"""

from __future__ import annotations

import logging
import math
import os
from typing import Final, NamedTuple

logger = logging.getLogger("lastbus.settings")


class Setting(NamedTuple):
    """One environment variable that holds a number.

    Bad is what is no finite number of more than 0, what is less than `at_least`, and, for `whole`, what is a fraction.
    What is good but outside of `clamp` counts as the nearest end of it.
    """

    name: str
    meaning: str
    default: float
    unit: str
    at_least: float
    clamp: tuple[float, float]
    whole: bool = False

    def read(self) -> float:
        """The value in force: the default for a bad one, the nearest end for one outside of `clamp`, with a WARNING.

        Keeps: IDX-19.
        """
        text = os.environ.get(self.name)
        if text is None or not text.strip():
            return self.default
        value = self._number(text)
        if value is None:
            logger.warning("%s=%r is not %s; using %g", self.name, text, self.rule, self.default)
            return self.default
        low, high = self.clamp
        used = min(max(value, low), high)
        if used != value:
            logger.warning("%s=%r counts as %.15g: it is kept from %g to %.15g", self.name, text, used, low, high)
        return used

    @property
    def rule(self) -> str:
        """Which values are good, as a part of a sentence."""
        kind = "whole" if self.whole else "finite"
        bound = f"at least {self.at_least:g}" if self.at_least else "more than 0"
        return f"a {kind} number of {self.unit}, {bound}"

    def _number(self, text: str) -> float | None:
        """The number in `text`, or None for a bad one.

        Keeps: IDX-19.
        """
        try:
            value = float(text)
        except ValueError:
            return None
        if not math.isfinite(value) or value <= 0 or value < self.at_least:
            return None
        return None if self.whole and not value.is_integer() else value


class Switch(NamedTuple):
    """One environment variable that turns something on: exactly `1` does."""

    name: str
    meaning: str

    def is_on(self) -> bool:
        """Whether it is on. What is neither `1` nor `0` nor empty leaves it off, with a WARNING.

        Keeps: CORE-31.
        """
        text = os.environ.get(self.name, "")
        if text not in ("", "0", "1"):
            logger.warning("%s=%r is neither 1 nor 0; it stays off", self.name, text)
        return text == "1"


EVENT_TTL: Final = Setting(
    "PLAITA_EVENT_TTL_SECONDS",
    "life of events, of their marks and of the indexes over them; read when a store is made without `ttl`",
    default=604_800,
    unit="seconds",
    at_least=1,
    clamp=(1, 2**53 // 1000),
)
SWEEP_BUDGET: Final = Setting(
    "PLAITA_EVENT_INDEX_SWEEP_BUDGET",
    "index entries that the janitor examines in one tick, in each of the two stores; read when a bus starts",
    default=500,
    unit="entries",
    at_least=1,
    clamp=(1, 100_000),
    whole=True,
)
SWEEP_INTERVAL: Final = Setting(
    "PLAITA_EVENT_INDEX_SWEEP_INTERVAL",
    "pause between two ticks of the janitor; read when a bus starts",
    default=60,
    unit="seconds",
    at_least=0,
    clamp=(0.1, 86_400),
)
SWEEP_OFF: Final = Switch("PLAITA_DISABLE_EVENT_INDEX_SWEEP", "no bus has a janitor; a WARNING says so when one starts")
PRUNE_ON_WRITE_OFF: Final = Switch(
    "PLAITA_DISABLE_EVENT_INDEX_PRUNE_ON_WRITE",
    "the synchronous writer drops no index entries as it writes; read when a writer is made",
)
CATCH_UP: Final = Setting(
    "PLAITA_EVENT_CATCH_UP_SECONDS",
    "how old an event may be that a Redis bus makes up for; read when a bus is made without `catch_up`",
    default=3600,
    unit="seconds",
    at_least=1,
    clamp=(1, 2**53 // 1000),
)
CATCH_UP_OFF: Final = Switch("PLAITA_DISABLE_EVENT_CATCH_UP", "no bus makes up for events; read when a bus is made")
RECONCILE_INTERVAL: Final = Setting(
    "PLAITA_EVENT_RECONCILE_INTERVAL",
    "pause between two looks of the event reconciler; read when one is made without `interval`",
    default=300,
    unit="seconds",
    at_least=0,
    clamp=(0.1, 86_400),
)
RECONCILE_BACKFILL: Final = Setting(
    "PLAITA_EVENT_RECONCILE_BACKFILL",
    "how far back the first look of the event reconciler goes; read when one is made without `backfill_seconds`",
    default=3600,
    unit="seconds",
    at_least=1,
    clamp=(1, 2**53 // 1000),
)
EXPERIMENTAL_DB: Final = Switch("PLAITA_ALLOW_EXPERIMENTAL_DB", "the SQL back end may be made")

SETTINGS: Final = (EVENT_TTL, CATCH_UP, SWEEP_BUDGET, SWEEP_INTERVAL, RECONCILE_INTERVAL, RECONCILE_BACKFILL)
SWITCHES: Final = (SWEEP_OFF, PRUNE_ON_WRITE_OFF, CATCH_UP_OFF, EXPERIMENTAL_DB)
