"""Frozen bodies: what belongs to a slice, and what moves its numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lastbus.proof import frozen
from lastbus.proof.errors import UsageError
from lastbus.proof.frozen import Numbers
from tests.proof.sample import Sample, shop

SOURCE = '''
class A:
    @first
    @second(
        1,
    )
    def go(self):
        """Go.

        Far.
        """
        x = 1

        def inner():
            """Stays."""

        return x
    LATER = 1
'''
SLICE = '''    @first
    @second(
        1,
    )
    def go(self):
        x = 1

        def inner():
            """Stays."""

        return x
'''


def numbers(source: str) -> Numbers:
    return frozen.numbers(frozen.body(source, "A.go"))


@pytest.mark.guarantee("FRZ-01")
def test_a_slice_is_the_whole_function_without_its_docstring():
    assert frozen.body(SOURCE, "A.go") == SLICE


def test_the_numbers_are_bytes_lines_and_digest():
    assert frozen.numbers("é\nb\n") == Numbers(5, 2, "76403721986c91f6de39cb8facbc68251d28ef6213151b380321d05dab2e6c0c")


@pytest.mark.guarantee("FRZ-04")
@pytest.mark.parametrize("words", ["Went.", "Go.\n\n        Further.", ""])
def test_another_docstring_leaves_the_numbers(words):
    assert numbers(SOURCE.replace("Go.", words)) == numbers(SOURCE)


@pytest.mark.guarantee("FRZ-02")
@pytest.mark.parametrize(("old", "new"), [("x = 1\n", "x = 2\n"), ("return x", "return  x"), ("@first", "@First")])
def test_any_other_change_moves_them(old, new):
    assert numbers(SOURCE.replace(old, new)) != numbers(SOURCE)


@pytest.mark.guarantee("FRZ-06")
@pytest.mark.parametrize(
    ("source", "slice_"),
    [
        ('def f():\n    """x"""\n    return """y"""\n', 'def f():\n    return """y"""\n'),
        ("def f():\n    'x'\n    return 1\n", "def f():\n    return 1\n"),
        ('def f():\n    """x"""; return 1\n', "def f():\n    return 1\n"),
        ('def f(): "x"; return 1\n', "def f(): return 1\n"),
        ('def f():\n    r"""x\n    """\n    return 1\n', "def f():\n    return 1\n"),
        ("def f():\n    return 1\n", "def f():\n    return 1\n"),
        ('def f():\n    "é"; return "é"\n', 'def f():\n    return "é"\n'),
    ],
)
def test_docstrings_of_every_shape_take_no_code_along(source, slice_):
    assert frozen.body(source, "f") == slice_


def test_a_function_that_is_gone_is_refused():
    with pytest.raises(UsageError, match=r"no function A\.gone"):
        frozen.body(SOURCE, "A.gone")


@pytest.mark.guarantee("FRZ-07")
def test_a_body_is_frozen_with_the_numbers_of_today(sample):
    entry = frozen.decide(sample.project, [], "src/shop.py::add", "money")

    assert frozen.load(sample.project) == [entry]
    assert entry.numbers == frozen.numbers("def add(one, two):\n    return one + two\n")
    with pytest.raises(UsageError, match="no function sub"):
        frozen.decide(sample.project, [], "src/shop.py::sub", "money")
    with pytest.raises(UsageError, match="no function add"):
        frozen.decide(sample.project, [], "src/gone.py::add", "money")


@pytest.fixture
def icy(tmp_path: Path) -> Sample:
    """A shop in which `add` is frozen."""
    sample = shop(tmp_path)
    frozen.decide(sample.project, [], "src/shop.py::add", "money")
    return sample


@pytest.mark.guarantee("FRZ-02")
def test_an_unchanged_body_passes_and_a_changed_character_does_not(icy):
    assert frozen.check(icy.project, frozen.load(icy.project)) == []

    icy.write("src/shop.py", (icy.root / "src/shop.py").read_text().replace("one + two", "one - two"))

    (fault,) = frozen.check(icy.project, frozen.load(icy.project))
    assert "add is frozen (money) but changed" in fault
    assert "run `lastbus frozen update add --why …`" in fault


@pytest.mark.guarantee("FRZ-05")
def test_a_mutation_that_claims_a_frozen_body_is_anchored_in_it(icy):
    inside = icy.mutate("inside", summary="frozen: the sum is wrong")
    outside = icy.mutate("outside", summary="frozen: never full", old="count >= LIMIT", new="False")
    free = icy.mutate("free", old="count >= LIMIT", new="False")

    faults = list(frozen.displaced(icy.project, frozen.load(icy.project), [inside, outside, free]))

    assert len(faults) == 1
    assert faults[0].startswith("mutations/sum/outside.json: its anchor is not inside a frozen body")


@pytest.mark.guarantee("FRZ-05")
def test_the_mutations_inside_a_frozen_body_are_listed(icy):
    inside = icy.mutate("inside")
    outside = icy.mutate("outside", old="count >= LIMIT", new="False")
    elsewhere = icy.mutate("elsewhere", file="src/other.py")

    listed = frozen.anchored(icy.project, frozen.load(icy.project), [inside, outside, elsewhere])

    assert listed == {"src/shop.py::add": ["inside"]}


@pytest.mark.guarantee("FRZ-07")
def test_deciding_one_body_leaves_the_others_alone(icy):
    (add,) = frozen.load(icy.project)
    full = frozen.decide(icy.project, [add], "src/shop.py::full", "limits")
    icy.write("src/shop.py", (icy.root / "src/shop.py").read_text().replace("one + two", "two + one"))
    icy.write("src/shop.py", (icy.root / "src/shop.py").read_text().replace(">= LIMIT", "== LIMIT"))

    changed = frozen.decide(icy.project, [add, full], "full", " new limits ")

    assert frozen.load(icy.project) == [add, changed]
    assert changed.why == "new limits"
    assert changed.numbers != full.numbers


@pytest.mark.guarantee("FRZ-07")
@pytest.mark.parametrize(
    ("name", "why", "fault"),
    [
        ("add", " ", "say it with --why"),
        ("full", "because", "full is not frozen; these are: src/shop.py::add"),
        ("src/shop.py::none", "because", "there is no function none"),
        ("src/gone.py::add", "because", "there is no function add"),
    ],
    ids=["no-reason", "unknown", "no-function", "no-file"],
)
def test_what_cannot_be_decided_is_refused_and_changes_nothing(icy, name, why, fault):
    before = frozen.load(icy.project)

    with pytest.raises(UsageError, match=fault):
        frozen.decide(icy.project, before, name, why)

    assert frozen.load(icy.project) == before


@pytest.mark.guarantee("FRZ-07")
def test_a_name_that_means_several_bodies_is_refused(icy):
    icy.write("src/other.py", "def add():\n    return 0\n")
    frozen.decide(icy.project, frozen.load(icy.project), "src/other.py::add", "zero")
    entries = frozen.load(icy.project)

    with pytest.raises(UsageError, match="in several files"):
        frozen.find(entries, "add")

    assert frozen.find(entries, "src/other.py::add").why == "zero"


@pytest.mark.guarantee("FRZ-03")
def test_revisions_are_identical_only_if_all_of_them_are():
    one, two = Numbers(1, 1, "a"), Numbers(1, 1, "b")

    assert frozen.identical([one, one, one])
    assert not frozen.identical([one, two, one])
    assert not frozen.identical([one, None])


@pytest.mark.guarantee("FRZ-03")
def test_history_reads_revisions_and_the_work_tree(icy):
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=icy.root, check=True)
    icy.write("src/shop.py", "def add():\n    return 0\n")

    found = frozen.history(icy.project, frozen.load(icy.project)[0], ["HEAD", "nowhere"])

    assert found["HEAD"] == frozen.load(icy.project)[0].numbers
    assert found["nowhere"] is None
    assert found["work tree"] == frozen.numbers("def add():\n    return 0\n")
    assert len(frozen.commits(icy.project, frozen.load(icy.project)[0])) == 1


def test_without_a_file_nothing_is_frozen(tmp_path):
    assert frozen.load(shop(tmp_path).project) == []
