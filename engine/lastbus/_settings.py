"""Settings: the one table of what the environment may say, with default, unit and treatment of bad values."""

from __future__ import annotations

import logging
import math
import os
from typing import Final, NamedTuple

logger = logging.getLogger("lastbus.settings")


class Setting(NamedTuple):
    """One environment variable: its name, default, unit, and the smallest value that makes sense."""

    name: str
    default: float
    unit: str
    at_least: float

    def read(self) -> float:
        """The value in force: the default, with a WARNING, where the variable is no finite number or too small."""
        text = os.environ.get(self.name)
        if text is None or not text.strip():
            return self.default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and value >= self.at_least:
            return value
        logger.warning(
            "%s=%r is not a finite number of %s of at least %g; using %g",
            self.name,
            text,
            self.unit,
            self.at_least,
            self.default,
        )
        return self.default


EVENT_TTL: Final = Setting("PLAITA_EVENT_TTL_SECONDS", 604800, "seconds", 1)
EXPERIMENTAL_DB: Final = "PLAITA_ALLOW_EXPERIMENTAL_DB"


def experimental_db_allowed() -> bool:
    """Whether the environment unlocks the SQL back end: exactly `1` does.

    Keeps: CORE-31.
    """
    return os.environ.get(EXPERIMENTAL_DB) == "1"
