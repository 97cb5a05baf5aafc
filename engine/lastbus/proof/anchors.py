"""Anchors: what is wrong with the mutations as they are written, and where a lost anchor stands now.

Keeps: MUT-49, MUT-50.

Everything is read and nothing is run, so that a thousand mutations are checked in a second. A replay would find the
same faults later, one test run at a time.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from lastbus.proof.config import Project
from lastbus.proof.errors import MutationFileError
from lastbus.proof.mutation import Edit, Mutation, Unfit, apply, read_all, texts_of

ALIKE_MIN: Final = 0.7
"""Text that is less alike than this is not worth suggesting."""
PLACES_MAX: Final = 5
_TEST: Final = re.compile(r"^\s*(?:(?:async\s+def|def|class)\s+(\w+)\s*[(:]|(\w+)\s*=)", re.MULTILINE)
_CLASS: Final = re.compile(r"\s*(?:class\s+\w+\s*\(|\w+\s*=)")


@dataclass(frozen=True)
class Place:
    """Where an anchor could stand: `text`, which occurs once in `file`, and how like the lost one it is, 1 at most."""

    file: str
    line: int
    text: str
    alike: float


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with one mutation, in a word and in a sentence, and places for a new anchor."""

    mutation: str
    source: str
    line: int
    word: str
    reason: str
    places: tuple[Place, ...] = ()

    def lines(self) -> Iterator[str]:
        """The fault for people: where it is written, what it is, what to write instead."""
        yield f"{self.source}:{self.line}: {self.word}: {self.reason}"
        for place in self.places:
            yield f'  {place.file}:{place.line} is {place.alike:.0%} alike: "old": {json.dumps(place.text)}'

    def to_json(self) -> dict[str, Any]:
        """The fault for programs."""
        return {
            "id": self.mutation,
            "source": self.source,
            "line": self.line,
            "fault": self.word,
            "reason": self.reason,
            "suggestions": [vars(place) for place in self.places],
        }


def check(project: Project) -> tuple[int, list[Fault]]:
    """How many mutations there are, and everything that is wrong with them, in the order of their files.

    Keeps: MUT-49.
    """
    mutations, unread = read_all(project)
    faults = [_malformed(fault) for fault in unread]
    for mutation in mutations:
        faults += _unfit(project, mutation)
        faults += unknown_killers(project, mutation)
    return len(mutations) + len(unread), sorted(faults, key=lambda fault: fault.source)


def _malformed(error: MutationFileError) -> Fault:
    return Fault("", error.file, error.line, "malformed", f"{error.key}: {error.fault}")


def _unfit(project: Project, mutation: Mutation) -> Iterator[Fault]:
    """Why the mutation cannot be put in, if it cannot.

    Keeps: MUT-49.
    """
    texts = texts_of(project, mutation)
    try:
        apply(mutation.edits, texts)
    except Unfit as unfit:
        edit = _guilty(mutation.edits, texts) if "anchor" in unfit.verdict else None
        places = places_for(project, edit) if edit is not None else ()
        yield Fault(mutation.id, mutation.source, _line_of(mutation, edit), str(unfit.verdict), unfit.reason, places)


def _guilty(edits: Sequence[Edit], texts: dict[str, str]) -> Edit:
    """The first edit whose anchor does not stand once where the edits before it have left its file."""
    now = dict(texts)
    for edit in edits:
        if now.get(edit.file, "").count(edit.old) != 1:
            return edit
        now[edit.file] = now[edit.file].replace(edit.old, edit.new)
    return edits[-1]


def _line_of(mutation: Mutation, edit: Edit | None) -> int:
    """The line of the mutation's file that the anchor stands on."""
    found = mutation.text.find(json.dumps(edit.old, ensure_ascii=False)) if edit is not None else 0
    return mutation.text.count("\n", 0, max(found, 0)) + 1


def unknown_killers(project: Project, mutation: Mutation) -> Iterator[Fault]:
    """The killers that no file defines: neither the function nor, if it may be inherited, its class.

    Keeps: MUT-49.
    """
    for killer in mutation.killers:
        file, *names = killer.partition("[")[0].split("::")
        if not (project.root / file).is_file():
            reason = f"{killer}: there is no file {file}"
        elif missing := _undefined(project.read(file), names):
            reason = f"{killer}: {file} does not define {missing}"
        else:
            continue
        line = mutation.text.count("\n", 0, max(mutation.text.find(json.dumps(killer)), 0)) + 1
        yield Fault(mutation.id, mutation.source, line, "unknown-killer", reason)


def _undefined(text: str, names: Sequence[str]) -> str:
    """The first of `names` that `text` does not define; a class with bases, or made by a call, may have the rest."""
    defined = _defined(text)
    for name in names:
        if name not in defined:
            return name
        if defined[name] == "inherits":
            return ""
    return ""


@lru_cache(maxsize=1024)
def _defined(text: str) -> dict[str, str]:
    """The names that a module defines anywhere, and whether one is a class with bases or what is called like one."""
    return {match[1] or match[2]: "inherits" if _CLASS.match(match[0]) else "defined" for match in _TEST.finditer(text)}


def places_for(project: Project, edit: Edit) -> tuple[Place, ...]:
    """Where the anchor of `edit` could stand: each of its copies, else what is most like it, else another file.

    Keeps: MUT-50.
    """
    path = project.root / edit.file
    text = project.read(edit.file) if path.is_file() else ""
    copies = [_place(edit.file, text, start, start + len(edit.old), 1.0) for start in _starts(text, edit.old)]
    if copies:
        return tuple(copies[:PLACES_MAX])
    near = nearest(edit.file, text, edit.old)
    return (near,) if near else tuple(_elsewhere(project, edit))


def _starts(text: str, old: str) -> Iterator[int]:
    start = text.find(old)
    while start >= 0:
        yield start
        start = text.find(old, start + len(old))


def _elsewhere(project: Project, edit: Edit) -> Iterator[Place]:
    """The files of the project that have the anchor once, word for word: it has moved there."""
    for file in project.files((*project.code, *project.tests), ".py"):
        text = project.read(file)
        if text.count(edit.old) == 1:
            start = text.index(edit.old)
            yield _place(file, text, start, start + len(edit.old), 1.0)


def nearest(file: str, text: str, old: str) -> Place | None:
    """The lines of `text` that are most like `old`, or have a part that is; None if none are.

    Keeps: MUT-50.
    """
    lines = text.splitlines(keepends=True)
    offsets = [0, *itertools.accumulate(map(len, lines))]
    height = len(old.splitlines())
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(old)
    best, found = ALIKE_MIN, None
    for size in {max(1, height - 1), height, height + 1}:
        for first in range(len(lines) - size + 1):
            start, end = offsets[first], offsets[first + size]
            alike = _likeness(matcher, len(old), text[start:end], best)
            if alike > best:
                best, found = alike, (start, end)
    if found is None:
        return None
    start, end = found
    indented = old[:1].isspace()
    start += 0 if indented else len(text[start:end]) - len(text[start:end].lstrip())
    return _place(file, text, start, end if old.endswith("\n") else end - text[start:end].endswith("\n"), best)


def _likeness(matcher: difflib.SequenceMatcher[str], wanted: int, text: str, best: float) -> float:
    """How alike the anchor, `wanted` characters long, and `text` are, less what differs at its ends."""
    matcher.set_seq1(text)
    # The characters in common, whatever their order, bound the likeness of every part of these lines.
    common = matcher.quick_ratio() * (len(text) + wanted) / 2
    if 2 * common / (common + wanted) <= best:
        return 0.0
    blocks = [block for block in matcher.get_matching_blocks() if block.size]
    if not blocks:
        return 0.0
    matcher.set_seq1(text[blocks[0].a : blocks[-1].a + blocks[-1].size])
    return matcher.ratio()


def _place(file: str, text: str, start: int, end: int, alike: float) -> Place:
    start, end = unique(text, start, end)
    return Place(file, text.count("\n", 0, start) + 1, text[start:end], round(alike, 2))


def unique(text: str, start: int, end: int) -> tuple[int, int]:
    """`start` and `end` moved apart, to whole lines and then line by line, until the text between them occurs once.

    Keeps: MUT-50, MUT-51.
    """
    if text[start:end] and text.count(text[start:end]) == 1:
        return start, end
    start, end = text.rfind("\n", 0, start) + 1, _line_end(text, end)
    above = True
    while text.count(text[start:end]) != 1 and (start > 0 or end < len(text)):
        if start > 0 and (above or end == len(text)):
            start = text.rfind("\n", 0, start - 1) + 1
        else:
            end = _line_end(text, end + 1)
        above = not above
    return start, end


def _line_end(text: str, position: int) -> int:
    """Where the line at `position` ends, its newline left out."""
    found = text.find("\n", position)
    return len(text) if found < 0 else found
