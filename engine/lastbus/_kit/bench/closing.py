"""Closing: what a request to close costs beside many pending handlers, and how long a close outlasts its time-out.

The ratio is to the limit that is aimed at: a request within 1 ms, and an end within 50 ms after the time-out when
nothing but handlers is late.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

from lastbus._bus import BaseBus
from lastbus._kit.bench.contenders import MakeBus
from lastbus._kit.bench.figures import Aim, Figure

SECTION: Final = "closing"
PENDING: Final = 10_000
LATE: Final = 1_000
REQUEST_SECONDS: Final = 0.001
OUTLAST_SECONDS: Final = 0.05
TIMEOUT_SECONDS: Final = 0.1
AIM: Final = Aim(high=1.0)


def measure(make_bus: MakeBus, rounds: int, aimed: bool) -> Iterator[Figure]:
    """The best of `rounds` for each; wall time, because somebody waits for it."""
    aim = AIM if aimed else None
    request = min(asyncio.run(_request(make_bus)) for _ in range(rounds))
    yield Figure(SECTION, f"request_close, {PENDING:,} pending", request * 1e3, "ms", request / REQUEST_SECONDS, aim)
    outlasts = min(asyncio.run(_outlasts(make_bus)) for _ in range(rounds))
    yield Figure(
        SECTION, f"close after its time-out, {LATE:,} late", outlasts * 1e3, "ms", outlasts / OUTLAST_SECONDS, aim
    )


async def _request(make_bus: MakeBus) -> float:
    async with _held(make_bus, PENDING) as bus:
        begun = time.perf_counter()
        bus.request_close()
        return time.perf_counter() - begun


async def _outlasts(make_bus: MakeBus) -> float:
    async with _held(make_bus, LATE, close_timeout=TIMEOUT_SECONDS) as bus:
        begun = time.perf_counter()
        await bus.close()
        return time.perf_counter() - begun - TIMEOUT_SECONDS


@asynccontextmanager
async def _held(make_bus: MakeBus, pending: int, **options: Any) -> AsyncIterator[BaseBus]:
    """A bus with so many handlers that wait; they are let go at the end. Their names are not logged meanwhile."""
    closing = logging.getLogger("lastbus.close")
    was_disabled, closing.disabled = closing.disabled, True
    opened = asyncio.Event()

    async def hold(event: object) -> None:
        await opened.wait()

    async with make_bus(**options) as bus:
        try:
            await bus.register_handler("job", hold)
            await bus.batch_publish(["job"] * pending)
            await asyncio.sleep(0)
            yield bus
        finally:
            opened.set()
            closing.disabled = was_disabled
