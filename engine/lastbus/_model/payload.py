"""Payloads: what JSON can carry, in the one form in which every back end stores it.

Keeps: CORE-37.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def _prepare() -> Callable[[Any], str]:
    """The encoder's C part, made once: `JSONEncoder.encode` makes a new one for every call, which doubles the cost.

    Where there is none (it is CPython's own), the standard library's encoder does the same.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _ENCODER.encode
    escape = json.encoder.encode_basestring_ascii
    chunks = make(None, _ENCODER.default, escape, None, ":", ",", False, False, _ENCODER.allow_nan)
    return lambda value: "".join(chunks(value, 0))


encode: Final[Callable[[Any], str]] = _prepare()
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
