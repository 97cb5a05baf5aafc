"""The division of a replay among its jobs."""

from __future__ import annotations

import pytest

from lastbus.proof.division import PIECES_EACH, divide, killers
from lastbus.proof.mutation import Mutation


def mutations(**files: int) -> list[Mutation]:
    """So many mutations for each file, whose name begins with its folder."""
    made = [(f"{file[0]}/test_{file}.py::t", number) for file, count in files.items() for number in range(count)]
    return [Mutation(f"m{at}", "sum", (), "", (), (f"{test}{n}",), "", "") for at, (test, n) in enumerate(made)]


def files(part: list[Mutation]) -> set[str]:
    return {mutation.killers[0].split("::")[0] for mutation in part}


@pytest.mark.guarantee("MUT-23")
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_mutation_is_in_one_part_and_the_parts_are_about_even(count):
    catalogue = mutations(aa=5, ab=3, ba=9, bb=1, ca=2, cb=2)

    parts = divide(catalogue, count)

    assert sorted(mutation.id for part in parts for mutation in part) == sorted(one.id for one in catalogue)
    assert max(map(len, parts)) - min(map(len, parts)) <= 3
    assert all(part == sorted(part, key=catalogue.index) for part in parts)


@pytest.mark.guarantee("MUT-23")
def test_the_mutations_of_a_file_stay_together_unless_they_are_many():
    few = divide(mutations(aa=2, ab=2, ac=2, ba=2, bb=2, bc=2, ca=2, cb=2), 2)
    many = divide(mutations(aa=80), 2)

    assert files(few[0]) & files(few[1]) == set()
    assert [len(part) for part in many] == [40, 40]
    assert PIECES_EACH * 10 == 40


def test_every_folder_is_spread_over_the_parts():
    parts = divide(mutations(aa=1, ab=1, ac=1, ad=1, ba=4, bb=4, bc=4, bd=4), 2)

    assert [sum(file.startswith("a/") for file in files(part)) for part in parts] == [2, 2]


def test_few_mutations_leave_parts_empty():
    assert sorted(map(len, divide(mutations(aa=1, ab=1), 4))) == [0, 0, 1, 1]


def test_a_killer_of_several_mutations_is_named_once():
    first, second = mutations(aa=2)

    assert killers([second, first, second]) == ["a/test_aa.py::t0", "a/test_aa.py::t1"]
