"""Changes: which mutations a change concerns."""

from __future__ import annotations

import subprocess

import pytest

from lastbus.proof import changes
from lastbus.proof.errors import UsageError
from lastbus.proof.mutation import load_all
from tests.proof.sample import CODE, FULL, TESTS, Sample

BREAKS_FULL = {"guarantees": ["SUM-02"], "old": ">= LIMIT", "new": "> LIMIT", "killers": [FULL]}
FIXTURE = "\n\n@pytest.fixture\ndef test_data():\n    return 3\n"


def git(sample: Sample, *arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=b"]
    subprocess.run(["git", *who, *arguments], cwd=sample.root, check=True, capture_output=True)


@pytest.fixture
def committed(sample: Sample) -> Sample:
    """A shop with a mutation for each of its two functions, all of it committed."""
    sample.mutate("add-wrong")
    sample.mutate("full-late", **BREAKS_FULL)
    sample.mutate("limit-higher", **{**BREAKS_FULL, "old": "LIMIT = 3", "new": "LIMIT = 4"})
    sample.write("tests/test_shop.py", TESTS + FIXTURE)
    sample.write(".gitignore", "ignored\n")
    git(sample, "init", "-q", "-b", "main")
    git(sample, "add", ".")
    git(sample, "commit", "-qm", "one")
    return sample


def concerned(sample: Sample, revision: str = "HEAD") -> list[str]:
    return [one.id for one in changes.since(sample.project, revision, load_all(sample.project))]


def change(sample: Sample, file: str, old: str, new: str) -> None:
    text = sample.project.read(file)
    assert old in text
    sample.write(file, text.replace(old, new))


@pytest.mark.guarantee("MUT-46")
def test_nothing_is_concerned_when_nothing_changed(committed):
    assert concerned(committed) == []


@pytest.mark.guarantee("MUT-46")
@pytest.mark.parametrize(
    ("file", "old", "new", "ids"),
    [
        ("mutations/sum/full-late.json", "SUM-02", "SUM-01", ["full-late"]),
        ("src/shop.py", "return one + two", "return one + two + 0", ["add-wrong"]),
        ("src/shop.py", "def full(count)", "def full(count=3)", ["full-late"]),
        ("src/shop.py", "LIMIT = 3", "LIMIT = 3\nOTHER = 4", ["limit-higher"]),
        ("tests/test_shop.py", "shop.full(3)", "shop.full(3) or True", ["full-late", "limit-higher"]),
        ("tests/test_shop.py", "shop.add(1, 1)", "shop.add(2, 1)", []),
        ("tests/test_shop.py", "import shop", "import shop as shop", ["add-wrong", "full-late", "limit-higher"]),
        ("tests/test_shop.py", "return 3", "return 4", ["add-wrong", "full-late", "limit-higher"]),
        ("docs/sum.md", "Adding", "Adding up", []),
    ],
    ids=[
        "its-file",
        "its-function",
        "a-signature",
        "a-constant",
        "its-killer",
        "another-test",
        "an-import",
        "a-fixture",
        "a-page",
    ],
)
def test_a_mutation_is_concerned_by_its_file_its_definition_and_its_killers(committed, file, old, new, ids):
    change(committed, file, old, new)

    assert concerned(committed) == ids


@pytest.mark.guarantee("MUT-46")
@pytest.mark.parametrize(
    ("file", "ids"),
    [
        ("tests/conftest.py", ["add-wrong", "full-late", "limit-higher"]),
        ("tests/data/sums.json", ["add-wrong", "full-late", "limit-higher"]),
        ("tests/test_other.py", []),
        ("mutations/sum/new.json", ["new"]),
        ("tests/ignored", []),
    ],
    ids=["a-conftest", "data", "another-test", "a-mutation", "ignored"],
)
def test_files_that_git_does_not_know_yet_count(committed, file, ids):
    committed.write(file, "# new\n")
    if "mutations" in file:
        committed.mutate("new")

    assert concerned(committed) == ids


@pytest.mark.guarantee("MUT-46")
def test_a_helper_of_a_killer_counts(committed):
    committed.write("tests/sums.py", "def check(one): assert one\n")
    change(committed, "tests/test_shop.py", "import shop", "import shop\nimport sums")
    git(committed, "add", ".")
    git(committed, "commit", "-qm", "two")
    assert concerned(committed) == []

    change(committed, "tests/sums.py", "assert one", "assert True")

    assert concerned(committed) == ["add-wrong", "full-late", "limit-higher"]


@pytest.mark.guarantee("MUT-46")
def test_what_is_staged_and_what_is_committed_since_count_and_what_others_did_meanwhile_does_not(committed):
    git(committed, "checkout", "-qb", "work")
    change(committed, "src/shop.py", "one + two", "two + one")
    git(committed, "commit", "-qam", "mine")
    change(committed, "src/shop.py", "LIMIT = 3", "LIMIT = 4")
    git(committed, "add", ".")
    git(committed, "stash", "-q")
    git(committed, "checkout", "-q", "main")
    change(committed, "src/shop.py", "count >= LIMIT", "LIMIT <= count")
    git(committed, "commit", "-qam", "theirs")
    git(committed, "checkout", "-q", "work")
    git(committed, "stash", "pop", "-q", "--index")

    assert concerned(committed, "main") == ["add-wrong", "limit-higher"]


@pytest.mark.guarantee("MUT-46")
def test_a_target_that_is_gone_or_no_python_concerns_its_mutations(committed):
    committed.write("src/shop.py", CODE + "\ndef")
    assert concerned(committed) == ["add-wrong", "full-late", "limit-higher"]

    (committed.root / "src/shop.py").unlink()
    assert concerned(committed) == ["add-wrong", "full-late", "limit-higher"]


@pytest.mark.guarantee("MUT-46")
def test_a_project_below_the_top_of_its_repository_is_read_from_its_own_folder(tmp_path, committed):
    (committed.root / ".git").rename(tmp_path / ".git")
    git(committed, "add", "..")
    git(committed, "commit", "-qm", "moved")
    change(committed, "src/shop.py", "return one + two", "return one + two + 0")

    assert concerned(committed) == ["add-wrong"]


@pytest.mark.parametrize("revision", ["nowhere", "--all"])
def test_an_unknown_revision_is_refused(committed, revision):
    with pytest.raises(UsageError, match=r"revision|fetch it"):
        concerned(committed, revision)


def test_outside_version_control_nothing_can_be_compared(sample):
    sample.mutate("add-wrong")

    with pytest.raises(UsageError, match="git knows no commit"):
        concerned(sample)
