"""A frozen body: a function whose code, docstring apart, is pinned to the byte.

Keeps: FRZ-01, FRZ-02, FRZ-04, FRZ-06.

The slice runs from the first decorator (or the signature) to the last line of the body.
It is found in the syntax tree, so blank lines, nested quotes and what follows the function
cannot move its ends. The docstring is left out whatever its shape; everything else counts.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lastbus.proof.citations import definitions
from lastbus.proof.config import Project
from lastbus.proof.errors import UsageError
from lastbus.proof.mutation import Edit, Mutation
from lastbus.proof.revisions import last_commits, text_at

FILE: Final = "frozen.json"
WORK_TREE: Final = "work tree"
COMMITS_MAX: Final = 10


@dataclass(frozen=True)
class Numbers:
    """The three numbers of a slice."""

    bytes: int
    lines: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.bytes} bytes, {self.lines} lines, sha256 {self.sha256[:12]}"


@dataclass(frozen=True)
class Entry:
    """One frozen body: where it is, its numbers, and why it must not change."""

    file: str
    name: str
    numbers: Numbers
    why: str

    @property
    def id(self) -> str:
        """Its name in full, as `decide` takes it: `path/to/file.py::Class.method`."""
        return f"{self.file}::{self.name}"


def body(text: str, name: str) -> str:
    """The frozen slice of the function `name` in `text`; `UsageError` if there is no such function.

    Keeps: FRZ-01, FRZ-04, FRZ-06.
    """
    for node, found in definitions(ast.parse(text)):
        if found == name and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return _slice(text, node)
    raise UsageError(f"there is no function {name}: correct the entry in {FILE}")


def _slice(text: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Whole lines of `node`, less the docstring's own characters.

    Keeps: FRZ-01, FRZ-04, FRZ-06.
    """
    data = text.encode("utf-8").splitlines(keepends=True)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
    last = node.end_lineno or node.lineno
    if ast.get_docstring(node, clean=False) is None:
        return b"".join(data[first:last]).decode("utf-8")
    quoted = node.body[0]
    start, end = quoted.lineno - 1, quoted.end_lineno or quoted.lineno
    before = data[start][: quoted.col_offset]
    after = data[end - 1][quoted.end_col_offset :]
    # What shares a line with the docstring is code or layout: only layout goes with it.
    shared = before.strip() or after.strip()
    head = before.rstrip() + b" " if before.strip() else before
    joint = head + after.lstrip(b"; \t") if shared else b""
    return b"".join([*data[first:start], joint, *data[end:last]]).decode("utf-8")


def numbers(slice_: str) -> Numbers:
    """Bytes, lines and digest of a slice."""
    data = slice_.encode("utf-8")
    return Numbers(len(data), len(slice_.splitlines()), hashlib.sha256(data).hexdigest())


def load(project: Project) -> list[Entry]:
    """The frozen bodies that the project names; none without a file."""
    path = project.root / project.mutations / FILE
    if not path.is_file():
        return []
    return [
        Entry(one["file"], one["name"], Numbers(one["bytes"], one["lines"], one["sha256"]), one["why"])
        for one in json.loads(path.read_text(encoding="utf-8"))
    ]


def check(project: Project, entries: Sequence[Entry]) -> list[str]:
    """What changed, one sentence for each body that is not what it was.

    Keeps: FRZ-02.
    """
    changed = []
    for entry in entries:
        now = numbers(_body_of(project, entry))
        if now != entry.numbers:
            changed.append(
                f"{entry.file}: {entry.name} is frozen ({entry.why}) but changed: it was {entry.numbers}, it is {now};"
                f" undo the change, or decide it and run `lastbus frozen update {entry.name} --why …`"
            )
    return changed


def _text(project: Project, file: str) -> str:
    """A file of the work tree; one that is gone has no text, hence no function."""
    return project.read(file) if (project.root / file).is_file() else ""


def _body_of(project: Project, entry: Entry) -> str:
    return body(_text(project, entry.file), entry.name)


def find(entries: Sequence[Entry], name: str) -> Entry:
    """The entry that `name` means, in full or without its file; `UsageError` if it is none or several.

    Keeps: FRZ-07.
    """
    found = [one for one in entries if name in (one.id, one.name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name} is frozen in several files; say which: {', '.join(one.id for one in found)}")
    raise UsageError(f"{name} is not frozen; these are: {', '.join(one.id for one in entries) or 'none'}")


def decide(project: Project, entries: Sequence[Entry], name: str, why: str) -> Entry:
    """Freeze one body as it is today, because of `why`, and leave every other entry alone.

    `name` means an entry, or a body that is new here: `path/to/file.py::Class.method`. `UsageError` if it means
    neither, and without a reason.

    Keeps: FRZ-07.
    """
    if not why.strip():
        raise UsageError("a body is frozen for a reason: say it with --why")
    file, is_full, function = name.partition("::")
    known = [one for one in entries if one.id == name]
    old = Entry(file, function, Numbers(0, 0, ""), "") if is_full and not known else find(entries, name)
    now = replace(old, numbers=numbers(_body_of(project, old)), why=why.strip())
    _write(project, [*(now if one is old else one for one in entries), *([] if old in entries else [now])])
    return now


def _write(project: Project, entries: Sequence[Entry]) -> None:
    rows = [{"file": one.file, "name": one.name, **vars(one.numbers), "why": one.why} for one in entries]
    text = json.dumps(rows, indent=2, ensure_ascii=False)
    path = project.root / project.mutations / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def history(project: Project, entry: Entry, revisions: Sequence[str]) -> dict[str, Numbers | None]:
    """The numbers of one body at each git revision and, last, in the work tree; None where it does not exist.

    Keeps: FRZ-03.
    """
    found: dict[str, Numbers | None] = {}
    for revision in revisions:
        text = text_at(project, revision, entry.file)
        found[revision] = None if text is None else _numbers_or_none(text, entry.name)
    found[WORK_TREE] = _numbers_or_none(_text(project, entry.file), entry.name)
    return found


def commits(project: Project, entry: Entry) -> list[str]:
    """The last commits that touched the file of a body, newest first; none outside version control.

    Keeps: FRZ-03.
    """
    return last_commits(project, entry.file, COMMITS_MAX)


def _numbers_or_none(text: str, name: str) -> Numbers | None:
    try:
        return numbers(body(text, name))
    except UsageError:
        return None


def identical(found: Sequence[Numbers | None]) -> bool:
    """Whether all revisions have the body, and the same one.

    Keeps: FRZ-03.
    """
    return None not in found and len(set(found)) == 1


def anchored(project: Project, entries: Sequence[Entry], mutations: Sequence[Mutation]) -> dict[str, list[str]]:
    """For each frozen body, by its full name, the mutations that are anchored in it: they will not need it anew.

    Keeps: FRZ-05.
    """
    slices = {one: _body_of(project, one) for one in entries}
    return {
        one.id: [each.id for each in mutations if any(_is_inside(edit, {one: slices[one]}) for edit in each.edits)]
        for one in entries
    }


def displaced(project: Project, entries: Sequence[Entry], mutations: Sequence[Mutation]) -> Iterator[str]:
    """Mutations that claim to sit in a frozen body (`frozen:` in their summary) and whose anchor does not.

    Keeps: FRZ-05.
    """
    slices = {one: _body_of(project, one) for one in entries}
    for mutation in mutations:
        claimed = mutation.summary.startswith("frozen:")
        for edit in mutation.edits:
            inside = _is_inside(edit, slices)
            if claimed and not inside:
                yield f"{mutation.source}: its anchor is not inside a frozen body of {edit.file}: anchor it anew"


def _is_inside(edit: Edit, slices: dict[Entry, str]) -> bool:
    """Whether the text to replace stands in one of `slices`; it stands in its file only once.

    Keeps: FRZ-05.
    """
    return any(one.file == edit.file and edit.old in slice_ for one, slice_ in slices.items())
