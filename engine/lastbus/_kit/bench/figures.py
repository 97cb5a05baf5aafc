"""Figures: one measured value each, with what it is compared to and what was aimed at; as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

CAVEAT: Final = "Ratios of one run on one machine: they compare, and promise nothing about production."
HEADINGS: Final = ("value", "ratio", "aim", "")


@dataclass(frozen=True)
class Aim:
    """A ratio to reach: at least `low`, at most `high`."""

    low: float | None = None
    high: float | None = None

    def is_met(self, ratio: float) -> bool:
        """Whether `ratio` lies within."""
        return (self.low is None or ratio >= self.low) and (self.high is None or ratio <= self.high)

    def __str__(self) -> str:
        bounds = (f">= {self.low:g}" if self.low is not None else "", f"<= {self.high:g}" if self.high else "")
        return " and ".join(filter(None, bounds))


@dataclass(frozen=True)
class Figure:
    """`value` in `unit`; `ratio` compares it to the figure that its section names."""

    section: str
    name: str
    value: float
    unit: str
    ratio: float | None = None
    aim: Aim | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """`met` or `missed`; empty without an aim."""
        if self.aim is None or self.ratio is None:
            return ""
        return "met" if self.aim.is_met(self.ratio) else "missed"

    def row(self) -> tuple[str, ...]:
        """The figure as cells of the table."""
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        aim = "" if self.aim is None else str(self.aim)
        name = f"{self.name} ({self.note})" if self.note else self.name
        return (name, f"{self.value:,.4g} {self.unit}", ratio, aim, self.verdict)


@dataclass(frozen=True)
class Skipped:
    """Something that was not measured, and why."""

    section: str
    name: str
    reason: str


@dataclass
class Report:
    """What one run has found, in the order in which it was found."""

    facts: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, found: Iterable[Figure | Skipped]) -> None:
        """Take in what a section found."""
        for each in found:
            if isinstance(each, Figure):
                self.figures.append(each)
            else:
                self.skipped.append(each)

    def as_json(self) -> str:
        """Everything, for programs."""
        figures = [
            {**asdict(each), "aim": None if each.aim is None else str(each.aim), "verdict": each.verdict}
            for each in self.figures
        ]
        skipped = [asdict(each) for each in self.skipped]
        return json.dumps({**self.facts, "figures": figures, "skipped": skipped, "caveat": CAVEAT}, indent=2)

    def as_table(self) -> str:
        """Everything, for people: one aligned table, a heading for each section."""
        heads = {each.section: (each.section, *HEADINGS) for each in self.figures}
        rows = [*heads.values(), *(each.row() for each in self.figures)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [", ".join(f"{name} {value}" for name, value in self.facts.items() if value is not None)]
        for section, head in heads.items():
            lines += ["", _aligned(head, widths)]
            lines += [_aligned(each.row(), widths) for each in self.figures if each.section == section]
        if self.skipped:
            lines += ["", "Not measured:"]
            lines += [f"  {each.section}: {each.name}: {each.reason}" for each in self.skipped]
        return "\n".join([*lines, "", CAVEAT])


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    text = "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])
    return text.rstrip()
