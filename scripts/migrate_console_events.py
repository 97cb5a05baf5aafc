"""Copy what consoles of earlier releases have stored in Redis to where the engine finds it, or restore lost indexes.

Example: ``python scripts/migrate_console_events.py --redis-url redis://localhost:6379/0`` says what a run would do, and
does nothing; add ``--apply`` to do it. Exit codes: 0 done; 1 done, but something could not be read and was left as it
is; 2 usage; 3 the server failed: what is done is done, run it again. Needs ``pip install 'lastbus[redis,proof]'``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.keys import EVENT_PREFIX, SUBSCRIPTION_PREFIX
from lastbus._backends.redis.migration import Migration, Tally
from lastbus._errors import EventStorageError

UNREAD: Final = 1
FAILED: Final = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the counts, and return the exit code."""
    asked = _parser().parse_args(argv)
    try:
        tally = asyncio.run(_run(asked))
    except EventStorageError as error:
        print(f"{error}; what is done is done, run it again", file=sys.stderr)
        return FAILED
    print("applied" if asked.apply else "dry run, nothing was written; --apply does it")
    for name, count in asdict(tally).items():
        print(f"{name:>16}  {count}")
    return UNREAD if tally.unreadable else 0


async def _run(asked: argparse.Namespace) -> Tally:
    connection = RedisConnection(asked.redis_url)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("records", total=None)
            migration = Migration(
                connection,
                asked.event_prefix,
                asked.subscription_prefix,
                apply=asked.apply,
                begin=lambda total: bar.update(task, total=total),
                advance=lambda records: bar.advance(task, records),
            )
            return await (migration.reindex() if asked.reindex else migration.copy())
    finally:
        await connection.aclose()


def _parser() -> argparse.ArgumentParser:
    head, _, tail = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="migrate_console_events.py",
        description=head,
        epilog=tail,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--redis-url", required=True, metavar="URL", help="redis://, rediss:// or unix://")
    parser.add_argument("--apply", action="store_true", help="write; without it only what would be done is counted")
    parser.add_argument(
        "--reindex", action="store_true", help="copy nothing; restore index entries of what the engine has stored"
    )
    parser.add_argument("--event-prefix", default=EVENT_PREFIX, help=f"default: {EVENT_PREFIX}")
    parser.add_argument("--subscription-prefix", default=SUBSCRIPTION_PREFIX, help=f"default: {SUBSCRIPTION_PREFIX}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
