"""Settings page: `docs/SETTINGS.md`, written from the table in `_settings.py` and from nothing else."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lastbus._settings import SETTINGS, SWITCHES, Setting, Switch

STALE: Final = 1
HEAD: Final = """# Settings

What the environment may say. This page is written by `python scripts/write_settings.py`; the table itself is
`engine/lastbus/_settings.py`. A bad value never stops a program: a WARNING names it and what counts instead.

## Numbers

| name | what for | default | unit | 0 | bad value | clamp |
|---|---|---|---|---|---|---|
"""
SWITCHES_HEAD: Final = """
## Switches

| name | when it is on | default | on | off | bad value |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(map(_setting, SETTINGS)) + SWITCHES_HEAD + "".join(map(_switch, SWITCHES))


def _setting(setting: Setting) -> str:
    low, high = (f"{end:,.15g}".replace(",", " ") for end in setting.clamp)
    default = f"{setting.default:,.15g}".replace(",", " ")
    bad = f"not {setting.rule}: WARNING, the default"
    return _row(
        f"`{setting.name}`", setting.meaning, default, setting.unit, "a bad value", bad, f"{low} to {high}, WARNING"
    )


def _switch(switch: Switch) -> str:
    return _row(f"`{switch.name}`", switch.meaning, "off", "`1`", "unset, empty, `0`", "off, WARNING")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, or with `--check` only compare it; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="write_settings.py",
        description="Write docs/SETTINGS.md from the table of settings.",
        epilog="example: python scripts/write_settings.py --check\n\nexit codes: 0 written, or the same; "
        "1 --check found another text; 2 usage",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the page is not up to date")
    parser.add_argument("--file", type=Path, default=Path("docs/SETTINGS.md"), help="default: docs/SETTINGS.md")
    asked = parser.parse_args(argv)
    if asked.check:
        is_same = asked.file.is_file() and asked.file.read_text(encoding="utf-8") == page()
        print(f"{asked.file} is {'up to date' if is_same else 'not what the table says: write it again'}")
        return 0 if is_same else STALE
    asked.file.write_text(page(), encoding="utf-8")
    print(f"wrote {asked.file}")
    return 0
