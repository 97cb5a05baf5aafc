"""The way into the ``lastbus`` command, and ``python -m lastbus``: it says what to install where that is missing."""

from __future__ import annotations

import sys

NEEDED = ("typer", "rich")
"""What every command needs; the rest is told by the command that needs it."""


def main() -> None:
    """Run the command line; exit code 2 if what it is made of is not installed."""
    try:
        from lastbus.cli import main as run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDED:
            raise
        print(f"lastbus: the command needs {missing}: pip install 'lastbus[proof]'", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
