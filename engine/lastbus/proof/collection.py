"""Collection: the same tests are collected on every interpreter.

Keeps: MUT-12. A test that does not apply to a version must be skipped there, where its
absence is seen, and not be defined conditionally, where it silently vanishes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

_VERSION_WORDS: Final = frozenset({"version_info", "hexversion", "python_version", "python_version_tuple", "version"})


def conditional_tests(tree: ast.Module) -> list[tuple[str, int]]:
    """Tests and test classes, with their lines, whose definition depends on the interpreter's version.

    Keeps: MUT-12.
    """
    return list(_conditional(tree, False))


def _conditional(node: ast.AST, inside: bool) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if inside and child.name.startswith(("test", "Test")):
                yield child.name, child.lineno
            if isinstance(child, ast.ClassDef):
                yield from _conditional(child, inside)
        else:
            yield from _conditional(child, inside or (isinstance(child, ast.If) and _asks_version(child.test)))


def _asks_version(test: ast.expr) -> bool:
    """Whether a condition looks at the interpreter's version.

    Keeps: MUT-12.
    """
    return any(
        (isinstance(node, ast.Attribute) and node.attr in _VERSION_WORDS)
        or (isinstance(node, ast.Name) and node.id in _VERSION_WORDS)
        for node in ast.walk(test)
    )
