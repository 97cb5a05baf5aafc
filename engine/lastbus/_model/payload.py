"""Payloads: what JSON can carry, in the one form in which every back end stores it.

Keeps: CORE-37.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

encode: Final[Callable[[Any], str]] = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
"""`value` as ASCII JSON text, nan and inf refused; raises `TypeError`, `ValueError` or `RecursionError`."""


def as_json(field: str, value: Any) -> Any:
    """`value` as it comes back from JSON, so that a store in memory keeps what every other store would.

    `ValueError` naming `field` for what JSON cannot carry.

    Keeps: CORE-37.
    """
    try:
        return json.loads(encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{field} cannot be stored as JSON: {error}") from error
