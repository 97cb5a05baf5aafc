"""A mutation from an edit: exact, anchored once, with the right killers, and the edit is never lost."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastbus.proof import authoring, record, witnesses
from lastbus.proof.authoring import Draft, draft, edits_between
from lastbus.proof.baseline import Baseline
from lastbus.proof.errors import MutationFileError, UsageError
from lastbus.proof.mutation import Mutation, Unfit, apply
from lastbus.proof.replay import Outcome, Result, replay
from lastbus.proof.verdict import Judgement, Verdict
from lastbus.proof.witness import Witness
from tests.proof.inside import PLAIN
from tests.proof.sample import ADD, CODE, FULL, TESTS, Sample

LINES = st.lists(st.sampled_from(["a = 1", "b = 2", "c = a", "pass", "", "# said"]), max_size=12)
BROKEN = CODE.replace("one + two", "one - two")


@pytest.fixture
def committed(sample: Sample) -> Sample:
    """A shop under version control, whole."""
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "one"]):
        subprocess.run(["git", *command], cwd=sample.root, check=True)
    return sample


@pytest.fixture
def broken(committed: Sample) -> Sample:
    """The committed shop after somebody broke `add`."""
    committed.write("src/shop.py", BROKEN)
    return committed


def drafted(sample: Sample, **changes: str) -> Draft:
    return draft(sample.project, "add-minus", ["SUM-01"], **changes)


@pytest.mark.guarantee("MUT-51")
@given(before=LINES, after=LINES, ends=st.booleans())
def test_the_edits_make_exactly_what_somebody_wrote_and_each_anchor_stands_once(before, after, ends):
    one, other = "\n".join(before) + "\n" * ends, "\n".join(after) + "\n" * ends
    try:
        edits = edits_between("a.py", one, other)
    except Unfit as unfit:
        refusal, edits = unfit.verdict, ()
    else:
        refusal = None

    if one == "" or ast.dump(ast.parse(one)) == ast.dump(ast.parse(other)):
        assert refusal is Verdict.NO_OP
    else:
        assert apply(edits, {"a.py": one}) == {"a.py": other}
        assert all(edit.old for edit in edits)


LONG = "".join(f"x{number} = {number}\n" for number in range(20))


@pytest.mark.guarantee("MUT-51")
@pytest.mark.parametrize(
    ("after", "olds"),
    [
        (LONG.replace("x3 = 3", "x3 = 4"), ["x3 = 3"]),
        (LONG.replace("x3 = 3\n", ""), ["x2 = 2\nx3 = 3"]),
        (LONG.replace("x3 = 3\n", "x3 = 3\ny = 1\n"), ["x3 = 3"]),
        ("y = 1\n" + LONG, ["x0 = 0"]),
        (LONG.replace("x3 = 3", "y = 3").replace("x15 = 15", "y = 15"), ["x3 = 3", "x15 = 15"]),
        (LONG.replace("x3 = 3", "y = 3").replace("x5 = 5", "y = 5"), ["x3 = 3\nx4 = 4\nx5 = 5"]),
    ],
    ids=["changed", "taken-out", "put-in", "at-the-top", "apart", "close"],
)
def test_an_anchor_is_no_longer_than_it_must_be(after, olds):
    assert [edit.old for edit in edits_between("a.py", LONG, after)] == olds


@pytest.mark.guarantee("MUT-51")
def test_a_change_that_two_replacements_would_spoil_is_one():
    before = f"{LONG}a = 1\n{LONG.replace('x', 'y')}b = 2\n{LONG.replace('x', 'z')}"
    after = before.replace("b = 2", "c = 3").replace("a = 1", "b = 2")

    (edit,) = edits_between("a.py", before, after)

    assert apply([edit], {"a.py": before}) == {"a.py": after}
    assert len(edit.old) < len(before)


@pytest.mark.guarantee("MUT-51")
def test_an_anchor_that_would_stand_twice_grows():
    text = "def one():\n    return 1\n\n\ndef two():\n    return 1\n"

    (edit,) = edits_between("a.py", text, text[:-2] + "2\n")

    assert edit.old == "def two():\n    return 1"


@pytest.mark.guarantee("MUT-51")
def test_the_one_edited_file_of_the_code_is_taken(broken):
    broken.write("docs/notes.md", "More.\n")
    found = drafted(broken)

    assert (found.file, found.source, found.lines) == ("src/shop.py", "sum/add-minus.json", {11})
    assert found.summary == "`return one + two` becomes `return one - two`."


@pytest.mark.guarantee("MUT-51")
def test_the_index_can_be_what_is_compared_with(broken):
    subprocess.run(["git", "add", "."], cwd=broken.root, check=True)
    broken.write("src/shop.py", BROKEN.replace(">= LIMIT", "> LIMIT"))

    assert [edit.old for edit in drafted(broken, revision="").edits] == ["    return count >= LIMIT"]
    assert len(drafted(broken).edits) == 2


@pytest.mark.guarantee("MUT-51")
@pytest.mark.parametrize(
    ("file", "text", "options", "words"),
    [
        ("docs/notes.md", "More.", {}, "no file of the code was edited: break one"),
        ("src/other.py", "x = 1", {}, "is not in HEAD: commit it as it should be"),
        ("src/shop.py", CODE, {"file": "src/shop.py"}, "is as it was: break it first"),
        ("src/shop.py", CODE.replace("return one", "return  one"), {}, "can be no mutation: no-op"),
        ("src/shop.py", CODE.replace("one + two", "one +"), {}, "can be no mutation: unparsable"),
        ("src/shop.py", "", {}, "src/shop.py is gone"),
    ],
    ids=["a-page", "a-new-file", "unchanged", "layout", "not-python", "empty"],
)
def test_an_edit_that_can_be_no_mutation_is_refused_with_what_to_do(committed, file, text, options, words):
    committed.write(file, text)

    with pytest.raises(UsageError, match=words):
        drafted(committed, **options)


@pytest.mark.guarantee("MUT-51")
def test_names_are_checked_before_anything_else(broken):
    broken.write("src/other.py", "x = 1\n")
    with pytest.raises(UsageError, match=r"choose one with --file: src/other\.py, src/shop\.py"):
        drafted(broken)
    with pytest.raises(UsageError, match="no document states SUM-09"):
        draft(broken.project, "add-minus", ["SUM-09"])
    broken.mutate("add-minus")
    with pytest.raises(UsageError, match=r"add-minus is taken by mutations/sum/add-minus\.json"):
        drafted(broken)


@pytest.mark.guarantee("MUT-52")
def test_the_edit_stays_until_it_is_written_down_and_is_taken_back_whole(broken):
    found = drafted(broken)
    path = broken.root / "src/shop.py"
    path.chmod(0o755)
    with pytest.raises(FileNotFoundError):
        authoring.restore(broken.project, found)
    assert path.read_text() == BROKEN.lstrip()

    mutation = authoring.write(broken.project, found, [ADD])
    assert path.read_text() == BROKEN.lstrip()
    assert json.loads((broken.root / mutation.source).read_text())["old"] == "    return one + two"
    authoring.restore(broken.project, found)

    assert path.read_text() == CODE.lstrip()
    assert path.stat().st_mode & 0o777 == 0o755


@pytest.mark.guarantee("MUT-52")
def test_an_edit_that_went_on_meanwhile_is_not_taken_back(broken):
    found = drafted(broken)
    authoring.write(broken.project, found, [ADD])
    broken.write("src/shop.py", BROKEN + "# more\n")

    with pytest.raises(UsageError, match=r"src/shop\.py was edited again meanwhile: it stays as it is"):
        authoring.restore(broken.project, found)

    assert (broken.root / "src/shop.py").read_text().endswith("# more\n")


@pytest.mark.guarantee("MUT-52")
def test_a_file_that_exists_is_not_overwritten(broken):
    found = drafted(broken)
    broken.write("mutations/sum/add-minus.json", "mine")

    with pytest.raises(UsageError, match="exists: choose another id"):
        authoring.write(broken.project, found, [ADD])

    assert (broken.root / "mutations/sum/add-minus.json").read_text() == "mine"
    assert [path.name for path in (broken.root / "mutations/sum").iterdir()] == ["add-minus.json"]


@pytest.mark.guarantee("MUT-52")
def test_a_malformed_mutation_is_not_written(broken):
    with pytest.raises(MutationFileError):
        authoring.write(broken.project, drafted(broken), ["tests/test_shop.py"])

    assert not (broken.root / "mutations").exists()


@pytest.mark.guarantee("MUT-53")
def test_tests_that_run_the_changed_lines_come_first_then_those_of_the_function_then_all():
    seconds = {"slow": 2.0, "quick": 1.0, "near": 0.5, "far": 0.1}
    ran = {"slow": [5, 6], "quick": [6], "near": [5]}

    assert witnesses.choose(seconds, ran, {6}, {5, 6}).tests == ("quick", "slow")
    assert witnesses.choose(seconds, ran, {7}, {5, 6, 7}).tests == ("near", "quick", "slow")
    assert witnesses.choose(seconds, ran, {9}, set()).tests == ("far", "near", "quick", "slow")
    assert witnesses.choose(seconds, None, {6}, set()).tests == ("far", "near", "quick", "slow")


MORE = """

@pytest.mark.guarantee("SUM-01")
@pytest.mark.parametrize("one", [1, 2])
def test_of_several(one):
    assert shop.add(one, 1) == one + 1


@pytest.mark.guarantee("SUM-01")
def test_that_does_not_add():
    assert shop


@pytest.mark.guarantee("SUM-01")
def test_that_fails_anyway():
    assert not shop.add(1, 1)
"""


@pytest.mark.guarantee("MUT-53")
def test_killers_are_marked_and_pass_and_run_the_changed_lines(broken):
    broken.write("tests/test_shop.py", TESTS + MORE)
    found = drafted(broken)

    with authoring.unbroken(broken.project, found) as copy:
        killers, why = authoring.killers_for(copy, found, sys.executable, replay)

    several = "tests/test_shop.py::test_of_several"
    assert sorted(killers) == [ADD, f"{several}[1]", f"{several}[2]"]
    assert why == "tests that run the changed lines"


class Lines:
    """What stands for coverage.py: it remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def switch_context(self, name: str) -> None:
        self.told.append(name)


@pytest.fixture
def witness(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> Iterator[Witness]:
    """What asks the tests, inside this process: it has asked those of SUM-01, one of which fails."""
    sample.write("tests/test_shop.py", TESTS + MORE)
    monkeypatch.chdir(sample.root)
    monkeypatch.setattr(Witness, "_coverage", lambda *_: Lines())
    witness = Witness(["SUM-01"], str(sample.root / "src/shop.py"))
    witness.run([f"--rootdir={sample.root}", *PLAIN, "tests/test_shop.py"])
    yield witness
    for name in ("shop", "tests.test_shop", "test_shop"):
        sys.modules.pop(name, None)


@pytest.mark.guarantee("MUT-53")
def test_a_witness_is_marked_and_passes(witness):
    names = [name.partition("::")[2] for name in witness.seconds]

    assert names == ["test_add_gives_the_sum", "test_of_several[1]", "test_of_several[2]", "test_that_does_not_add"]


@pytest.mark.guarantee("MUT-53")
def test_the_lines_of_each_test_are_its_own(witness):
    asked = [*witness.seconds, "tests/test_shop.py::test_that_fails_anyway"]

    assert witness.coverage.told == [context for test in asked for context in (test, "")]


@pytest.mark.guarantee("MUT-53")
def test_of_many_tests_those_that_fail_are_killers(broken, monkeypatch):
    tests = {f"tests/test_shop.py::test_{number}": 0.1 for number in range(9)}
    monkeypatch.setattr(authoring, "find", lambda *_: witnesses.Witnesses(tuple(tests), "that run the changed lines"))

    def played(_: object, mutations: Sequence[Mutation]) -> Outcome:
        (mutation,) = mutations
        killed_by = dict.fromkeys(mutation.killers[5:], ("SUM-01",))
        return Outcome("3", 1, Baseline(), [Result(mutation, Judgement(Verdict.KILLED, "", killed_by), 0.1)])

    killers, why = authoring.killers_for(broken.project, drafted(broken), sys.executable, played)

    assert killers == tuple(tests)[5:8]
    assert why == "of 9 tests that run the changed lines"


@pytest.mark.guarantee("MUT-53")
def test_without_a_marked_test_one_is_asked_for(broken):
    broken.write("tests/test_shop.py", TESTS.replace('"SUM-01"', '"SUM-02"'))

    with pytest.raises(UsageError, match=r'mark the one that must notice with @pytest\.mark\.guarantee\("SUM-01"\)'):
        witnesses.find(broken.project, sys.executable, ["SUM-01"], "src/shop.py", {11})


@pytest.mark.guarantee("MUT-53")
def test_tests_that_cannot_be_run_are_no_killers(broken):
    broken.write("tests/conftest.py", "raise RuntimeError('closed today')\n")

    with pytest.raises(UsageError, match=r"(?s)name the killers with --killer.*closed today"):
        witnesses.find(broken.project, sys.executable, ["SUM-01"], "src/shop.py", {11})


@pytest.mark.guarantee("MUT-52")
def test_the_verdict_is_recorded_for_the_tree_without_the_edit(broken, inside):
    found = drafted(broken)
    mutation = authoring.write(broken.project, found, [ADD])
    with authoring.unbroken(broken.project, found) as copy:
        outcome = authoring.judge(broken.project, copy, mutation, sys.executable, replay)

    entry = record.load(broken.project)["add-minus"]
    assert (outcome.exit_code, entry.verdict) == (0, "killed")
    assert record.Present(broken.project).changed(entry) == "src/shop.py"
    authoring.restore(broken.project, found)
    assert record.Present(broken.project).changed(entry) == ""


def test_what_is_left_to_do_is_said(broken):
    found = drafted(broken)
    mutation = authoring.write(broken.project, found, [FULL])
    outcome = Outcome("3", 1, Baseline(), [Result(mutation, Judgement(Verdict.SURVIVED), 0.1)])

    assert [line.partition(":")[0] for line in authoring.next_steps(found, outcome, False)] == [
        "sharpen a test, or name another with --killer; until then add-minus is no proof",
        "the edit is still in src/shop.py",
    ]
