"""Pool: the bounded threads in which a bus runs handlers that are plain functions."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

THREADS_MAX: Final = 16


class HandlerPool:
    """At most `THREADS_MAX` threads, made when the first synchronous handler is called."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function` in a thread, in a copy of the current context, and return what it returns.

        Keeps: CORE-11, CORE-45, CORE-46, CORE-51.
        """
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="lastbus handler")
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._executor, context.run, _call, function, *args)

    def close(self) -> None:
        """Start no further call; a function that runs cannot be stopped and is left to finish."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function`. What a future cannot carry becomes what a coroutine would make of it.

    Keeps: CORE-46.
    """
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError(f"{function!r:.80} raised StopIteration") from error
