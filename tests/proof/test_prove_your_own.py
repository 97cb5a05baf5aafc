"""The example for other projects works as its README says, with nothing of the bus."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "prove-your-own"
PARTS = ("__init__.py", "cli.py", "py.typed", "_commands", "proof")
"""All of the package that the prover may need."""
NOT_NEEDED = ("redis", "sqlalchemy", "prometheus_client", "pytest_asyncio")
Shell = Callable[[str], subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the prover of this checkout and the packages of its extra, and without the rest.

    The bus is not in it, and a package that only the bus needs cannot be imported.
    """
    home = tmp_path_factory.mktemp("prover")
    venv.create(home / "venv", symlinks=True)
    library = home / "library"
    for part in PARTS:
        source, target = ROOT / "engine" / "lastbus" / part, library / "lastbus" / part
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__")) if source.is_dir() else (
            shutil.copy(source, target)
        )
    for name in NOT_NEEDED:
        (library / f"{name}.py").write_text(f"raise ImportError('{name} is not there')\n")
    site = next((home / "venv" / "lib").glob("python*/site-packages"))
    # A folder on the path is searched as it is: the editable checkout, which a .pth file of it names, is not seen.
    (site / "only.pth").write_text(f"{library}\n{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    command = home / "venv" / "bin" / "lastbus"
    command.write_text(f"#!{home}/venv/bin/python\nfrom lastbus.cli import main\nmain()\n")
    command.chmod(0o755)
    return home / "venv" / "bin" / "python"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the example."""
    ignored = shutil.ignore_patterns("__pycache__", ".*", "proof-report")
    return Path(shutil.copytree(EXAMPLE, tmp_path / "mine", ignore=ignored))


@pytest.fixture
def shell(python: Path, project: Path) -> Shell:
    """Run a line as somebody would who stands in the example."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    environ = {**kept, "PATH": f"{python.parent}{os.pathsep}{os.defpath}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line, shell=True, cwd=project, env=environ, capture_output=True, text=True, timeout=50, check=False
        )

    return run


def commands() -> list[str]:
    """The lines that the README tells to type."""
    return re.findall(r"^\$ (.+)$", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


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
    assert shell(f"{sys.executable} -m pytest -q -p no:cacheprovider -W error").returncode == 0
