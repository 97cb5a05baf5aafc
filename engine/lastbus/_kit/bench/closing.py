"""Closing: what a request to close costs beside many pending handlers, and how long a close outlasts its time-out.

The ratio is to the limit that is aimed at: a request within 1 ms, an end within 50 ms after the time-out when nothing
but handlers is late, and a look at whom the caller would wake within 100 µs, or 50 ms if it is 10 000 tasks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

from lastbus._bus import BaseBus
from lastbus._close.selfclose import wake_verdict
from lastbus._kit.bench.contenders import MakeBus
from lastbus._kit.bench.figures import Aim, Figure

SECTION: Final = "closing"
PENDING: Final = 10_000
LATE: Final = 1_000
REQUEST_SECONDS: Final = 0.001
OUTLAST_SECONDS: Final = 0.05
TIMEOUT_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 100e-6
LONG_LOOK_SECONDS: Final = 0.05
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
    for chain, limit in ((1, LOOK_SECONDS), (PENDING, LONG_LOOK_SECONDS)):
        look = min(asyncio.run(_look(chain)) for _ in range(rounds))
        name = f"whom a close would wake, {chain:,} {'task' if chain == 1 else 'tasks'}"
        yield Figure(SECTION, name, look * 1e3, "ms", look / limit, aim)


async def _look(chain: int) -> float:
    """Seconds of one clean walk from a task that so many tasks await, each the one before."""

    async def awaits(inner: asyncio.Future[None]) -> None:
        await inner

    caller: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    tasks: list[asyncio.Task[None]] = []
    for _ in range(chain):
        tasks.append(asyncio.create_task(awaits(tasks[-1] if tasks else caller)))
    await asyncio.sleep(0)
    begun = time.perf_counter()
    verdict = wake_verdict(caller, [])
    spent = time.perf_counter() - begun
    assert verdict.word == "clean"
    caller.set_result(None)
    await tasks[-1]
    return spent


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
