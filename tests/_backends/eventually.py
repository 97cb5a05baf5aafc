"""Eventually: ask a server again until it agrees.

Timing: a server notices a closed connection when it gets to it, and gives no signal that a test could wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

PAUSE_SECONDS: Final = 0.01
TRIES_MAX: Final = 200


async def eventually(holds: Callable[[], Awaitable[bool]], tries: int = TRIES_MAX) -> bool:
    """Whether `holds` within about two seconds, or as many tries; returns as soon as it does."""
    for _ in range(tries):
        if await holds():
            return True
        await asyncio.sleep(PAUSE_SECONDS)
    return False
