"""Sample trees: tiny projects, written to a temporary folder, that a replay can be tried on."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lastbus.proof import record
from lastbus.proof.config import Project
from lastbus.proof.copies import LEFT_OUT
from lastbus.proof.mutation import Mutation, load_all
from lastbus.proof.replay import Outcome, replay

PYPROJECT = """
[tool.pytest.ini_options]
pythonpath = ["src"]
markers = ["guarantee(*ids): what the test pins"]

[tool.lastbus.proof]
docs = ["docs"]
code = ["src"]
tests = ["tests"]
mutations = "mutations"
floor_seconds = 10
"""

CODE = '''
"""A shop that can count."""

LIMIT = 3


def add(one, two):
    """The sum.

    Keeps: SUM-01.
    """
    return one + two


def full(count):
    """Whether the shop is full.

    Keeps: SUM-02.
    """
    return count >= LIMIT
'''

TESTS = """
import pytest
import shop


@pytest.mark.guarantee("SUM-01")
def test_add_gives_the_sum():
    assert shop.add(2, 3) == 5


@pytest.mark.guarantee("SUM-02")
def test_a_shop_at_its_limit_is_full():
    assert shop.full(3)


def test_an_unmarked_sum():
    assert shop.add(1, 1) == 2
"""

DOCS = """
### SUM-01 Adding

`add` gives the sum.

### SUM-02 Fullness

A shop at its limit is full.
"""

HAS_SUBTESTS = int(pytest.__version__.split(".")[0]) >= 9
"""Older versions of pytest have no `subtests` fixture of their own."""

ADD = "tests/test_shop.py::test_add_gives_the_sum"
FULL = "tests/test_shop.py::test_a_shop_at_its_limit_is_full"
UNMARKED = "tests/test_shop.py::test_an_unmarked_sum"


@dataclass(frozen=True)
class Sample:
    """A project in a folder of its own, with verbs to write into it and to replay it."""

    root: Path

    @property
    def project(self) -> Project:
        return Project.load(self.root)

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"), encoding="utf-8")

    def mutate(self, name: str, **changes: Any) -> Mutation:
        """Write a mutation file: the one that breaks `add`, with `changes`; None drops a key."""
        body: dict[str, Any] = {
            "id": name,
            "guarantees": ["SUM-01"],
            "summary": "The sum is wrong.",
            "file": "src/shop.py",
            "old": "return one + two",
            "new": "return one - two",
            "killers": [ADD],
        }
        body = {key: value for key, value in {**body, **changes}.items() if value is not None}
        self.write(f"mutations/sum/{name}.json", json.dumps(body, indent=1))
        return next(one for one in load_all(self.project) if one.id == name)

    def record(self, outcome: Outcome, python: str = sys.executable) -> None:
        """Keep `outcome` as the last replay, as the commands do."""
        mutations = [result.mutation for result in outcome.results]
        basis = record.Basis.of(record.Present(self.project), mutations, python)
        record.update(self.project, outcome, basis)

    def replay(self, **options: Any) -> Outcome:
        return replay(self.project, load_all(self.project), **options)

    def verdicts(self, **options: Any) -> dict[str, str]:
        return {result.mutation.id: str(result.verdict) for result in self.replay(**options).results}

    def digest(self) -> dict[str, str]:
        """Every file of the tree with its bytes and its time, to see whether anything touched it."""
        return {
            file.relative_to(self.root).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            + str(file.stat().st_mtime_ns)
            for file in sorted(self.root.rglob("*"))
            if file.is_file() and LEFT_OUT.isdisjoint(file.relative_to(self.root).parts)
        }


def shop(root: Path) -> Sample:
    """The shop: two guarantees, three tests, no mutation yet."""
    sample = Sample(root)
    sample.write("pyproject.toml", PYPROJECT)
    sample.write("src/shop.py", CODE)
    sample.write("tests/test_shop.py", TESTS)
    sample.write("docs/sum.md", DOCS)
    return sample
