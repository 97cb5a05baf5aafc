"""`bench`: what a replay costs, beside what it is compared with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastbus._commands.console import err, out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lastbus.proof.bench.standings import Standings

app = typer.Typer(help="Measurements, as ratios from one run.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measurements, as ratios from one run."""


@app.command(
    help="Replay the mutations of a generated project in several ways, in turn, and compare: naively (copy, edit, "
    "start pytest), isolated, warm, and the floor below which no fork can go; mutmut too, where it is installed. Says "
    "of every target whether it was met.\n\n"
    "Example: lastbus bench replay --mutations 100 --rounds 3\n\nExit codes: 0 measured, whatever was met · 2 usage."
)
def replay(
    mutations: Annotated[int, typer.Option("--mutations", "-n", min=1, help="How many mutations.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="How often every way has its turn.")] = 3,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many mutations run at once.")] = 1,
    python: Annotated[str, typer.Option("--python", help="The interpreter to run the tests with.")] = sys.executable,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file as JSON.")] = None,
) -> None:
    """Measure and print one table; `--json` keeps the figures."""
    from lastbus.proof.bench.run import bench as run

    standings = run(python, mutations, jobs, rounds, lambda step: err().print(step, style="dim"))
    if json_file is not None:
        json_file.write_text(json.dumps(standings.to_json(), indent=1) + "\n", encoding="utf-8")
    _print(standings)


def _print(standings: Standings) -> None:
    """A table on a terminal, plain lines elsewhere; the same words in both.

    Keeps: MUT-29.
    """
    title = f"{standings.count} mutations, {standings.jobs} job(s), {standings.rounds} round(s)"
    if sys.stdout.isatty():
        from rich.table import Table

        table = Table(title=title, title_justify="left")
        for head in HEADS:
            table.add_column(head, justify="left" if head == "way" else "right")
        for cells in _cells(standings):
            table.add_row(*cells)
        out().print(table)
    else:
        out().print(title)
        for cells in (HEADS, *_cells(standings)):
            out().print("  ".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True)))
    for trap, (naive, said) in standings.traps.items():
        out().print(f"trap {trap}: naive says {naive}, a replay says {said}")
    for target in standings.targets:
        out().print(f"{'met' if target.met else 'MISSED':<7}{target.name}: {target.measured:.4g} ({target.bound:.4g})")


HEADS = ("way", "start-up", "each", "times naive", "with start-up", "killed")
WIDTHS = (9, 9, 10, 12, 14, 9)


def _cells(standings: Standings) -> Iterator[tuple[str, ...]]:
    for row in standings.rows:
        yield (
            row.name,
            f"{row.startup_seconds:.2f} s",
            f"{row.each_seconds * 1000:.1f} ms",
            f"{row.each_ratio:.1f}",
            f"{row.total_ratio:.1f}",
            "-" if row.name == "floor" else f"{row.killed}/{row.tried}",
        )
