"""Hygiene: after a test the loop has nothing to complain about, and no task is left that nobody knows of."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from lastbus.testing import everyone_blocked

IMPORTER: Final = os.getpid()
"""The process that imported this module; a child that was forked from it has another number."""


@contextmanager
def only_this_test_is_collected() -> Iterator[None]:
    """Inside the block, collecting and looking for who refers to what sees only what was made in it.

    A process that was forked to run a few tests keeps what it inherited set aside afterwards: to collect that would
    cost more than the tests, and so would asking how much is set aside, which Python counts each time.
    """
    gc.freeze()
    try:
        yield
    finally:
        if os.getpid() == IMPORTER:
            gc.unfreeze()


def collected(complaints: list[str]) -> list[str]:
    """What the loop has complained about, once all garbage of the test is collected."""
    gc.collect()
    return complaints


@pytest.fixture
async def hygiene() -> AsyncIterator[list[str]]:
    """What the loop complains about, as it comes; at the end there must be nothing, and no task beside the test's.

    A coroutine that was never awaited makes the test fail by itself, because warnings are errors.
    """
    complaints: list[str] = []

    def complain(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        complaints.append(f"{context.get('message')} {context.get('exception')!r}")

    with only_this_test_is_collected():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(complain)
        before = asyncio.all_tasks()
        yield complaints
        await everyone_blocked()
        orphans = asyncio.all_tasks() - before - {asyncio.current_task()}
        loop.set_exception_handler(None)
        said = collected(complaints)
    assert (said, orphans) == ([], set())
