"""The example for other projects works as its README says, with nothing of the bus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.prover import NOT_NEEDED, PARTS, ROOT, Shell, install, shell_in

EXAMPLE = ROOT / "examples" / "prove-your-own"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has the prover and no bus."""
    return install(tmp_path_factory.mktemp("prover"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the example."""
    ignored = shutil.ignore_patterns("__pycache__", ".*", "proof-report")
    return Path(shutil.copytree(EXAMPLE, tmp_path / "mine", ignore=ignored))


@pytest.fixture
def shell(programs: Path, project: Path) -> Shell:
    """A shell in the example."""
    return shell_in(project, programs)


def commands() -> list[str]:
    """The lines that the README tells to type."""
    return re.findall(r"^\$ (.+)$", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


WITHOUT_THE_BUS = f"""
import sys
class Refusal:
    def find_spec(self, name, *_):
        package, _, module = name.partition(".")
        part = module.partition(".")[0]
        if package in {NOT_NEEDED!r} or (package == "lastbus" and part and not {{part, part + ".py"}} & set({PARTS!r})):
            raise ImportError(name + " is not needed")
sys.meta_path.insert(0, Refusal())
import lastbus.cli, lastbus.proof.replay
"""


@pytest.mark.guarantee("MUT-68")
def test_the_commands_and_the_prover_import_nothing_of_the_bus():
    tried = subprocess.run([sys.executable, "-c", WITHOUT_THE_BUS], capture_output=True, text=True, timeout=50)

    assert tried.stderr == ""


@pytest.mark.guarantee("MUT-68")
def test_the_two_commands_of_the_readme_do_what_it_says(shell, project):
    prove, show = commands()

    proved, shown = shell(prove), shell(show)

    assert (proved.returncode, shown.returncode) == (0, 0), proved.stderr + shown.stderr
    assert "3 guarantees: 3 pinned, 0 unpinned, 0 declared; 0 errors" in proved.stdout
    assert "PURSE-02 Nobody is favoured [pinned]" in shown.stdout
    report = json.loads((project / "proof-report/report.json").read_text())
    assert report["summary"] == {"killed": 4}
    assert report["headline"]["tone"] == "good"
    assert (project / "proof-report/index.html").is_file()


def test_a_weakened_assertion_is_noticed_as_the_readme_promises(shell, project):
    tests = project / "tests" / "test_purse.py"
    tests.write_text(tests.read_text().replace("assert max(shares) - min(shares) <= 1", "assert shares"))

    proved = shell("lastbus prove")

    assert proved.returncode == 1, proved.stderr
    assert "survived         purse-first-takes-all" in proved.stdout


def test_the_environment_of_this_test_has_no_bus(shell):
    tried = shell("python -c 'import lastbus.memory'")

    assert "No module named 'lastbus.memory'" in tried.stderr


def test_the_example_passes_its_own_tests(shell):
    assert shell("python -m pytest -q -p no:cacheprovider -W error").returncode == 0
