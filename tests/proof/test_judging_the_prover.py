"""The prover on trial: its own mutations are judged by the prover that was started, not by the mutated one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lastbus import proof
from tests.proof.sample import Sample, shop

WORDS = "tests/test_words.py::test_a_kill_has_a_word"
TESTS = """
import pytest
from lastbus.proof.verdict import Verdict


@pytest.mark.guarantee("SUM-01")
def test_a_kill_has_a_word():
    assert str(Verdict.KILLED) == "killed"
"""
LIES = {
    "verdict": ("def judge(", 'def judge(*_):\n    return Judgement(Verdict.KILLED, "so it says")\n\n\ndef judged('),
    "zygote/recorder": ("outcome=report.outcome", 'outcome="failed"'),
    "process": (
        "reports=notes.reports",
        'reports=[__import__("dataclasses").replace(one, outcome="failed") for one in notes.reports]',
    ),
}


@pytest.fixture
def accused(tmp_path: Path) -> Sample:
    """A project that holds a prover of its own, with one test that it passes."""
    sample = shop(tmp_path)
    sample.write("src/lastbus/__init__.py", "")
    shutil.copytree(Path(proof.__file__).parent, tmp_path / "src/lastbus/proof")
    sample.write("tests/test_words.py", TESTS)
    return sample


@pytest.mark.guarantee("MUT-31")
@pytest.mark.parametrize("module", LIES)
@pytest.mark.parametrize("isolated", [False, True], ids=["warm", "isolated"])
def test_a_prover_that_calls_everything_killed_does_not_judge_itself(accused, module, isolated):
    old, new = LIES[module]
    accused.mutate("lie", file=f"src/lastbus/proof/{module}.py", old=old, new=new, killers=[WORDS])

    assert accused.verdicts(isolated=isolated) == {"lie": "survived"}


@pytest.mark.guarantee("MUT-31")
def test_a_mutated_prover_is_still_what_its_tests_see(accused):
    file = "src/lastbus/proof/verdict.py"
    accused.mutate("wrong-word", file=file, old='KILLED = "killed"', new='KILLED = "gone"', killers=[WORDS])

    assert accused.verdicts() == {"wrong-word": "killed"}
