"""The ``lastbus`` command: one verb per question, each with documented exit codes.

Every command imports what it needs when it runs, so that ``lastbus --help`` stays quick
and a missing extra only disables the commands that need it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lastbus.proof.config import Project
    from lastbus.proof.frozen import Numbers
    from lastbus.proof.mutation import Mutation
    from lastbus.proof.replay import Outcome, Result

app = typer.Typer(
    name="lastbus",
    help="An event bus that proves what it promises: the ledger of its guarantees and the mutations that test it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
ledger_app = typer.Typer(help="What states, keeps, pins and breaks each guarantee.", invoke_without_command=True)
frozen_app = typer.Typer(help="Functions whose bodies are pinned to the byte.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
app.add_typer(frozen_app, name="frozen")

Groups = Annotated[
    list[str] | None, typer.Option("--group", "-g", help="A guarantee family (CORE) or a mutation folder; repeatable.")
]
Python = Annotated[str, typer.Option("--python", help="The interpreter to run the tests with.")]
CPUS = os.cpu_count() or 1
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many mutations run at once.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the outcome to this file as JSON.")]
Isolated = Annotated[bool, typer.Option("--isolated", help="A new process per run instead of a fork: slower.")]

EXITS = (
    "\n\nExit codes: 0 all as expected · 1 a survivor or the wrong killer · 2 usage · 3 red baseline · "
    "4 invalid mutation · 5 hang or time-out."
)


def _out() -> Console:
    return Console(soft_wrap=True, highlight=False, markup=False)


def _err() -> Console:
    return Console(stderr=True, soft_wrap=True, highlight=False, markup=False)


@app.command(
    help="Replay mutations: each must make its mapped tests fail.\n\n"
    "Example: lastbus replay --group CORE --jobs 2" + EXITS
)
def replay(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Mutation or guarantee ids; globs allowed. None: all.")
    ] = None,
    group: Groups = None,
    python: Python = sys.executable,
    jobs: Jobs = CPUS,
    json_file: JsonFile = None,
    isolated: Isolated = False,
) -> None:
    """Replay the chosen mutations, or all; the exit code is the verdict."""
    from lastbus.proof.config import Project
    from lastbus.proof.mutation import load_all, select
    from lastbus.proof.report import to_json

    project = Project.load()
    mutations = select(load_all(project), ids or (), group or ())
    outcome = _replayed(project, mutations, python, jobs, isolated)
    if json_file is not None:
        json_file.write_text(json.dumps(to_json(outcome), indent=1) + "\n", encoding="utf-8")
    raise typer.Exit(outcome.exit_code)


@app.command(
    help="Prove everything: replay all mutations, check the ledger and the frozen bodies.\n\n"
    "Example: lastbus prove --jobs 2 --report proof-report" + EXITS
)
def prove(
    python: Python = sys.executable,
    jobs: Jobs = CPUS,
    report: Annotated[Path | None, typer.Option(help="Fill this folder with report.json and the evidence.")] = None,
    isolated: Isolated = False,
) -> None:
    """The replay decides the exit code; after a clean one, so do the ledger and the frozen bodies.

    Keeps: MUT-20, MUT-21.
    """
    from lastbus.proof import frozen, ledger
    from lastbus.proof.config import Project
    from lastbus.proof.mutation import load_all, select
    from lastbus.proof.report import ledger_line, write_evidence

    project = Project.load()
    outcome = _replayed(project, select(load_all(project)), python, jobs, isolated)
    book = ledger.read(project)
    for line in (*book.errors, *(f"{row.statement.id} unpinned: {row.reasons[0]}" for row in book.unpinned)):
        _out().print(line)
    _out().print(ledger_line(book))
    frozen_ok = _frozen_checked(project, frozen.load(project))
    if report is not None:
        write_evidence(report, project, outcome, book)
    honest = frozen_ok and not book.errors and not book.unpinned
    raise typer.Exit(outcome.exit_code or (0 if honest else 1))


@ledger_app.callback(
    help="The ledger of all guarantees.\n\nExample: lastbus ledger --json, or: lastbus ledger show CLOSE-27\n\n"
    "Exit codes: 0 · 1 an id is cited that no document states (with --check: or a guarantee is unpinned) · "
    "2 usage · 4 invalid mutation."
)
def ledger_all(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print all rows as JSON.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Fail if any guarantee is unpinned.")] = False,
    write_counts: Annotated[
        bool, typer.Option("--write-counts", help="Correct the numbers between count comments first.")
    ] = False,
) -> None:
    """Print the ledger; its errors, and with `--check` what is unpinned, fail."""
    if context.invoked_subcommand is not None:
        return
    from lastbus.proof import ledger
    from lastbus.proof.config import Project
    from lastbus.proof.report import ledger_line

    project = Project.load()
    if write_counts:
        for page in ledger.write_counts(project):
            _err().print(f"corrected the counts in {page}")
    book = ledger.read(project)
    if as_json:
        typer.echo(json.dumps([row.to_json() for row in book.rows], indent=1))
    else:
        for row in book.rows:
            why = f": {row.reasons[0]}" if row.reasons else ""
            _out().print(f"{row.status:<9} {row.statement.id:<12} {row.statement.title}{why}")
        _out().print(ledger_line(book))
    for error in book.errors:
        _err().print(error)
    raise typer.Exit(1 if book.errors or (check and book.unpinned) else 0)


@ledger_app.command(
    help="One guarantee: sentence, code, tests, mutations, last verdict.\n\nExample: lastbus ledger show CLOSE-27"
)
def show(guarantee: Annotated[str, typer.Argument(help="The id, as in the documents.")]) -> None:
    """Print one guarantee with all that is known about it."""
    from lastbus.proof import ledger
    from lastbus.proof.config import Project
    from lastbus.proof.report import row_lines

    for line in row_lines(ledger.read(Project.load()).row(guarantee)):
        _out().print(line)


@frozen_app.command(
    help="Compare every frozen body with its numbers, or with itself at revisions, and list the mutations in it.\n\n"
    "Example: lastbus frozen check --rev v0.1.0 --rev HEAD\n\nExit codes: 0 unchanged · 1 changed · 2 usage."
)
def check(
    rev: Annotated[list[str] | None, typer.Option(help="A git revision to compare as well; repeatable.")] = None,
) -> None:
    """Compare every frozen body with its numbers; one that differs fails.

    Keeps: FRZ-05.
    """
    from lastbus.proof import frozen
    from lastbus.proof.config import Project
    from lastbus.proof.mutation import load_all

    project = Project.load()
    entries = frozen.load(project)
    fine = _frozen_checked(project, entries)
    for name, ids in frozen.anchored(project, entries, load_all(project) if entries else ()).items():
        _out().print(f"{name}: {len(ids)} mutations anchored in it{': ' if ids else ''}{', '.join(ids)}")
    for entry in entries if rev else ():
        found = frozen.history(project, entry, rev or ())
        fine = frozen.identical(list(found.values())) and fine
        for line in _history_lines(found):
            _out().print(f"{entry.name} {line}")
    raise typer.Exit(0 if fine else 1)


@frozen_app.command(
    help="Write the numbers of today: only after a decision to change a frozen body. With an ID for this one alone, "
    "or to freeze one more; the reason is kept with it. Without one for all.\n\n"
    "Example: lastbus frozen update src/shop.py::Shop.add --why 'invoices quote it'"
)
def update(
    name: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="FILE::FUNCTION, or the function of an entry.")
    ] = None,
    why: Annotated[str, typer.Option(help="Why this body must not change; needed with an ID.")] = "",
) -> None:
    """Write the frozen bodies' numbers anew.

    Keeps: FRZ-07.
    """
    from lastbus.proof import frozen
    from lastbus.proof.config import Project

    project = Project.load()
    entries = frozen.load(project)
    for entry in frozen.update(project, entries) if name is None else [frozen.decide(project, entries, name, why)]:
        _out().print(f"{entry.file}: {entry.name}: {entry.numbers}")


@frozen_app.command(
    help="The bytes and lines of one frozen body at git revisions and in the work tree, and whether all agree.\n\n"
    "Example: lastbus frozen history Shop.add v0.1.0 HEAD\n\nExit codes: 0 identical · 1 not · 2 usage."
)
def history(
    name: Annotated[str, typer.Argument(metavar="ID", help="FILE::FUNCTION, or the function of an entry.")],
    rev: Annotated[
        list[str] | None, typer.Argument(help="Git revisions; none: the last commits that touched its file.")
    ] = None,
) -> None:
    """Print how one frozen body came to be what it is.

    Keeps: FRZ-03.
    """
    from lastbus.proof import frozen
    from lastbus.proof.config import Project

    project = Project.load()
    entry = frozen.find(frozen.load(project), name)
    found = frozen.history(project, entry, rev or frozen.commits(project, entry))
    for line in _history_lines(found):
        _out().print(line)
    raise typer.Exit(0 if frozen.identical(list(found.values())) else 1)


def _history_lines(found: dict[str, Numbers | None]) -> Iterator[str]:
    """`rev=BYTES/LINES` for each revision and the work tree, then whether all are the same.

    Keeps: FRZ-03.
    """
    from lastbus.proof import frozen

    for revision, numbers in found.items():
        yield f"{revision}={f'{numbers.bytes}/{numbers.lines}' if numbers else 'absent'}"
    yield f"identical: {frozen.identical(list(found.values()))}"


def _frozen_checked(project: Project, entries: Sequence[Any]) -> bool:
    from lastbus.proof import frozen
    from lastbus.proof.mutation import load_all

    faults = [*frozen.check(project, entries), *frozen.displaced(project, entries, load_all(project))]
    for fault in faults:
        _out().print(fault)
    if not entries:
        _out().print("nothing is frozen")
    elif not faults:
        _out().print(f"{len(entries)} frozen bodies unchanged")
    return not faults


def _replayed(project: Project, mutations: Sequence[Mutation], python: str, jobs: int, isolated: bool) -> Outcome:
    """Replay with progress on the terminal, keep the record, print the summary."""
    from lastbus.proof import record
    from lastbus.proof.replay import replay as run
    from lastbus.proof.report import red_lines, summary_line

    with _progress(len(mutations)) as tell:
        outcome = run(project, mutations, python, jobs, isolated, tell)
    if outcome.baseline.red:
        for line in red_lines(outcome):
            _err().print(line)
    else:
        record.update(project, outcome)
    _out().print(summary_line(outcome))
    return outcome


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar on a terminal, plain lines elsewhere."""
    from rich.progress import Progress

    from lastbus.proof.report import result_line

    console = _out()
    if not sys.stdout.isatty():
        yield lambda result: console.print(result_line(result))
        return
    with Progress(console=console) as bar:
        task = bar.add_task("replay", total=total)

        def tell(result: Result) -> None:
            bar.advance(task)
            if not result.as_expected:
                console.print(result_line(result))

        yield tell


@contextmanager
def _signals_leave() -> Iterator[None]:
    """Inside the block an interrupt or a termination ends the program by way of its cleanup.

    Keeps: MUT-15.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.signal(number, _leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _leave(signum: int, _frame: object) -> None:
    # An exception instead of sudden death: the runner then ends its processes and removes its copies.
    raise SystemExit(128 + signum)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; errors of the proof become one line and an exit code."""
    from lastbus.proof.errors import ProofError

    try:
        with _signals_leave():
            app(args=None if argv is None else list(argv))
    except ProofError as error:
        _err().print(f"lastbus: {error}")
        sys.exit(error.exit_code)
