"""Extreme mutants: every function once without its body. Whatever can be emptied unnoticed is tested only by name.

Keeps: MUT-71.

They are replayed like the mutations of the catalogue, and judged by the tests that the catalogue names: first those
for the function itself, then those for its file, then those for the files beside it and for the modules that import it.
So a survivor is a function that no test near it needs.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Final, TypeAlias

from lastbus.proof.accepted import Mutant
from lastbus.proof.citations import definitions
from lastbus.proof.config import Project
from lastbus.proof.errors import ProofError
from lastbus.proof.keepers import changed_lines
from lastbus.proof.mutation import Edit, Mutation
from lastbus.proof.replay import RED_BASELINE, Outcome, Result
from lastbus.proof.verdict import Verdict

BY: Final = "extreme"
LIMIT_SECONDS: Final = 5.0
"""What waits for an emptied function may wait for ever; each such test costs this, and three times this alone."""

ROUNDS: Final = 4
NUMBER: Final = "#"
"""What comes between the name of a function and its number, if others before it have the same name."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Replay: TypeAlias = Callable[[Sequence[Mutation]], Outcome]
Further: TypeAlias = Callable[[str], Sequence[str]]
"""The tests to ask at last about the functions of a file."""
LeaveOut: TypeAlias = Callable[[str, str], bool]
"""Whether a test, the second text, is never to be asked about the functions of a file, the first."""


class RedBaselineError(ProofError):
    """A killer fails without any mutation; what it says about one means nothing."""

    exit_code = RED_BASELINE


@dataclass
class Emptied:
    """What became of the emptied functions: those that nobody missed, those that proved nothing, and all by verdict."""

    survivors: list[Mutant] = field(default_factory=list)
    undecided: list[Mutant] = field(default_factory=list)
    verdicts: dict[str, list[str]] = field(default_factory=dict)

    @property
    def tried(self) -> set[tuple[str, str]]:
        """The functions that were emptied, by file and name."""
        return {_place(name) for names in self.verdicts.values() for name in names}


def functions(text: str) -> Iterator[tuple[Function, str]]:
    """The functions that have something to lose: not those that only refuse, pass or state an interface.

    Keeps: MUT-71.
    """
    for node, name in definitions(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not all(map(_is_idle, node.body)):
            yield node, name


def _is_idle(statement: ast.stmt) -> bool:
    """A docstring, `pass`, `...`, a bare return or `return None`, and `raise NotImplementedError`.

    Keeps: MUT-71.
    """
    if isinstance(statement, ast.Pass):
        return True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Return):
        return statement.value is None or (isinstance(statement.value, ast.Constant) and statement.value.value is None)
    return isinstance(statement, ast.Raise) and "NotImplementedError" in ast.dump(statement)


def emptied(text: str, node: Function) -> tuple[str, str]:
    """The function as it stands in `text`, and the same without its body. A generator stays one.

    The docstring stays too: it is seen from outside, so that without it the function could not be swapped.
    Keeps: MUT-71.
    """
    lines = text.splitlines(keepends=True)
    first: Any = node.body[0 if ast.get_docstring(node, clean=False) is None else 1]
    start, end = node.lineno - 1, node.end_lineno or node.lineno
    line = min([first.lineno, *(decorator.lineno for decorator in getattr(first, "decorator_list", ()))]) - 1
    old = "".join(lines[start:end])
    head = "".join(lines[start:line])
    # Columns of a tree count bytes; a decorator stands where its function does.
    before = lines[line].encode("utf-8")[: first.col_offset].decode("utf-8")
    body = "return; yield" if _is_generator(node) else "return None"
    return old.rstrip("\n"), f"{head}{before}{body}"


def _is_generator(node: Function) -> bool:
    """Whether the function itself yields; what is defined inside it does not count.

    Keeps: MUT-71.
    """
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        one = waiting.pop()
        if isinstance(one, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(one))
    return False


def mutations(project: Project, files: Sequence[str]) -> list[Mutation]:
    """One mutation for each function in `files`; its killers are still to be chosen.

    Of several functions of one name, one for each interpreter perhaps, each is judged by itself.

    Keeps: MUT-71.
    """
    made = []
    for file in files:
        text = project.read(file)
        times: Counter[str] = Counter()
        for node, name in functions(text):
            old, new = emptied(text, node)
            edit = Edit(file, *_anchored(text, old, new, node.lineno - 1))
            times[name] += 1
            name = f"{file}::{name}" + (f"{NUMBER}{times[name]}" if times[name] > 1 else "")
            made.append(
                Mutation(name, BY, (), "The function does nothing.", (edit,), (), file, "", "killed", LIMIT_SECONDS)
            )
    return made


def _anchored(text: str, old: str, new: str, line: int) -> tuple[str, str]:
    """The two with as many lines before them as make `old` the only one of its kind."""
    lines = text.splitlines(keepends=True)
    while text.count(old) > 1 and line > 0:
        line -= 1
        old, new = lines[line] + old, lines[line] + new
    return old, new


def killers(project: Project, one: Mutation, catalogue: Sequence[Mutation], leave_out: LeaveOut) -> list[list[str]]:
    """The tests that the catalogue names for a function, for its file and for what is around it, each only once.

    Those for the function itself are asked in the end even if they are to be left out: they may be the only ones.

    Keeps: MUT-71.
    """
    text = project.read(one.source)
    rounds: list[dict[str, None]] = [{}, {}, {}]
    for mutation in catalogue:
        for edit in mutation.edits:
            number = _distance(project, edit, one, text)
            if number is not None:
                rounds[number].update(dict.fromkeys(mutation.killers))
    own = list(rounds[0])
    function, file, around = ([name for name in names if not leave_out(one.source, name)] for names in rounds)
    nearer = {*function, *file}
    return [
        function,
        [name for name in file if name not in function],
        [name for name in around if name not in nearer],
        [name for name in own if name not in nearer],
    ]


def _distance(project: Project, edit: Edit, one: Mutation, text: str) -> int | None:
    """0 for an edit inside the function, 1 in its file, 2 beside it or in a user of it, None elsewhere."""
    if edit.file != one.source:
        near = PurePosixPath(one.source).parent == PurePosixPath(edit.file).parent
        return 2 if near or _imports(project, edit.file, one.source) else None
    if edit.old not in text:
        return 1
    start, end = changed_lines(edit, text)
    first, last = changed_lines(one.edits[0], text)
    return 0 if start <= last and first <= end else 1


def _imports(project: Project, file: str, other: str) -> bool:
    """Whether the module in `file` imports from the one in `other`, whatever folder their names begin in."""
    if not file.endswith(".py") or not (project.root / file).is_file():
        return False
    dotted = "." + other.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return any(dotted.endswith(f".{name}") for name in _imported(project.read(file)))


@lru_cache(maxsize=512)
def _imported(text: str) -> frozenset[str]:
    """The modules that a text imports by their full names."""
    nodes = list(ast.walk(ast.parse(text)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return frozenset(names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)} - {""})


def run(
    project: Project,
    made: Sequence[Mutation],
    catalogue: Sequence[Mutation],
    replay: Replay,
    further: Further = lambda _: (),
    leave_out: LeaveOut = lambda _file, _test: False,
) -> Emptied:
    """Replay every emptied function with ever more tests until one fails. A hang is no failure: the next are asked.

    Keeps: MUT-71.
    """
    told = Emptied()
    chosen = {one.id: killers(project, one, catalogue, leave_out) for one in made}
    for one in made:
        last_ones = [test for test in further(one.source) if not leave_out(one.source, test)]
        chosen[one.id][-1] = list(dict.fromkeys([*chosen[one.id][-1], *last_ones]))
    last: dict[str, str] = {}
    left = list(made)
    for number in range(ROUNDS):
        batch = [replace(one, killers=tuple(chosen[one.id][number])) for one in left if chosen[one.id][number]]
        if batch:
            for result in _replayed(batch, replay):
                # That some tests pass does not undo what an earlier one met.
                if result.verdict is not Verdict.SURVIVED or result.mutation.id not in last:
                    last[result.mutation.id] = str(result.verdict)
        left = [one for one in left if last.get(one.id) != str(Verdict.KILLED)]
    for one in made:
        verdict = last.get(one.id, "untested")
        told.verdicts.setdefault(verdict, []).append(one.id)
        if verdict in (str(Verdict.SURVIVED), "untested"):
            told.survivors.append(survivor(one))
        elif verdict != str(Verdict.KILLED):
            told.undecided.append(survivor(one))
    return told


def _replayed(batch: Sequence[Mutation], replay: Replay) -> list[Result]:
    """The results of a batch; where a test gives none, as one that is skipped here, the function's others are asked."""
    outcome = replay(batch)
    _refuse_red(outcome.baseline.red)
    useless = {*outcome.baseline.absent, *outcome.baseline.unstable}
    fewer = [replace(one, killers=tuple(test for test in one.killers if test not in useless)) for one in batch]
    again = [one for one, before in zip(fewer, batch, strict=True) if one.killers and one.killers != before.killers]
    there = {one.id for one in again}
    others = [each for each in outcome.results if each.mutation.id not in there]
    return others + (_replayed(again, replay) if again else [])


def _refuse_red(red: Collection[str]) -> None:
    if red:
        raise RedBaselineError(f"the baseline is red, so nothing was proven: {', '.join(red)}")


def survivor(one: Mutation) -> Mutant:
    """The mutant as it can be accepted: what it puts is the same for every function, so only the place counts."""
    return Mutant(BY, *_place(one.id), "+the body is empty\n")


def _place(name: str) -> tuple[str, str]:
    """The file and the function of an emptied function."""
    file, _, function = name.partition("::")
    return file, function.partition(NUMBER)[0]
