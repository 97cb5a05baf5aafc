"""Generated mutants that nobody notices: each is explained, and no explanation outlives its mutant."""

from __future__ import annotations

import pytest

from lastbus.proof.accepted import Mutant, change_of, load, review
from lastbus.proof.errors import UsageError
from tests.proof.sample import CODE, Sample

MUTANT = Mutant("mutmut", "src/shop.py", "add", "-    return one + two\n+    return two + one\n")
OTHER = Mutant("mutmut", "src/shop.py", "add", "-    return one + two\n+    return two - one\n")
ENTRY = MUTANT.entry().replace('reason = ""', 'reason = "addition commutes"')


def complaints(sample: Sample, *survivors: Mutant, by: str = "mutmut", tried: str = "add") -> list[str]:
    return list(review(sample.project, by, {("src/shop.py", tried)} if tried else (), survivors))


@pytest.mark.guarantee("MUT-70")
def test_an_unexplained_survivor_is_told_with_the_entry_that_would_accept_it(sample):
    (told,) = complaints(sample, MUTANT)

    assert told.startswith("src/shop.py: add: nobody notices this.")
    sample.write("mutations/accepted.toml", told[told.index("[[") :].replace('reason = ""', 'reason = "x"'))
    assert load(sample.project) == {MUTANT: "x"}


@pytest.mark.guarantee("MUT-70")
def test_an_accepted_survivor_is_fine_and_another_one_of_the_same_function_is_not(sample):
    sample.write("mutations/accepted.toml", ENTRY)

    assert complaints(sample, MUTANT) == []
    assert len(complaints(sample, MUTANT, OTHER)) == 1


@pytest.mark.guarantee("MUT-70")
def test_an_acceptance_whose_mutant_is_noticed_must_go(sample):
    sample.write("mutations/accepted.toml", ENTRY)

    (told,) = complaints(sample)

    assert "take it out of mutations/accepted.toml" in told


@pytest.mark.guarantee("MUT-70")
@pytest.mark.parametrize("code", [CODE.replace("def add", "def plus"), None], ids=["function", "file"])
def test_an_acceptance_of_what_is_gone_must_go_whatever_was_tried(sample, code):
    sample.write("mutations/accepted.toml", ENTRY)
    if code is None:
        (sample.root / "src/shop.py").unlink()
    else:
        sample.write("src/shop.py", code)

    assert len(complaints(sample, tried="full")) == 1


def test_what_was_not_tried_and_what_another_made_is_left_alone(sample):
    sample.write("mutations/accepted.toml", ENTRY)

    assert complaints(sample, tried="full") == []
    assert complaints(sample, by="extreme") == []


@pytest.mark.guarantee("MUT-70")
def test_no_mutants_prove_nothing(sample):
    assert complaints(sample, tried="") == ["mutmut tried no mutant: nothing was proven"]


@pytest.mark.guarantee("MUT-70")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MUTANT.entry(), "entry 1 has no reason"),
        (ENTRY.replace("addition commutes", " "), "entry 1 has no reason"),
        (ENTRY.replace("reason", "why"), "entry 1 must have exactly these texts"),
        (ENTRY.replace('"addition commutes"', "7"), "entry 1 must have exactly these texts"),
        (f"{ENTRY}\n{ENTRY}", "entry 2 stands twice"),
        ("[[", "mutations/accepted.toml: "),
    ],
    ids=["no-reason", "blank-reason", "unknown-key", "number", "twice", "not-toml"],
)
def test_a_bad_acceptance_is_refused_and_named(sample, text, words):
    sample.write("mutations/accepted.toml", text)

    with pytest.raises(UsageError, match=words):
        load(sample.project)


def test_without_a_file_nothing_is_accepted(sample):
    assert load(sample.project) == {}


@pytest.mark.guarantee("MUT-70")
def test_a_change_is_known_by_its_lines_and_not_by_what_is_around_it():
    diff = "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n before\n-old  \n+new\n after\n"

    assert change_of(diff) == change_of(diff.replace("before", "something else").replace("-1,3", "-9,3"))
    assert change_of(diff) == "-old\n+new\n"
