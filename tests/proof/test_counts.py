"""Numbers on pages, compared with the listing."""

from __future__ import annotations

import pytest

from lastbus.proof.counts import tally, wrong_counts
from lastbus.proof.mutation import Mutation


def mutation(name: str, group: str, expect: str = "killed") -> Mutation:
    return Mutation(name, group, (), "", (), (), "", "", expect)


MUTATIONS = [mutation("a", "sum"), mutation("b", "sum"), mutation("c", "mul"), mutation("d", "sum", "survived")]


@pytest.mark.guarantee("MUT-08")
def test_counts_come_from_the_listing():
    assert tally(["SUM-01", "SUM-02", "MUL-01"], MUTATIONS) == {
        "guarantees": 3,
        "guarantees/SUM": 2,
        "guarantees/MUL": 1,
        "mutations": 3,
        "mutations/sum": 2,
        "mutations/mul": 1,
        "canaries": 1,
    }


@pytest.mark.guarantee("MUT-08")
def test_a_wrong_number_is_named_with_the_right_one():
    page = "ok\n<!-- count:mutations -->4<!-- /count --> and <!-- count:canaries --> 1 <!-- /count -->\n"

    assert list(wrong_counts("a.md", page, [], MUTATIONS)) == ["a.md:2: count of mutations is 3, not '4'"]


@pytest.mark.guarantee("MUT-08")
def test_a_count_nobody_knows_is_zero():
    assert list(wrong_counts("a.md", "<!-- count:cats -->1<!-- /count -->", [], [])) == [
        "a.md:1: count of cats is 0, not '1'"
    ]
