"""Memory: what one handler that has begun and not ended keeps alive, all told, event and records included."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, Final

from lastbus._kit.bench.contenders import LASTBUS, RAW, Lastbus, MakeBus, Raw
from lastbus._kit.bench.figures import Aim, Figure, Skipped
from lastbus._kit.bench.load import Contender, Handle, Tally

AIM: Final = Aim(high=1.7)
EVENTS_MAX: Final = 1000
HANDLERS: Final = (1, 10)


def measure(make_bus: MakeBus, events: int, aimed: bool) -> Iterator[Figure | Skipped]:
    """Bytes per pending handler; the ratio is how many times a bare task's they are."""
    count = min(events, EVENTS_MAX)
    for handlers in HANDLERS:
        section = f"memory, {handlers} handler{'s' if handlers > 1 else ''}"
        raw = asyncio.run(_bytes_per_handler(Raw, count, handlers))
        yield Figure(section, RAW, raw, "B/handler", 1.0)
        ours = asyncio.run(_bytes_per_handler(lambda: Lastbus(make_bus), count, handlers))
        yield Figure(section, LASTBUS, ours, "B/handler", ours / raw, AIM if aimed else None)


async def _bytes_per_handler(make: Callable[[], Contender], events: int, handlers: int) -> float:
    contender, tally, gate = make(), Tally(), asyncio.Event()
    await contender.open([_stop_at(gate, tally) for _ in range(handlers)])
    try:
        await _fill(contender, tally, 1, handlers)
        tracemalloc.start()
        before = _traced_bytes()
        await _fill(contender, tally, events, handlers)
        grown = _traced_bytes() - before
    finally:
        tracemalloc.stop()
        gate.set()
        await contender.close()
    return grown / (events * handlers)


async def _fill(contender: Contender, tally: Tally, events: int, handlers: int) -> None:
    target = tally.handled + events * handlers
    for number in range(events):
        await contender.publish(number)
    await tally.reaches(target)


def _stop_at(gate: asyncio.Event, tally: Tally) -> Handle:
    async def handle(_: Any) -> None:
        tally.count()
        await gate.wait()

    return handle


def _traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
