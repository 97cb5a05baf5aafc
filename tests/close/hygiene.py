"""Hygiene: after a test the loop has nothing to complain about, and no task is left that nobody knows of."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lastbus.testing import everyone_blocked


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

    gc.freeze()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(complain)
    before = asyncio.all_tasks()
    yield complaints
    await everyone_blocked()
    orphans = asyncio.all_tasks() - before - {asyncio.current_task()}
    loop.set_exception_handler(None)
    said = collected(complaints)
    gc.unfreeze()
    assert (said, orphans) == ([], set())
