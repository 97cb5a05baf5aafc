"""A mutation: one small, deliberate defect, written down as a file, and how to put it in.

Keeps: MUT-01, MUT-02, MUT-03, MUT-13.

A mutation that cannot be applied exactly as written is refused with a verdict that
says why. It is never skipped and never counted as killed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, Final

from lastbus.proof.config import Project
from lastbus.proof.errors import MutationFileError, UsageError
from lastbus.proof.meaning import differs
from lastbus.proof.verdict import Verdict

GUARANTEE: Final = r"[A-Z]{2,}-(?:[A-Z]*\d+(?:\.\d+)?[a-z]?'?|[A-Z]{2,})"
"""What a guarantee id looks like: CORE-01, RES-R12a', RES-T2.1, RES-MEM."""

_TEXT: Final[dict[str, Any]] = {"type": "string", "minLength": 1}
_EDIT: Final[dict[str, Any]] = {
    "file": {**_TEXT, "description": "The file to change, relative to the project's root."},
    "old": {**_TEXT, "description": "The text to replace. It occurs exactly once in the file."},
    "new": {"type": "string", "description": "What stands there instead."},
}

SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A mutation: one deliberate defect and the tests that must notice it",
    "type": "object",
    "additionalProperties": False,
    "required": ["id", "guarantees", "summary", "killers"],
    "properties": {
        "id": {
            "type": "string",
            "pattern": "^[a-z0-9][a-z0-9.-]*$",
            "description": "The file's name without .json, unique over all groups.",
        },
        "guarantees": {
            "type": "array",
            "items": {"type": "string", "pattern": f"^{GUARANTEE}$"},
            "description": "The ids of the guarantees that this defect breaks. Only a canary has none.",
        },
        "summary": {**_TEXT, "description": "What the defect does, in one sentence."},
        **_EDIT,
        "edits": {
            "type": "array",
            "minItems": 1,
            "description": "Several replacements instead of one; they are made in this order.",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["file", "old", "new"],
                "properties": _EDIT,
            },
        },
        "killers": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "pattern": r"^[^:]+\.py(::[^:\[\]]+)+(\[.*\])?$"},
            "description": "Node ids of the tests that must fail; of a parametrised test, one parametrisation.",
        },
        "expect": {
            "type": "string",
            "enum": ["killed", "survived", "hang"],
            "description": "The verdict that is right. Anything but killed makes this a canary.",
        },
        "limit_seconds": {
            "type": "number",
            "description": "A limit for each killer instead of the one derived from the baseline.",
        },
    },
}


@dataclass(frozen=True)
class Edit:
    """Replace `old`, which occurs exactly once in `file`, by `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutation:
    """One file under the mutations folder."""

    id: str
    group: str
    guarantees: tuple[str, ...]
    summary: str
    edits: tuple[Edit, ...]
    killers: tuple[str, ...]
    source: str
    text: str
    expect: str = "killed"
    limit_seconds: float | None = None

    @property
    def canary(self) -> bool:
        """A canary proves the rig: it must not be killed."""
        return self.expect != "killed"

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the mutation changes, each once."""
        return tuple(dict.fromkeys(edit.file for edit in self.edits))


class Unfit(Exception):
    """The mutation cannot be put in as written; `verdict` is the word for it."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        self.verdict = verdict
        self.reason = reason
        super().__init__(f"{verdict}: {reason}")


def load_all(project: Project) -> list[Mutation]:
    """Every mutation of the project in the order of its files; `MutationFileError` at the first bad one.

    Keeps: MUT-01.
    """
    loaded, faults = read_all(project)
    for fault in faults:
        raise fault
    return loaded


def read_all(project: Project) -> tuple[list[Mutation], list[MutationFileError]]:
    """Every mutation that can be read, and what is wrong with the files of the others.

    Keeps: MUT-01.
    """
    known: dict[str, str] = {}
    loaded, faults = [], []
    depth = len(PurePosixPath(project.mutations).parts) + 1
    for file in project.files((project.mutations,), ".json"):
        if file.count("/") != depth:
            continue  # schema.json and its like describe mutations, they are none.
        try:
            mutation = parse(file, project.read(file))
        except MutationFileError as fault:
            faults.append(fault)
            continue
        if mutation.id in known:
            words = f"{mutation.id} is taken by {known[mutation.id]}: rename one"
            faults.append(MutationFileError(file, "id", 1, words))
            continue
        known[mutation.id] = file
        loaded.append(mutation)
    return loaded, faults


def parse(file: str, text: str) -> Mutation:
    """The mutation written in `text`; `MutationFileError` names file, key and line of what is wrong.

    Keeps: MUT-01.
    """
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise MutationFileError(file, "(json)", error.lineno, error.msg) from error
    for key, fault in faults(body, SCHEMA):
        raise MutationFileError(file, key or "(root)", _line_of(text, key), fault)
    for key, fault in _contradictions(file, body):
        raise MutationFileError(file, key, _line_of(text, key), fault)
    edits = body.get("edits") or [body]
    return Mutation(
        id=body["id"],
        group=os.path.basename(os.path.dirname(file)),
        guarantees=tuple(body["guarantees"]),
        summary=body["summary"],
        edits=tuple(Edit(edit["file"], edit["old"], edit["new"]) for edit in edits),
        killers=tuple(body["killers"]),
        source=file,
        text=text,
        expect=body.get("expect", "killed"),
        limit_seconds=body.get("limit_seconds"),
    )


def _contradictions(file: str, body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    name = os.path.splitext(os.path.basename(file))[0]
    if body["id"] != name:
        yield "id", f"must be the file's name: {name}"
    single = sorted(_EDIT.keys() & body.keys())
    if "edits" in body and single:
        yield single[0], "stands beside edits: keep one of the two forms"
    if "edits" not in body and len(single) < len(_EDIT):
        yield min(_EDIT.keys() - body.keys()), "is missing (file, old and new, or edits)"
    if not body["guarantees"] and body.get("expect", "killed") == "killed":
        yield "guarantees", "is empty: name what the defect breaks, or expect another verdict"


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
}


def faults(value: Any, schema: Mapping[str, Any], key: str = "") -> Iterator[tuple[str, str]]:
    """What `schema` forbids in `value`, as (key, fault). Reads the part of JSON Schema that `SCHEMA` uses."""
    kind = schema["type"]
    fits: bool = isinstance(value, _TYPES[kind])
    if not fits:
        yield key, f"must be {kind}, not {type(value).__name__}"
    elif kind == "object":
        yield from _object_faults(value, schema)
    elif kind == "array":
        if len(value) < schema.get("minItems", 0):
            yield key, "must not be empty"
        for item in value:
            yield from ((inner or key, fault) for inner, fault in faults(item, schema["items"]))
    elif kind == "string":
        yield from ((key, fault) for fault in _string_faults(value, schema))


def _object_faults(value: dict[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in schema["required"]:
        if name not in value:
            yield name, "is missing"
    for name, item in value.items():
        if name in schema["properties"]:
            yield from faults(item, schema["properties"][name], name)
        else:
            yield name, f"is unknown; known are {', '.join(schema['properties'])}"


def _string_faults(value: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if len(value) < schema.get("minLength", 0):
        yield "must not be empty"
    if "enum" in schema and value not in schema["enum"]:
        yield f"must be one of {', '.join(schema['enum'])}, not {value!r}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{value!r} does not look like {schema['pattern']}"


def _line_of(text: str, key: str) -> int:
    """The line that `key` stands on.

    Keeps: MUT-01.
    """
    found = re.search(rf'"{re.escape(key)}"\s*:', text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def apply(edits: Sequence[Edit], texts: Mapping[str, str]) -> dict[str, str]:
    """The files of `texts` that `edits` change, in their mutated form; `Unfit` if they cannot be made.

    Keeps: MUT-02, MUT-03, MUT-13.
    """
    mutated: dict[str, str] = {}
    for edit in edits:
        mutated[edit.file] = _replace(edit, mutated.get(edit.file, texts.get(edit.file)))
    if not any(_differs(file, texts[file], text) for file, text in mutated.items()):
        raise Unfit(Verdict.NO_OP, "the replacement changes no code")
    return mutated


def _replace(edit: Edit, text: str | None) -> str:
    """`text` with the one occurrence of the anchor replaced.

    Keeps: MUT-02.
    """
    if text is None:
        raise Unfit(Verdict.ANCHOR_LOST, f"there is no file {edit.file}")
    count = text.count(edit.old)
    if count == 0:
        raise Unfit(Verdict.ANCHOR_LOST, f"old is not in {edit.file}: anchor the mutation anew")
    if count > 1:
        raise Unfit(Verdict.ANCHOR_AMBIGUOUS, f"old is {count} times in {edit.file}: make it longer")
    return text.replace(edit.old, edit.new)


def _differs(file: str, before: str, after: str) -> bool:
    """Whether the code differs; a file that is not Python differs by its text.

    Keeps: MUT-03, MUT-13.
    """
    if not file.endswith(".py"):
        return before != after
    try:
        return differs(before, after)
    except (SyntaxError, ValueError) as error:
        raise Unfit(Verdict.UNPARSABLE, f"{file} is not Python any more: {error}") from error


def texts_of(project: Project, mutation: Mutation) -> dict[str, str]:
    """The files that `mutation` names, as they are; missing ones are left out."""
    return {file: project.read(file) for file in mutation.files if (project.root / file).is_file()}


def select(mutations: Sequence[Mutation], patterns: Sequence[str] = (), groups: Sequence[str] = ()) -> list[Mutation]:
    """Those whose id or guarantee matches a pattern, or whose folder or guarantee family is a group.

    Without patterns and groups: all. A pattern or group that matches nothing is a `UsageError`,
    so that "nothing to do" can never look like "everything is fine".
    Keeps: MUT-19.
    """
    if not mutations:
        raise UsageError("there are no mutations: add a file under the mutations folder")
    wanted: set[str] = set()
    for pattern in patterns:
        wanted |= _some(mutations, f"id {pattern!r}", lambda one, p=pattern: _named(one, p))
    for group in groups:
        wanted |= _some(mutations, f"group {group!r}", lambda one, g=group: _grouped(one, g))
    if not patterns and not groups:
        return list(mutations)
    return [mutation for mutation in mutations if mutation.id in wanted]


def _some(mutations: Sequence[Mutation], what: str, match: Any) -> set[str]:
    """The ids of those that match; none is a `UsageError`.

    Keeps: MUT-19.
    """
    found = {mutation.id for mutation in mutations if match(mutation)}
    if not found:
        groups = ", ".join(sorted({mutation.group for mutation in mutations}))
        raise UsageError(f"no mutation matches {what}; folders: {groups}")
    return found


def _named(mutation: Mutation, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (mutation.id, *mutation.guarantees))


def _grouped(mutation: Mutation, group: str) -> bool:
    families = {guarantee.split("-")[0] for guarantee in mutation.guarantees}
    return group.lower() == mutation.group or group.upper() in families
