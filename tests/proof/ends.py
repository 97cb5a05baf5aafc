"""Whether processes of other parents have ended, even if nobody has asked for their status yet.

Timing: nobody is told of the end of such a process, so it is looked at again and again.
"""

from __future__ import annotations

import time

import psutil

GLANCE_SECONDS = 0.005


def gone(pid: int) -> bool:
    """Whether the process has ended; a zombie has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ends(pid: int, seconds: float = 10.0) -> bool:
    """Whether the process ends by itself in time."""
    end = time.monotonic() + seconds
    while not gone(pid):
        if time.monotonic() > end:
            return False
        time.sleep(GLANCE_SECONDS)
    return True
