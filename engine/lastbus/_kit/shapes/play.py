"""Play: the shapes under this Python, with real asyncio objects, and what the guard says of each.

Each shape is played twice: a handler waits, and somebody waits who is no handler. In both plays the closing task asks
the guard what its end would wake.

This package needs nothing but Python. It imports its own modules by relative names, so that an interpreter to which
lastbus is unknown can load it from its folder.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import importlib.util
import json
import sys
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, Protocol

from . import built_in, held, unseen
from .shape import Closing, Wait, available

ROOMS = (built_in, held, unseen)
"""Where the shapes are, in the order of the page."""


class Guard(Protocol):
    """What a play needs of the guard."""

    def wake_verdict(self, caller: object, dispatches: list[Any], /) -> Any:
        """See selfclose."""

    def missing_in_runtime(self) -> str | None:
        """See selfclose."""


SETTLED = 5
"""Turns of the loop after which whoever waits has begun to: the deepest shape needs three."""

BOUND_SECONDS = 3.0
"""After so long nobody will wake whoever still waits; a play takes a few turns of the loop."""


def closes_soon(close: Callable[[], Awaitable[Any]]) -> Closing:
    """A task that calls `close()` when whoever waits for it has begun to.

    It has a context of its own, so that nothing tells from whom it descends.
    """

    async def call() -> Any:
        for _ in range(SETTLED):
            await asyncio.sleep(0)
        return await close()

    return contextvars.Context().run(asyncio.get_running_loop().create_task, call())


async def ask(guard: Guard, wait: Wait, by_handler: bool) -> str:
    """The guard's word when somebody waits in this way: a handler, or one who is none while another handler runs."""
    loop = asyncio.get_running_loop()
    held = asyncio.Event()
    bystander = loop.create_task(held.wait())

    async def close() -> str:
        return str(guard.wake_verdict(asyncio.current_task(), [waiting if by_handler else bystander]).word)

    closing = closes_soon(close)
    waiting = loop.create_task(wait(closing))
    bound = loop.call_later(BOUND_SECONDS, waiting.cancel, f"nobody has woken it: {wait.__doc__}")
    await waiting
    bound.cancel()
    held.set()
    await bystander
    return str(await closing)


def load(path: str) -> ModuleType:
    """The guard, from its file alone."""
    spec = importlib.util.spec_from_file_location("selfclose_by_path", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


OF_KIND = {
    "Task": built_in.awaited,
    "Future": held.through_a_closure,
    "Queue": built_in.queue_getter,
    "Event": built_in.event,
    "Condition": built_in.condition,
    "Semaphore": built_in.semaphore,
    "Lock": built_in.lock,
    "StreamReader": built_in.stream_reader,
    "Barrier": built_in.barrier,
    "TaskGroup": built_in.task_group,
    "_AsCompletedIterator": built_in.as_completed,
}
"""For each kind whose bookkeeping the guard reads, a wait that goes through it."""


async def blind(guard: Any) -> dict[str, tuple[str, str]]:
    """For each known kind: the guard's word while its books are there, and when one of them is missing."""
    words: dict[str, tuple[str, str]] = {}
    for known, kind in list(guard.KINDS.items()):
        wait = OF_KIND[known.__name__]
        seeing = await ask(guard, wait, by_handler=True)
        guard.KINDS[known] = kind._replace(attributes=("_gone",), wakes=("_gone",))
        try:
            words[known.__name__] = seeing, await ask(guard, wait, by_handler=True)
        finally:
            guard.KINDS[known] = kind
    return words


async def table(guard: Any) -> dict[str, Any]:
    """All that this Python has to say: the self-check, the words for each shape, and those for each kind."""
    return {
        "missing": guard.missing_in_runtime(),
        "shapes": {
            each.name: [await ask(guard, each.wait, True), await ask(guard, each.wait, False)] for each in available()
        },
        "kinds": await blind(guard),
    }


def main(path: str, loop_from: str = "asyncio") -> None:
    """Print the table of this Python as JSON; null if it has no such loop."""
    try:
        loop = importlib.import_module(loop_from).new_event_loop()
    except ImportError:
        print("null")
        return
    try:
        print(json.dumps(loop.run_until_complete(table(load(path)))))
    finally:
        loop.close()
