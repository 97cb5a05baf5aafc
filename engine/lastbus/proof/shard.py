"""Shards: one catalogue dealt to several machines that know nothing of each other.

Keeps: MUT-47.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lastbus.proof.errors import UsageError
from lastbus.proof.mutation import Mutation


@dataclass(frozen=True)
class Shard:
    """The `number`-th of `total` parts, counted from 1."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that ``k/n`` names; `UsageError` if it names none."""
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise UsageError(f"{text} is no shard: write K/N with K from 1 to N, such as 1/3")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def of(self, mutations: Sequence[Mutation]) -> list[Mutation]:
        """Its part of `mutations`: dealt one by one in the order of their killers, so that no shard has all slow files.

        The same everywhere; every mutation is in exactly one shard; no two shards differ by more than one.
        `UsageError` if nothing is left for it.
        Keeps: MUT-47.
        """
        order = sorted(mutations, key=lambda one: (one.killers, one.id))
        dealt = {mutation.id for mutation in order[self.number - 1 :: self.total]}
        if not dealt:
            raise UsageError(f"shard {self} is empty: there are only {len(mutations)} mutations to deal")
        return [mutation for mutation in mutations if mutation.id in dealt]
