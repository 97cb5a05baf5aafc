"""Lineage: whether the running code descends from a handler of a certain bus.

A handler's context carries its bus; tasks that the handler starts inherit it. Stdlib only, so that this file can be
loaded by its path on any CPython.
"""

from __future__ import annotations

import contextvars
from typing import Final

IN_DISPATCH: Final[contextvars.ContextVar[object | None]] = contextvars.ContextVar("lastbus_in_dispatch", default=None)
"""The bus in whose handler the current context runs; every context that is copied from it says the same."""


def descends_from(bus: object) -> bool:
    """Whether the current context is, or was copied from, that of a handler of `bus`."""
    return IN_DISPATCH.get() is bus
