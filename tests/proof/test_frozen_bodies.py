"""The frozen bodies of this project: each is what it was when somebody decided it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastbus.proof import frozen
from lastbus.proof.config import Project

PROJECT = Project.load(Path(__file__).parents[2])
ENTRIES = frozen.load(PROJECT)


@pytest.mark.guarantee("FRZ-02")
@pytest.mark.parametrize("entry", ENTRIES, ids=[each.name for each in ENTRIES])
def test_a_frozen_body_is_still_byte_identical(entry):
    assert frozen.check(PROJECT, [entry]) == []


def test_every_frozen_body_says_why():
    assert [each.id for each in ENTRIES if len(each.why.split()) < 5] == []
