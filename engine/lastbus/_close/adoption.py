"""Adoption: whoever made the teardown's task, the bus either owns it or refuses it by name.

A loop's task factory is foreign code. It may return something that is no task, raise after it has made one, or hand
back a task of another loop. The question is always the same: which task drives our coroutine, if any does? All
answers are read through class functions, never through attributes of the foreign object.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Coroutine
from typing import Any, Final

from lastbus._close import watchdog
from lastbus._close.acceptance import Acceptance
from lastbus._close.state import CloseState, Future, Task, is_task
from lastbus._errors import CloseError

_USED: Final = ("add_done_callback", "done", "cancelled", "exception", "get_loop")


class Adoption(Acceptance):
    """Spawns the teardown in the context in which the bus was built, and binds the round to its task."""

    def _spawn_teardown(self, loop: asyncio.AbstractEventLoop, future: Future[None]) -> Task[None] | None:
        """Start the teardown and return its task, or None if it ran to its end within the loop's task factory.

        Raises only while nothing has begun; the coroutine is closed then. A task that drives the coroutine is found
        wherever it is; without one the coroutine gets a task of ours. No field of the bus names a task to trust.

        Keeps: CLOSE-37, CLOSE-38, CLOSE-39, CLOSE-40, CLOSE-41, CLOSE-42, RES-R12b.
        """
        runs = self._teardown_runs
        coro = self._teardown_entry()
        made, error = _ask_factory(self, loop, coro)
        task = made if is_task(made) else _owner_of(coro)
        if task is None and _unstarted(coro):
            if error is not None:
                coro.close()
                raise CloseError(
                    "teardown-spawn-failed", "the loop made no task; close() may be called again"
                ) from error
            task = self._owner_context.run(lambda: Task(coro, loop=loop))
        if task is not None:
            _refuse_foreign(task, loop, coro)
        watchdog.bind(self, task, future, coro, runs)
        return task

    async def _teardown_entry(self) -> None:
        """What the task runs. Its frame shows the bus and nothing of the round, so there is nothing in it to forge.

        Keeps: CLOSE-48, CLOSE-49.
        """
        await self._teardown()

    async def _teardown(self) -> None:
        """The ordered steps; see teardown."""
        raise NotImplementedError


def _ask_factory(
    bus: CloseState, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, None]
) -> tuple[Any, BaseException | None]:
    """What the loop makes of `coro` in the context of the bus, and what it raises; neither is believed yet.

    Keeps: CLOSE-40.
    """
    try:
        return bus._owner_context.run(loop.create_task, coro), None
    except AttributeError as error:
        # CPython 3.13 names the task after the factory returned it, and fails on what is no task.
        if error.name == "set_name":
            return error.obj, None
        return None, error
    except BaseException as error:  # The factory is foreign code: what it raises decides nothing before we looked.
        return None, error


def _refuse_foreign(task: Task[Any], loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, None]) -> None:
    """Refuse, by name, a task that cannot be relied on, as long as the teardown has not begun in it.

    Keeps: CLOSE-54, CLOSE-55, RES-R3.
    """
    why = _objection(task, loop)
    if why is None or not _unstarted(coro):
        return
    Task.add_done_callback(task, _retrieve)
    home = Task.get_loop(task)
    try:
        if home is loop:
            Task.cancel(task)
        else:
            home.call_soon_threadsafe(Task.cancel, task)
    except Exception:  # noqa: S110  # Best effort on somebody else's object; the refusal below is what counts.
        pass
    coro.close()
    raise CloseError("teardown-spawn-failed", "the loop's task factory made an unusable task") from CloseError(why)


def _objection(task: Task[Any], loop: asyncio.AbstractEventLoop) -> str | None:
    if _is_hostile(task):
        return "teardown-hostile-task-methods"
    return "teardown-foreign-loop" if Task.get_loop(task) is not loop else None


def _is_hostile(task: Task[Any]) -> bool:
    """Whether the task's class overrides a method that we use, or the task itself hides one (found by deleting it).

    Neither the task nor its class is asked: classes are read through `type`'s own descriptors.

    Keeps: CLOSE-55, CLOSE-56, CLOSE-58, CLOSE-59, CLOSE-60, RES-R12c.
    """
    if any(_lookup(type(task), name) is not plain for name, plain in _PLAIN.items()):
        return True
    for name in _USED:
        try:
            object.__delattr__(task, name)
        except AttributeError:
            continue
        return True
    return False


def _lookup(cls: type, name: str) -> object:
    for base in type.__dict__["__mro__"].__get__(cls):
        namespace = type.__dict__["__dict__"].__get__(base)
        if name in namespace:
            return namespace[name]
    return None


_PLAIN: Final = {name: _lookup(Task, name) for name in (*_USED, "__getattribute__")}


def _owner_of(coro: Coroutine[Any, Any, None]) -> Task[Any] | None:
    """The task that hosts `coro`, whoever made it. `get_coro()` crashes CPython 3.12.1 on some tasks; this does not."""
    hosted = asyncio.Task._coro.__get__  # type: ignore[attr-defined]
    return next((each for each in gc.get_referrers(coro) if is_task(each) and hosted(each) is coro), None)


def _unstarted(coro: Coroutine[Any, Any, None]) -> bool:
    return inspect.getcoroutinestate(coro) == inspect.CORO_CREATED


def _retrieve(task: Task[Any]) -> None:
    if not Task.cancelled(task):
        Task.exception(task)
