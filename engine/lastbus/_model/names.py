"""Names: which texts may stand for an event type or an id, on every back end alike.

A name is 1 to 512 bytes of UTF-8, holds something else than white space, no NUL and no lone surrogate. Any other
character is welcome: nothing in this package ever takes a key apart to find a name in it.
"""

from __future__ import annotations

from typing import Final

NAME_BYTES_MAX: Final = 512


def check_name(field: str, value: object) -> str:
    """Return `value` if it is a name; raise `ValueError` naming `field`, the value and the reason.

    Keeps: CORE-35.
    """
    if (
        type(value) is str
        and value.isascii()
        and 0 < len(value) <= NAME_BYTES_MAX
        and "\0" not in value
        and value.strip()
    ):
        return value
    reason = _refusal(value)
    if reason is not None:
        raise ValueError(f"{field} {reason}, got {_shown(value)}")
    assert isinstance(value, str)
    return value


def check_optional_name(field: str, value: object) -> str | None:
    """Like `check_name`, for a field that may be None."""
    return None if value is None else check_name(field, value)


def _refusal(value: object) -> str | None:
    if not isinstance(value, str):
        return "must be text"
    if not value.strip():
        return "must not be empty or blank"
    if "\0" in value:
        return "must not contain NUL"
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        return "must not contain a lone surrogate"
    return f"must be at most {NAME_BYTES_MAX} UTF-8 bytes" if size > NAME_BYTES_MAX else None


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
