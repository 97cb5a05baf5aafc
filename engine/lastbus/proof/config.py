"""The project under proof: where its documents, code, tests and mutations live.

Read from ``[tool.lastbus.proof]`` in pyproject.toml. Every path is kept relative
to the root, so that the same project can be read from a copy of its tree.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from lastbus.proof.errors import UsageError

toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

EXAMPLE = '[tool.lastbus.proof]\ndocs = ["docs/guarantees"]\ncode = ["src"]\ntests = ["tests"]\nmutations = "mutations"'


@dataclass(frozen=True)
class Project:
    """One tree and the places in it that the proof reads."""

    root: Path
    docs: tuple[str, ...]
    code: tuple[str, ...]
    tests: tuple[str, ...]
    mutations: str
    paths: tuple[str, ...] = (".",)
    helpers: tuple[str, ...] = ()
    """Code that is for tests rather than under test: a verdict rests on it as it does on the tests."""
    floor_seconds: float = 0.8
    """The least that a test may take before it is over its limit; more where tests bound their own waits."""
    services: tuple[tuple[str, str], ...] = ()
    """Fixtures that need a server, each with the context manager that starts it once for a whole replay."""

    @classmethod
    def load(cls, start: Path | None = None) -> Project:
        """The project that `start` (default: the working directory) lies in; `UsageError` if there is none."""
        here = (start or Path.cwd()).resolve()
        for folder in (here, *here.parents):
            file = folder / "pyproject.toml"
            if file.is_file():
                table = toml.loads(file.read_text(encoding="utf-8"))
                return cls._read(folder, table.get("tool", {}))
        raise UsageError(f"no pyproject.toml in {here} or above it: run this inside a project")

    @classmethod
    def _read(cls, root: Path, tools: dict[str, Any]) -> Project:
        table = tools.get("lastbus", {}).get("proof")
        if table is None:
            raise UsageError(f"{root / 'pyproject.toml'} has no [tool.lastbus.proof]; add for example:\n{EXAMPLE}")
        ini = tools.get("pytest", {}).get("ini_options", {})
        return cls(
            root=root,
            docs=_strings(table, "docs"),
            code=_strings(table, "code"),
            tests=_strings(table, "tests"),
            mutations=_strings(table, "mutations")[0],
            paths=_paths(ini.get("pythonpath", ["."])),
            helpers=_strings(table, "helpers") if "helpers" in table else (),
            floor_seconds=_seconds(table, "floor_seconds", cls.floor_seconds),
            services=_services(table.get("services", {})),
        )

    def files(self, places: tuple[str, ...], suffix: str) -> list[str]:
        """Every file with `suffix` under `places`, relative to the root, sorted; caches left out."""
        found: set[str] = set()
        for place in places:
            base = self.root / place
            if base.is_file():
                found.add(base.relative_to(self.root).as_posix())
            for folder, folders, names in os.walk(base):
                folders[:] = [name for name in folders if name != "__pycache__"]
                here = PurePath(folder).relative_to(self.root).as_posix()
                found.update(f"{here}/{name}" for name in names if name.endswith(suffix))
        return sorted(file.removeprefix("./") for file in found)

    def read(self, file: str) -> str:
        """The text of a file of the project, newlines as they are."""
        with open(f"{self.root}/{file}", "rb") as opened:
            return opened.read().decode("utf-8")


def _strings(table: dict[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key)
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise UsageError(f"[tool.lastbus.proof] {key} must be a path or a list of paths; for example:\n{EXAMPLE}")
    return tuple(value)


def _paths(value: str | list[str]) -> tuple[str, ...]:
    return tuple(value.split() if isinstance(value, str) else value)


def _seconds(table: dict[str, Any], key: str, default: float) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise UsageError(f"[tool.lastbus.proof] {key} must be a number of seconds above 0, not {value!r}")
    return float(value)


def _services(table: Any) -> tuple[tuple[str, str], ...]:
    """Name of the fixture and `module:context_manager`, as under ``[tool.lastbus.proof.services]``."""
    pairs = tuple(table.items()) if isinstance(table, dict) else (("services", table),)
    for fixture, place in pairs:
        if not isinstance(place, str) or place.count(":") != 1:
            raise UsageError(f'[tool.lastbus.proof.services] {fixture} must be "module:context_manager", not {place!r}')
    return pairs
