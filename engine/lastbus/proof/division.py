"""The division of a replay among its jobs: mutations whose killers share a file stay together.

So every job collects only a part of the tests, and is small when it is forked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from lastbus.proof.mutation import Mutation

PIECES_EACH: Final = 4
"""A file whose mutations are more than one of so many pieces of a part may be in several parts."""


def divide(mutations: Sequence[Mutation], count: int) -> list[list[Mutation]]:
    """`mutations` in `count` parts of about the same size, some of them empty if there are few.

    Every folder is spread over the parts, because slow tests stand together; a file is not, unless it is large. Each
    part keeps the order of `mutations`.
    Keeps: MUT-23.
    """
    size = -(-len(mutations) // (count * PIECES_EACH))
    files: dict[str, list[Mutation]] = {}
    for mutation in mutations:
        files.setdefault(mutation.killers[0].split("::")[0], []).append(mutation)
    parts: list[list[Mutation]] = [[] for _ in range(count)]
    shares = [Counter[str]() for _ in range(count)]
    for file, group in sorted(files.items(), key=lambda item: -len(item[1])):
        folder = file.rpartition("/")[0]
        for start in range(0, len(group), size):
            piece = group[start : start + size]
            number = min(range(count), key=lambda one: shares[one][folder] + len(parts[one]))
            parts[number] += piece
            shares[number][folder] += len(piece)
    rank = {mutation.id: number for number, mutation in enumerate(mutations)}
    return [sorted(part, key=lambda one: rank[one.id]) for part in parts]


def killers(part: Sequence[Mutation]) -> list[str]:
    """Every killer of `part` once, in order."""
    return sorted({killer for mutation in part for killer in mutation.killers})
