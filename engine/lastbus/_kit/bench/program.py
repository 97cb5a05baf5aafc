"""Program: the command line of the benchmark.

Exit codes: 0 everything that can be measured here was measured, whether or not an aim was met; 1 a bus ran more
handlers at once than its capacity; 2 usage; 3 the back end is not available here.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence
from typing import Final

from lastbus._kit.bench import capacity, closing, flatness, memory, publishing, throughput
from lastbus._kit.bench.backends import BACKENDS
from lastbus._kit.bench.contenders import MakeBus
from lastbus._kit.bench.cost import Unusable
from lastbus._kit.bench.figures import Report

SECTIONS: Final = ("throughput", "memory", "capacity", "flatness", "closing", "publishing")
EXCEEDED: Final = 1
UNAVAILABLE: Final = 3
EPILOG: Final = """example:
  python scripts/benchmark_event_bus.py --events 2000 --capacity 64

exit codes:
  0  measured, whether or not an aim was met
  1  a bus ran more handlers at once than its capacity
  2  usage
  3  the back end is not available here
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table (or JSON), and return the exit code."""
    asked = _parser().parse_args(argv)
    try:
        with BACKENDS[asked.backend]() as make_bus:
            report = _run(make_bus, asked)
    except Unusable as absence:
        print(f"back end {asked.backend}: {absence}")
        return UNAVAILABLE
    print(report.as_json() if asked.json else report.as_table())
    return EXCEEDED if _exceeded(report) else 0


def _run(make_bus: MakeBus, asked: argparse.Namespace) -> Report:
    report = Report(
        {
            "events": asked.events,
            "capacity": asked.capacity,
            "backend": asked.backend,
            "rounds": asked.rounds,
            "python": platform.python_version(),
        }
    )
    aimed = asked.backend == "memory"
    wanted = asked.section or SECTIONS
    if "throughput" in wanted:
        report.add(throughput.measure(make_bus, asked.events, asked.rounds, asked.rivals, aimed))
    if "memory" in wanted:
        report.add(memory.measure(make_bus, asked.events, aimed))
    if "capacity" in wanted and asked.capacity is not None:
        report.add(capacity.measure(make_bus, asked.events, asked.rounds, asked.capacity, aimed))
    if "flatness" in wanted:
        report.add(flatness.measure(make_bus, asked.events, asked.rounds, aimed))
    if "closing" in wanted and aimed:
        report.add(closing.measure(make_bus, asked.rounds, aimed))
    if "publishing" in wanted and asked.backend == "redis":
        report.add(publishing.measure(make_bus, asked.events, asked.rounds))
    return report


def _exceeded(report: Report) -> bool:
    return any(each.unit == capacity.IN_FLIGHT and each.verdict == "missed" for each in report.figures)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmark_event_bus.py",
        description="Measure what the bus costs beside bare tasks and other buses: CPU time, best of several rounds.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=_count, default=2000, metavar="N", help="events per sample (default: 2000)")
    parser.add_argument("--capacity", type=_count, metavar="M", help="compare an unlimited bus with one of capacity M")
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="memory", help="default: memory")
    parser.add_argument("--rounds", type=_count, default=5, metavar="R", help="the best of R counts (default: 5)")
    parser.add_argument("--section", action="append", choices=SECTIONS, help="only this one; may be repeated")
    parser.add_argument("--no-rivals", dest="rivals", action="store_false", help="leave the other buses out")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {count}")
    return count
