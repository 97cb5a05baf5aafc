"""Versions: the shapes under several interpreters side by side, and the page that says so."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lastbus._close import selfclose
from lastbus._kit.shapes import play
from lastbus._kit.shapes.shape import SHAPES

LIMIT_SECONDS = 120
"""What one interpreter may take for all shapes; it needs about one second."""

PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from shapes.play import main; main(*sys.argv[2:])"
"""Plays the shapes under an interpreter to which lastbus is unknown: folder, file of the guard, module of the loop."""

Cells = dict[tuple[str, str], str]


class Column(NamedTuple):
    """What one interpreter answered: a word for every row; a row that is missing does not exist there."""

    title: str
    words: Mapping[str, str]


class InterpreterError(RuntimeError):
    """An interpreter could not play the shapes; the text is what it said last."""


def columns(python: str) -> Iterator[Column]:
    """The columns of one interpreter: asyncio's own loop and, where it is installed, uvloop.

    Keeps: SELF-28, SELF-29.
    """
    version = _output([python, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    for title, loop in ((version, "asyncio"), (f"{version} uvloop", "uvloop")):
        answer = json.loads(_output([*command(python), loop]))
        if answer is not None:
            yield Column(title, dict(_words(answer)))


def command(python: str, *options: str) -> list[str]:
    """What plays the shapes under `python`, isolated from its surroundings; the loop's module may follow."""
    folder = Path(play.__file__).parents[1]
    return [python, "-I", *options, "-c", PROGRAM, str(folder), str(selfclose.__file__)]


def _output(command: list[str]) -> str:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InterpreterError(f"{command[0]}: {error}") from error
    if ran.returncode != 0:
        last = (ran.stderr.strip() or "it said nothing").splitlines()[-1]
        raise InterpreterError(f"{command[0]} ended with {ran.returncode}: {last}")
    return ran.stdout


CHECK_ROW = "asyncio has all that the guard reads"
NOT_THERE = "n/a"


def _words(answer: dict[str, object]) -> Iterator[tuple[str, str]]:
    yield CHECK_ROW, "yes" if answer["missing"] is None else f"no {answer['missing']}"
    for rows, name in ((answer["shapes"], str), (answer["kinds"], _kind_row)):
        assert isinstance(rows, dict)
        for row, (first, second) in rows.items():
            yield name(row), f"{first} / {second}"


def _kind_row(kind: str) -> str:
    return f"books of {kind}"


def expected() -> dict[str, str]:
    """What each row is to say, wherever it exists."""
    rows = {CHECK_ROW: "yes"}
    rows.update((each.name, f"{each.handler} / {each.other}") for each in SHAPES)
    rows.update((_kind_row(kind), "in-graph / incomplete") for kind in play.OF_KIND)
    return rows


def surprises(column: Column) -> list[str]:
    """Rows of `column` that do not say what they are to say.

    Keeps: SELF-29.
    """
    due = expected()
    return [
        f"{column.title}: {row}: {word}, not {due.get(row, 'known')}"
        for row, word in column.words.items()
        if due.get(row) != word
    ]


def page(found: Iterable[Column]) -> str:
    """The page of all shapes, as Markdown."""
    found = list(found)
    shapes = [(each.name, each.handler, each.other) for each in SHAPES]
    kinds = [(_kind_row(kind), "in-graph", "incomplete") for kind in play.OF_KIND]
    return "\n".join(
        [
            _INTRODUCTION,
            *_table(("shape", "a handler waits", "somebody else waits"), shapes, found),
            "",
            _MISSES,
            *_table(("kind", "they are there", "one is missing"), kinds, found),
            "",
            *_table(("self-check", "outcome"), [(CHECK_ROW, "yes")], found),
            "",
        ]
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], found: list[Column]) -> Iterator[str]:
    titles = (*head, *(each.title for each in found))
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    for row in rows:
        yield f"| {' | '.join((*row, *(_cell(each, row[0]) for each in found)))} |"
    scores = [f"**{_score(each, [row[0] for row in rows])}**" for each in found]
    yield f"| {' | '.join(('as expected', *([''] * (len(head) - 1)), *scores))} |"


def _cell(column: Column, row: str) -> str:
    word = column.words.get(row)
    return NOT_THERE if word is None else "✓" if word == expected()[row] else word


def _score(column: Column, rows: list[str]) -> str:
    cells = [cell for cell in (_cell(column, row) for row in rows) if cell != NOT_THERE]
    return f"{cells.count('✓')}/{len(cells)}"


def differences(documented: str, found: Iterable[Column]) -> list[str]:
    """Where the page and the interpreters disagree; columns of interpreters that were not played are passed over.

    Keeps: SELF-29.
    """
    played = list(found)
    before, now = _cells(documented), _cells(page(played))
    unplayed = set(uncompared(documented, played))
    return [
        f"{row}, {title}: the page says {before.get((row, title), 'nothing')}, it is {now.get((row, title), 'gone')}"
        for row, title in sorted({*before, *now})
        if title not in unplayed and before.get((row, title)) != now.get((row, title))
    ]


def uncompared(documented: str, found: Iterable[Column]) -> list[str]:
    """Columns of the page that were not played."""
    titles = {title for _, title in _cells(documented) if title[:1].isdigit()}
    return sorted(titles - {each.title for each in found})


def _cells(text: str) -> Cells:
    """Every cell of every table under (first cell of its row, head of its column)."""
    cells: Cells = {}
    head: list[str] = []
    for line in text.splitlines():
        if not line.startswith("| "):
            head = head if line.startswith("|--") else []
            continue
        parts = [part.strip() for part in line.strip().strip("|").split("|")]
        if not head:
            head = parts
            continue
        cells.update(((f"{head[0]} {parts[0]}", title), part) for title, part in zip(head, parts, strict=False))
    return cells


def write(path: Path, found: Iterable[Column]) -> None:
    """Write the page as a whole."""
    path.write_text(page(found), encoding="utf-8")


_INTRODUCTION = """\
# Who waits for a close?

While handlers run, `close()` looks at whom its caller would wake, and refuses if a handler is among them
([guarantees/selfclose.md](guarantees/selfclose.md)). This page is generated: every row was played with real asyncio
objects under each interpreter, once with a handler that waits in this way for the task that closes, and once with
somebody else who waits while a handler runs.

- `in-graph`: seen; the close is refused as `self-close`.
- `clean`: nobody of ours is seen to wait; the close goes ahead.
- `incomplete`: it cannot be told; the close is refused as `wake-graph-incomplete`.

A tick means that the interpreter gave both words of its row, `n/a` that it has no such shape. Play it yourself with
`lastbus shapes --python python3.12`; `--check` compares this page with what was played, `--write` writes it anew.
The shapes are in `engine/lastbus/_kit/shapes/`.
"""

_MISSES = """\
Handlers that are `clean` although they wait are declared misses: the close begins, the drain grants its
`close_timeout` and goes on, and the handler ends after it. Nothing is cancelled, nothing is torn down twice. That is so
for every row when the guard is switched off, and tested.

The guard reads how asyncio keeps books of who waits. Where one of these books is missing, it says so, and never takes a
missing book for an empty one:
"""
