"""Merging: the reports of all shards as the one outcome that a replay of everything would have had.

Keeps: MUT-48, MUT-54.

A report of a replay says what it was a replay of. What does not belong together is refused by name, because a merge
that is green while a shard is missing would be worse than no merge.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from lastbus.proof.baseline import Baseline
from lastbus.proof.basis import Tree
from lastbus.proof.config import Project
from lastbus.proof.errors import UsageError
from lastbus.proof.history import Replayed
from lastbus.proof.mutation import Mutation, load_all
from lastbus.proof.replay import Outcome, Result
from lastbus.proof.revisions import head
from lastbus.proof.shard import Shard
from lastbus.proof.verdict import Judgement, Verdict

SAME: Final = {
    "catalogue": "of another catalogue of mutations",
    "tree": "of another revision of the code or the tests",
    "selected": "of another selection of mutations",
    "python": "of another interpreter",
    "total": "of another number of shards",
}
"""What reports must agree on, and what to say of one that does not; the first difference is told."""
Report = Mapping[str, Any]


@dataclass
class Merged(Replayed):
    """What the shards found together, and the `first` of their reports, which says what all of them replayed."""

    first: Report = field(default_factory=dict)


def run_facts(
    project: Project, selected: Sequence[Mutation], catalogue: Sequence[Mutation], shard: Shard | None
) -> dict[str, Any]:
    """What a replay of `selected` is a replay of, as its report says under ``run``. Taken before it begins.

    Keeps: MUT-48.
    """
    tree = Tree(project)
    files = project.files((*project.code, *project.tests, *project.helpers), ".py")
    return {
        "commit": head(project),
        "tree": _digest(f"{file} {tree.digest(file)}" for file in (*files, "pyproject.toml")),
        "catalogue": _digest(mutation.text for mutation in catalogue),
        "selected": _digest(sorted(mutation.id for mutation in selected)),
        "shard": str(shard) if shard else None,
    }


def _digest(parts: Any) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def read(path: Path) -> Report:
    """The report in a file; `UsageError` if it is none of a shard.

    Keeps: MUT-48.
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        shard = Shard.parse(str(body["run"]["shard"]))
        facts = {name: body["run"][name] for name in ("catalogue", "tree", "selected")}
        facts = {**facts, "python": body["python"], "total": shard.total}
        return {**body, "file": str(path), "shard": shard, "facts": facts}
    except (OSError, ValueError, KeyError, TypeError, UsageError) as error:
        raise UsageError(
            f"{path} is no report of a shard ({error}): make one with `lastbus replay --shard K/N --json FILE`"
        ) from error


def merge(paths: Sequence[Path]) -> Merged:
    """What the shards in `paths` found together; `UsageError` if they are not all shards of one replay.

    Each report is read once.

    Keeps: MUT-48.
    """
    reports = sorted(map(read, paths), key=lambda report: report["shard"].number)
    _refuse_strangers(reports)
    _refuse_gaps(reports)
    red = {killer: why for report in reports for killer, why in report["baseline"]["red"].items()}
    results = [_result(body) for report in reports for body in report["results"]]
    if not red:
        _refuse_overlaps(reports)
    outcome = Outcome(
        python=reports[0]["python"],
        jobs=sum(report["jobs"] for report in reports),
        baseline=Baseline(red=red),
        results=[] if red else sorted(results, key=lambda result: result.mutation.id),
        wall_seconds=max(report["wall_seconds"] for report in reports),
    )
    disagreements = [line for report in reports for line in report["run"].get("disagreements", ())]
    reused = sum(report["run"].get("reused", 0) for report in reports)
    return Merged(outcome, reused, [], disagreements, reports[0])


def at_home(project: Project, done: Merged) -> None:
    """Give the results of `done` their mutations as `project` has them, so that it can be reported in full.

    `UsageError` if the shards replayed another catalogue, other code or other tests.
    Keeps: MUT-54.
    """
    catalogue = load_all(project)
    here = run_facts(project, (), catalogue, None)
    there = done.first["facts"]
    for fact in ("catalogue", "tree"):
        if here[fact] != there[fact]:
            raise UsageError(f"{done.first['file']} is {SAME[fact]} than this checkout: check out what was replayed")
    known = {mutation.id: mutation for mutation in catalogue}
    done.outcome.results = [replace(result, mutation=known[result.mutation.id]) for result in done.outcome.results]


def _refuse_strangers(reports: Sequence[Report]) -> None:
    """Every report is of the same catalogue, code, selection, interpreter and number of shards.

    Keeps: MUT-48.
    """
    first = reports[0]
    for report in reports[1:]:
        for fact, words in SAME.items():
            if report["facts"][fact] != first["facts"][fact]:
                raise UsageError(f"{report['file']} is {words} than {first['file']}: replay all shards of one checkout")


def _refuse_gaps(reports: Sequence[Report]) -> None:
    """Every shard is there, once.

    Keeps: MUT-48.
    """
    seen: dict[int, str] = {}
    for report in reports:
        number = report["shard"].number
        if number in seen:
            raise UsageError(f"shard {report['shard']} is there twice: {seen[number]} and {report['file']}")
        seen[number] = report["file"]
    total = reports[0]["shard"].total
    missing = [str(Shard(number, total)) for number in range(1, total + 1) if number not in seen]
    if missing:
        raise UsageError(f"incomplete: shard {', '.join(missing)} is missing")


def _refuse_overlaps(reports: Sequence[Report]) -> None:
    """Every selected mutation has a result, and only one.

    Keeps: MUT-48.
    """
    owner: dict[str, str] = {}
    for report in reports:
        for result in report["results"]:
            if result["id"] in owner:
                raise UsageError(f"{result['id']} is in {owner[result['id']]} and in {report['file']}: shards overlap")
            owner[result["id"]] = report["file"]
    if _digest(sorted(owner)) != reports[0]["facts"]["selected"]:
        raise UsageError("incomplete: the results are not those of all mutations that were selected")


def _result(body: Report) -> Result:
    """A result as its report tells it, on as much of its mutation as that holds."""
    mutation = Mutation(
        id=body["id"],
        group="",
        guarantees=tuple(body["guarantees"]),
        summary="",
        edits=(),
        killers=tuple(body["killers"]),
        source=body["id"],
        text="",
        expect=body["expect"],
    )
    killed_by = {killer: tuple(ids) for killer, ids in body["killed_by"].items()}
    judgement = Judgement(Verdict(body["verdict"]), body["reason"], killed_by)
    return Result(
        mutation,
        judgement,
        body["seconds"],
        reused=body.get("reused", False),
        how=body.get("how", ""),
        disagreement=body.get("disagreement", ""),
    )
