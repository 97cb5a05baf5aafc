"""Cost: CPU time per event, measured in turns, so that a busy machine burdens everybody alike.

Wall time on a shared machine says how busy the others are. CPU time of this process says what the code costs; the best
of several rounds is the one that was disturbed least.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

SAMPLE_SECONDS_MAX: Final = 120.0

Sample = Callable[[], Awaitable[float]]


class Unusable(Exception):
    """A contender cannot be measured; the text says why."""


def interleaved(samples: Mapping[str, Sample], rounds: int) -> tuple[dict[str, float], dict[str, str]]:
    """The lowest result of each sample over `rounds` rounds, and the reasons of those that gave none.

    In each round every sample runs once, on a loop of its own. One that fails is not run again and gets no figure.
    """
    best: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for _ in range(rounds):
        for name, sample in samples.items():
            if name in reasons:
                continue
            try:
                result = asyncio.run(_bounded(sample))
            except Exception as error:  # Other people's buses fail in their own ways; the report names each.
                reasons[name] = _reason(error)
                best.pop(name, None)
            else:
                best[name] = min(result, best.get(name, result))
    return best, reasons


async def cpu_seconds(work: Callable[[], Awaitable[object]]) -> float:
    """The CPU time of this process while `work` runs; earlier garbage is not on its bill."""
    gc.collect()
    return await rough_cpu_seconds(work)


async def rough_cpu_seconds(work: Callable[[], Awaitable[object]]) -> float:
    """The same, whatever garbage there is: for an estimate."""
    start = time.process_time()
    await work()
    return time.process_time() - start


async def _bounded(sample: Sample) -> float:
    return await asyncio.wait_for(sample(), SAMPLE_SECONDS_MAX)


def _reason(error: Exception) -> str:
    if isinstance(error, Unusable):
        return str(error)
    if isinstance(error, asyncio.TimeoutError):
        return f"not done after {SAMPLE_SECONDS_MAX:g} s"
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]
