"""Eager: what begins the teardown at once, or has it over before the request returns, on every version of Python."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from lastbus._close.state import Future, Task
from tests.close.rig import Rig


def eagerly(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, None]) -> Any:
    """What runs `coro` after its first step has been taken here: an eager task, or what comes closest to it."""
    if hasattr(asyncio, "eager_task_factory"):
        return asyncio.eager_task_factory(loop, coro)
    return at_once(loop, coro)


def at_once(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
    """Take the first step by hand: a future that is done if there was no second, else a task for the rest."""
    try:
        waits_for = coro.send(None)
    except StopIteration:
        done: asyncio.Future[None] = loop.create_future()
        done.set_result(None)
        return done

    async def rest() -> None:
        await Continued(coro, waits_for)

    return asyncio.Task(rest(), loop=loop)


class Continued:
    """Goes on with a coroutine that has begun."""

    def __init__(self, coro: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._coro = coro
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, None, None]:
        while True:
            error: BaseException | None = None
            try:
                yield self._waits_for
            except BaseException as raised:  # Whatever is thrown into the task is meant for the coroutine.
                error = raised
            try:
                self._waits_for = self._coro.send(None) if error is None else self._coro.throw(error)
            except StopIteration:
                return


class SpawnsByHand(Rig):
    """The whole teardown runs within the spawn, which hands back something that is over and no task."""

    def _spawn_teardown(self, loop: asyncio.AbstractEventLoop, future: Future[None]) -> Task[None] | None:
        coro = self._teardown_entry()
        over: Any = loop.create_future()
        try:
            coro.send(None)
        except StopIteration:
            over.set_result(None)
        except Exception as error:
            over.set_exception(error)
            over.exception()
        return over  # type: ignore[no-any-return]
