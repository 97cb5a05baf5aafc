"""A folder of evidence: the report, and for each mutation its diff and its log."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from lastbus.proof.config import Project
from lastbus.proof.ledger import Ledger
from lastbus.proof.mutation import Unfit, apply, texts_of
from lastbus.proof.replay import Outcome, Result
from lastbus.proof.report.plain import to_json
from lastbus.proof.report.terminal import result_line


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
