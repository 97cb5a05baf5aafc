"""The report as one page for a browser: no server, no other file, and nothing in it that was not put there by us.

Keeps: MUT-66, MUT-67.

Every text is escaped by the template. Should one ever slip through, the page still runs only the one script and
applies the one style sheet whose digests stand in its policy, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lastbus.proof.config import Project
from lastbus.proof.ledger import Evidence, Row
from lastbus.proof.mutation import Mutation
from lastbus.proof.replay import EARLIER, Result
from lastbus.proof.report.account import Account
from lastbus.proof.verdict import INVALID, OVERDUE

_CODE: Final = re.compile(r"`([^`]+)`")
STATUSES: Final = ("pinned", "declared", "unpinned")
BAR_WIDTH: Final = 1000
"""The bar of verdicts in units of its own; the page scales it."""


@dataclass(frozen=True)
class Trial:
    """One mutation as the page shows it: what it met now, or in an earlier replay, or nothing yet."""

    mutation: Mutation
    verdict: str
    tone: str
    note: str
    reason: str
    killed_by: Sequence[str]
    patch: Sequence[tuple[str, str]]
    has_log: bool


@dataclass(frozen=True)
class Chapter:
    """The guarantees of one document, under its title."""

    key: str
    title: str
    rows: Sequence[Row]

    @property
    def loose(self) -> int:
        """How many of them are unpinned."""
        return sum(row.status == "unpinned" for row in self.rows)


def page(account: Account) -> str:
    """The account as one HTML page.

    Keeps: MUT-66, MUT-67.
    """
    environment = Environment(
        loader=PackageLoader("lastbus.proof.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = prose
    source = environment.loader.get_source  # type: ignore[union-attr]
    script, style = (source(environment, name)[0] for name in ("page.js", "page.css"))
    trials = {trial.mutation.id: trial for trial in _trials(account)}
    return environment.get_template("page.html").render(
        account=account,
        chapters=_chapters(account),
        trials=trials,
        canaries=[trials[result.mutation.id] for result in account.outcome.canaries],
        bar=list(_bar(account)),
        statuses={word: sum(row.status == word for row in account.ledger.rows) for word in STATUSES},
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        policy=policy(script, style),
    )


def prose(text: str) -> Markup:
    """A sentence of a document: escaped, then what stands between backticks is shown as code.

    Keeps: MUT-67.
    """
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped first


def policy(script: str, style: str) -> str:
    """The content security policy: this script, this style sheet, and nothing else from anywhere.

    Keeps: MUT-67.
    """
    return (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _chapters(account: Account) -> list[Chapter]:
    """The guarantees by document, in the ledger's order.

    Keeps: MUT-66.
    """
    files = dict.fromkeys(row.statement.file for row in account.ledger.rows)
    return [
        Chapter(
            key=f"chapter-{number}",
            title=_title(account.project, file),
            rows=[row for row in account.ledger.rows if row.statement.file == file],
        )
        for number, file in enumerate(files)
    ]


def _title(project: Project, file: str) -> str:
    """The first heading of a document, or its name."""
    lines = project.read(file).splitlines()
    return next((line[2:].strip() for line in lines if line.startswith("# ")), file)


def _trials(account: Account) -> Iterator[Trial]:
    """Every mutation that the ledger or the replay knows, once.

    Keeps: MUT-60, MUT-66.
    """
    for result in account.outcome.results:
        yield Trial(
            mutation=result.mutation,
            verdict=str(result.verdict),
            tone=tone_of(result),
            note=_said(result, account.outcome.python),
            reason=result.judgement.reason.strip(),
            killed_by=sorted(result.killed_by),
            patch=_lines(account.patches[result.mutation.id]),
            has_log=bool(result.log),
        )
    replayed = {result.mutation.id for result in account.outcome.results}
    rest = {one.mutation.id: one for row in account.ledger.rows for one in row.evidence}
    for one in (rest[name] for name in rest.keys() - replayed):
        yield Trial(
            mutation=one.mutation,
            verdict=one.entry.verdict if one.entry else "never replayed",
            tone="good" if one.entry and one.fresh and one.entry.verdict == one.mutation.expect else "dim",
            note=_note(one),
            reason=one.entry.reason.strip() if one.entry else "",
            killed_by=sorted(one.entry.killed_by) if one.entry else [],
            patch=_lines(account.patches[one.mutation.id]),
            has_log=False,
        )


def _said(result: Result, python: str) -> str:
    if result.reused:
        return EARLIER
    differed = f"; two looks differed ({result.disagreement})" if result.disagreement else ""
    return f"{result.seconds:.2f} s on Python {python}{differed}"


def _note(one: Evidence) -> str:
    if one.entry is None:
        return ""
    changed = f"; {one.changed} has changed since" if one.changed else ""
    return f"an earlier replay on Python {one.entry.python}{changed}"


def tone_of(result: Result) -> str:
    """The colour of a verdict: good as expected, bad where a test must be sharper, odd where nothing is proven."""
    if result.as_expected:
        return "good"
    return "odd" if result.verdict in INVALID | OVERDUE else "bad"


def _lines(patch: str) -> list[tuple[str, str]]:
    """The lines of a diff, each with its kind."""
    kinds = {"+": "added", "-": "removed", "@": "hunk"}
    return [
        ("file" if line.startswith(("+++", "---")) else kinds.get(line[:1], "same"), line)
        for line in patch.splitlines()
    ]


def _bar(account: Account) -> Iterator[tuple[str, str, int, float, float]]:
    """The verdicts as parts of one bar: tone, word, count, where the part begins and how wide it is.

    Keeps: MUT-60.
    """
    results = [result for result in account.outcome.results if not result.mutation.canary]
    tones = {str(result.verdict): tone_of(result) for result in results}
    counts = sorted(account.outcome.summary.items(), key=lambda item: (tones[item[0]] != "good", item[0]))
    widths = [BAR_WIDTH * count / len(results) for _, count in counts]
    starts = accumulate(widths, initial=0.0)
    for (word, count), start, width in zip(counts, starts, widths, strict=False):
        yield tones[word], word, count, round(start, 2), round(width, 2)
