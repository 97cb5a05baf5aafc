"""One run of the bench: all ways in turn, several rounds, on the same guinea pig."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lastbus.proof.bench.contest import Lap, floor, hangs, naive, replayed
from lastbus.proof.bench.guinea import Guinea, grow
from lastbus.proof.bench.rival import is_installed, mutmut
from lastbus.proof.bench.standings import Standings, stand

Tell = Callable[[str], None]


def bench(python: str, count: int, jobs: int, rounds: int, tell: Tell = lambda _: None) -> Standings:
    """Replay `count` mutations in every way, `rounds` times in turn, so that a busy minute hits all of them.

    Ways without a start-up worth naming are measured on the different mutations only: all others cost the same.
    mutmut runs once if it is installed, on mutants of its own.
    """
    with tempfile.TemporaryDirectory(prefix="lastbus-bench-") as folder:
        guinea = grow(Path(folder).resolve() / "pig", count)
        some = guinea.killable[: guinea.distinct]
        ways: dict[str, Callable[[], Lap]] = {
            "naive": partial(naive, guinea, some, python, jobs),
            "isolated": partial(replayed, guinea, some, python, jobs, isolated=True),
            "warm": partial(replayed, guinea, guinea.killable, python, jobs),
            "floor": partial(floor, guinea, guinea.killable, python, jobs),
        }
        laps: dict[str, list[Lap]] = {name: [] for name in ways}
        for number in range(rounds):
            for name in _in_turn(list(ways), number):
                tell(f"round {number + 1} of {rounds}: {name}")
                laps[name].append(ways[name]())
        if is_installed(python):
            tell("mutmut, once")
            laps["mutmut"] = [mutmut(guinea, python, jobs)]
        tell("traps and hangs")
        return stand(count, jobs, laps, hangs(guinea, python), _traps(guinea, python, jobs))


def _in_turn(names: list[str], number: int) -> list[str]:
    first = number % len(names)
    return names[first:] + names[:first]


def _traps(guinea: Guinea, python: str, jobs: int) -> dict[str, tuple[str, str]]:
    traps = list(guinea.traps.values())
    fooled = naive(guinea, traps, python, jobs).words
    said = replayed(guinea, traps, python, jobs).words
    return {trap.id: (fooled[trap.id], said[trap.id]) for trap in traps}
