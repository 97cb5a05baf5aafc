"""Extreme mutants: every function of the shop without its body, judged by the tests of the catalogue."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import pytest

from lastbus.proof import extreme
from lastbus.proof.accepted import Mutant
from lastbus.proof.baseline import Baseline
from lastbus.proof.extreme import emptied, functions
from lastbus.proof.mutation import Mutation, apply, load_all
from lastbus.proof.replay import Outcome, Result, replay
from lastbus.proof.verdict import Judgement, Verdict
from tests.proof.sample import ADD, CODE, FULL, TESTS, UNMARKED, Sample

EMPTY = "+the body is empty\n"
SHAPES = '''
class Box:
    @property
    def size(self):
        """How much.

        With "quotes".
        """
        return 3

    async def wait(
        self,
        seconds=1,
    ):
        return seconds

    def each(self):
        def inner():
            return 1
        yield inner()

    def makes(self):
        def inner():
            yield 1
        return inner

    def wraps(self):
        @staticmethod
        def inner():
            return 5
        return inner

def one(): return "ä"; x = 1
def two(): return 2

def later():
    return 3
'''


def empty(text: str) -> dict[str, str]:
    """Each function of `text` after it was emptied, and what stood there before."""
    return {name: emptied(text, node)[1] for node, name in functions(text)}


@pytest.mark.guarantee("MUT-71")
def test_every_shape_of_function_is_emptied_and_nothing_else():
    for name, (old, new) in {name: emptied(SHAPES, node) for node, name in functions(SHAPES)}.items():
        assert SHAPES.count(old) == 1, name
        tree = ast.parse(SHAPES.replace(old, new))
        left = {each: node for node, each in functions(ast.unparse(tree))}
        gone = {each for _, each in functions(SHAPES)} - left.keys()
        assert gone - {name, "Box.each", f"{name}.inner"} == set()
        assert "@" not in new


@pytest.mark.guarantee("MUT-71")
def test_a_generator_stays_a_generator_and_others_give_none():
    bodies = empty(SHAPES)

    assert bodies["Box.each"].endswith("return; yield")
    assert bodies["Box.makes"].endswith("return None")
    assert bodies["Box.wait"].splitlines()[-1].strip() == "return None"
    assert bodies["one"] == "def one(): return None"


@pytest.mark.guarantee("MUT-71")
def test_an_emptied_function_is_documented_as_before():
    text = SHAPES.replace("def two(): return 2", 'def two(): "Two."; return 2')

    assert empty(text)["two"] == 'def two(): "Two."; return None'
    assert 'With "quotes".\n        """\n        return None' in empty(text)["Box.size"]


@pytest.mark.guarantee("MUT-71")
@pytest.mark.parametrize(
    "body",
    ["pass", "...", '"""Says."""', "return", "return None", "raise NotImplementedError", "raise NotImplementedError()"],
)
def test_a_function_with_nothing_to_lose_is_left_alone(body):
    assert list(functions(f"def one():\n    {body}\n")) == []


@pytest.mark.guarantee("MUT-71")
def test_a_function_that_stands_twice_is_anchored_by_what_is_before_it(sample):
    sample.write(
        "src/shop.py",
        "class A:\n    def go(self):\n        return 1\n\nclass B:\n    def go(self):\n        return 1\n",
    )

    made = extreme.mutations(sample.project, ["src/shop.py"])

    texts = [apply(one.edits, {"src/shop.py": sample.project.read("src/shop.py")})["src/shop.py"] for one in made]
    assert [one.id for one in made] == ["src/shop.py::A.go", "src/shop.py::B.go"]
    assert len(set(texts)) == 2


@pytest.mark.guarantee("MUT-71")
def test_of_two_functions_of_one_name_each_is_judged_and_one_acceptance_names_both(sample):
    sample.write("src/shop.py", "if True:\n    def go():\n        return 1\nelse:\n    def go():\n        return 2\n")
    sample.write("tests/test_go.py", "from shop import go\n\n\ndef test_go():\n    assert go() == 1\n")

    told = run(sample, further=lambda file: ["tests/test_go.py::test_go"])

    assert told.verdicts == {"killed": ["src/shop.py::go"], "survived": ["src/shop.py::go#2"]}
    assert told.survivors == [Mutant("extreme", "src/shop.py", "go", EMPTY)]
    assert told.tried == {("src/shop.py", "go")}


def run(sample: Sample, **options: Any) -> extreme.Emptied:
    made = extreme.mutations(sample.project, ["src/shop.py"])
    return extreme.run(
        sample.project, made, load_all(sample.project), lambda some: replay(sample.project, some), **options
    )


@pytest.mark.guarantee("MUT-71")
def test_a_function_that_no_test_misses_is_a_survivor(sample):
    sample.write("src/shop.py", CODE + "\n\ndef idle():\n    return 7\n")
    sample.mutate("add-wrong")
    sample.mutate("full-late", guarantees=["SUM-02"], old=">= LIMIT", new="> LIMIT", killers=[FULL])

    told = run(sample)

    assert told.verdicts == {
        "killed": ["src/shop.py::add", "src/shop.py::full"],
        "survived": ["src/shop.py::idle"],
    }
    assert told.survivors == [Mutant("extreme", "src/shop.py", "idle", EMPTY)]
    assert told.tried == {("src/shop.py", name) for name in ("add", "full", "idle")}


@pytest.mark.guarantee("MUT-71")
@pytest.mark.parametrize(("second", "told"), [(Verdict.KILLED, "killed"), (Verdict.SURVIVED, "hang")])
def test_after_a_hang_the_next_tests_are_asked_and_only_a_kill_counts_for_more(sample, second, told):
    sample.mutate("add-wrong", killers=[ADD])
    [add, _] = extreme.mutations(sample.project, ["src/shop.py"])
    verdicts = iter([Verdict.HANG, second])

    def replayed(batch: Sequence[Mutation]) -> Outcome:
        judgement = Judgement(next(verdicts), "")
        return Outcome("3", 1, Baseline(), [Result(one, judgement, 0.0) for one in batch])

    outcome = extreme.run(sample.project, [add], load_all(sample.project), replayed, lambda file: [FULL])

    assert outcome.verdicts == {told: [add.id]}
    assert not outcome.survivors


@pytest.mark.guarantee("MUT-71")
def test_a_function_without_any_test_is_a_survivor(sample):
    told = run(sample)

    assert told.verdicts == {"untested": ["src/shop.py::add", "src/shop.py::full"]}
    assert [one.function for one in told.survivors] == ["add", "full"]


@pytest.mark.guarantee("MUT-71")
def test_further_tests_are_asked_at_last_unless_they_are_left_out(sample, inside):
    assert run(sample, further=lambda file: [UNMARKED]).verdicts["killed"] == ["src/shop.py::add"]
    assert (
        "killed"
        not in run(sample, further=lambda file: [UNMARKED], leave_out=lambda file, test: "unmarked" in test).verdicts
    )


@pytest.mark.guarantee("MUT-71")
def test_the_tests_of_a_function_come_before_those_of_its_file_its_folder_and_its_users(sample):
    sample.write("src/shop2.py", "def close():\n    return 1\n")
    sample.write("app/user.py", "import shop\n\n\ndef use():\n    return shop.add(1, 2)\n")
    sample.write("app/stranger.py", "def strange():\n    return 1\n")
    near = {
        "own": ADD,
        "file": FULL,
        "folder": "tests/a.py::test_a",
        "user": "tests/b.py::test_b",
        "far": "tests/c.py::test_c",
    }
    sample.mutate("own", killers=[near["own"]])
    sample.mutate("file", old=">= LIMIT", new="> LIMIT", killers=[near["file"], near["own"]])
    sample.mutate("folder", file="src/shop2.py", old="return 1", new="return 2", killers=[near["folder"], ADD])
    sample.mutate("user", file="app/user.py", old="1, 2", new="2, 2", killers=[near["user"]])
    sample.mutate("far", file="app/stranger.py", old="return 1", new="return 2", killers=[near["far"]])
    add = extreme.mutations(sample.project, ["src/shop.py"])[0]

    rounds = extreme.killers(sample.project, add, load_all(sample.project), lambda _file, _test: False)

    assert rounds == [[near["own"]], [near["file"]], [near["folder"], near["user"]], []]


@pytest.mark.guarantee("MUT-71")
def test_the_tests_of_a_function_that_are_left_out_are_asked_in_the_end(sample):
    sample.mutate("own", killers=[ADD])
    sample.mutate("file", old=">= LIMIT", new="> LIMIT", killers=[FULL])
    add = extreme.mutations(sample.project, ["src/shop.py"])[0]

    rounds = extreme.killers(sample.project, add, load_all(sample.project), lambda _file, _test: True)

    assert rounds == [[], [], [], [ADD]]


@pytest.mark.guarantee("MUT-71")
def test_a_test_that_is_skipped_does_not_keep_others_from_being_asked(sample):
    skipped = "import pytest\n\n\n@pytest.mark.skip\ndef test_skipped():\n    pass\n"
    sample.write("tests/test_skipped.py", skipped)

    told = run(sample, further=lambda file: ["tests/test_skipped.py::test_skipped", ADD])

    assert told.verdicts == {"killed": ["src/shop.py::add"], "survived": ["src/shop.py::full"]}


@pytest.mark.guarantee("MUT-71")
def test_a_red_baseline_proves_nothing(sample, inside):
    sample.write("tests/test_shop.py", TESTS.replace("== 5", "== 6"))
    sample.mutate("add-wrong")

    with pytest.raises(extreme.RedBaselineError, match="test_add_gives_the_sum"):
        run(sample)
