"""The settings of a project: what it says about itself, and what is taken if it says nothing."""

from __future__ import annotations

import pytest

from lastbus.proof.config import Project
from lastbus.proof.errors import UsageError

LEAST = """
[tool.lastbus.proof]
docs = "docs"
code = ["src"]
tests = ["tests"]
mutations = "mutations"
"""


def read(tmp_path, text: str) -> Project:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    return Project.load(tmp_path)


def test_a_project_that_says_the_least_gets_the_defaults(tmp_path):
    project = read(tmp_path, LEAST)

    assert (project.docs, project.code, project.tests, project.mutations) == (
        ("docs",),
        ("src",),
        ("tests",),
        "mutations",
    )
    assert (project.paths, project.helpers, project.floor_seconds, project.services) == ((".",), (), 0.8, ())


def test_a_project_is_read_as_it_is_written(tmp_path):
    project = read(
        tmp_path,
        f"""{LEAST}
helpers = ["fakes"]
floor_seconds = 2

[tool.lastbus.proof.services]
database = "tests.servers:database"

[tool.pytest.ini_options]
pythonpath = "src lib"
""",
    )

    assert project.paths == ("src", "lib")
    assert project.helpers == ("fakes",)
    assert (project.floor_seconds, type(project.floor_seconds)) == (2.0, float)
    assert project.services == (("database", "tests.servers:database"),)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("floor_seconds = true", "floor_seconds must be a number of seconds above 0, not True"),
        ("helpers = []", "helpers must be a path or a list of paths"),
        ("helpers = [1]", "helpers must be a path or a list of paths"),
        ('services = "database"', "services must be \"module:context_manager\", not 'database'"),
        ('services.database = "tests.servers"', 'database must be "module:context_manager"'),
    ],
)
def test_a_setting_that_makes_no_sense_is_named_with_what_it_must_be(tmp_path, setting, words):
    with pytest.raises(UsageError) as refused:
        read(tmp_path, LEAST + setting)

    assert words in str(refused.value)


def test_a_project_is_found_from_any_folder_inside_it(tmp_path):
    read(tmp_path, LEAST)
    (tmp_path / "src" / "deep").mkdir(parents=True)

    assert Project.load(tmp_path / "src" / "deep").root == tmp_path.resolve()


def test_the_files_of_some_places_are_each_named_once_without_caches(tmp_path):
    for file in ("src/b.py", "src/a/c.py", "src/a/__pycache__/c.py", "src/a/d.txt"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")

    assert read(tmp_path, LEAST).files(("src", "src/a", "src/b.py"), ".py") == ["src/a/c.py", "src/b.py"]
