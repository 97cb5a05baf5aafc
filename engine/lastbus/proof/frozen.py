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
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lastbus.proof.citations import definitions
from lastbus.proof.config import Project
from lastbus.proof.errors import UsageError
from lastbus.proof.mutation import Mutation

FILE: Final = "frozen.json"


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
        now = numbers(body(project.read(entry.file), entry.name))
        if now != entry.numbers:
            changed.append(
                f"{entry.file}: {entry.name} is frozen ({entry.why}) but changed: it was {entry.numbers}, it is {now};"
                " undo the change, or decide it and run `lastbus frozen update`"
            )
    return changed


def update(project: Project, entries: Sequence[Entry]) -> list[Entry]:
    """Write the numbers of today into the project's file and return the entries that hold them."""
    now = [Entry(one.file, one.name, numbers(body(project.read(one.file), one.name)), one.why) for one in entries]
    rows = [{"file": one.file, "name": one.name, **vars(one.numbers), "why": one.why} for one in now]
    text = json.dumps(rows, indent=2, ensure_ascii=False)
    path = project.root / project.mutations / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    return now


def history(project: Project, entry: Entry, revisions: Sequence[str]) -> dict[str, Numbers | None]:
    """The numbers of one body at each git revision and, last, in the work tree; None where it does not exist.

    Keeps: FRZ-03.
    """
    found: dict[str, Numbers | None] = {}
    for revision in revisions:
        show = subprocess.run(
            ["git", "show", f"{revision}:./{entry.file}"],
            cwd=project.root,
            capture_output=True,
            check=False,
        )
        found[revision] = _numbers_or_none(show.stdout.decode("utf-8"), entry.name) if not show.returncode else None
    found["work tree"] = _numbers_or_none(project.read(entry.file), entry.name)
    return found


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


def displaced(project: Project, entries: Sequence[Entry], mutations: Sequence[Mutation]) -> Iterator[str]:
    """Mutations that claim to sit in a frozen body (`frozen:` in their summary) and whose anchor does not.

    Keeps: FRZ-05.
    """
    bodies = {(entry.file, entry.name): body(project.read(entry.file), entry.name) for entry in entries}
    for mutation in mutations:
        claimed = mutation.summary.startswith("frozen:")
        for edit in mutation.edits:
            inside = any(file == edit.file and edit.old in slice_ for (file, _), slice_ in bodies.items())
            if claimed and not inside:
                yield f"{mutation.source}: its anchor is not inside a frozen body of {edit.file}: anchor it anew"
