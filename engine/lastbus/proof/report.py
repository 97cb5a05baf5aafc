"""Reports: one outcome as JSON, as lines for people, and as a folder of evidence."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lastbus.proof.config import Project
from lastbus.proof.ledger import Ledger, Row
from lastbus.proof.mutation import Unfit, apply, texts_of
from lastbus.proof.replay import Outcome, Result


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain data; every count in it is computed from its results.

    Keeps: MUT-08, MUT-11.
    """
    baseline = outcome.baseline
    return {
        "python": outcome.python,
        "jobs": outcome.jobs,
        "wall_seconds": round(outcome.wall_seconds, 3),
        "baseline": {
            "tests": len(baseline.carries),
            "wall_seconds": round(baseline.wall_seconds, 3),
            "red": baseline.red,
            "unstable": baseline.unstable,
            "absent": baseline.absent,
        },
        "results": [_result(result) for result in outcome.results],
        "summary": outcome.summary,
        "canaries": {
            "as_expected": sum(result.as_expected for result in outcome.canaries),
            "total": len(outcome.canaries),
        },
    }


def _result(result: Result) -> dict[str, Any]:
    return {
        "id": result.mutation.id,
        "guarantees": list(result.mutation.guarantees),
        "verdict": str(result.verdict),
        "expect": result.mutation.expect,
        "killers": list(result.mutation.killers),
        "killed_by": {killer: list(ids) for killer, ids in result.killed_by.items()},
        "reason": result.judgement.reason,
        "seconds": round(result.seconds, 3),
    }


def result_line(result: Result) -> str:
    """One result on one line; what is not as expected says why and where."""
    line = f"{result.verdict:<16} {result.mutation.id}"
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


def write_evidence(folder: Path, project: Project, outcome: Outcome, ledger: Ledger) -> None:
    """Fill `folder` with report.json and, for each mutation, its diff, its verdict and what pytest printed."""
    folder.mkdir(parents=True, exist_ok=True)
    for result in outcome.results:
        place = folder / result.mutation.id
        place.mkdir(exist_ok=True)
        (place / "mutation.diff").write_text(diff(project, result), encoding="utf-8")
        (place / "verdict.txt").write_text(result_line(result) + "\n", encoding="utf-8")
        (place / "pytest.log").write_text(result.log, encoding="utf-8")
    body = {
        **to_json(outcome),
        "ledger": [row.to_json() for row in ledger.rows],
        "errors": ledger.errors,
    }
    (folder / "report.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def diff(project: Project, result: Result) -> str:
    """The mutation as a unified diff; empty if it cannot be put in."""
    texts = texts_of(project, result.mutation)
    try:
        mutated = apply(result.mutation.edits, texts)
    except Unfit:
        return ""
    return "".join(
        line
        for file, text in mutated.items()
        for line in difflib.unified_diff(
            texts[file].splitlines(keepends=True), text.splitlines(keepends=True), f"a/{file}", f"b/{file}"
        )
    )


def _first_line(message: str) -> str:
    return (message.strip().splitlines() or ["(no message)"])[0]
