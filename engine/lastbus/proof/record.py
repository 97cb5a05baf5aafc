"""The record: what the last replay said about each mutation, and whether that still holds.

Keeps: MUT-16.

Kept in ``.lastbus/replay.json`` beside the project, never under version control.
An entry holds as long as the mutation, the files it changes, the test files of its
killers and the conftests above them are what they were, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from lastbus.proof.config import Project
from lastbus.proof.mutation import Mutation
from lastbus.proof.replay import Outcome

FILE: Final = ".lastbus/replay.json"


@dataclass(frozen=True)
class Entry:
    """The last verdict on one mutation and the fingerprint of what it was given for."""

    verdict: str
    killed_by: Mapping[str, tuple[str, ...]]
    fingerprint: str
    python: str


def fingerprint(project: Project, mutation: Mutation) -> str:
    """A digest of everything the verdict on `mutation` rests on.

    Keeps: MUT-16.
    """
    digest = hashlib.sha256(mutation.text.encode())
    for file in sorted({*mutation.files, *_test_files(mutation)}):
        path = project.root / file
        data = path.read_bytes() if path.is_file() else b""
        digest.update(f"\0{file}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _test_files(mutation: Mutation) -> set[str]:
    """The killers' files and every conftest that pytest may read for them.

    Keeps: MUT-16.
    """
    files = {killer.split("::")[0] for killer in mutation.killers}
    folders = {parent for file in files for parent in PurePosixPath(file).parents}
    return files | {(folder / "conftest.py").as_posix() for folder in folders}


def load(project: Project) -> dict[str, Entry]:
    """The entries by mutation id; an unreadable record is an empty one, and proves nothing."""
    try:
        body = json.loads((project.root / FILE).read_text(encoding="utf-8"))
        return {name: _entry(entry) for name, entry in body.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _entry(body: Mapping[str, Any]) -> Entry:
    killed_by = {killer: tuple(ids) for killer, ids in body["killed_by"].items()}
    return Entry(body["verdict"], killed_by, body["fingerprint"], body["python"])


def update(project: Project, outcome: Outcome) -> None:
    """Replace the entries of the mutations in `outcome`; all others stay."""
    entries = load(project)
    for result in outcome.results:
        entries[result.mutation.id] = Entry(
            verdict=str(result.verdict),
            killed_by=result.killed_by,
            fingerprint=fingerprint(project, result.mutation),
            python=outcome.python,
        )
    path = project.root / FILE
    path.parent.mkdir(exist_ok=True)
    text = json.dumps({name: vars(entry) for name, entry in sorted(entries.items())}, indent=1)
    path.with_suffix(".new").write_text(text + "\n", encoding="utf-8")
    path.with_suffix(".new").replace(path)
