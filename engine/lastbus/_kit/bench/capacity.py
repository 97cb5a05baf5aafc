"""Capacity: an unlimited bus beside one with `max_pending_callbacks`, and the most handlers that ran at once on each.

The maximum is what the handlers themselves have counted, not what the bus says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from lastbus._kit.bench.contenders import Lastbus, MakeBus
from lastbus._kit.bench.cost import Sample, cpu_seconds, interleaved
from lastbus._kit.bench.figures import Aim, Figure, Skipped
from lastbus._kit.bench.load import Tally, burst, steady

AIM: Final = Aim(high=1.10)
IN_FLIGHT: Final = "handlers at once"


def measure(make_bus: MakeBus, events: int, rounds: int, capacity: int, aimed: bool) -> Iterator[Figure | Skipped]:
    """The maxima of one burst in both modes, then what setting a capacity costs when nobody has to wait for it."""
    section = f"capacity {capacity}, burst of {events}"
    modes = {"unlimited": None, "bounded": capacity}
    for mode, limit in modes.items():
        most = asyncio.run(most_at_once(make_bus, events, limit))
        aim = Aim(high=1.0) if limit is not None else None
        yield Figure(section, mode, most, IN_FLIGHT, most / capacity, aim)
    samples = {mode: _steady(make_bus, events, limit) for mode, limit in modes.items()}
    seconds, reasons = interleaved(samples, rounds)
    for mode, cost in seconds.items():
        aim = AIM if mode == "bounded" and aimed else None
        yield Figure("capacity, steady", mode, cost * 1e6, "us/event", cost / seconds["unlimited"], aim)
    for mode, reason in reasons.items():
        yield Skipped("capacity, steady", mode, reason)


async def most_at_once(make_bus: MakeBus, events: int, capacity: int | None) -> int:
    """The most handlers that ran at once while `events` were published as fast as the bus takes them.

    Keeps: CAP-23.
    """
    contender, tally = Lastbus(make_bus, max_pending_callbacks=capacity), Tally()
    await contender.open([tally.watch])
    try:
        await burst(contender, tally, events, handlers=1)
    finally:
        await contender.close()
    return tally.running_max


def _steady(make_bus: MakeBus, events: int, capacity: int | None) -> Sample:
    async def sample() -> float:
        contender, tally = Lastbus(make_bus, max_pending_callbacks=capacity), Tally()
        await contender.open(tally.handlers(1))
        try:
            return await cpu_seconds(lambda: steady(contender, tally, events, handlers=1)) / events
        finally:
            await contender.close()

    return sample
