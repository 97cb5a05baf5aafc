"""Authoring: a mutation from an edit in the work tree.

Keeps: MUT-51, MUT-52.

Somebody breaks the code by hand, the way one tries a test, and keeps what was tried. The edit is never lost: it stays
where it is, or it is taken back after it was written down, and not before.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from lastbus.proof import record
from lastbus.proof.anchors import unique
from lastbus.proof.citations import statements
from lastbus.proof.config import Project
from lastbus.proof.copies import copy_tree
from lastbus.proof.errors import UsageError
from lastbus.proof.keepers import changed_lines, kept_around
from lastbus.proof.mutation import Edit, Mutation, Unfit, apply, load_all, parse
from lastbus.proof.replay import Outcome
from lastbus.proof.revisions import changed_files, text_at
from lastbus.proof.verdict import Verdict
from lastbus.proof.witnesses import Witnesses, find

KILLERS_MAX: Final = 3
"""More killers than this make a mutation slow and say no more."""
GAP_LINES: Final = 3
Replay = Callable[[Project, Sequence[Mutation]], Outcome]


@dataclass(frozen=True)
class Draft:
    """What somebody wants to be a mutation: its id, what it breaks, and the edit that breaks it."""

    id: str
    guarantees: tuple[str, ...]
    summary: str
    group: str
    edits: tuple[Edit, ...]
    before: str
    after: str

    @property
    def file(self) -> str:
        """The file that was edited."""
        return self.edits[0].file

    @property
    def source(self) -> str:
        """Where the mutation will stand, below the folder of mutations."""
        return f"{self.group}/{self.id}.json"

    @property
    def lines(self) -> set[int]:
        """The lines of the file before the edit that the edit changes."""
        spans = [changed_lines(edit, self.before) for edit in self.edits if self.before.count(edit.old) == 1]
        return {line for first, last in spans for line in range(first, last + 1)}

    def text(self, killers: Sequence[str]) -> str:
        """The mutation's file."""
        edits: list[dict[str, str]] = [vars(edit) for edit in self.edits]
        where: dict[str, Any] = edits[0] if len(edits) == 1 else {"edits": edits}
        body = {"id": self.id, "guarantees": list(self.guarantees), "summary": self.summary, **where}
        return json.dumps({**body, "killers": list(killers)}, indent=2, ensure_ascii=False) + "\n"


def draft(
    project: Project,
    name: str,
    guarantees: Sequence[str],
    file: str | None = None,
    summary: str = "",
    group: str = "",
    revision: str = "HEAD",
) -> Draft:
    """The edit of `file`, or of the only file of the code that was edited, against `revision`; "" is the index.

    `UsageError` says what to do if there is no such edit, or if it can be no mutation.
    Keeps: MUT-51.
    """
    _refuse_names(project, name, guarantees)
    file = file or _edited(project, revision or "HEAD")
    before = text_at(project, revision, file)
    if before is None:
        raise UsageError(f"{file} is not in {revision or 'the index'}: commit it as it should be, then break it")
    if "\ufffd" in before:
        raise UsageError(f"{file} is not UTF-8: write the mutation by hand")
    after = project.read(file) if (project.root / file).is_file() else ""
    if not after or after == before:
        raise UsageError(f"{file} is {'as it was' if after else 'gone'}: break it first, then run this")
    try:
        edits = edits_between(file, before, after)
    except Unfit as unfit:
        raise UsageError(f"the edit of {file} can be no mutation: {unfit}") from unfit
    words = summary or _in_words(edits[0])
    return Draft(name, tuple(guarantees), words, group or guarantees[0].split("-")[0].lower(), edits, before, after)


def _refuse_names(project: Project, name: str, guarantees: Sequence[str]) -> None:
    """The id is free and the documents state the guarantees.

    Keeps: MUT-51.
    """
    taken = next((one.source for one in load_all(project) if one.id == name), "")
    if taken:
        raise UsageError(f"{name} is taken by {taken}: choose another id, or edit that file")
    stated = {one.id for page in project.files(project.docs, ".md") for one in statements(page, project.read(page))}
    for guarantee in guarantees:
        if guarantee not in stated:
            raise UsageError(f"no document states {guarantee}: `lastbus ledger` lists the ids")


def _edited(project: Project, revision: str) -> str:
    places = tuple(Path(place) for place in project.code)
    changed = [
        file
        for file in sorted(changed_files(project, revision))
        if any(place == Path(file) or place in Path(file).parents for place in places)
    ]
    if len(changed) == 1:
        return changed[0]
    if changed:
        raise UsageError(f"several files of the code were edited; choose one with --file: {', '.join(changed)}")
    raise UsageError("no file of the code was edited: break one, then run this")


def _in_words(edit: Edit) -> str:
    old, new = (next((line.strip() for line in text.splitlines() if line.strip()), "") for text in (edit.old, edit.new))
    return f"`{old}` becomes `{new}`." if new else f"`{old}` is gone."


def edits_between(file: str, before: str, after: str) -> tuple[Edit, ...]:
    """The replacements that turn `before` into `after`: each anchor stands once, and is no longer than that needs.

    One for each place that changed, or one for all of them if they would be in each other's way.
    `Unfit` if the code does not change, or is not Python any more.
    Keeps: MUT-51.
    """
    if not before or before == after:
        raise Unfit(Verdict.NO_OP, "it changes nothing" if before else "an empty file has no anchor")
    hunks = _hunks(before, after)
    for spans in (hunks, [(hunks[0][0], hunks[-1][1], hunks[0][2], hunks[-1][3])]):
        edits = tuple(_edit(file, before, after, *span) for span in spans)
        with contextlib.suppress(Unfit):
            if apply(edits, {file: before})[file] == after:
                return edits
    apply([Edit(file, before, after)], {file: before})
    return (Edit(file, before, after),)


def _hunks(before: str, after: str) -> list[tuple[int, int, int, int]]:
    """The places that differ, as positions in both texts: whole lines, at least one of each, close ones as one."""
    one, other = before.splitlines(keepends=True), after.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    hunks: list[list[int]] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            continue
        if i1 == i2 or j1 == j2:  # Only put in, or only taken out: a line beside it is the anchor.
            if i1 > 0:
                i1, j1 = i1 - 1, j1 - 1
            else:
                i2, j2 = min(i2 + 1, len(one)), min(j2 + 1, len(other))
        if hunks and i1 - hunks[-1][1] < GAP_LINES:
            hunks[-1][1], hunks[-1][3] = i2, j2
        else:
            hunks.append([i1, i2, j1, j2])
    starts, others = ([0, *_sums(lines)] for lines in (one, other))
    return [(starts[i1], starts[i2], others[j1], others[j2]) for i1, i2, j1, j2 in hunks]


def _sums(lines: Sequence[str]) -> Iterator[int]:
    total = 0
    for line in lines:
        total += len(line)
        yield total


def _edit(file: str, before: str, after: str, start: int, end: int, new_start: int, new_end: int) -> Edit:
    """One replacement, with as much around it as makes its anchor unique."""
    if before[start:end].endswith("\n") and after[new_start:new_end].endswith("\n"):
        end, new_end = end - 1, new_end - 1
    first, last = unique(before, start, end)
    return Edit(file, before[first:last], before[first:start] + after[new_start:new_end] + before[end:last])


@contextlib.contextmanager
def unbroken(project: Project, draft: Draft) -> Iterator[Project]:
    """A copy of the project in which the edited file is as it was before the edit."""
    with tempfile.TemporaryDirectory(prefix="lastbus-") as work:
        Path(work).chmod(0o711)  # Servers that give up root must be able to reach their data below here.
        root = Path(work) / "unbroken"
        copy_tree(project.root, root)
        (root / draft.file).write_bytes(draft.before.encode("utf-8"))
        yield replace(project, root=root)


def killers_for(copy: Project, draft: Draft, python: str, run: Replay) -> tuple[tuple[str, ...], str]:
    """The tests that should kill the draft, and in words why these: those that do, if more than a few could.

    Keeps: MUT-53.
    """
    witnesses: Witnesses = find(copy, python, draft.guarantees, draft.file, draft.lines)
    if len(witnesses.tests) <= KILLERS_MAX:
        return witnesses.tests, f"tests {witnesses.why}"
    mutation = parse(f"{copy.mutations}/{draft.source}", draft.text(witnesses.tests))
    results = run(copy, [mutation]).results
    killed_by = results[0].killed_by if results else {}
    chosen = [test for test in witnesses.tests if test in killed_by] or list(witnesses.tests)
    words = f"of {len(witnesses.tests)} tests {witnesses.why}"
    return tuple(chosen[:KILLERS_MAX]), words if killed_by else f"{words}, none of which fails"


def write(project: Project, draft: Draft, killers: Sequence[str]) -> Mutation:
    """Write the mutation's file, whole or not at all, and return what was written.

    Keeps: MUT-52.
    """
    source = f"{project.mutations}/{draft.source}"
    mutation = parse(source, draft.text(killers))
    _write(project.root / source, mutation.text.encode("utf-8"), new=True)
    return mutation


def restore(project: Project, draft: Draft) -> None:
    """Put the edited file back to what it was; `UsageError` if it is not what was written down any more.

    Keeps: MUT-52.
    """
    path = project.root / draft.file
    source = f"{project.mutations}/{draft.source}"
    written = parse(source, project.read(source))
    kept = apply(written.edits, {draft.file: draft.before})[draft.file]
    if path.read_bytes() != kept.encode("utf-8"):
        raise UsageError(
            f"{draft.file} was edited again meanwhile: it stays as it is, and {source} has the edit before"
        )
    _write(path, draft.before.encode("utf-8"))


def _write(path: Path, data: bytes, new: bool = False) -> None:
    """Write a file whole or not at all; a new one never in the place of another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if new:
            os.chmod(name, 0o644)
            os.link(name, path)
        else:
            os.chmod(name, path.stat().st_mode & 0o7777)
            os.replace(name, path)
    except FileExistsError as error:
        raise UsageError(f"{path} exists: choose another id") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def judge(project: Project, copy: Project, mutation: Mutation, python: str, run: Replay) -> Outcome:
    """Replay the new mutation in the copy, and record the verdict for the project: it holds there without the edit."""
    (copy.root / mutation.source).parent.mkdir(parents=True, exist_ok=True)
    (copy.root / mutation.source).write_text(mutation.text, encoding="utf-8")
    basis = record.Basis.of(record.Present(copy), [mutation], python)
    outcome = run(copy, [mutation])
    if not outcome.baseline.red:
        record.update(project, outcome, basis)
    return outcome


def next_steps(draft: Draft, outcome: Outcome, restored: bool) -> Iterator[str]:
    """What is left to do before the guarantee is pinned by this mutation."""
    kept = kept_around(draft.edits, {draft.file: draft.before})
    for guarantee in draft.guarantees:
        if guarantee not in kept:
            yield f'no docstring around the edit keeps {guarantee}: add "Keeps: {guarantee}." to the code that does'
    if any(not result.as_expected for result in outcome.results):
        yield f"sharpen a test, or name another with --killer; until then {draft.id} is no proof"
    if not restored:
        yield f"the edit is still in {draft.file}: `git restore {draft.file}` takes it back"
