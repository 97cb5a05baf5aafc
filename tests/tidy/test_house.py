"""House rules that nobody has to remember."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGE, ROOT, modules

LINES_MAX = 500


def tracked(*patterns: str) -> list[Path]:
    """The files under version control that match; an unpacked copy without history counts every file."""
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        return [
            path for pattern in patterns for path in ROOT.rglob(pattern.rpartition("/")[2]) if ".venv" not in path.parts
        ]
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def test_every_module_starts_with_a_sentence() -> None:
    silent = [name for name, tree in modules() if not (ast.get_docstring(tree) or "").strip()]

    assert silent == []


def test_no_module_is_longer_than_a_long_read() -> None:
    long = {
        path.name: count for path in PACKAGE.rglob("*.py") if (count := len(path.read_text().splitlines())) > LINES_MAX
    }

    assert long == {}


def undocumented(tree: ast.Module) -> list[str]:
    """Public functions and classes without a docstring.

    A method of a class with bases may inherit its promise, and pytest says what its hooks are for.
    """
    silent = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        methods = node.body if isinstance(node, ast.ClassDef) and not node.bases else []
        functions = [each for each in methods if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        public = [node, *(each for each in functions if not each.name.startswith(("_", "pytest_")))]
        silent += [each.name for each in public if ast.get_docstring(each) is None]
    return silent


def test_every_public_definition_has_a_docstring() -> None:
    assert [f"{module}.{name}" for module, tree in modules() for name in undocumented(tree)] == []


def test_a_silent_definition_is_caught() -> None:
    source = "class A:\n  def b(self): ...\ndef c(): ...\ndef _d(): ...\nclass E(A):\n  '''Says.'''\n  def b(self): ..."

    assert undocumented(ast.parse(source)) == ["A", "b", "c"]


def test_prose_is_wrapped_at_120() -> None:
    pages = [path for path in tracked("*.md") if path.suffix == ".md"]
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in pages
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 and not line.startswith("|") and "](" not in line
    ]

    assert long == []


@pytest.mark.parametrize("name", ["README.md", "LICENSE", "CHANGELOG.md", "tox.ini", "pyproject.toml", ".ci/run"])
def test_the_house_has_its_front_rooms(name: str) -> None:
    assert (ROOT / name).is_file()


def test_every_changelog_line_is_a_sentence() -> None:
    lines = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("- ")]

    assert lines
    assert [line for line in lines if not re.match(r"- [A-Z`].*", line)] == []
