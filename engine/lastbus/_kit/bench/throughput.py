"""Throughput: CPU per event in a steady stream and in a burst, beside bare tasks and other buses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from lastbus._kit.bench.contenders import LASTBUS, RAW, RIVALS, Lastbus, MakeBus, Raw
from lastbus._kit.bench.cost import Sample, cpu_seconds, interleaved, rough_cpu_seconds
from lastbus._kit.bench.figures import Aim, Figure, Skipped
from lastbus._kit.bench.load import Contender, Tally, burst, steady

LOADS: Final = {"steady": steady, "burst": burst}
AIMS: Final = {("steady", 1): 0.35, ("steady", 10): 0.42, ("burst", 1): 0.45, ("burst", 10): 0.60}
WARM_UP_EVENTS: Final = 16
SAMPLE_CPU_SECONDS: Final = 0.25
"""A rival whose warm-up says that it needs longer gets fewer events, and its figure says how many.

The bus and the bare tasks that it is compared with always run the same number: the longer a burst is, the more each
event of it costs.
"""


def measure(make_bus: MakeBus, events: int, rounds: int, rivals: bool, aimed: bool) -> Iterator[Figure | Skipped]:
    """Figures of every contender under every load; the ratio is how much of a bare task's speed is left."""
    contenders: dict[str, Callable[[], Contender]] = {RAW: Raw, LASTBUS: lambda: Lastbus(make_bus)}
    if rivals:
        contenders.update(RIVALS)
    for load, handlers in AIMS:
        section = f"{load}, {handlers} handler{'s' if handlers > 1 else ''}"
        least = dict.fromkeys(contenders, events)
        samples = {name: _sample(name, make, load, handlers, least) for name, make in contenders.items()}
        seconds, reasons = interleaved(samples, rounds)
        for name, cost in seconds.items():
            ratio = seconds[RAW] / cost if RAW in seconds and cost else None
            aim = Aim(low=AIMS[load, handlers]) if aimed and name == LASTBUS else None
            note = f"{least[name]} events" if least[name] < events else ""
            yield Figure(section, name, cost * 1e6, "us/event", ratio, aim, note)
        for name, reason in reasons.items():
            yield Skipped(section, name, reason)


def _sample(name: str, make: Callable[[], Contender], load: str, handlers: int, least: dict[str, int]) -> Sample:
    """A sample that starts from the events that `least` grants to `name`, and lowers them to what it can afford."""

    async def sample() -> float:
        contender, tally = make(), Tally()
        await contender.open(tally.handlers(handlers))
        try:
            warm_up = await rough_cpu_seconds(lambda: LOADS[load](contender, tally, WARM_UP_EVENTS, handlers))
            if name in RIVALS:
                least[name] = _affordable(least[name], warm_up / WARM_UP_EVENTS)
            count = least[name]
            return await cpu_seconds(lambda: LOADS[load](contender, tally, count, handlers)) / count
        finally:
            await contender.close()

    return sample


def _affordable(events: int, seconds_each: float) -> int:
    """How many of `events` fit into the time of one sample, at least as many as the warm-up had."""
    fit = int(SAMPLE_CPU_SECONDS / seconds_each) if seconds_each else events
    return min(events, max(fit, WARM_UP_EVENTS))
