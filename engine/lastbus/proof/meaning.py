"""Meaning: whether two versions of a Python file differ in more than comments, docstrings and layout.

Keeps: MUT-03, MUT-13.

A mutation changes a few lines of one function, and there are many mutations: so that function is read, and the whole
file only where its lines cannot be told from the rest. What is said is what reading the whole file would say.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

_DEF: Final = re.compile(r"(\s*)(?:async\s+)?def\s")
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_CLOSER: Final = re.compile(r"\s*[)\]}#]|\s*$")


def differs(before: str, after: str) -> bool:
    """Whether the code differs; `SyntaxError` or `ValueError` if `after` is not Python, `before` must be.

    Keeps: MUT-03, MUT-13.
    """
    one, other = before.split("\n"), after.split("\n")
    first = equal_lines(one, other)
    last = len(one) - equal_lines(one[first:][::-1], other[first:][::-1])
    start, end = _function_around(one, first, max(last, first))
    if start < end:
        then = _known_function("\n".join(one[start:end]))
        now = _function("\n".join(other[start : end + len(other) - len(one)]))
        if then and now:
            return not _same(then, now)
    return not _same(_module(before), ast.parse(after))


def equal_lines(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    pairs = zip(one, other, strict=False)
    return next((number for number, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def _function_around(lines: Sequence[str], first: int, last: int) -> tuple[int, int]:
    """The lines of the innermost function whose body holds `first` to `last`, or an empty range.

    Told by indentation: a guess, which `differs` confirms by reading it as a function.
    """
    for start in range(min(first, len(lines)) - 1, -1, -1):
        head = _DEF.match(lines[start])
        if head:
            depth = len(head[1])
            inside = (number for number in range(start + 1, len(lines)) if not _within(lines[number], depth))
            end = next(inside, len(lines))
            if last <= end and first < end:
                return start, end
    return 0, 0


def _within(line: str, depth: int) -> bool:
    """Whether a line can belong to a function that begins at `depth`."""
    return line[: depth + 1].isspace() or _CLOSER.match(line) is not None


def _function(text: str) -> ast.Module | None:
    """The tree of one function, indented or not; None if `text` is not exactly one."""
    indented = text[:1].isspace()
    try:
        tree = ast.parse(f"if 1:\n{text}" if indented else text)
    except (SyntaxError, ValueError):
        return None
    body = tree.body
    if indented and len(body) == 1 and isinstance(body[0], ast.If):
        body = [*body[0].body, *body[0].orelse]
    return tree if len(body) == 1 and isinstance(body[0], (ast.FunctionDef, ast.AsyncFunctionDef)) else None


# Many mutations of one function or file follow one another; more trees would only be in the way of the collector.
_known_function = lru_cache(maxsize=64)(_function)
_module = lru_cache(maxsize=16)(ast.parse)


def _same(one: Any, other: Any) -> bool:
    """Whether two parts of syntax trees mean the same, docstrings left out; stops where they part.

    Keeps: MUT-13.
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, ast.AST):
        return all(_same(_field(one, name), _field(other, name)) for name in one._fields)
    return bool(one == other)


def _field(node: ast.AST, name: str) -> Any:
    """One field of a node; a docstring is nothing.

    Keeps: MUT-13.
    """
    value = getattr(node, name, None)
    if name != "body" or not isinstance(node, _DOCUMENTED) or ast.get_docstring(node, clean=False) is None:
        return value
    return [ast.Pass(), *node.body[1:]]
