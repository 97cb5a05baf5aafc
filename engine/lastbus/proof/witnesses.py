"""Witnesses: the tests that could notice a change of certain lines, the likeliest first.

Keeps: MUT-53.

Only a test that is marked with the guarantee can kill, so only those are run: once, unmutated, under coverage if the
interpreter has it.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lastbus.proof.citations import definitions, marked
from lastbus.proof.config import Project
from lastbus.proof.errors import UsageError
from lastbus.proof.process import environment, kill_group

PROGRAM: Final = Path(__file__).with_name("witness.py")
LIMIT_SECONDS: Final = 300.0
SAID_CHARACTERS: Final = 600


@dataclass(frozen=True)
class Witnesses:
    """Node ids, the likeliest first, and in words why these."""

    tests: tuple[str, ...]
    why: str


def find(project: Project, python: str, guarantees: Sequence[str], file: str, lines: set[int]) -> Witnesses:
    """The tests of `project` marked with `guarantees` that run `lines` of `file`; `UsageError` if none is marked.

    Keeps: MUT-53.
    """
    files = [test for test in project.files(project.tests, ".py") if _cites(project, test, guarantees)]
    if not files:
        raise UsageError(
            f"no test is marked with {' or '.join(guarantees)}: mark the one that must notice with"
            f' @pytest.mark.guarantee("{guarantees[0]}"), or name it with --killer'
        )
    answer = _ask(project, python, guarantees, file, files)
    seconds = answer["seconds"]
    if not seconds:
        raise UsageError(
            f"no test marked with {' or '.join(guarantees)} passes without the edit: repair one, or name the killers"
            f" with --killer. They said:\n{answer['said']}"
        )
    return choose(seconds, answer["lines"], lines, _body_around(project.read(file), lines) if _python(file) else set())


def _python(file: str) -> bool:
    return file.endswith(".py")


def _cites(project: Project, test: str, guarantees: Sequence[str]) -> bool:
    text = project.read(test)
    if not any(guarantee in text for guarantee in guarantees):
        return False
    return any(one.id in guarantees for one in marked(test, ast.parse(text)))


def choose(seconds: dict[str, float], ran: dict[str, list[int]] | None, lines: set[int], around: set[int]) -> Witnesses:
    """Those that run the changed lines, else those that run the function around them, else all; the quickest first.

    Keeps: MUT-53.
    """
    order = sorted(seconds, key=lambda test: (seconds[test], test))
    if ran is None:
        return Witnesses(
            tuple(order), "marked with the guarantee (without coverage.py nobody knows which run the lines)"
        )
    for wanted, words in ((lines, "that run the changed lines"), (around, "that run the function around them")):
        tests = tuple(test for test in order if not wanted.isdisjoint(ran.get(test, ())))
        if tests:
            return Witnesses(tests, words)
    return Witnesses(tuple(order), "marked with the guarantee (none was seen to run the function in its own process)")


def _body_around(text: str, lines: set[int]) -> set[int]:
    """The lines of the innermost function's body around `lines`; none outside functions."""
    inside: set[int] = set()
    for node, _ in definitions(ast.parse(text)):
        last = getattr(node, "end_lineno", None)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and last is not None:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if not lines.isdisjoint(range(first, last + 1)):
                inside = set(range(node.body[0].lineno, last + 1))
    return inside


def _ask(project: Project, python: str, guarantees: Sequence[str], file: str, files: Sequence[str]) -> dict[str, Any]:
    """Run the marked tests once in `project`, which is a copy, and read what they ran."""
    answer = project.root / ".witness.json"
    request = {
        "guarantees": list(guarantees),
        "target": str(project.root / file),
        "paths": [str(project.root / path) for path in project.paths],
        "args": [f"--rootdir={project.root}", "-p", "no:cacheprovider", "-q", *files],
        "answer": str(answer),
    }
    paths = os.pathsep.join(str(project.root / path) for path in project.paths)
    child = subprocess.Popen(
        [python, str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=project.root,
        env={**environment(), "PYTHONPATH": paths},
        start_new_session=True,
    )
    try:
        said, _ = child.communicate(json.dumps(request).encode(), LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise UsageError(f"the marked tests took over {LIMIT_SECONDS:.0f} s: name the killers with --killer") from None
    finally:
        kill_group(child.pid)
        child.wait()
    words = said.decode("utf-8", "replace")[-SAID_CHARACTERS:].strip()
    try:
        return {**json.loads(answer.read_text(encoding="utf-8")), "said": words}
    except (OSError, ValueError) as error:
        raise UsageError(f"the marked tests could not be run, so name the killers with --killer:\n{words}") from error
