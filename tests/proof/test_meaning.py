"""Whether two versions of a file mean the same: one function is read for it, and all of the file only if it must be."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

from lastbus.proof import meaning
from lastbus.proof.meaning import differs

TEXT = '''
LIMIT = 3


class Shop:
    """A shop."""

    def add(self, one, two):
        """The sum."""

        return (
            one + two
        )

    async def full(self, count):
        # Not one more.
        return count >= LIMIT


def text():
    return """
none of this is
code
"""
'''


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are read, in order; what was read before does not count."""
    read: list[str] = []

    def noted(text: str) -> ast.Module:
        read.append(text)
        return ast.parse(text)

    monkeypatch.setattr(meaning, "_known_function", meaning._function)
    monkeypatch.setattr(meaning, "_module", noted)
    monkeypatch.setattr(meaning, "ast", SimpleNamespace(**{**vars(ast), "parse": noted}))
    return read


@pytest.mark.guarantee("MUT-13")
@pytest.mark.parametrize(
    ("old", "new", "is_other"),
    [
        ("one + two", "one - two", True),
        ("            one + two\n", "            one +  two  # both\n", False),
        ('"""The sum."""', '"""Their sum."""', False),
        ("count >= LIMIT", "count > LIMIT", True),
        ("# Not one more.", "# Enough.", False),
    ],
    ids=["code", "layout", "docstring", "async", "comment"],
)
def test_a_change_inside_a_function_is_told_by_reading_that_function_alone(read, old, new, is_other):
    assert differs(TEXT, TEXT.replace(old, new)) is is_other

    assert len(read) == 2
    assert all("class Shop" not in text and "LIMIT = 3" not in text for text in read)


@pytest.mark.guarantee("MUT-03", "MUT-13")
@pytest.mark.parametrize(
    ("old", "new", "is_other"),
    [
        ("LIMIT = 3", "LIMIT = 4", True),
        ('"""A shop."""', '"""The shop."""', False),
        ("none of this is", "all of this is", True),
        ("def text():", "def texts():", True),
    ],
    ids=["outside", "class-docstring", "a-text-that-looks-like-code", "name"],
)
def test_any_other_change_is_told_as_well(old, new, is_other):
    assert differs(TEXT, TEXT.replace(old, new)) is is_other


@pytest.mark.guarantee("MUT-03")
def test_what_is_no_python_any_more_is_not_taken_for_a_function():
    with pytest.raises(SyntaxError):
        differs(TEXT, TEXT.replace("one + two", "one +"))
