"""Changes: which mutations a change can concern, told from the files, so that a review replays only these.

Keeps: MUT-46.

A mutation is concerned if its own file changed, the definition that it is anchored in, one of its killers, or anything
that its killers lean on. Other tests in a killer's file, and other definitions in a mutated file, do not concern it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from lastbus.proof.basis import Tree
from lastbus.proof.citations import definitions
from lastbus.proof.config import Project
from lastbus.proof.keepers import changed_lines
from lastbus.proof.mutation import Edit, Mutation
from lastbus.proof.revisions import changed_files, merge_base, text_at

Old = Callable[[str], str]


def since(project: Project, revision: str, mutations: Sequence[Mutation]) -> list[Mutation]:
    """Those of `mutations` that what happened since `revision` concerns, work that is not committed included.

    Since means: since the commit that `revision` and HEAD have in common.
    Keeps: MUT-46.
    """
    commit = merge_base(project, revision)
    changed = changed_files(project, commit)
    before = lru_cache(maxsize=None)(lambda file: text_at(project, commit, file) or "")
    tree = Tree(project)
    return [one for one in mutations if one.source in changed or _concerned(tree, one, changed, before)]


def _concerned(tree: Tree, mutation: Mutation, changed: set[str], before: Old) -> bool:
    """Whether the code or the tests of a mutation changed.

    Keeps: MUT-46.
    """
    for edit in mutation.edits:
        if edit.file in changed and _anchor_changed(tree.project, edit, before(edit.file)):
            return True
    killers = {killer.split("::")[0] for killer in mutation.killers}
    leaned_on = tree.basis(mutation).keys() - {*mutation.files, *killers, mutation.source}
    if any(file in changed or _has_changes(file, changed) for file in leaned_on):
        return True
    return any(_killer_changed(tree.project, killer, before) for killer in mutation.killers if _file(killer) in changed)


def _file(killer: str) -> str:
    return killer.split("::")[0]


def _has_changes(folder: str, changed: set[str]) -> bool:
    """Whether data in a folder changed; the folder's Python files are asked one by one.

    Keeps: MUT-46.
    """
    return folder.endswith("/") and any(file.startswith(folder) and not file.endswith(".py") for file in changed)


def _anchor_changed(project: Project, edit: Edit, before: str) -> bool:
    """Whether the definition around an anchor is not what it was; what is no Python, or lost, counts as changed.

    Keeps: MUT-46.
    """
    path = project.root / edit.file
    now = project.read(edit.file) if path.is_file() else ""
    if not edit.file.endswith(".py") or edit.old not in now:
        return True
    line = changed_lines(edit, now)[0]
    return _around(now, line) != _counterpart(before, now, line)


def _around(text: str, line: int) -> tuple[str, str]:
    """The innermost function around a line with its text; outside any, what the module has outside functions."""
    inside = [one for one in _functions(text) if one.first <= line <= one.last]
    return (inside[-1].name, inside[-1].text) if inside else ("", _outside(text, ""))


def _counterpart(before: str, now: str, line: int) -> tuple[str, str]:
    """What stood where `_around` looks now."""
    name, _ = _around(now, line)
    if not name:
        return "", _outside(before, "")
    return next(((name, one.text) for one in _functions(before) if one.name == name), ("", ""))


def _killer_changed(project: Project, killer: str, before: Old) -> bool:
    """Whether a test changed, or anything in its file that is no other test.

    Keeps: MUT-46.
    """
    file, *names = killer.partition("[")[0].split("::")
    if not (project.root / file).is_file():
        return True
    name = ".".join(names)
    return _outside(project.read(file), name) != _outside(before(file), name)


@lru_cache(maxsize=512)
def _outside(text: str, keep: str) -> str:
    """`text` without its tests but `keep`; without any function if `keep` is empty.

    Text that is not Python is all there is.
    """
    lines = text.splitlines()
    for one in _functions(text):
        if not keep or (one.is_test and one.name != keep):
            lines[one.first - 1 : one.last] = [""] * (one.last - one.first + 1)
    return "\n".join(line for line in lines if line)


@dataclass(frozen=True)
class _Function:
    """A function in its file, decorators included."""

    name: str
    first: int
    last: int
    text: str
    is_test: bool


@lru_cache(maxsize=512)
def _functions(text: str) -> tuple[_Function, ...]:
    """Every function of a module, outer before inner; none if it is not Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return ()
    lines = text.splitlines()
    found = []
    for node, name in definitions(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            last = node.end_lineno or node.lineno
            # A fixture may be called like a test, and other tests lean on it.
            fixture = any("fixture" in ast.dump(decorator) for decorator in node.decorator_list)
            is_test = node.name.startswith("test") and not fixture
            found.append(_Function(name, first, last, "\n".join(lines[first - 1 : last]), is_test))
    return tuple(found)
