"""`replay` and `prove`: mutations against the tests, and the exit code that gates on them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastbus._commands.console import err, out, progress
from lastbus._commands.frozen import frozen_checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lastbus.proof.config import Project
    from lastbus.proof.history import Replayed, Use
    from lastbus.proof.ledger import Ledger
    from lastbus.proof.mutation import Mutation
    from lastbus.proof.replay import Outcome

app = typer.Typer()

Groups = Annotated[
    list[str] | None, typer.Option("--group", "-g", help="A guarantee family (CORE) or a mutation folder; repeatable.")
]
Python = Annotated[str, typer.Option("--python", help="The interpreter to run the tests with.")]
CPUS = os.cpu_count() or 1
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many mutations run at once.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the outcome to this file as JSON.")]
ReportFolder = Annotated[
    Path | None, typer.Option("--report", help="Fill this folder: index.html, files for programs, and the evidence.")
]
Isolated = Annotated[bool, typer.Option("--isolated", help="A new process per run instead of a fork: slower.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--changed-since",
        metavar="REV",
        help="Only mutations whose file, anchored function or killers changed since REV, or are not committed yet.",
    ),
]
ShardOf = Annotated[
    str | None, typer.Option("--shard", metavar="K/N", help="Only the K-th of N parts; `lastbus merge` adds them up.")
]
Fresh = Annotated[
    bool | None,
    typer.Option(
        "--fresh/--reuse",
        help="Replay all, or only what could have changed since its last verdict. Default: --fresh in CI (CI is set) "
        "and with --report, --confirm or --isolated, else --reuse.",
        show_default=False,
    ),
]
Audit = Annotated[int, typer.Option("--audit", min=0, help="Replay so many of the verdicts that could be reused.")]
Confirm = Annotated[
    int, typer.Option("--confirm", min=0, help="Repeat each kill so many times, mutated and not: flaky ones show.")
]
Seed = Annotated[int | None, typer.Option("--audit-seed", help="Draw the sample of an audit again.")]

EXITS = (
    "\n\nExit codes: 0 all as expected · 1 a survivor or the wrong killer · 2 usage · 3 red baseline · "
    "4 invalid mutation · 5 hang or time-out · 6 an audit found a reused verdict wrong."
)


@app.command(
    help="Replay mutations: each must make its mapped tests fail.\n\n"
    "Example: lastbus replay --group CORE --jobs 2" + EXITS
)
def replay(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Mutation or guarantee ids; globs allowed. None: all.")
    ] = None,
    group: Groups = None,
    changed_since: Since = None,
    shard: ShardOf = None,
    python: Python = sys.executable,
    jobs: Jobs = CPUS,
    json_file: JsonFile = None,
    report: ReportFolder = None,
    isolated: Isolated = False,
    fresh: Fresh = None,
    audit: Audit = 0,
    audit_seed: Seed = None,
    confirm: Confirm = 0,
) -> None:
    """Replay the chosen mutations, or all; the exit code is the verdict.

    Keeps: MUT-44, MUT-46, MUT-47.
    """
    from lastbus.proof.config import Project
    from lastbus.proof.history import Use
    from lastbus.proof.mutation import load_all, select
    from lastbus.proof.shard import Shard

    if report is not None:
        from lastbus.proof.report import refuse_foreign

        refuse_foreign(report)
    use = Use.chosen(fresh, audit, audit_seed, report is not None or isolated or confirm > 0, os.environ)
    part = Shard.parse(shard) if shard else None
    project = Project.load()
    catalogue = load_all(project)
    selected = select(catalogue, ids or (), group or ())
    if changed_since is not None:
        from lastbus.proof import changes

        selected = changes.since(project, changed_since, selected)
        if not selected:
            out().print(f"nothing to replay: no mutation, anchored function or killer changed since {changed_since}")
    facts = {}
    if json_file is not None:
        from lastbus.proof.merge import run_facts

        facts = run_facts(project, selected, catalogue, part)
    mutations = part.of(selected) if part and selected else selected
    done = _replayed(project, mutations, python, jobs, isolated, use, confirm)
    if json_file is not None:
        write_json(json_file, done, facts)
    if report is not None or _on_github():
        from lastbus.proof import ledger

        _reported(project, done.outcome, ledger.read(project), report)
    raise typer.Exit(done.exit_code)


@app.command(
    help="Add up the reports of all shards of one replay. One that is missing, there twice, or of another catalogue, "
    "revision, selection or interpreter is refused. A report needs a checkout of what was replayed.\n\n"
    "Example: lastbus merge shard-1.json shard-2.json shard-3.json --report proof-report" + EXITS
)
def merge(
    reports: Annotated[list[Path], typer.Argument(metavar="REPORT...", help="What `replay --shard --json` wrote.")],
    json_file: JsonFile = None,
    report: ReportFolder = None,
) -> None:
    """The exit code is that of the replay which the shards are parts of.

    Keeps: MUT-48, MUT-54.
    """
    from lastbus.proof import ledger
    from lastbus.proof.config import Project
    from lastbus.proof.merge import at_home
    from lastbus.proof.merge import merge as merged
    from lastbus.proof.report import refuse_foreign, result_line

    if report is not None:
        refuse_foreign(report)
    done = merged(reports)
    if report is not None:
        project = Project.load()
        at_home(project, done)
    for result in done.outcome.results:
        if not result.as_expected:
            out().print(result_line(result))
    _told(done)
    if json_file is not None:
        write_json(json_file, done, {"shard": None, "merged": list(map(str, reports))})
    if report is not None:
        _reported(project, done.outcome, ledger.read(project, done.outcome), report)
    raise typer.Exit(done.exit_code)


def write_json(file: Path, done: Replayed, facts: Mapping[str, Any]) -> None:
    """Write the outcome, and under ``run`` what it is an outcome of."""
    from lastbus.proof.report import to_json

    run = {**facts, "reused": done.reused, "disagreements": done.disagreements}
    file.write_text(json.dumps({**to_json(done.outcome), "run": run}, indent=1) + "\n", encoding="utf-8")


@app.command(
    help="Prove everything: replay all mutations, check the ledger and the frozen bodies.\n\n"
    "Example: lastbus prove --jobs 2 --report proof-report" + EXITS
)
def prove(
    python: Python = sys.executable,
    jobs: Jobs = CPUS,
    report: ReportFolder = None,
    isolated: Isolated = False,
    fresh: Fresh = None,
    audit: Audit = 0,
    audit_seed: Seed = None,
    confirm: Confirm = 0,
) -> None:
    """The replay decides the exit code; after a clean one, so do the ledger and the frozen bodies.

    Keeps: MUT-20, MUT-21.
    """
    from lastbus.proof import frozen, ledger
    from lastbus.proof.config import Project
    from lastbus.proof.history import Use
    from lastbus.proof.mutation import load_all, select
    from lastbus.proof.report import ledger_line, refuse_foreign

    if report is not None:
        refuse_foreign(report)
    use = Use.chosen(fresh, audit, audit_seed, report is not None or isolated or confirm > 0, os.environ)
    project = Project.load()
    done = _replayed(project, select(load_all(project)), python, jobs, isolated, use, confirm)
    book = ledger.read(project)
    for line in (*book.errors, *(f"{row.statement.id} unpinned: {row.reasons[0]}" for row in book.unpinned)):
        out().print(line)
    out().print(ledger_line(book))
    frozen_ok = frozen_checked(project, frozen.load(project))
    _reported(project, done.outcome, book, report)
    honest = frozen_ok and not book.errors and not book.unpinned
    raise typer.Exit(done.exit_code or (0 if honest else 1))


def _on_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _reported(project: Project, outcome: Outcome, book: Ledger, folder: Path | None) -> None:
    """Write the report, if there is a folder for it, and tell GitHub, if it listens."""
    from lastbus.proof.report import Account, tell, write

    if folder is None and not _on_github():
        return
    account = Account.of(project, outcome, book)
    if folder is not None:
        write(folder, account)
    for line in tell(account, os.environ):
        out().print(line)


def _replayed(
    project: Project,
    mutations: Sequence[Mutation],
    python: str,
    jobs: int,
    isolated: bool,
    use: Use,
    confirm: int,
) -> Replayed:
    """Replay with progress on the terminal what the history does not know, and print the summary.

    What was no kill the last time must be one more than once.
    Keeps: MUT-30.
    """
    from lastbus.proof import history, record
    from lastbus.proof.replay import replay as run

    def told(left: Sequence[Mutation]) -> Outcome:
        suspects = [name for name, entry in record.load(project).items() if entry.verdict != "killed"]
        with progress(len(left)) as tell:
            return run(project, left, python, jobs, isolated, tell, confirm, suspects)

    done = history.replay(project, mutations, python, use, told)
    for line in history_lines(done, use):
        out().print(line)
    _told(done)
    return done


def _told(done: Replayed) -> None:
    """What went wrong as a whole, and the summary."""
    from lastbus.proof.report import red_lines, summary_line

    for line in red_lines(done.outcome) if done.outcome.baseline.red else ():
        err().print(line)
    for line in done.disagreements:
        err().print(f"lastbus: {line}")
    out().print(summary_line(done.outcome))


def history_lines(done: Replayed, use: Use) -> Iterator[str]:
    """What was taken over, with whatever of it is not as expected, and what an audit came to."""
    from lastbus.proof.report import result_line

    for result in done.outcome.results:
        if result.reused and not result.as_expected:
            yield result_line(result)
    if done.reused:
        yield f"{done.reused} of {len(done.outcome.results)} verdicts still hold and were reused (--fresh replays all)"
    if use.audit and not done.outcome.baseline.red:
        wrong = f"{len(done.disagreements)} disagree" if done.disagreements else "all agree"
        found = (
            f"{len(done.audited)} reused verdicts replayed, {wrong}" if done.audited else "no verdict could be reused"
        )
        yield f"audit: {found}; seed {use.seed}"
