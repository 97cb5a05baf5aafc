"""The record: what the last replay said about each mutation, and what that rests on.

Keeps: MUT-16, MUT-42, MUT-43, MUT-55.

Kept in ``.lastbus/replay.json`` beside the project, never under version control. An entry holds as long as the files
it rests on are what they were, byte for byte, and so are the interpreter and all that is around it.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Final

from lastbus.proof.basis import Tree
from lastbus.proof.config import Project
from lastbus.proof.mutation import Mutation
from lastbus.proof.replay import Outcome, Result
from lastbus.proof.surroundings import Surroundings, look

FILE: Final = ".lastbus/replay.json"


@dataclass(frozen=True)
class Entry:
    """The last verdict on one mutation, and the digests of everything it was given for."""

    verdict: str
    reason: str
    killed_by: Mapping[str, tuple[str, ...]]
    python: str
    executable: str
    surroundings: str
    files: Mapping[str, str]


class Present:
    """The project and its interpreters as they are now: what an entry must agree with to hold."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.tree = Tree(project)
        self._seen: dict[str, Surroundings] = {}

    def around(self, executable: str) -> Surroundings:
        """The surroundings of one interpreter, asked for once."""
        if executable not in self._seen:
            self._seen[executable] = look(self.project, executable)
        return self._seen[executable]

    def changed(self, entry: Entry) -> str:
        """What `entry` rests on and is not what it was: a file, or the interpreter; empty if it holds.

        Keeps: MUT-16, MUT-42.
        """
        file = self.tree.changed(entry.files)
        if file:
            return file
        same = entry.surroundings == self.around(entry.executable).digest != ""
        return "" if same else f"{entry.executable} (its version, packages or settings)"


@dataclass(frozen=True)
class Basis:
    """What the verdicts of one replay rest on, taken before it began: an edit while it runs makes them stale.

    Keeps: MUT-43.
    """

    around: Surroundings
    files: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, present: Present, mutations: list[Mutation], python: str) -> Basis:
        """The basis of replaying `mutations` with `python` now."""
        files = {mutation.id: present.tree.basis(mutation) for mutation in mutations}
        return cls(present.around(python), files)


def load(project: Project) -> dict[str, Entry]:
    """The entries by mutation id; an unreadable record is an empty one, and proves nothing."""
    try:
        body = json.loads((project.root / FILE).read_text(encoding="utf-8"))
        files = [(str(file), str(digest)) for file, digest in body["files"]]
        return {name: _entry(entry, files) for name, entry in body["entries"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return {}


def _entry(body: Mapping[str, Any], files: Sequence[tuple[str, str]]) -> Entry:
    killed_by = {killer: tuple(ids) for killer, ids in body["killed_by"].items()}
    return Entry(
        verdict=body["verdict"],
        reason=body["reason"],
        killed_by=killed_by,
        python=body["python"],
        executable=body["executable"],
        surroundings=body["surroundings"],
        files=dict(map(files.__getitem__, body["files"])),
    )


def _to_json(entries: Mapping[str, Entry]) -> dict[str, Any]:
    """The record as it is kept: every digest once, because hundreds of verdicts rest on the same files."""
    numbers: dict[tuple[str, str], int] = {}
    bodies = {
        name: {**vars(entry), "files": [numbers.setdefault(pair, len(numbers)) for pair in entry.files.items()]}
        for name, entry in sorted(entries.items())
    }
    return {"files": list(numbers), "entries": bodies}


def entry(result: Result, outcome: Outcome) -> Entry:
    """What a result of `outcome` says, resting on nothing yet."""
    return Entry(
        verdict=str(result.verdict),
        reason=result.judgement.reason,
        killed_by=result.killed_by,
        python=outcome.python,
        executable="",
        surroundings="",
        files={},
    )


def update(project: Project, outcome: Outcome, basis: Basis) -> None:
    """Replace the entries of the mutations that `outcome` ran; all others stay, those of a replay beside it too.

    Only what has no file any more is forgotten, unless it was run: then its file is about to be written.
    Keeps: MUT-16, MUT-43, MUT-55.
    """
    if not outcome.results:
        return
    with _alone(project):
        entries = load(project)
        for gone in entries.keys() - _standing(project):
            del entries[gone]
        for result in outcome.results:
            entries[result.mutation.id] = replace(
                entry(result, outcome),
                executable=basis.around.executable,
                surroundings=basis.around.digest,
                files=basis.files[result.mutation.id],
            )
        path = project.root / FILE
        path.with_suffix(".new").write_text(json.dumps(_to_json(entries)) + "\n", encoding="utf-8")
        path.with_suffix(".new").replace(path)


def _standing(project: Project) -> set[str]:
    """The ids of the mutations that have a file, readable or not: the name of the file is the id.

    Keeps: MUT-55.
    """
    return {PurePosixPath(file).stem for file in project.files((project.mutations,), ".json")}


@contextmanager
def _alone(project: Project) -> Iterator[None]:
    """No other process changes the record inside the block."""
    lock = (project.root / FILE).with_suffix(".lock")
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
