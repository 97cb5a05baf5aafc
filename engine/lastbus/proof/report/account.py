"""The account of a proof: one replay and the ledger after it, from which every report is written.

Keeps: MUT-60. No report has a count, a verdict or a word of praise of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Sized
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Literal

from lastbus.proof import frozen
from lastbus.proof.config import Project, toml
from lastbus.proof.errors import UsageError
from lastbus.proof.ledger import Ledger
from lastbus.proof.mutation import Mutation, Unfit, apply, texts_of
from lastbus.proof.replay import Outcome, Result

Tone = Literal["good", "bad", "partial"]


@dataclass(frozen=True)
class Account:
    """What all reports of one replay are made of. `thawed` are the frozen bodies that changed."""

    project: Project
    outcome: Outcome
    ledger: Ledger
    thawed: tuple[str, ...]
    made: datetime

    @classmethod
    def of(cls, project: Project, outcome: Outcome, ledger: Ledger) -> Account:
        """The account of `outcome`, as of now."""
        return cls(project, outcome, ledger, tuple(_thawed(project)), datetime.now(timezone.utc))

    @property
    def name(self) -> str:
        """What the project calls itself."""
        table = toml.loads(self.project.read("pyproject.toml"))
        return str(table.get("project", {}).get("name", self.project.root.name))

    @cached_property
    def patches(self) -> dict[str, str]:
        """The diff of every mutation that the replay or the ledger knows, by its id."""
        replayed = [result.mutation for result in self.outcome.results]
        known = [one.mutation for row in self.ledger.rows for one in row.evidence]
        return {one.id: diff(self.project, one) for one in {one.id: one for one in (*known, *replayed)}.values()}

    @property
    def unexpected(self) -> list[Result]:
        """The results that are not as expected, canaries included."""
        return [result for result in self.outcome.results if not result.as_expected]

    @property
    def loose_ends(self) -> list[str]:
        """What is wrong beside the verdicts: errors of the ledger, frozen bodies that changed, what is unpinned.

        What was not replayed may be unpinned because of that, so this counts only after a whole replay.
        Keeps: MUT-60.
        """
        unpinned = self.ledger.unpinned if self.is_whole else []
        words = (f"{row.statement.id} is unpinned: {row.reasons[0]}" for row in unpinned)
        return [*self.ledger.errors, *self.thawed, *words]

    @property
    def is_whole(self) -> bool:
        """Whether every mutation that the ledger knows was replayed."""
        known = {one.mutation.id for row in self.ledger.rows for one in row.evidence}
        return known <= {result.mutation.id for result in self.outcome.results}

    @property
    def headline(self) -> tuple[Tone, str]:
        """The whole account in one sentence; it is good only if everything is.

        Keeps: MUT-60.
        """
        red = self.outcome.baseline.red
        if red:
            return "bad", f"The baseline is red: {_count(red, 'killer')} failed without any mutation"
        if self.unexpected:
            return "bad", f"{_count(self.unexpected, 'mutation')} met something else than expected"
        if self.loose_ends:
            return "bad", f"Every verdict is as expected, but the ledger is not: {_count(self.loose_ends, 'fault')}"
        if not self.is_whole:
            return "partial", f"As expected, as far as replayed: {_count(self.outcome.results, 'mutation')}"
        return "good", f"Proven: every guarantee is pinned or declared ({_count(self.ledger.rows, 'guarantee')})"


def _count(things: Sized, noun: str) -> str:
    number = len(things)
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _thawed(project: Project) -> list[str]:
    try:
        return frozen.check(project, frozen.load(project))
    except UsageError as error:
        return [str(error)]


def line_of(project: Project, mutation: Mutation) -> int:
    """The line of the mutation's first edit in its file, 1 if the anchor is not there."""
    edit = mutation.edits[0]
    text = texts_of(project, mutation).get(edit.file, "")
    return text.count("\n", 0, text.index(edit.old)) + 1 if edit.old in text else 1


def diff(project: Project, mutation: Mutation) -> str:
    """The mutation as a unified diff; empty if it cannot be put in."""
    texts = texts_of(project, mutation)
    try:
        mutated = apply(mutation.edits, texts)
    except Unfit:
        return ""
    return "".join(
        line
        for file, text in mutated.items()
        for line in difflib.unified_diff(
            texts[file].splitlines(keepends=True), text.splitlines(keepends=True), f"a/{file}", f"b/{file}"
        )
    )
