"""The guinea pig: a small asyncio project with mutations that its tests kill, and traps for whoever judges too fast."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from lastbus.proof.config import Project
from lastbus.proof.mutation import Mutation, load_all

PIG: Final = Path(__file__).with_name("pig")
CODE: Final = "src/minibus.py"
TESTS: Final = "tests/test_minibus.py"


@dataclass(frozen=True)
class Guinea:
    """A project of its own, and what to try on it."""

    project: Project
    killable: tuple[Mutation, ...]
    """Mutations that the tests kill, made by hand, and repeated as often as was asked for."""
    distinct: int
    """How many of them are different; they come first."""
    traps: dict[str, Mutation]
    """By the verdict that is right, with a number: what is no kill though a test run fails, or never ends."""


def grow(root: Path, count: int) -> Guinea:
    """Write the project below `root`, with `count` mutations that are killed."""
    for file, source in ((CODE, "minibus"), (TESTS, "test_minibus"), ("pyproject.toml", "pyproject")):
        _write(root / file, (PIG / f"{source}.txt").read_text(encoding="utf-8"))
    bodies = json.loads((PIG / "mutations.json").read_text(encoding="utf-8"))
    killable = [body for body in bodies if "trap" not in body]
    for number, body in enumerate(islice(cycle(killable), count)):
        _write_mutation(root, "pig", f"{body['id'].lower()}-{number // len(killable)}", body)
    for body in bodies:
        if "trap" in body:
            _write_mutation(root, "traps", f"{body['trap']}-{body['id'].lower()}", body)
    project = Project.load(root)
    mutations = sorted(load_all(project), key=lambda one: one.id.partition("-")[2])
    return Guinea(
        project,
        tuple(one for one in mutations if one.group == "pig"),
        min(count, len(killable)),
        {one.id: one for one in mutations if one.group == "traps"},
    )


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _write_mutation(root: Path, group: str, name: str, body: dict[str, Any]) -> None:
    mutation = {
        "id": name,
        "guarantees": ["PIG-01"],
        "summary": "A defect to try a replay on.",
        "file": CODE,
        "old": body["old"],
        "new": body["new"],
        "killers": [f"{TESTS}::{name}" for name in body["killers"]],
    }
    _write(root / "mutations" / group / f"{name}.json", json.dumps(mutation))
