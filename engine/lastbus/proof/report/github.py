"""What a GitHub Actions run shows: an annotation where a mutation sits, and a summary of the job in Markdown.

Keeps: MUT-65.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from lastbus.proof.replay import Result
from lastbus.proof.report.account import Account, line_of

ANNOTATIONS_MAX: Final = 10
"""GitHub shows no more errors of one step than this."""
ROWS_MAX: Final = 100
CELL_MAX: Final = 300
"""Together far below the size (1 MiB) at which GitHub drops a summary as a whole."""
ICONS: Final = {"good": "✅", "bad": "❌", "partial": "☑️"}


def tell(account: Account, environ: Mapping[str, str]) -> Iterator[str]:
    """The lines to print for GitHub, after the summary was added to its file; nothing anywhere else.

    Keeps: MUT-65.
    """
    if environ.get("GITHUB_ACTIONS") != "true":
        return
    target = environ.get("GITHUB_STEP_SUMMARY")
    if target:
        with Path(target).open("a", encoding="utf-8", errors="replace") as file:
            file.write(summary(account))
    yield from annotated(account, Path(environ.get("GITHUB_WORKSPACE") or account.project.root))


def annotated(account: Account, workspace: Path) -> Iterator[str]:
    """One error for each result that is not as expected and each loose end, the first ones only.

    Keeps: MUT-65.
    """
    lines = [*(_annotation(account, result, workspace) for result in account.unexpected), *_plain(account)]
    yield from lines[:ANNOTATIONS_MAX]
    if len(lines) > ANNOTATIONS_MAX:
        yield f"{len(lines) - ANNOTATIONS_MAX} more errors are in the summary and in the report"


def _plain(account: Account) -> Iterator[str]:
    for killer, message in account.outcome.baseline.red.items():
        yield f"::error title=red baseline::{_message(f'{killer} fails without any mutation: {message}')}"
    for text in account.loose_ends:
        yield f"::error title=ledger::{_message(text)}"


def _annotation(account: Account, result: Result, workspace: Path) -> str:
    mutation = result.mutation
    file = (account.project.root / mutation.edits[0].file).resolve()
    place = file.relative_to(workspace.resolve()) if file.is_relative_to(workspace.resolve()) else file
    title = f"{result.verdict}: {mutation.id}"
    text = f"{mutation.summary}\n{result.judgement.reason.strip()}\nkillers: {', '.join(mutation.killers)}"
    line = line_of(account.project, mutation)
    return f"::error file={_property(place.as_posix())},line={line},title={_property(title)}::{_message(text)}"


def _message(text: str) -> str:
    """`text` on one line, as the runner reads it back.

    Keeps: MUT-65.
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """`text` as the value of a property, which ends at a comma.

    Keeps: MUT-65.
    """
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def summary(account: Account) -> str:
    """The account as Markdown: the headline, the verdicts, and a row for whatever needs somebody's attention.

    Keeps: MUT-60, MUT-65.
    """
    tone, headline = account.headline
    outcome = account.outcome
    parts = [f"## {ICONS[tone]} {_cell(account.name)}: {_cell(headline)}", ""]
    if outcome.summary:
        parts += ["| verdict | mutations |", "|---|---:|"]
        parts += [f"| {verdict} | {count} |" for verdict, count in sorted(outcome.summary.items())]
        parts += [""]
    good = sum(result.as_expected for result in outcome.canaries)
    canaries = f", canaries {good} of {len(outcome.canaries)} as expected" if outcome.canaries else ""
    parts += [f"Python {outcome.python}, {outcome.wall_seconds:.1f} s with {outcome.jobs} job(s){canaries}.", ""]
    rows = [*_rows(account)]
    if rows:
        parts += ["| what | where | why |", "|---|---|---|", *rows[:ROWS_MAX], ""]
    if len(rows) > ROWS_MAX:
        parts += [f"{len(rows) - ROWS_MAX} more rows are in the report.", ""]
    return "\n".join(parts) + "\n"


def _rows(account: Account) -> Iterator[str]:
    for killer, message in account.outcome.baseline.red.items():
        yield f"| red baseline | {_code(killer)} | {_cell(message)} |"
    for result in account.unexpected:
        place = f"{result.mutation.edits[0].file}:{line_of(account.project, result.mutation)}"
        what = f"**{result.verdict}** {_code(result.mutation.id)}"
        yield f"| {what} | {_code(place)} | {_cell(result.mutation.summary)}<br>{_cell(result.judgement.reason)} |"
    for text in account.loose_ends:
        yield f"| ledger | | {_cell(text)} |"


def _cell(text: str) -> str:
    """`text` on one line of a table, with nothing in it that Markdown or HTML would take for its own.

    Keeps: MUT-65.
    """
    line = " ".join(text.split())
    line = line if len(line) <= CELL_MAX else line[:CELL_MAX] + "…"
    return re.sub(r"([\\`*_{}\[\]()<>#|~!&])", lambda found: f"&#{ord(found[1])};", line)


def _code(text: str) -> str:
    return f"<code>{_cell(text)}</code>"
