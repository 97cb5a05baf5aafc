"""The likeliest tests to notice an edit: those that run its lines, else those that run the function around them."""

from __future__ import annotations

import pytest

from lastbus.proof import witnesses
from lastbus.proof.witnesses import Witnesses, find
from tests.proof.sample import Sample

NESTED = '''
def outer(count):
    """Says nothing."""

    @property
    def inner(self):
        if count:
            return 1
        return 2

    return inner
'''
RAN = {"of-inner": [6, 8], "of-outer": [10], "of-neither": [1]}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """The lines that each marked test is said to have run."""
    seen = dict(RAN)
    answer = {"seconds": dict.fromkeys(seen, 0.1), "lines": seen, "said": ""}
    monkeypatch.setattr(witnesses, "_ask", lambda *_: answer)
    return seen


def found(sample: Sample, file: str, line: int) -> Witnesses:
    return find(sample.project, "python", ["SUM-01"], file, {line})


@pytest.mark.guarantee("MUT-53")
@pytest.mark.parametrize(
    ("line", "tests"),
    [(7, {"of-inner"}), (4, {"of-inner"}), (10, {"of-outer"}), (2, {"of-outer", "of-inner"})],
    ids=["in-the-innermost", "its-decorator", "a-line-that-ran", "in-the-outer"],
)
def test_a_line_that_no_test_runs_is_watched_by_those_that_run_the_function_around_it(sample, seen, line, tests):
    sample.write("src/shop.py", NESTED)

    assert set(found(sample, "src/shop.py", line).tests) == tests


@pytest.mark.guarantee("MUT-53")
def test_what_is_no_python_has_no_functions_and_all_marked_tests_are_asked(sample, seen):
    sample.write("src/shop.lua", "return redis.call('GET', KEYS[1])\n")

    one = found(sample, "src/shop.lua", 3)

    assert set(one.tests) == set(seen)
    assert one.why == "marked with the guarantee (none was seen to run the function in its own process)"
