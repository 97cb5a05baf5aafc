"""Pages: what they point at exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "README.md"])
TEST_NAME = re.compile(r"`(test_\w+)`")
PLACE = re.compile(r"`((?:engine|tests|docs|scripts|mutations|examples)/[\w./-]+)(?:::(\w+))?`")


def known_tests() -> set[str]:
    """The names of all tests, and of the modules that they are in."""
    files = list((ROOT / "tests").rglob("test_*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return set(re.findall(r"def (test_\w+)", text)) | {path.stem for path in files}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = set(TEST_NAME.findall(page.read_text(encoding="utf-8")))

    assert named - known_tests() == set()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_place_that_a_page_names_exists(page: Path) -> None:
    named = PLACE.findall(page.read_text(encoding="utf-8"))

    assert [place for place in named if not is_there(*place)] == []


def is_there(path: str, test: str = "") -> bool:
    """Whether the file exists, and defines the test if one is named."""
    place = ROOT / path
    return place.exists() and (not test or f"def {test}(" in place.read_text(encoding="utf-8"))


def test_a_place_that_is_not_there_is_noticed() -> None:
    here = "tests/tidy/test_pages.py"
    page = f"`tests/README.md` `tests/nowhere.py` `{here}::test_nothing` `{here}::is_there`"

    assert [is_there(*place) for place in PLACE.findall(page)] == [True, False, False, True]
