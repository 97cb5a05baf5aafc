"""Keepers: which guarantees the code around a mutation keeps, by what its docstrings say.

Keeps: MUT-21.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from lastbus.proof.citations import Definition, definitions, kept_by
from lastbus.proof.meaning import equal_lines
from lastbus.proof.mutation import Edit


def kept_around(edits: Sequence[Edit], texts: Mapping[str, str]) -> set[str]:
    """The ids kept by the definitions that `edits` change, by what encloses them, and by their direct callers.

    The callers of a module's constant are the functions that use it.
    Keeps: MUT-21.
    """
    found: set[str] = set()
    for edit in edits:
        text = texts.get(edit.file, "")
        if edit.file.endswith(".py") and edit.old in text:
            places = _places(text)
            first, last = changed_lines(edit, text)
            touched = [place for place in places if place.first <= last and first <= place.last]
            named = {place.name for place in touched if place.name}
            callers = [place for place in places if not named.isdisjoint(place.mentions)]
            found.update(guarantee for place in (*touched, *callers) for guarantee in place.keeps)
    return found


@dataclass(frozen=True)
class _Place:
    """Lines of a module that belong together: what they are called, what they keep, and what they mention."""

    first: int
    last: int
    name: str
    keeps: tuple[str, ...]
    mentions: frozenset[str]


@lru_cache(maxsize=256)
def _places(text: str) -> tuple[_Place, ...]:
    """The module, its classes, functions and constants. Functions call; functions and constants are called."""
    tree = ast.parse(text)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    places = []
    for node, _ in definitions(tree):
        calls = isinstance(node, functions)
        places.append(
            _Place(
                first=_first_line(node),
                last=text.count("\n") + 1 if isinstance(node, ast.Module) else node.end_lineno or node.lineno,
                name=node.name if isinstance(node, functions) else "",
                keeps=tuple(kept_by(node)),
                mentions=frozenset(_mentioned(node)) if calls else frozenset(),
            )
        )
    for statement in tree.body:
        for name in _assigned(statement):
            last = statement.end_lineno or statement.lineno
            places.append(_Place(statement.lineno, last, name, (), frozenset()))
    return tuple(places)


def _first_line(node: Definition) -> int:
    if isinstance(node, ast.Module):
        return 1
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _mentioned(node: Definition) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr


def _assigned(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def changed_lines(edit: Edit, text: str) -> tuple[int, int]:
    """The first and last line of `text` that `edit` really changes: equal lines at its ends are only its anchor.

    Lines that are only put in belong to the line before them.
    """
    old, new = edit.old.splitlines(), edit.new.splitlines()
    first = equal_lines(old, new)
    last = len(old) - 1 - equal_lines(old[first:][::-1], new[first:][::-1])
    start = text.count("\n", 0, text.index(edit.old)) + 1
    if last < first:
        first = last = max(0, first - 1)
    return start + first, start + last
