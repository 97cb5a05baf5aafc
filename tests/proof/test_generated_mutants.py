"""The gate on mutants that mutmut makes; mutmut itself is not run here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import generated_mutants
from scripts.generated_mutants import Tried, function_of, gate, stage, tried_in
from tests.proof.sample import Sample

DIFF = """# lastbus.shop: survived
--- src/shop.py
+++ src/shop.py
@@ -1 +1 @@
-    return one + two
+    return two + one
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What mutmut leaves: how each mutant made the tests exit, None for those that were not tried."""
    meta = tmp_path / "mutants" / "src" / "lastbus" / "_model" / "shop.py.meta"
    meta.parent.mkdir(parents=True)
    codes = {"x_add__mutmut_1": 1, "x_add__mutmut_2": 0, "x_add__mutmut_3": None, "xǁTillǁopen__mutmut_1": 33}
    meta.write_text(
        json.dumps({"exit_code_by_key": {f"lastbus._model.shop.{key}": code for key, code in codes.items()}})
    )
    return tmp_path


def test_a_name_of_mutmut_is_read_as_the_function_that_it_means():
    assert function_of("lastbus._model.names.x__shown__mutmut_12") == "_shown"
    assert function_of("lastbus._model.event.xǁEventǁ__init____mutmut_1") == "Event.__init__"


def test_what_was_tried_is_read_with_its_place_here_and_its_word(tree):
    tried = list(tried_in(tree, ()))

    assert [(one.function, one.word) for one in tried] == [
        ("add", "killed"),
        ("add", "survived"),
        ("Till.open", "no tests"),
    ]
    assert {one.file for one in tried} == {"engine/lastbus/_model/shop.py"}
    assert [one.function for one in tried_in(tree, ["*Till*"])] == ["Till.open"]


@pytest.mark.guarantee("MUT-70")
@pytest.mark.parametrize(
    ("word", "code"), [("killed", 0), ("timeout", 0), ("skipped", 0), ("survived", 1), ("no tests", 1)]
)
def test_a_mutant_that_nobody_notices_or_covers_fails_the_gate(sample, capsys, word, code):
    assert gate(sample.project, [Tried("x_add__mutmut_1", "src/shop.py", "add", word)], lambda _: DIFF) == code

    said = capsys.readouterr()
    assert said.out == f"1 {word}\n"
    assert ("nobody notices this" in said.err) is bool(code)


@pytest.mark.guarantee("MUT-70")
def test_no_mutants_fail_the_gate(sample, capsys):
    assert gate(sample.project, [], lambda _: DIFF) == 1
    assert "mutmut tried no mutant" in capsys.readouterr().err


@pytest.mark.guarantee("MUT-70")
@pytest.mark.parametrize(("word", "code"), [("survived", 0), ("timeout", 0), ("killed", 1)])
def test_an_accepted_mutant_passes_the_gate_until_somebody_notices_it(sample: Sample, word: str, code: int):
    sample.write(
        "mutations/accepted.toml",
        '[[accepted]]\nby = "mutmut"\nfile = "src/shop.py"\nfunction = "add"\n'
        "change = '''\n-    return one + two\n+    return two + one\n'''\nreason = \"addition commutes\"\n",
    )

    assert gate(sample.project, [Tried("x_add__mutmut_1", "src/shop.py", "add", word)], lambda _: DIFF) == code


def test_the_copy_calls_the_source_root_src_and_selects_the_given_tests(tmp_path):
    stage(tmp_path, ["tests/model"])

    settings = (tmp_path / "pyproject.toml").read_text()
    assert 'pytest_add_cli_args_test_selection = ["tests/model"]' in settings
    assert 'pythonpath = ["src", "."]' in settings
    assert (tmp_path / "src/lastbus/__init__.py").is_file()
    assert (tmp_path / "tests/model").is_dir()


def test_a_run_of_mutmut_that_failed_is_not_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(generated_mutants.sys, "executable", "/bin/false")

    assert generated_mutants.main(["--tree", str(tmp_path)]) == 3
