"""A folder of evidence: the page, the files for other programs, and for each mutation its diff and its log.

Keeps: MUT-61, MUT-62.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lastbus.proof.errors import UsageError
from lastbus.proof.report.account import Account
from lastbus.proof.report.elements import elements
from lastbus.proof.report.junit import junit
from lastbus.proof.report.plain import to_json
from lastbus.proof.report.terminal import result_line

MARK: Final = "report.json"
READABLE: Final = 0o755
"""A temporary folder is its owner's alone; a report is for everybody."""


def write(folder: Path, account: Account) -> None:
    """Fill `folder` with the whole report, in place of an older one. If this fails, the older one stays.

    Keeps: MUT-61.
    """
    from lastbus.proof.report.page import page  # Only a report on disk needs a template engine.

    refuse_foreign(folder)
    with _replacing(folder.resolve()) as draft:
        for result in account.outcome.results:
            place = draft / result.mutation.id
            place.mkdir()
            _put(place / "mutation.diff", account.patches[result.mutation.id])
            _put(place / "verdict.txt", result_line(result) + "\n")
            _put(place / "pytest.log", result.log)
        _put(draft / "index.html", page(account))
        _put(draft / "junit.xml", junit(account))
        _put(draft / "mutation.json", json.dumps(elements(account), indent=1) + "\n")
        _put(draft / MARK, json.dumps(_whole(account), indent=1) + "\n")


def refuse_foreign(folder: Path) -> None:
    """`UsageError` if `folder` holds anything but a report: what stands there would be lost.

    Keeps: MUT-62.
    """
    if folder.is_dir():
        if any(folder.iterdir()) and not _is_report(folder / MARK):
            raise UsageError(f"{folder} is not empty and no report of a proof: name another folder, or remove it")
    elif folder.exists():
        raise UsageError(f"{folder} is a file: name a folder for the report")


def _is_report(file: Path) -> bool:
    """Whether `file` is what `write` leaves in a report.

    Keeps: MUT-62.
    """
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(body, dict) and {"baseline", "results", "ledger"} <= body.keys()


@contextlib.contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder` that takes its place when the block ends well, and is gone otherwise.

    Keeps: MUT-61.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        draft = work / "new"
        draft.mkdir(READABLE)
        yield draft
        if folder.exists():
            folder.rename(work / "old")
        draft.rename(folder)
    finally:
        shutil.rmtree(work)


def _put(file: Path, text: str) -> None:
    """Write `text` as it is; what is no text (half a surrogate pair in some output) is replaced."""
    file.write_bytes(text.encode("utf-8", errors="replace"))


def _whole(account: Account) -> dict[str, object]:
    tone, said = account.headline
    return {
        **to_json(account.outcome),
        "project": account.name,
        "made": account.made.isoformat(timespec="seconds"),
        "headline": {"tone": tone, "text": said},
        "ledger": [row.to_json() for row in account.ledger.rows],
        "errors": [*account.ledger.errors, *account.thawed],
    }
