"""Flatness: an event costs the same however many are stored, and however many patterns it does not match."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

from lastbus._kit.bench.contenders import Lastbus, MakeBus
from lastbus._kit.bench.cost import cpu_seconds
from lastbus._kit.bench.figures import Aim, Figure, Skipped
from lastbus._kit.bench.load import Tally, steady

AIM: Final = Aim(low=0.8, high=1.2)
STORED_MAX: Final = 100_000
STORED_FEW: Final = 1_000
PATTERNS: Final = 1_000


def measure(make_bus: MakeBus, events: int, rounds: int, aimed: bool) -> Iterator[Figure | Skipped]:
    """Two pairs of buses; the ratio is the loaded one's cost to the light one's."""
    few = min(events, STORED_FEW)
    many = min(100 * few, STORED_MAX)
    yield from _pair(make_bus, "stored events", (few, many), (1, 1), min(events, few), rounds, aimed)
    yield from _pair(make_bus, "unrelated patterns", (0, 0), (1, PATTERNS), events, rounds, aimed)


def _pair(
    make_bus: MakeBus,
    what: str,
    stored: tuple[int, int],
    patterns: tuple[int, int],
    events: int,
    rounds: int,
    aimed: bool,
) -> Iterator[Figure]:
    sizes = stored if stored[0] else patterns
    light, loaded = asyncio.run(_costs(make_bus, stored, patterns, events, rounds))
    section = f"flatness, {what}"
    yield Figure(section, f"{sizes[0]:,}", light * 1e6, "us/event", 1.0)
    yield Figure(section, f"{sizes[1]:,}", loaded * 1e6, "us/event", loaded / light, AIM if aimed else None)


async def _costs(
    make_bus: MakeBus, stored: tuple[int, int], patterns: tuple[int, int], events: int, rounds: int
) -> tuple[float, float]:
    """The best cost per event of a light and of a loaded bus, measured in turns."""
    async with (
        _loaded(make_bus, stored[0], patterns[0]) as (light, light_tally),
        _loaded(make_bus, stored[1], patterns[1]) as (loaded, loaded_tally),
    ):
        # What is stored now is not the measured events' garbage: let no collection look at it again.
        gc.freeze()
        try:
            pairs = [
                (await _cost(light, light_tally, events), await _cost(loaded, loaded_tally, events))
                for _ in range(rounds)
            ]
        finally:
            gc.unfreeze()
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


async def _cost(contender: Lastbus, tally: Tally, events: int) -> float:
    return await cpu_seconds(lambda: steady(contender, tally, events, handlers=1)) / events


@asynccontextmanager
async def _loaded(make_bus: MakeBus, stored: int, patterns: int) -> AsyncIterator[tuple[Lastbus, Tally]]:
    contender, tally = Lastbus(make_bus), Tally()
    await contender.open(tally.handlers(1))
    for number in range(patterns):
        await contender.bus.register_handler(f"elsewhere.{number}.*", _never)
    try:
        await steady(contender, tally, stored, handlers=1)
        yield contender, tally
    finally:
        await contender.close()


async def _never(event: Any) -> None:
    raise AssertionError(f"a handler of another pattern got {event!r}")
