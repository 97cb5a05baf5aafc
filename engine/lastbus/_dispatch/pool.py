"""Pool: the bounded threads in which a bus runs handlers that are plain functions.

Keeps: CORE-51.
"""

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

        A thread cannot be stopped: when the caller is cancelled while the function runs, this ends only with the
        function, so that nobody takes the work for abandoned; a second cancellation ends it at once.

        Keeps: CORE-11, CORE-45, CORE-46, CORE-51, CAP-38.
        """
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="lastbus handler")
        context = contextvars.copy_context()
        job = self._executor.submit(context.run, _outcome, function, *args)
        call = asyncio.wrap_future(job)
        try:
            result, error = await asyncio.shield(call)
        except asyncio.CancelledError:
            if not job.cancel():
                await asyncio.wait({call})
            raise
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Take no further function; those that run or wait for a thread are left to finish."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)


def _outcome(function: Callable[..., Any], *args: Any) -> tuple[Any, BaseException | None]:
    """What `function` returned, and what it raised: as values, because a future cannot carry every exception.

    One that holds a StopIteration never ends, and one that holds a GeneratorExit closes whoever awaits it.

    Keeps: CORE-46.
    """
    try:
        return function(*args), None
    except BaseException as error:
        return None, error
