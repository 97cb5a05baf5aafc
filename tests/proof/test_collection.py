"""No test vanishes with the interpreter's version.

Keeps: MUT-12.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lastbus.proof.collection import conditional_tests

TESTS = Path(__file__).resolve().parents[1]


def _files(place: Path) -> list[Path]:
    return [place] if place.suffix == ".py" else list(place.rglob("*.py"))


@pytest.mark.guarantee("MUT-12")
@pytest.mark.parametrize(
    "source",
    [
        "if sys.version_info >= (3, 12):\n    def test_a(): ...",
        "if sys.version_info < (3, 12):\n    pass\nelse:\n    async def test_a(): ...",
        "if True and version_info[1] > 10:\n    class TestA: ...",
        "class TestA:\n    if sys.hexversion > 1:\n        def test_a(self): ...",
        "try:\n    if not platform.python_version() == '3.10':\n        def test_a(): ...\nfinally: pass",
    ],
)
def test_a_test_under_a_version_is_found(source):
    assert len(conditional_tests(ast.parse(source))) == 1


@pytest.mark.guarantee("MUT-12")
@pytest.mark.parametrize(
    "source",
    [
        "def test_a():\n    if sys.version_info >= (3, 12):\n        def test(): ...",
        "if sys.version_info >= (3, 11):\n    import tomllib",
        "@pytest.mark.skipif(sys.version_info < (3, 12), reason='x')\ndef test_a(): ...",
    ],
)
def test_what_is_only_skipped_or_only_helps_is_fine(source):
    assert conditional_tests(ast.parse(source)) == []


@pytest.mark.guarantee("MUT-12")
@pytest.mark.parametrize("place", sorted(path.name for path in TESTS.iterdir() if _files(path)))
def test_the_tests_of_this_project_are_the_same_on_every_interpreter(place):
    found = {
        f"{file.relative_to(TESTS)}:{line} {name}"
        for file in _files(TESTS / place)
        for name, line in conditional_tests(ast.parse(file.read_text(encoding="utf-8")))
    }

    assert not found, "skip these tests by a mark instead"
