"""Copies of a project's tree: the only place that a mutation is ever written to.

Keeps: MUT-07, MUT-17.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

LEFT_OUT: Final = frozenset(
    {".git", ".venv", ".tox", ".cache", ".lastbus", ".hypothesis", "__pycache__", "node_modules", "build", "dist"}
)


class Copy:
    """One copy of a tree in a folder of its own."""

    def __init__(self, source: Path, root: Path) -> None:
        self.root = root
        self._stamps = itertools.count(1)
        copy_tree(source, root)

    @contextlib.contextmanager
    def mutated(self, texts: Mapping[str, str]) -> Iterator[None]:
        """The copy holds `texts` inside the block, and its own bytes again after it.

        A mutated file gets a modification time no version of it had before, so that bytecode of
        one version is never taken for another, even if size and second are equal.
        Keeps: MUT-07, MUT-17.
        """
        kept = {file: ((self.root / file).read_bytes(), (self.root / file).stat()) for file in texts}
        try:
            for file, text in texts.items():
                path = self.root / file
                path.write_bytes(text.encode("utf-8"))
                later = kept[file][1].st_mtime_ns + next(self._stamps) * 10_000_000_000
                os.utime(path, ns=(later, later))
            yield
        finally:
            for file, (data, stat) in kept.items():
                (self.root / file).write_bytes(data)
                os.utime(self.root / file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def copy_tree(source: Path, target: Path) -> None:
    """Copy a project with modification times, without version control, environments and caches.

    Keeps: MUT-07.
    """

    def leave_out(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder)
        return {
            name
            for name in names
            if name in LEFT_OUT or name.endswith("_cache") or (inside / name / "pyvenv.cfg").exists()
        }

    shutil.copytree(source, target, ignore=leave_out, symlinks=True)


def share_bytecode(copies: Sequence[Copy]) -> None:
    """Give every copy the .pyc files that it lacks and another has made; their sources are equal in bytes and times."""
    made = [{file.relative_to(copy.root) for file in copy.root.rglob("__pycache__/*.pyc")} for copy in copies]
    for taker, own in zip(copies, made, strict=True):
        for giver, others in zip(copies, made, strict=True):
            for file in others - own:
                (taker.root / file).parent.mkdir(exist_ok=True)
                shutil.copy2(giver.root / file, taker.root / file)
            own = own | others
