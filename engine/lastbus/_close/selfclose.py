"""Lineage: whether the running code descends from a handler of a certain bus.

A handler's context carries its bus; tasks that the handler starts inherit it. Stdlib only, so that this file can be
loaded by its path on any CPython.
"""

from __future__ import annotations

import contextvars
from typing import Final

IN_DISPATCH: Final[contextvars.ContextVar[object | None]] = contextvars.ContextVar("lastbus_in_dispatch", default=None)


def enter(bus: object) -> None:
    """Mark the current context as a handler's of `bus`; the context ends with the delivery's task."""
    IN_DISPATCH.set(bus)


def descends_from(bus: object) -> bool:
    """Whether the current context is, or was copied from, that of a handler of `bus`."""
    return IN_DISPATCH.get() is bus
