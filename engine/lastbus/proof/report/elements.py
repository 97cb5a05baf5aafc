"""A report in the mutation-testing-elements schema, which viewers and dashboards of other tools read.

Keeps: MUT-64.

The schema's words are fewer than ours. Its viewers count ``Timeout`` as detected and leave ``RuntimeError`` out of
the score, so a hang is a ``RuntimeError`` there: it proves nothing, whatever it is called. Our own word stands in
``statusReason``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from typing import Any, Final

from lastbus.proof.mutation import Mutation
from lastbus.proof.replay import EARLIER, Result
from lastbus.proof.report.account import Account
from lastbus.proof.verdict import Verdict

SCHEMA_VERSION: Final = "2"
STATUS: Final[dict[Verdict, str]] = {
    Verdict.KILLED: "Killed",
    Verdict.SURVIVED: "Survived",
    Verdict.ELSEWHERE: "Survived",
    Verdict.SUBFAILED_ONLY: "Survived",
    Verdict.FLAKY: "Survived",
    Verdict.HANG: "RuntimeError",
    Verdict.TIMEOUT: "RuntimeError",
    Verdict.IMPORT_ERROR: "RuntimeError",
    Verdict.COLLECT_ERROR: "RuntimeError",
    Verdict.SETUP_ERROR: "RuntimeError",
    Verdict.NOT_RUN: "RuntimeError",
    Verdict.ANCHOR_LOST: "CompileError",
    Verdict.ANCHOR_AMBIGUOUS: "CompileError",
    Verdict.NO_OP: "CompileError",
    Verdict.UNPARSABLE: "CompileError",
}
"""Only a kill is ``Killed``; a canary is ``Ignored``, because it is not there to be killed."""


def elements(account: Account) -> dict[str, Any]:
    """The account as the schema wants it: mutants by file, and the tests that may kill them.

    Keeps: MUT-64.
    """
    files: dict[str, Any] = {}
    for result in account.outcome.results:
        file = result.mutation.edits[0].file
        entry = files.setdefault(file, {"language": _language(file), "source": _source(account, file), "mutants": []})
        entry["mutants"].append(_mutant(result, entry["source"]))
    baseline = account.outcome.baseline
    return {
        "schemaVersion": SCHEMA_VERSION,
        "thresholds": {"high": 100, "low": 100},
        "files": files,
        "testFiles": _test_files(account),
        "framework": {"name": "lastbus", **_version()},
        "performance": {
            "setup": 0,
            "initialRun": round(baseline.wall_seconds * 1000),
            "mutation": round((account.outcome.wall_seconds - baseline.wall_seconds) * 1000),
        },
        "config": {"python": account.outcome.python, "jobs": account.outcome.jobs},
    }


def _version() -> dict[str, str]:
    """The version of the prover, unless it runs from a folder where nobody has installed it."""
    try:
        return {"version": metadata.version("lastbus")}
    except metadata.PackageNotFoundError:
        return {}


def status_of(result: Result) -> str:
    """The schema's word for what a mutation met.

    Keeps: MUT-64.
    """
    if result.mutation.canary and result.as_expected:
        return "Ignored"
    if result.mutation.canary and result.verdict is Verdict.KILLED:
        return "Survived"  # A dead canary is a fault of the rig; as a kill it would look like a success.
    return STATUS[result.verdict]


def _mutant(result: Result, source: str) -> dict[str, Any]:
    mutation = result.mutation
    reason = result.judgement.reason.strip()
    return {
        "id": mutation.id,
        "mutatorName": mutation.group,
        "description": _description(mutation),
        "replacement": mutation.edits[0].new,
        "location": _location(mutation, source),
        "status": status_of(result),
        "statusReason": ": ".join(filter(None, [_word(result), reason])),
        "coveredBy": list(mutation.killers),
        "killedBy": sorted(result.killed_by),
        "duration": round(result.seconds * 1000),
    }


def _word(result: Result) -> str:
    return f"{result.verdict} ({EARLIER})" if result.reused else str(result.verdict)


def _description(mutation: Mutation) -> str:
    """What it does, what it breaks, and the files of its further edits: a mutant has one place in the schema."""
    ids = f" [{', '.join(mutation.guarantees)}]" if mutation.guarantees else ""
    others = ", ".join(dict.fromkeys(edit.file for edit in mutation.edits[1:]))
    return f"{mutation.summary}{ids}" + (f" (further edits in {others})" if others else "")


def _location(mutation: Mutation, source: str) -> dict[str, dict[str, int]]:
    """Where the first edit stands; the first character of the file if its anchor is lost.

    Keeps: MUT-64.
    """
    old = mutation.edits[0].old
    start = max(source.find(old), 0)
    end = start + (len(old) if old in source else 0)
    return {"start": _position(source, start), "end": _position(source, end)}


def _position(source: str, offset: int) -> dict[str, int]:
    """Line and column of a character; both start at one.

    Keeps: MUT-64.
    """
    return {"line": source.count("\n", 0, offset) + 1, "column": offset - source.rfind("\n", 0, offset)}


def _test_files(account: Account) -> dict[str, Any]:
    """The killers by file, each with the line that it stands on if the ledger knows it."""
    lines = {f"{one.file}::{one.name}": one.line for row in account.ledger.rows for one in row.tests}
    files: dict[str, Any] = {}
    for killer in dict.fromkeys(_killers(account)):
        file, _, name = killer.partition("::")
        test: dict[str, Any] = {"id": killer, "name": name}
        line = lines.get(killer.split("[")[0])
        if line is not None:
            test["location"] = {"start": {"line": line, "column": 1}}
        files.setdefault(file, {"source": _source(account, file), "tests": []})["tests"].append(test)
    return files


def _killers(account: Account) -> Iterator[str]:
    for result in account.outcome.results:
        yield from result.mutation.killers


def _source(account: Account, file: str) -> str:
    path = account.project.root / file
    return account.project.read(file) if path.is_file() else ""


@lru_cache
def _language(file: str) -> str:
    return {"py": "python", "lua": "lua", "toml": "toml", "sql": "sql"}.get(file.rpartition(".")[2], "plain")
