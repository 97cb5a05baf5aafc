"""Something to break: the canaries mutate this module to try the rig itself."""

from __future__ import annotations

import threading


def two() -> int:
    """Two, by one of the many ways to get there."""
    return 1 + 1


def wait() -> bool:
    """True, as soon as everything is done, which it is."""
    done = threading.Event()
    done.set()
    return done.wait()
