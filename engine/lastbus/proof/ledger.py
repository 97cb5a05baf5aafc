"""The ledger: for every guarantee, what states it, what keeps it, what pins it, and what is missing.

Keeps: MUT-09, MUT-16, MUT-21.

A guarantee is pinned when all four places agree and the last replay agreed with them:
the document states it, the mutated definition keeps it, a killer is marked with it, and
that killer failed on every mutation that claims to break it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lastbus.proof import record
from lastbus.proof.citations import Citation, Statement, kept, marked, statements
from lastbus.proof.config import Project
from lastbus.proof.counts import with_right_counts, wrong_counts
from lastbus.proof.errors import UsageError
from lastbus.proof.keepers import kept_around
from lastbus.proof.mutation import Mutation, Unfit, apply, load_all, texts_of
from lastbus.proof.replay import Outcome

Find = Callable[[str, ast.Module], list[Citation]]
Status = Literal["pinned", "unpinned", "declared"]


@dataclass(frozen=True)
class Evidence:
    """One mutation as the ledger sees it: the ids its definitions keep, and what the last replay said."""

    mutation: Mutation
    kept: frozenset[str]
    unfit: str
    entry: record.Entry | None
    changed: str

    @property
    def fresh(self) -> bool:
        """Whether there is a verdict and nothing it rests on has changed since."""
        return self.entry is not None and not self.changed


@dataclass(frozen=True)
class Row:
    """One guarantee and everything that is known about it. `reasons` is empty unless it is unpinned."""

    statement: Statement
    code: tuple[Citation, ...]
    tests: tuple[Citation, ...]
    evidence: tuple[Evidence, ...]
    status: Status
    reasons: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The row as `lastbus ledger --json` prints it."""
        return {
            "id": self.statement.id,
            "title": self.statement.title,
            "document": {
                "file": self.statement.file,
                "line": self.statement.line,
                "sentence": self.statement.sentence,
            },
            "code": [str(citation) for citation in self.code],
            "tests": [_test_name(citation) for citation in self.tests],
            "mutations": [
                {"id": one.mutation.id, "verdict": one.entry.verdict if one.entry else None, "fresh": one.fresh}
                for one in self.evidence
            ],
            "status": self.status,
            "reasons": list(self.reasons),
        }


@dataclass
class Ledger:
    """All rows in the order of the documents, and the errors: citations of ids that no document states."""

    rows: list[Row] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def row(self, guarantee: str) -> Row:
        """The row of one id; `UsageError` if no document states it."""
        for row in self.rows:
            if row.statement.id == guarantee:
                return row
        raise UsageError(f"no document states {guarantee}; `lastbus ledger` lists the ids")

    @property
    def unpinned(self) -> list[Row]:
        """The rows that lack something."""
        return [row for row in self.rows if row.status == "unpinned"]


def read(project: Project, replayed: Outcome | None = None) -> Ledger:
    """The ledger of `project` as its files and its last replays are now.

    `replayed` is a replay of these very files, wherever it took place: its verdicts count before those on record.
    Keeps: MUT-09, MUT-54.
    """
    documents = [one for file in project.files(project.docs, ".md") for one in statements(file, project.read(file))]
    code = _citations(project, (*project.code, *project.tests), kept, "Keeps:")
    tests = _citations(project, project.tests, marked, "guarantee")
    mutations = load_all(project)
    entries = record.load(project)
    present = record.Present(project)
    evidence = [weigh(present, mutation, entries.get(mutation.id)) for mutation in mutations]
    if replayed is not None:
        told = {result.mutation.id: record.entry(result, replayed) for result in replayed.results}
        evidence = [_told(one, told.get(one.mutation.id)) for one in evidence]
    errors = [*_doubles(documents), *unknown({one.id for one in documents}, [*code, *tests], mutations)]
    rows = [_row(one, code, tests, evidence) for one in documents]
    errors += _wrong_counts(project, documents, mutations)
    return Ledger(rows, errors)


def _citations(project: Project, places: tuple[str, ...], find: Find, word: str) -> list[Citation]:
    """What `find` sees in the files that contain `word` at all."""
    found: list[Citation] = []
    for file in project.files(places, ".py"):
        text = project.read(file)
        if word in text:
            found += find(file, _tree(file, text))
    return found


def _tree(file: str, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise UsageError(f"{file}:{error.lineno}: not Python: {error.msg}") from error


def _doubles(documents: Sequence[Statement]) -> Iterator[str]:
    """Ids that are stated twice.

    Keeps: MUT-09.
    """
    first: dict[str, Statement] = {}
    for one in documents:
        if one.id in first:
            other = first[one.id]
            yield f"{one.file}:{one.line}: {one.id} is stated already in {other.file}:{other.line}: keep one"
        first.setdefault(one.id, one)


def unknown(known: set[str], citations: Sequence[Citation], mutations: Sequence[Mutation]) -> Iterator[str]:
    """Ids that code, tests or mutations cite and no document states, each with its place.

    Keeps: MUT-09.
    """
    for citation in citations:
        if citation.id not in known:
            yield f"{citation}: no document states {citation.id}: state it, or correct the id"
    for mutation in mutations:
        for guarantee in mutation.guarantees:
            if guarantee not in known:
                yield f"{mutation.source}: no document states {guarantee}: state it, or correct the id"


def _wrong_counts(project: Project, documents: Sequence[Statement], mutations: Sequence[Mutation]) -> Iterator[str]:
    """Counts in the project's pages that are not what the listing says.

    Keeps: MUT-08.
    """
    for page in _pages(project):
        yield from wrong_counts(page, project.read(page), [one.id for one in documents], mutations)


def write_counts(project: Project) -> list[str]:
    """Correct the counts in the project's pages; returns the pages that changed.

    Keeps: MUT-08.
    """
    guarantees = [one.id for file in project.files(project.docs, ".md") for one in statements(file, project.read(file))]
    mutations = load_all(project)
    changed = []
    for page in _pages(project):
        before = project.read(page)
        after = with_right_counts(before, guarantees, mutations)
        if after != before:
            (project.root / page).write_bytes(after.encode("utf-8"))
            changed.append(page)
    return changed


def _pages(project: Project) -> list[str]:
    pages = {"README.md", *project.files(("docs", project.mutations), ".md")}
    return sorted(page for page in pages if (project.root / page).is_file())


def _row(one: Statement, code: Sequence[Citation], tests: Sequence[Citation], evidence: Sequence[Evidence]) -> Row:
    keepers = tuple(citation for citation in code if citation.id == one.id)
    testers = tuple(citation for citation in tests if citation.id == one.id)
    mapped = tuple(item for item in evidence if one.id in item.mutation.guarantees)
    if one.declared:
        return Row(one, keepers, testers, mapped, "declared")
    reasons = tuple(missing(one.id, keepers, testers, mapped))
    return Row(one, keepers, testers, mapped, "unpinned" if reasons else "pinned", reasons)


def missing(
    guarantee: str, code: Sequence[Citation], tests: Sequence[Citation], evidence: Sequence[Evidence]
) -> Iterator[str]:
    """What keeps `guarantee` from being pinned, and what to do about it; nothing if it is pinned.

    Keeps: MUT-09, MUT-21.
    """
    if not code:
        yield f'no docstring keeps it: add "Keeps: {guarantee}." to the code that does'
    if not tests:
        yield f'no test pins it: mark one with @pytest.mark.guarantee("{guarantee}")'
    if not any(not one.mutation.canary for one in evidence):
        yield "no mutation breaks it: add a file under the mutations folder"
    for one in evidence:
        fault = _fault(guarantee, one)
        if fault:
            yield f"{one.mutation.id}: {fault}"


def _fault(guarantee: str, one: Evidence) -> str:
    """What is wrong with one mapped mutation, the first thing first.

    Keeps: MUT-16, MUT-21.
    """
    name = one.mutation.id
    if one.unfit:
        return one.unfit
    if guarantee not in one.kept:
        return f'the mutated definition does not keep it: add "Keeps: {guarantee}." to its docstring or a caller\'s'
    if one.entry is None:
        return f"never replayed: lastbus replay {name}"
    if not one.fresh:
        return f"{one.changed} changed since the last replay: lastbus replay {name}"
    if one.entry.verdict != one.mutation.expect:
        return f"the last replay said {one.entry.verdict}: lastbus replay {name}"
    if not one.mutation.canary and not any(guarantee in ids for ids in one.entry.killed_by.values()):
        return f'no killer that failed is marked with it: add @pytest.mark.guarantee("{guarantee}") to the killer'
    return ""


def weigh(present: record.Present, mutation: Mutation, entry: record.Entry | None) -> Evidence:
    """What the files and the last replay say about one mutation.

    Keeps: MUT-16.
    """
    texts = texts_of(present.project, mutation)
    present.tree.know(mutation)
    changed = present.changed(entry) if entry is not None else ""
    # A verdict that holds was given for these very bytes; if they had not been fit, it would say so.
    unfit = "" if entry is not None and not changed else _unfit(mutation, texts)
    return Evidence(mutation, frozenset(kept_around(mutation.edits, texts)), unfit, entry, changed)


def _told(one: Evidence, entry: record.Entry | None) -> Evidence:
    """The evidence with a verdict of now in place of the one on record.

    Keeps: MUT-54.
    """
    return one if entry is None else replace(one, entry=entry, changed="")


def _unfit(mutation: Mutation, texts: Mapping[str, str]) -> str:
    try:
        apply(mutation.edits, texts)
    except Unfit as error:
        return str(error)
    return ""


def _test_name(citation: Citation) -> str:
    return f"{citation.file}::{citation.name}" if citation.name else citation.file
