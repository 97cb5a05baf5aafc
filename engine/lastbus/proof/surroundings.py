"""Surroundings: what a verdict rests on outside the files of its mutation and its killers.

Keeps: MUT-42.

The interpreter, the packages installed for it, pytest's settings, and the modules of this package that judge.
"""

from __future__ import annotations

import configparser
import hashlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from lastbus.proof.basis import imported
from lastbus.proof.config import Project

toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ASK_SECONDS: Final = 20.0
_ASK: Final = (
    "import json, platform, sys;"
    "print(json.dumps([sys.version.split()[0], [sys.version, platform.machine()], sys.path[1:]]))"
)
_SWITCHES: Final = ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_PLUGINS")
_SETTINGS: Final = (
    ("pytest.ini", "pytest"),
    (".pytest.ini", "pytest"),
    ("tox.ini", "pytest"),
    ("setup.cfg", "tool:pytest"),
)


@dataclass(frozen=True)
class Surroundings:
    """One interpreter with all that is around it. An interpreter that gives no answer has no digest."""

    python: str
    executable: str
    digest: str


def look(project: Project, python: str) -> Surroundings:
    """The surroundings of a replay of `project` with the interpreter `python`.

    Keeps: MUT-42.
    """
    executable = os.path.abspath(python) if os.path.dirname(python) else python
    with _asked(executable) as answer:
        facts = (*_settings(project), *judges().values(), *(f"{name}={os.environ.get(name)}" for name in _SWITCHES))
        version, build = answer()
    if not version:
        return Surroundings("", executable, "")
    facts = (*build, *facts)
    return Surroundings(version, executable, hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32])


@contextmanager
def _asked(executable: str) -> Iterator[Callable[[], tuple[str, tuple[str, ...]]]]:
    """Inside the block an interpreter finds out about itself, which takes a while, until somebody wants its answer."""
    try:
        asked = subprocess.Popen([executable, "-c", _ASK], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except (OSError, ValueError):
        yield lambda: ("", ())  # The replay will say what is wrong with it.
        return
    with asked:
        try:
            yield lambda: _interpreter(asked)
        finally:
            asked.kill()


def _interpreter(asked: subprocess.Popen[bytes]) -> tuple[str, tuple[str, ...]]:
    """The version of an interpreter, and the facts of it: its build, and what is installed where it imports from.

    Keeps: MUT-42.
    """
    try:
        version, build, paths = json.loads(asked.communicate(timeout=ASK_SECONDS)[0])
    except (ValueError, subprocess.TimeoutExpired):
        return "", ()
    if asked.returncode:
        return "", ()
    return version, (*build, *sorted(_installed(paths)))


def _installed(paths: Sequence[str]) -> Iterator[str]:
    """Every distribution with its version, as the folders of their metadata are called."""
    for path in paths:
        if os.path.isdir(path):
            yield from (name for name in os.listdir(path) if name.endswith((".dist-info", ".egg-info")))


def _settings(project: Project) -> Iterator[str]:
    """What configures pytest, wherever it may stand.

    Keeps: MUT-42.
    """
    body = toml.loads((project.root / "pyproject.toml").read_text(encoding="utf-8"))
    yield json.dumps(body.get("tool", {}).get("pytest"), sort_keys=True, default=str)
    for file, section in _SETTINGS:
        if (project.root / file).is_file():
            read = configparser.RawConfigParser(strict=False)
            read.read(project.root / file, encoding="utf-8")
            yield f"{file}: {sorted(read.items(section)) if read.has_section(section) else ''}"


@lru_cache(maxsize=1)
def judges() -> dict[Path, str]:
    """The modules that have a part in a verdict, with their text: what the replay imports of this package.

    Keeps: MUT-42.
    """
    here = Path(__file__).parent
    # The process that runs the tests is started by file name: no import leads to it.
    seen = {here / "replay.py", *here.glob("zygote*.py"), *here.glob("zygote/*.py")}
    waiting = list(seen)
    while waiting:
        text = waiting.pop().read_text(encoding="utf-8")
        names = {name.removeprefix(f"{__package__}.").replace(".", "/") for name in imported(text)}
        found = {path for name in names for path in (here / f"{name}.py", here / name / "__init__.py")}
        new = {path for path in found if path.is_file()} - seen
        seen |= new
        waiting += new
    return {path: path.read_text(encoding="utf-8") for path in sorted(seen)}
