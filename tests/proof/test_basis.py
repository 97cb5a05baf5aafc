"""The basis of a verdict: which files it rests on, however a test comes to lean on them."""

from __future__ import annotations

import pytest

from lastbus.proof.basis import Tree, imported, plugins
from tests.proof.sample import PYPROJECT, Sample


def rests_on(sample: Sample) -> dict[str, str]:
    """The digests of what the one mutation of the shop rests on."""
    return Tree(sample.project).basis(sample.mutate("add-wrong"))


@pytest.mark.guarantee("MUT-16")
def test_a_verdict_rests_on_the_mutation_its_target_the_killers_file_and_the_conftests_above(sample):
    basis = rests_on(sample)

    assert set(basis) == {
        "conftest.py",
        "mutations/sum/add-wrong.json",
        "src/shop.py",
        "tests/",
        "tests/conftest.py",
        "tests/test_shop.py",
    }
    assert basis["conftest.py"] == ""
    assert Tree(sample.project).changed(basis) == ""


@pytest.mark.guarantee("MUT-16")
def test_a_verdict_rests_on_the_mutation_as_it_was_read_whatever_became_of_its_file(sample):
    read = sample.mutate("add-wrong")
    as_it_was = Tree(sample.project).basis(read)
    sample.mutate("add-wrong", new="return 0")

    basis = Tree(sample.project).basis(read)

    assert basis == as_it_was
    assert Tree(sample.project).changed(basis) == "mutations/sum/add-wrong.json"


@pytest.mark.guarantee("MUT-16")
def test_what_was_found_unchanged_once_is_compared_with_a_mutation_that_is_read_later(sample):
    read = sample.mutate("add-wrong")
    tree = Tree(sample.project)
    basis = tree.basis(read)
    assert tree.changed(basis) == ""

    tree.know(sample.mutate("add-wrong", new="return 0"))

    assert tree.changed(basis) == "mutations/sum/add-wrong.json"


@pytest.mark.guarantee("MUT-16")
def test_two_verdicts_that_rest_on_different_contents_of_one_file_do_not_both_hold(sample):
    tree = Tree(sample.project)
    basis = tree.basis(sample.mutate("add-wrong"))
    assert tree.changed(basis) == ""

    assert tree.changed({**basis, "src/shop.py": basis["tests/test_shop.py"]}) == "src/shop.py"


@pytest.mark.guarantee("MUT-41")
@pytest.mark.parametrize(
    "line",
    [
        "import helpers",
        "import pytest, helpers as h",
        "from helpers import check",
        "from helpers import (  # (all of it)\n    check,\n)",
        "from tests import helpers",
        "from tests.helpers import check",
        "from . import helpers",
        "from .helpers import check",
        "from .. import tests; from \\\n tests import helpers",
        "if True: import helpers",
        "def test():\n    import tests.helpers",
        'helpers = importlib.import_module("tests.helpers")',
        'helpers = pytest.importorskip(  "helpers")',
        'pytest_plugins = ["helpers"]',
        'pytest_plugins: list[str] = [\n    "other",\n    "tests.helpers",  # fixtures\n]',
        'pytest_plugins = "tests.helpers"',
    ],
)
def test_a_helper_counts_however_it_is_imported(sample, line):
    sample.write("tests/helpers.py", "def check(one):\n    assert one\n")
    sample.write("tests/test_shop.py", f"{line}\n")

    assert "tests/helpers.py" in rests_on(sample)


@pytest.mark.guarantee("MUT-41")
def test_helpers_of_helpers_count_and_so_do_the_packages_around_them(sample):
    sample.write("tests/conftest.py", "from tests.kit.checks import check\n")
    sample.write("tests/kit/__init__.py", "")
    sample.write("tests/kit/checks.py", "from .deeper import really\n")
    sample.write("tests/kit/deeper.py", "import checks\n")

    assert {"tests/kit/__init__.py", "tests/kit/checks.py", "tests/kit/deeper.py"} <= rests_on(sample).keys()


@pytest.mark.guarantee("MUT-41")
def test_the_code_under_test_is_no_helper_unless_the_project_says_so(sample):
    sample.write("src/kit/gates.py", "")
    sample.write("src/kit/__init__.py", "from kit import gates\n")
    sample.write("tests/test_shop.py", "import kit\nimport shop\n")

    assert "src/kit/gates.py" not in rests_on(sample)
    sample.write("pyproject.toml", PYPROJECT + 'helpers = ["src/kit"]\n')
    assert {"src/kit/__init__.py", "src/kit/gates.py"} <= rests_on(sample).keys()


@pytest.mark.guarantee("MUT-41")
def test_a_plugin_counts_wherever_it_stands(sample):
    sample.write("src/plug.py", "")
    sample.write("tests/conftest.py", 'pytest_plugins = ("plug",)\n')

    assert "src/plug.py" in rests_on(sample)


@pytest.mark.guarantee("MUT-16")
@pytest.mark.parametrize("file", ["tests/data/sums.json", "tests/notes.txt"])
def test_data_beside_the_killers_counts(sample, file):
    basis = rests_on(sample)
    sample.write(file, "5")

    assert Tree(sample.project).changed(basis) == "tests/"


def test_data_is_told_by_name_and_content(sample):
    sample.write("tests/data/one.json", "5")
    sample.write("tests/__pycache__/test_shop.pyc", "code")
    basis = rests_on(sample)
    sample.write("tests/__pycache__/test_shop.pyc", "other code")
    assert Tree(sample.project).changed(basis) == ""

    (sample.root / "tests/data/one.json").rename(sample.root / "tests/data/two.json")
    assert Tree(sample.project).changed(basis) == "tests/"


def test_tests_at_the_root_do_not_rest_on_the_whole_tree(sample):
    sample.write("test_here.py", "def test_here(): ...\n")

    assert "./" not in Tree(sample.project).basis(sample.mutate("here", killers=["test_here.py::test_here"]))


def test_words_that_only_look_like_imports_do_no_harm():
    assert imported("# import a\nx = 'from b import c'\n") == {"b", "b.c"}
    assert plugins("# pytest_plugins = ['a']\n") == set()
