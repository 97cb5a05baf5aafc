"""Chains: long rows of futures and tasks, each of which wakes the next."""

from __future__ import annotations

import asyncio
from typing import Any


def chain(first: asyncio.Future[Any], length: int) -> list[asyncio.Future[Any]]:
    """`length` futures, of which `first` wakes the first, and each the next."""
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(length)]
    for one, another in zip([first, *futures], futures, strict=False):
        one.add_done_callback(another.set_result)
    return futures


async def awaits(inner: asyncio.Future[Any]) -> None:
    """One link of a chain of tasks."""
    await inner


async def await_chain(innermost: asyncio.Future[Any], length: int) -> list[asyncio.Task[None]]:
    """`length` tasks, of which the first awaits `innermost`, and each the one before; all of them have begun to."""
    tasks: list[asyncio.Task[None]] = []
    for _ in range(length):
        tasks.append(asyncio.ensure_future(awaits(tasks[-1] if tasks else innermost)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks
