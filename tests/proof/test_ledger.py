"""The ledger: four places, the last replay, and what is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lastbus.proof import ledger, record
from lastbus.proof.baseline import Baseline
from lastbus.proof.errors import UsageError
from lastbus.proof.keepers import changed_lines, kept_around
from lastbus.proof.mutation import Edit
from lastbus.proof.replay import Outcome, Result
from lastbus.proof.verdict import Judgement, Verdict
from tests.proof.sample import ADD, CODE, DOCS, FULL, TESTS, Sample, shop


def remember(
    sample: Sample,
    name: str,
    verdict: Verdict = Verdict.KILLED,
    python: str = sys.executable,
    **killed_by: tuple[str, ...],
) -> None:
    """As if a replay with `python` had just said `verdict` about the mutation `name`."""
    mutation = next(one for one in ledger.load_all(sample.project) if one.id == name)
    judgement = Judgement(verdict, "", killed_by or dict.fromkeys(mutation.killers, mutation.guarantees))
    sample.record(Outcome("3", 1, Baseline(), [Result(mutation, judgement, 0.0)]), python)


def reasons(sample: Sample, guarantee: str = "SUM-01") -> str:
    return "\n".join(ledger.read(sample.project).row(guarantee).reasons)


@pytest.fixture
def pinned(sample: Sample) -> Sample:
    """A shop whose SUM-01 is pinned."""
    sample.mutate("add-wrong")
    remember(sample, "add-wrong")
    return sample


@pytest.mark.guarantee("MUT-21")
def test_four_places_and_a_kill_are_pinned(pinned):
    row = ledger.read(pinned.project).row("SUM-01")

    assert (row.status, row.reasons) == ("pinned", ())
    assert [str(one) for one in row.code] == ["src/shop.py:6 add"]
    assert [one.name for one in row.tests] == ["test_add_gives_the_sum"]


@pytest.mark.guarantee("MUT-21")
def test_what_is_unpinned_is_named_and_what_is_declared_is_not(pinned):
    assert [row.statement.id for row in ledger.read(pinned.project).unpinned] == ["SUM-02"]

    pinned.write("docs/sum.md", DOCS + "\nDeclared: it is a small shop.\n")

    assert ledger.read(pinned.project).unpinned == []


@pytest.mark.guarantee("MUT-09")
def test_a_guarantee_that_no_mutation_breaks_is_unpinned(sample):
    assert "no mutation breaks it" in reasons(sample)


@pytest.mark.guarantee("MUT-09")
def test_a_canary_breaks_nothing(sample):
    sample.mutate("canary", new="return two + one", expect="survived")
    remember(sample, "canary", Verdict.SURVIVED)

    assert "no mutation breaks it" in reasons(sample)


@pytest.mark.guarantee("MUT-21")
def test_a_guarantee_that_no_test_pins_is_unpinned(pinned):
    pinned.write("tests/test_shop.py", TESTS.replace('"SUM-01"', '"SUM-02"'))

    assert "no test pins it" in reasons(pinned)


@pytest.mark.guarantee("MUT-21")
def test_a_guarantee_that_no_code_keeps_is_unpinned(pinned):
    pinned.write("src/shop.py", CODE.replace("Keeps: SUM-01.", ""))

    assert "no docstring keeps it" in reasons(pinned)


@pytest.mark.guarantee("MUT-21")
def test_the_mutated_definition_must_keep_the_id(sample):
    sample.mutate("full-wrong", guarantees=["SUM-01"], old="count >= LIMIT", new="count > LIMIT")
    remember(sample, "full-wrong")

    assert "the mutated definition does not keep it" in reasons(sample)


@pytest.mark.guarantee("MUT-21")
def test_a_failed_killer_must_carry_the_id(sample):
    sample.mutate("add-wrong", guarantees=["SUM-01", "SUM-02"], killers=[ADD, FULL])
    remember(sample, "add-wrong", **{FULL: ("SUM-02",)})

    assert "no killer that failed is marked with it" in reasons(sample)


@pytest.mark.guarantee("MUT-21")
def test_every_mapped_mutation_must_be_killed(pinned):
    pinned.mutate("add-half", new="return one + two / 2")
    remember(pinned, "add-half", Verdict.SURVIVED)

    assert reasons(pinned) == "add-half: the last replay said survived: lastbus replay add-half"


@pytest.mark.guarantee("MUT-16")
def test_a_mutation_that_was_never_replayed_proves_nothing(sample):
    sample.mutate("add-wrong")

    assert "never replayed" in reasons(sample)


@pytest.mark.guarantee("MUT-16")
@pytest.mark.parametrize("file", ["src/shop.py", "tests/test_shop.py", "mutations/sum/add-wrong.json"])
def test_a_changed_file_makes_the_verdict_stale(pinned, file):
    pinned.write(file, (pinned.root / file).read_text() + "\n")

    assert "changed since the last replay" in reasons(pinned)


@pytest.mark.guarantee("MUT-16")
def test_a_new_conftest_makes_the_verdict_stale(pinned):
    pinned.write("tests/conftest.py", "x = 1\n")

    assert "changed since the last replay" in reasons(pinned)


@pytest.mark.guarantee("MUT-42")
def test_other_packages_make_the_verdict_stale(real_surroundings, pinned, tmp_path, monkeypatch):
    (tmp_path / "till-2.dist-info").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    assert f"{sys.executable} (its version, packages or settings) changed since the last replay" in reasons(pinned)


@pytest.mark.guarantee("MUT-42")
def test_a_verdict_of_an_interpreter_that_gives_no_answer_is_stale(real_surroundings, sample):
    sample.mutate("add-wrong")
    remember(sample, "add-wrong", python="no-such-python")

    assert "no-such-python (its version, packages or settings) changed since the last replay" in reasons(sample)


@pytest.mark.guarantee("MUT-16")
def test_an_unrelated_file_does_not(pinned):
    pinned.write("src/other.py", "x = 1\n")

    assert reasons(pinned) == ""


@pytest.mark.guarantee("MUT-16")
def test_a_replay_of_some_keeps_the_verdicts_of_the_others(pinned):
    pinned.mutate("full-wrong", guarantees=["SUM-02"], old="count >= LIMIT", new="count > LIMIT", killers=[FULL])
    remember(pinned, "full-wrong")

    assert [row.status for row in ledger.read(pinned.project).rows] == ["pinned", "pinned"]


@pytest.mark.guarantee("MUT-16")
@pytest.mark.parametrize("text", ["", "oops", "[]", '{"add-wrong": {}}', '{"add-wrong": 3}'])
def test_an_unreadable_record_is_an_empty_one(pinned, text):
    pinned.write(record.FILE, text)

    assert "never replayed" in reasons(pinned)


@pytest.mark.guarantee("MUT-02")
def test_a_lost_anchor_unpins(pinned):
    pinned.write("src/shop.py", CODE.replace("one + two", "two + one"))

    assert "anchor-lost" in reasons(pinned)


def test_a_declared_guarantee_needs_nothing(sample):
    sample.write("docs/sum.md", "### SUM-01 Adding\nDeclared: a residual.\n### SUM-02 Full\n")

    assert ledger.read(sample.project).row("SUM-01").status == "declared"


@pytest.mark.guarantee("MUT-09")
def test_an_id_that_no_document_states_is_an_error_with_its_place(sample):
    sample.write("docs/sum.md", "### SUM-02 Fullness\n")
    sample.mutate("add-wrong")

    errors = ledger.read(sample.project).errors

    assert [error.split(": ")[0] for error in errors] == [
        "src/shop.py:6 add",
        "tests/test_shop.py:5 test_add_gives_the_sum",
        "mutations/sum/add-wrong.json",
    ]


@pytest.mark.guarantee("MUT-09")
def test_an_id_is_stated_only_once(sample):
    sample.write("docs/twice.md", "### SUM-01 Again\n")

    assert "SUM-01 is stated already in docs/sum.md:1" in ledger.read(sample.project).errors[0]


@pytest.mark.guarantee("MUT-08")
def test_a_wrong_count_on_a_page_is_an_error(sample):
    sample.write("README.md", "We have <!-- count:guarantees -->7<!-- /count --> guarantees.")

    assert ledger.read(sample.project).errors == ["README.md:1: count of guarantees is 2, not '7'"]


@pytest.mark.guarantee("MUT-08")
def test_counts_are_corrected_on_demand(sample):
    sample.write("README.md", "<!-- count:guarantees -->7<!-- /count --> and <!-- count:mutations --><!-- /count -->")

    assert ledger.write_counts(sample.project) == ["README.md"]
    assert ledger.write_counts(sample.project) == []
    assert sample.project.read("README.md") == (
        "<!-- count:guarantees -->2<!-- /count --> and <!-- count:mutations -->0<!-- /count -->"
    )


def test_an_unknown_guarantee_is_refused(sample):
    with pytest.raises(UsageError, match="no document states NO-1"):
        ledger.read(sample.project).row("NO-1")


def test_a_row_as_json_has_the_four_places(pinned):
    row = ledger.read(pinned.project).row("SUM-01").to_json()

    assert row["document"] == {"file": "docs/sum.md", "line": 1, "sentence": "`add` gives the sum."}
    assert row["code"] == ["src/shop.py:6 add"]
    assert row["tests"] == [ADD]
    assert row["mutations"] == [{"id": "add-wrong", "verdict": "killed", "fresh": True}]
    assert row["status"] == "pinned"


LAYERS = '''
"""Module. Keeps: MOD-01."""

class A:
    """Class. Keeps: CLS-01."""

    def outer(self):
        """Outer. Keeps: OUT-01."""
        return self._inner() + 1

    @wraps
    def _inner(self):
        x = 1
        return x

    def other(self):
        """Other. Keeps: OTH-01."""
'''


@pytest.mark.guarantee("MUT-21")
@pytest.mark.parametrize("old", ["x = 1", "@wraps\n    def _inner(self):", "        return x\n"])
def test_enclosing_definitions_and_direct_callers_keep_for_a_change(old):
    edit = Edit("a.py", old, old + "#")

    assert kept_around([edit], {"a.py": LAYERS}) == {"MOD-01", "CLS-01", "OUT-01"}


@pytest.mark.guarantee("MUT-21")
def test_functions_that_use_a_constant_keep_for_it():
    text = (
        'LIMIT: int = 3\n\ndef f():\n    """Keeps: SUM-01."""\n    return LIMIT\n\ndef g():\n    """Keeps: SUM-02."""\n'
    )

    assert kept_around([Edit("a.py", "= 3", "= 4")], {"a.py": text}) == {"SUM-01"}


@pytest.mark.guarantee("MUT-21")
def test_lines_that_only_anchor_are_not_changed():
    old = '        return x\n\n    def other(self):\n        """Other. Keeps: OTH-01."""\n'

    assert "OTH-01" not in kept_around([Edit("a.py", old, old.replace("return x", "return 2"))], {"a.py": LAYERS})
    assert changed_lines(Edit("a.py", "b\nc\nd\n", "b\nX\nd\n"), "a\nb\nc\nd\n") == (3, 3)
    assert changed_lines(Edit("a.py", "b\nc\nd\n", "b\nd\n"), "a\nb\nc\nd\n") == (3, 3)


def test_the_ledger_of_the_shop_has_two_rows(tmp_path: Path):
    assert [row.statement.id for row in ledger.read(shop(tmp_path).project).rows] == ["SUM-01", "SUM-02"]
    assert DOCS.count("###") == 2
