"""Accepted mutants: generated defects that no test can notice, each with the behaviour that makes it equivalent.

Keeps: MUT-70.

Generated mutants have no names that last: they are known by their file, their function and what they change. An
acceptance holds for exactly that change. When the mutant is noticed, or is no longer made, the acceptance must go.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lastbus.proof.citations import definitions
from lastbus.proof.config import Project, toml
from lastbus.proof.errors import UsageError

FILE: Final = "accepted.toml"
_KEYS: Final = ("by", "file", "function", "change", "reason")


@dataclass(frozen=True)
class Mutant:
    """One generated defect: who made it, where it is, and the lines that it takes and puts."""

    by: str
    file: str
    function: str
    change: str

    @property
    def place(self) -> tuple[str, str]:
        """The function that it changes."""
        return self.file, self.function

    def entry(self) -> str:
        """The entry that would accept it, but for the reason."""
        lines = [f'{key} = "{getattr(self, key)}"' for key in ("by", "file", "function")]
        return "\n".join(["[[accepted]]", *lines, f"change = '''\n{self.change}'''", 'reason = ""'])


def change_of(diff: str) -> str:
    """What a unified diff takes and puts, without the lines around it, so that it outlives edits nearby.

    Keeps: MUT-70.
    """
    lines = [line.rstrip() for line in diff.splitlines()]
    return "".join(f"{line}\n" for line in lines if line[:1] in ("+", "-") and not line.startswith(("+++", "---")))


def load(project: Project) -> dict[Mutant, str]:
    """The accepted mutants of `project` with their reasons; none without a file, `UsageError` for a bad one.

    Keeps: MUT-70.
    """
    file = f"{project.mutations}/{FILE}"
    if not (project.root / file).is_file():
        return {}
    try:
        body = toml.loads(project.read(file))
    except toml.TOMLDecodeError as error:
        raise UsageError(f"{file}: {error}") from error
    accepted: dict[Mutant, str] = {}
    for number, entry in enumerate(body.get("accepted", []), start=1):
        mutant, reason = _read(f"{file}: entry {number}", entry)
        if mutant in accepted:
            raise UsageError(f"{file}: entry {number} stands twice: keep one")
        accepted[mutant] = reason
    return accepted


def _read(where: str, entry: dict[str, Any]) -> tuple[Mutant, str]:
    """One entry; `UsageError` if it lacks something, above all a reason.

    Keeps: MUT-70.
    """
    if sorted(entry) != sorted(_KEYS) or not all(isinstance(value, str) for value in entry.values()):
        raise UsageError(f"{where} must have exactly these texts: {', '.join(_KEYS)}")
    if not entry["reason"].strip():
        raise UsageError(f"{where} has no reason: name the behaviour that stays the same, or kill the mutant")
    return Mutant(entry["by"], entry["file"], entry["function"], entry["change"]), entry["reason"]


def review(
    project: Project,
    by: str,
    tried: Collection[tuple[str, str]],
    survivors: Sequence[Mutant],
    undecided: Sequence[Mutant] = (),
) -> Iterator[str]:
    """What is wrong after the mutants of one maker were tried in the functions `tried`; nothing if all is well.

    What is `undecided`, because a run timed out or broke, is neither a survivor nor noticed: its acceptance stays.
    Keeps: MUT-70.
    """
    if not tried:
        yield f"{by} tried no mutant: nothing was proven"
    accepted = load(project)
    for mutant in survivors:
        if mutant not in accepted:
            yield (
                f"{mutant.file}: {mutant.function}: nobody notices this. Sharpen a test, or accept it with a reason"
                f" in {project.mutations}/{FILE}:\n{mutant.entry()}"
            )
    for mutant in accepted:
        seen = mutant.place in tried and mutant not in (*survivors, *undecided)
        if mutant.by == by and (seen or not _is_there(project, mutant)):
            yield (
                f"{mutant.file}: {mutant.function}: it is accepted that nobody notices\n{mutant.change}"
                f"but somebody does, or it is made no more: take it out of {project.mutations}/{FILE}"
            )


def _is_there(project: Project, mutant: Mutant) -> bool:
    """Whether its function still exists.

    Keeps: MUT-70.
    """
    path = project.root / mutant.file
    if not path.is_file():
        return False
    return mutant.function in {name for _, name in definitions(ast.parse(project.read(mutant.file)))}
