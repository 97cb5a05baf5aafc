"""The tests that canaries are mapped to: the first must miss its mutation, the second must hang on it."""

from __future__ import annotations

from tests.proof import canary


def test_two_is_two():
    assert canary.two() == 2


def test_waiting_ends():
    assert canary.wait()
