"""Lines for people: what a replay met, and where a guarantee stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lastbus.proof.replay import EARLIER, Outcome, Result

if TYPE_CHECKING:
    from lastbus.proof.ledger import Ledger, Row


def result_line(result: Result) -> str:
    """One result on one line; what is not as expected says why and where, and two looks that differ are told.

    Keeps: MUT-27, MUT-60.
    """
    line = f"{result.verdict:<16} {result.mutation.id}"
    if result.disagreement:
        line += f" ({result.disagreement}: the isolated verdict counts)"
    if result.reused:
        line += f" ({EARLIER})"
    if result.mutation.canary and result.as_expected:
        return f"{line} (canary, as expected)"
    if result.as_expected:
        return line
    where = ", ".join(result.mutation.files)
    wanted = f", expected {result.mutation.expect}" if result.mutation.canary else ""
    return f"{line}{wanted}\n  {result.judgement.reason.strip()}\n  {result.mutation.source} -> {where}"


def summary_line(outcome: Outcome) -> str:
    """All verdicts with their counts, the canaries apart, the time, and the interpreter."""
    words = ", ".join(f"{count} {verdict}" for verdict, count in sorted(outcome.summary.items())) or "no mutations"
    canaries = ""
    if outcome.canaries:
        good = sum(result.as_expected for result in outcome.canaries)
        canaries = f"; canaries {good} of {len(outcome.canaries)} as expected"
    return f"{words}{canaries}; {outcome.wall_seconds:.1f} s on Python {outcome.python} with {outcome.jobs} job(s)"


def red_lines(outcome: Outcome) -> Iterator[str]:
    """What to say about a red baseline: every killer that failed on the unmutated tree."""
    yield "the baseline is red: these killers fail without any mutation, so nothing was replayed"
    for killer, message in outcome.baseline.red.items():
        yield f"  {killer}: {_first_line(message)}"


def row_lines(row: Row) -> Iterator[str]:
    """One guarantee in full: sentence, code, tests, mutations, last verdicts, and what is missing."""
    one = row.statement
    yield f"{one.id} {one.title} [{row.status}]"
    yield f"  {one.sentence}"
    if one.declared:
        yield f"  declared: {one.declared}"
    yield f"  document  {one.file}:{one.line}"
    for citation in row.code:
        yield f"  code      {citation}"
    for citation in row.tests:
        yield f"  test      {citation.file}:{citation.line} {citation.name}"
    for item in row.evidence:
        said = f"{item.entry.verdict}{'' if item.fresh else ' (stale)'}" if item.entry else "never replayed"
        yield f"  mutation  {item.mutation.source}: {said}"
    for reason in row.reasons:
        yield f"  missing   {reason}"


def ledger_line(ledger: Ledger) -> str:
    """How many guarantees have which status."""
    counts = {status: sum(row.status == status for row in ledger.rows) for status in ("pinned", "unpinned", "declared")}
    words = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"{len(ledger.rows)} guarantees: {words}; {len(ledger.errors)} errors"


def _first_line(message: str) -> str:
    return (message.strip().splitlines() or ["(no message)"])[0]
