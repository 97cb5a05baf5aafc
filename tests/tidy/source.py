"""The project's own source, as trees that a tidy test can walk."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "engine"
PACKAGE = ENGINE / "lastbus"


def modules(folder: Path = PACKAGE, mentions: str = "") -> Iterator[tuple[str, ast.Module]]:
    """Each module of `folder` that mentions this word as (dotted name relative to the source root, tree)."""
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(ENGINE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        if mentions in text:
            yield name, ast.parse(text, str(path))


def imports(module: str, tree: ast.AST, is_package: bool = False) -> Iterator[tuple[str, int]]:
    """Every absolute module name that `tree` imports, with its line; relative imports are resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*parents, *([base] if base else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


def calls(tree: ast.AST, name: str) -> Iterator[int]:
    """The lines on which something called `name` (a function or a method) is mentioned."""
    for node in ast.walk(tree):
        if (isinstance(node, ast.Attribute) and node.attr == name) or (isinstance(node, ast.Name) and node.id == name):
            yield node.lineno
