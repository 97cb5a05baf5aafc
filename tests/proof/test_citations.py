"""Where ids stand: documents, docstrings, markers."""

from __future__ import annotations

import ast
import re

import pytest

from lastbus.proof.citations import kept, marked, statements
from lastbus.proof.mutation import GUARANTEE


def kept_ids(source: str) -> list[tuple[str, str]]:
    return [(one.id, one.name) for one in kept("a.py", ast.parse(source))]


def marked_ids(source: str) -> list[tuple[str, str, int]]:
    return [(one.id, one.name, one.line) for one in marked("a.py", ast.parse(source))]


@pytest.mark.parametrize("guarantee", ["CORE-01", "RES-MEM", "RES-TIMER", "RES-R12a'", "RES-T2.1", "RES-R2"])
def test_an_id_looks_like_this(guarantee):
    assert re.fullmatch(GUARANTEE, guarantee)


@pytest.mark.parametrize("word", ["core-01", "CORE01", "CORE-", "C-1", "UTF-8 text", "CORE-01."])
def test_an_id_does_not_look_like_that(word):
    assert not re.fullmatch(GUARANTEE, word)


def test_a_document_states_an_id_its_title_and_its_sentence():
    text = "# Group\n\n### SUM-01 Adding\n\nThe sum\nis right.\n\n### SUM-02 Both\nDeclared: nobody can.\n## End\nx\n"

    first, second = statements("a.md", text)

    assert (first.id, first.title, first.sentence, first.line) == ("SUM-01", "Adding", "The sum is right.", 3)
    assert (second.id, second.declared, second.sentence) == ("SUM-02", "nobody can.", "")


def test_a_document_without_a_heading_states_nothing():
    assert statements("a.md", "More to come.\n") == statements("a.md", "") == []


def test_docstrings_of_modules_classes_and_functions_keep_ids():
    source = '''
"""Module.

Keeps: SUM-01.
"""
class A:
    """Class. Keeps: RES-T2.1, RES-R12a'."""

    async def f(self):
        """Function.

        Keeps: SUM-02,
        SUM-03.
        """
'''

    assert kept_ids(source) == [
        ("SUM-01", ""),
        ("RES-T2.1", "A"),
        ("RES-R12a'", "A"),
        ("SUM-02", "A.f"),
        ("SUM-03", "A.f"),
    ]


def test_strings_that_are_no_docstrings_keep_nothing():
    assert kept_ids('x = """Keeps: SUM-01."""\n# Keeps: SUM-01.\n') == []


def test_markers_are_found_wherever_pytest_reads_them():
    source = """
pytestmark = [pytest.mark.guarantee("SUM-01")]

@pytest.mark.guarantee("SUM-02", "SUM-03")
class TestA:
    pytestmark = pytest.mark.guarantee("SUM-04")

    @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.guarantee("SUM-05"))])
    async def test_a(self, n): ...
"""

    assert marked_ids(source) == [
        ("SUM-01", "", 2),
        ("SUM-04", "TestA", 6),
        ("SUM-05", "TestA::test_a", 8),
        ("SUM-02", "TestA", 4),
        ("SUM-03", "TestA", 4),
    ]
