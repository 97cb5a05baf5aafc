"""One outcome as plain data, for programs."""

from __future__ import annotations

from typing import Any

from lastbus.proof.replay import Outcome, Result


def to_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain data; every count in it is computed from its results.

    Keeps: MUT-08, MUT-11, MUT-60.
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
        "how": result.how,
        "reused": result.reused,
        "disagreement": result.disagreement,
        "seconds": round(result.seconds, 3),
    }
