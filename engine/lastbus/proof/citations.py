"""Citations: where guarantee ids stand in documents, docstrings and test markers.

Keeps: MUT-09. Everything is read from source text; no project code is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from lastbus.proof.mutation import GUARANTEE

_HEADING: Final = re.compile(rf"^### ({GUARANTEE})(?![\w'.-])\s*(.*)$")
_DECLARED: Final = re.compile(r"^Declared:\s*(.+)$")
_KEEPS: Final = re.compile(rf"Keeps:\s+({GUARANTEE}(?:,\s+{GUARANTEE})*)\.(?:\s|$)")
_ID: Final = re.compile(GUARANTEE)

Definition: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Statement:
    """A guarantee as its document states it. `declared` is the reason why it has no mutation, if it has none."""

    id: str
    title: str
    sentence: str
    declared: str
    file: str
    line: int


@dataclass(frozen=True)
class Citation:
    """One id at one place: `name` is the dotted name of the definition, empty for a module."""

    id: str
    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" {self.name}" if self.name else "")


def statements(file: str, text: str) -> list[Statement]:
    """The guarantees that a document states: a heading ``### CORE-01 Title`` and the text up to the next heading."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("#")]
    found = []
    for start, end in pairwise([*starts, len(lines)]):
        heading = _HEADING.match(lines[start])
        if heading:
            body = [line.strip() for line in lines[start + 1 : end]]
            declared = next((match[1] for line in body if (match := _DECLARED.match(line))), "")
            sentence = " ".join(line for line in body if line and not _DECLARED.match(line))
            found.append(Statement(heading[1], heading[2], sentence, declared, file, start + 1))
    return found


def kept(file: str, tree: ast.Module) -> list[Citation]:
    """The ids after ``Keeps:`` in the docstrings of a module, its classes and its functions."""
    return [
        Citation(guarantee, file, getattr(node, "lineno", 1), name)
        for node, name in definitions(tree)
        for guarantee in kept_by(node)
    ]


def kept_by(node: Definition) -> list[str]:
    """The ids that the docstring of one definition keeps."""
    docstring = ast.get_docstring(node) or ""
    return [guarantee for match in _KEEPS.finditer(docstring) for guarantee in _ID.findall(match[1])]


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[Definition, str]]:
    """A tree's module, classes and functions with their dotted names, outer before inner."""
    if isinstance(node, ast.Module):
        yield node, ""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            continue  # No definition stands inside an expression, and most of a tree is expressions.
        name = prefix
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            name = f"{prefix}.{child.name}" if prefix else child.name
            yield child, name
        yield from definitions(child, name)


def marked(file: str, tree: ast.Module) -> list[Citation]:
    """The ids in ``pytest.mark.guarantee(…)``: in decorators, in ``pytestmark`` and on single parameters.

    Ids that are computed are not seen here; a replay sees them, because it asks pytest.
    """
    return list(_marked(file, tree, ""))


def _marked(file: str, node: ast.AST, name: str) -> Iterator[Citation]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        name = f"{name}::{node.name}" if name else node.name
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "guarantee":
        for arg in node.args:
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
                yield Citation(arg.value, file, node.lineno, name)
    for child in ast.iter_child_nodes(node):
        yield from _marked(file, child, name)
