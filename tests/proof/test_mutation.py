"""Mutation files: reading, refusing, applying, selecting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastbus.proof.errors import MutationFileError, UsageError
from lastbus.proof.mutation import SCHEMA, Edit, Mutation, Unfit, apply, load_all, parse, select
from lastbus.proof.verdict import Verdict

ROOT = Path(__file__).resolve().parents[2]
GOOD = {
    "id": "sum-wrong",
    "guarantees": ["SUM-01"],
    "summary": "The sum is wrong.",
    "file": "src/shop.py",
    "old": "one + two",
    "new": "one - two",
    "killers": ["tests/test_shop.py::test_add"],
}


def read(**changes: object) -> Mutation:
    body = {key: value for key, value in {**GOOD, **changes}.items() if value is not None}
    return parse("mutations/sum/sum-wrong.json", json.dumps(body, indent=1))


def test_a_complete_file_is_read_as_written():
    mutation = read()

    assert (mutation.id, mutation.group, mutation.guarantees) == ("sum-wrong", "sum", ("SUM-01",))
    assert mutation.edits == (Edit("src/shop.py", "one + two", "one - two"),)
    assert not mutation.canary


def test_several_edits_stand_in_a_list():
    edits = [{"file": "a.py", "old": "1", "new": "2"}, {"file": "b.py", "old": "3", "new": "4"}]

    mutation = read(file=None, old=None, new=None, edits=edits)

    assert mutation.edits == (Edit("a.py", "1", "2"), Edit("b.py", "3", "4"))
    assert mutation.files == ("a.py", "b.py")


@pytest.mark.guarantee("MUT-01")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("killers", None),
        ("killers", []),
        ("killers", ["tests/test_shop.py"]),
        ("guarantees", ["sum-1"]),
        ("guarantees", []),
        ("guarantees", "SUM-01"),
        ("summary", ""),
        ("id", "other"),
        ("new", None),
        ("edits", [{"file": "a.py", "old": "1", "new": "2"}]),
        ("expect", "maybe"),
        ("limit_seconds", "2"),
        ("kilers", ["tests/test_shop.py::test_add"]),
    ],
)
def test_a_malformed_file_is_refused_with_its_name_and_key(key, value):
    with pytest.raises(MutationFileError) as refusal:
        read(**{key: value})

    assert refusal.value.file == "mutations/sum/sum-wrong.json"
    assert refusal.value.key == ("file" if key == "edits" else key)


@pytest.mark.guarantee("MUT-01")
def test_a_refusal_names_the_line():
    with pytest.raises(MutationFileError, match=r"sum-wrong\.json:7: expect"):
        parse(
            "mutations/sum/sum-wrong.json",
            '{"id": "sum-wrong", "guarantees": ["SUM-01"],\n"summary": "x", "file": "a.py",\n"old": "1",\n'
            '"new": "2",\n"killers":\n["t.py::test_a"],\n"expect": "maybe"}',
        )


@pytest.mark.guarantee("MUT-01")
def test_broken_json_is_refused_with_its_line():
    with pytest.raises(MutationFileError, match=r"x\.json:2: \(json\)"):
        parse("mutations/sum/x.json", '{"id": "x",\n oops}')


@pytest.mark.guarantee("MUT-01")
def test_an_id_is_taken_only_once(sample):
    sample.mutate("twin")
    sample.write("mutations/other/twin.json", (sample.root / "mutations/sum/twin.json").read_text())

    with pytest.raises(MutationFileError, match=r"twin is taken by mutations/other/twin\.json"):
        load_all(sample.project)


def test_files_beside_the_groups_are_no_mutations(sample):
    sample.write("mutations/schema.json", "{}")
    sample.mutate("one")

    assert [mutation.id for mutation in load_all(sample.project)] == ["one"]


@pytest.mark.guarantee("MUT-01")
def test_the_published_schema_is_the_one_that_is_checked():
    published = json.loads((ROOT / "mutations/schema.json").read_text(encoding="utf-8"))

    assert published == SCHEMA, "write SCHEMA to mutations/schema.json"


def put(old: str, new: str, text: str = "a = 1\nb = 2\n", file: str = "a.py") -> str:
    return apply([Edit(file, old, new)], {file: text})[file]


def refusal(old: str, new: str, text: str = "a = 1\nb = 2\n", file: str = "a.py") -> Verdict:
    with pytest.raises(Unfit) as unfit:
        put(old, new, text, file)
    return unfit.value.verdict


def test_the_one_occurrence_is_replaced():
    assert put("a = 1", "a = 3") == "a = 3\nb = 2\n"


@pytest.mark.guarantee("MUT-02")
def test_a_missing_anchor_is_lost():
    assert refusal("c = 3", "c = 4") is Verdict.ANCHOR_LOST
    with pytest.raises(Unfit, match="no file"):
        apply([Edit("gone.py", "a", "b")], {})


@pytest.mark.guarantee("MUT-02")
def test_a_repeated_anchor_is_ambiguous():
    assert refusal("= 1", "= 2", "a = 1\nb = 1\n") is Verdict.ANCHOR_AMBIGUOUS


@pytest.mark.guarantee("MUT-03")
@pytest.mark.parametrize("new", ["a = = 1", "  a = 1", "a = '\0'"])
def test_a_result_that_does_not_parse_is_unparsable(new):
    assert refusal("a = 1", new) is Verdict.UNPARSABLE


@pytest.mark.guarantee("MUT-13")
@pytest.mark.parametrize("new", ["a  =  1", "a = 1  # one", "a = (1)", "a = 1\n"])
def test_layout_and_comments_are_a_no_op(new):
    assert refusal("a = 1", new) is Verdict.NO_OP


@pytest.mark.guarantee("MUT-13")
def test_docstrings_are_a_no_op():
    text = 'def f():\n    """Old."""\n    return 1\n'

    assert refusal("Old.", "New.", text) is Verdict.NO_OP
    assert "return 2" in put("return 1", "return 2", text)


METHODS = """class A:
    def one(self):
        x = [
            1,
        ]
        return x  # one

    def two(self):
        text = '''
not indented
'''
# said at the margin
        return text
"""


@pytest.mark.guarantee("MUT-03", "MUT-13")
@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("return x  # one", "return x  # two", Verdict.NO_OP),
        ("            1,\n", "  1,\n", Verdict.NO_OP),
        ("return x  # one", "return [x", Verdict.UNPARSABLE),
        ("return x  # one", "return x\ny = 1", Verdict.UNPARSABLE),
        ("return x  # one", "return x\n   y = 1", Verdict.UNPARSABLE),
        ("return x  # one", "return x\n\n    y = 1", None),
        ("return text", "return 1", None),
        ("not indented", "other text", None),
        ("        text = ", "          text = ", Verdict.UNPARSABLE),
    ],
    ids=["comment", "layout", "open", "dedented", "half", "attribute", "below-margin", "in-a-string", "deeper"],
)
def test_one_function_is_read_as_the_whole_file_would_be(old, new, verdict):
    if verdict is None:
        assert put(old, new, METHODS) == METHODS.replace(old, new)
    else:
        assert refusal(old, new, METHODS) is verdict


def test_a_file_that_is_not_python_is_compared_by_its_text():
    assert put("return 1", "return 2", "return 1", "script.lua") == "return 2"
    assert refusal("1", "1", "1", "script.lua") is Verdict.NO_OP


def test_edits_of_one_file_are_made_in_order():
    edits = [Edit("a.py", "a = 1", "a = 2"), Edit("a.py", "a = 2", "a = 3")]

    assert apply(edits, {"a.py": "a = 1\n"}) == {"a.py": "a = 3\n"}


def names(*patterns: str, groups: tuple[str, ...] = ()) -> list[str]:
    one, two = read(), read(guarantees=["MUL-01"])
    other = Mutation("mul-wrong", "mul", two.guarantees, "", two.edits, two.killers, "", "")
    return [mutation.id for mutation in select([one, other], patterns, groups)]


def test_without_a_choice_all_are_selected():
    assert names() == ["sum-wrong", "mul-wrong"]


def test_ids_guarantees_families_and_folders_select():
    assert names("sum-*") == names("SUM-01") == names(groups=("SUM",)) == names(groups=("sum",)) == ["sum-wrong"]
    assert names("sum-wrong", groups=("mul",)) == ["sum-wrong", "mul-wrong"]


@pytest.mark.guarantee("MUT-19")
@pytest.mark.parametrize(("patterns", "groups"), [(("div-*",), ()), ((), ("DIV",)), (("sum-*", "div"), ())])
def test_a_choice_that_matches_nothing_is_refused(patterns, groups):
    with pytest.raises(UsageError, match="no mutation matches"):
        names(*patterns, groups=groups)


@pytest.mark.guarantee("MUT-19")
def test_a_project_without_mutations_is_refused():
    with pytest.raises(UsageError, match="there are no mutations"):
        select([])
