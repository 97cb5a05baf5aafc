"""The prover as another project has it: installed with its extra, with nothing of the bus beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("__init__.py", "cli.py", "py.typed", "_commands", "proof")
"""All of the package that the prover may need."""
NOT_NEEDED = ("redis", "sqlalchemy", "prometheus_client", "pytest_asyncio")
"""Packages that only the bus or its own tests need."""
Shell = Callable[[str], "subprocess.CompletedProcess[str]"]


def install(home: Path) -> Path:
    """Make an environment with the prover of this checkout; returns the folder of its programs.

    The bus is not in it, and what only the bus needs cannot be imported.
    """
    venv.create(home / "venv", symlinks=True)
    library = home / "library"
    (library / "lastbus").mkdir(parents=True)
    for part in PARTS:
        source, target = ROOT / "engine" / "lastbus" / part, library / "lastbus" / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    for name in NOT_NEEDED:
        (library / f"{name}.py").write_text(f"raise ImportError('{name} is not there')\n")
    site = next((home / "venv" / "lib").glob("python*/site-packages"))
    # A folder on the path is searched as it is: the editable checkout, which a .pth file of it names, is not seen.
    (site / "only.pth").write_text(f"{library}\n{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    programs = home / "venv" / "bin"
    (programs / "lastbus").write_text(f"#!{programs / 'python'}\nfrom lastbus.cli import main\nmain()\n")
    (programs / "lastbus").chmod(0o755)
    return programs


def shell_in(folder: Path, programs: Path) -> Shell:
    """Run a line as somebody would who stands in `folder` and has `programs` on the path."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    path = os.pathsep.join([str(programs), os.defpath])
    environ = {**kept, "PATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line, shell=True, cwd=folder, env=environ, capture_output=True, text=True, timeout=50, check=False
        )

    return run
