"""The rival: mutmut on the same project, with its own settings, where it is installed.

It makes its own mutants, so that only the time for each can be compared.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from lastbus.proof.bench.contest import Lap
from lastbus.proof.bench.guinea import CODE, Guinea
from lastbus.proof.process import environment, kill_group

RIVAL_SECONDS: Final = 900.0
_LAST_COUNTS: Final = re.compile(r"(\d+)/\1\s+\U0001f389 (\d+)[^\r\n]*$")


def is_installed(python: str) -> bool:
    """Whether the interpreter can run mutmut."""
    asked = subprocess.run([python, "-c", "import mutmut"], capture_output=True, env=environment(), check=False)
    return asked.returncode == 0


def mutmut(guinea: Guinea, python: str, jobs: int) -> Lap:
    """One run of mutmut, start-up included: it does not tell the two apart."""
    with tempfile.TemporaryDirectory(prefix="lastbus-mutmut-") as folder:
        root = Path(folder) / "tree"
        shutil.copytree(guinea.project.root, root, ignore=shutil.ignore_patterns("mutations"))
        with open(root / "pyproject.toml", "a", encoding="utf-8") as settings:
            settings.write(f'\n[tool.mutmut]\nsource_paths = ["{Path(CODE).parent.as_posix()}"]\n')
        began = time.monotonic()
        said = _say([python, "-m", "mutmut", "run", "--max-children", str(jobs)], root)
        return Lap(0.0, time.monotonic() - began, words(said))


def _say(command: list[str], cwd: Path) -> str:
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, cwd=cwd, env=environment(), stdout=pipe, stderr=null, start_new_session=True) as run:
        try:
            return run.communicate(timeout=RIVAL_SECONDS)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            return ""
        finally:
            kill_group(run.pid)


def words(said: str) -> dict[str, str]:
    """How many mutants it tried and killed, from its last line of counts; none if it did not come so far."""
    for line in reversed(re.split(r"[\r\n]+", said)):
        counts = _LAST_COUNTS.search(line)
        if counts is not None:
            tried, killed = int(counts[1]), int(counts[2])
            return {str(number): "killed" if number < killed else "not killed" for number in range(tried)}
    return {}
