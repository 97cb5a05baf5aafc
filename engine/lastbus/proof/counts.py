"""Counts: how many guarantees and mutations there are, taken from the listing and never typed by hand.

Keeps: MUT-08. A page that wants a number writes it between two comments,
``<!-- count:mutations/mut -->34<!-- /count -->``, and the ledger compares it.
Known are ``guarantees``, ``guarantees/CORE``, ``mutations``, ``mutations/mut`` and ``canaries``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from lastbus.proof.mutation import Mutation

_COUNT: Final = re.compile(r"(<!-- count:(\S+) -->)(.*?)(<!-- /count -->)")


def tally(guarantees: Sequence[str], mutations: Sequence[Mutation]) -> Counter[str]:
    """Every known count by its name; canaries are no mutations.

    Keeps: MUT-08.
    """
    counts: Counter[str] = Counter()
    for guarantee in guarantees:
        counts.update(["guarantees", f"guarantees/{guarantee.split('-')[0]}"])
    for mutation in mutations:
        counts.update(["canaries"] if mutation.canary else ["mutations", f"mutations/{mutation.group}"])
    return counts


def wrong_counts(page: str, text: str, guarantees: Sequence[str], mutations: Sequence[Mutation]) -> Iterator[str]:
    """The numbers on `page` that differ from the listing, each with its line and the right number.

    Keeps: MUT-08.
    """
    right = tally(guarantees, mutations)
    for number, line in enumerate(text.splitlines(), start=1):
        for _, name, written, _ in _COUNT.findall(line):
            if written.strip() != str(right[name]):
                yield f"{page}:{number}: count of {name} is {right[name]}, not {written.strip()!r}"


def with_right_counts(text: str, guarantees: Sequence[str], mutations: Sequence[Mutation]) -> str:
    """`text` with every number between count comments as the listing says.

    Keeps: MUT-08.
    """
    right = tally(guarantees, mutations)
    return _COUNT.sub(lambda count: f"{count[1]}{right[count[2]]}{count[4]}", text)
