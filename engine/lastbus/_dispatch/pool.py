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

        Keeps: CORE-11, CORE-45, CORE-46, CORE-51.
        """
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="lastbus handler")
        context = contextvars.copy_context()
        call = asyncio.get_running_loop().run_in_executor(self._executor, context.run, _outcome, function, *args)
        result, error = await call
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Start no further call; a function that runs cannot be stopped and is left to finish."""
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
