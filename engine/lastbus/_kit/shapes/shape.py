"""Shape: one way to wait for the task that closes a bus, and what the guard is to say of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

Closing = asyncio.Task[Any]
Wait = Callable[[Closing], Coroutine[Any, Any, Any]]


class Shape(NamedTuple):
    """A way to wait, and the guard's word if a handler, or somebody else, waits in it."""

    name: str
    wait: Wait
    handler: str
    other: str
    since: tuple[int, int]


SHAPES: list[Shape] = []
"""All of them, in the order of the page."""


def shape(handler: str = "in-graph", other: str = "clean", since: tuple[int, int] = (3, 10)) -> Callable[[Wait], Wait]:
    """Enter a way to wait into the table; its docstring is its name there."""

    def enter(wait: Wait) -> Wait:
        SHAPES.append(Shape(str(wait.__doc__), wait, handler, other, since))
        return wait

    return enter


def available() -> list[Shape]:
    """The shapes that this Python has."""
    return [each for each in SHAPES if each.since <= sys.version_info[:2]]


def a_future() -> asyncio.Future[Any]:
    """A future of this loop, to be woken by the close."""
    return asyncio.get_running_loop().create_future()


def wake(waiter: asyncio.Future[Any], *_: object) -> None:
    """Let whoever waits for `waiter` go on."""
    if not waiter.done():
        waiter.set_result(None)


async def patiently(closing: Closing) -> None:
    """Be told of the end of the close without anybody seeing it: look again in every turn of the loop."""
    while not closing.done():  # noqa: ASYNC110  # An event would be seen.
        await asyncio.sleep(0)
