"""The standings: every way by its ratio to the naive one, and each target, met or missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from lastbus.proof.bench.contest import Hang, Lap

EACH_MIN: Final = 10.0
TOTAL_MIN: Final = 8.0
TOTAL_COUNT: Final = 100
FLOOR_MAX: Final = 2.0
HANG_SECONDS: Final = 1.0
HANG_FACTOR: Final = 10.0


@dataclass(frozen=True)
class Row:
    """One way: medians over the rounds, and how many times quicker than the naive way it is."""

    name: str
    tried: int
    """Over all rounds."""
    startup_seconds: float
    each_seconds: float
    each_ratio: float
    total_ratio: float
    """With the start-up, for as many mutations as the whole run has."""
    killed: int


@dataclass(frozen=True)
class Target:
    """A promise about ratios, what was measured, and whether that is good enough."""

    name: str
    measured: float
    bound: float
    met: bool


@dataclass(frozen=True)
class Standings:
    """The whole run, ready to be printed."""

    count: int
    jobs: int
    rounds: int
    rows: tuple[Row, ...]
    targets: tuple[Target, ...]
    traps: Mapping[str, tuple[str, str]]
    """For each trap what the naive way says and what a replay says."""

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)


def stand(
    count: int,
    jobs: int,
    laps: Mapping[str, Sequence[Lap]],
    hangs: Sequence[Hang],
    traps: Mapping[str, tuple[str, str]],
) -> Standings:
    """Medians, ratios and targets from what was measured. The way called `naive` is what others are compared with.

    Keeps: MUT-29.
    """
    base = median(lap.each_seconds for lap in laps["naive"])
    rows = tuple(_row(name, base, count, done) for name, done in laps.items() if all(lap.words for lap in done))
    return Standings(count, jobs, len(laps["naive"]), rows, tuple(_targets(count, laps, rows, hangs, traps)), traps)


def _row(name: str, base: float, count: int, laps: Sequence[Lap]) -> Row:
    each = median(lap.each_seconds for lap in laps)
    startup = median(lap.startup_seconds for lap in laps)
    words = [word for lap in laps for word in lap.words.values()]
    return Row(
        name=name,
        tried=len(words),
        startup_seconds=startup,
        each_seconds=each,
        each_ratio=base / each,
        total_ratio=base * count / (startup + each * count),
        killed=words.count("killed"),
    )


def _targets(
    count: int,
    laps: Mapping[str, Sequence[Lap]],
    rows: Sequence[Row],
    hangs: Sequence[Hang],
    traps: Mapping[str, tuple[str, str]],
) -> list[Target]:
    """Every target, whether it flatters or not. A ratio that needs many mutations is missed by a run of few.

    Keeps: MUT-29.
    """
    by_name = {row.name: row for row in rows}
    warm, floor = by_name["warm"], by_name["floor"]
    over = max(hang.seconds / max(HANG_SECONDS, HANG_FACTOR * hang.mapped_seconds) for hang in hangs)
    right = sum(name.rpartition("-")[0] == said for name, (_, said) in traps.items())
    words = [word for name in ("warm", "isolated") for lap in laps[name] for word in lap.words.values()]
    enough = count >= TOTAL_COUNT
    return [
        Target("warm, each mutation, times quicker than naive", warm.each_ratio, EACH_MIN, warm.each_ratio >= EACH_MIN),
        Target(
            f"warm, with start-up, {TOTAL_COUNT} mutations or more, times quicker than naive",
            warm.total_ratio,
            TOTAL_MIN,
            enough and warm.total_ratio >= TOTAL_MIN,
        ),
        _at_most("warm, times the floor (a fork and the killers)", warm.each_seconds / floor.each_seconds, FLOOR_MAX),
        _at_most("first look at a hang, of 1 s or 10 times its killers", over, 1.0),
        Target("traps told from kills", right, len(traps), right == len(traps)),
        Target("mutations killed, warm and isolated", words.count("killed"), len(words), set(words) == {"killed"}),
    ]


def _at_most(name: str, measured: float, bound: float) -> Target:
    return Target(name, measured, bound, measured <= bound)
