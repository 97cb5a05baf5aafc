"""The watchdog of tests: whether a task will ever end is told at once, not after a time-out.

Keeps: WATCH-02.

An event loop that has nothing to do says so: it asks its selector to wait for ever. At that moment no handle is ready
and no timer runs, so whoever waits on this loop can only be woken from outside: by I/O, by a thread, by a signal, or by
a finaliser of garbage that nobody has collected yet. If all of these are ruled out, a pending task is a hang, and a
test that expects one need not wait two seconds for it.

The loop is asyncio's own `SelectorEventLoop`, given a selector that looks before it sleeps. While nobody watches, that
selector adds nothing to the one it derives from.

    @pytest.mark.quiescence_loop
    async def test_a_close_that_nobody_ends_hangs(bus):
        closing = asyncio.Task(bus.close(), loop=asyncio.get_running_loop())
        assert await hangs(closing) == "quiescent"
        bus.release()
        assert await hangs(closing) == ""
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import selectors
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future as Job
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from types import FrameType
from typing import Any, Final

from lastbus.proof.errors import UsageError

QUIESCENT: Final = "quiescent"
SPINNING: Final = "spinning"
TIMER: Final = "a timer"
IO: Final = "I/O"
THREAD: Final = "a thread"
JOB: Final = "a pool job"
SIGNAL: Final = "a signal"

BOUND_SECONDS: Final = 2.0
TURNS_MAX: Final = 50_000
"""So many turns in a row without one idle moment, and a loop is spinning."""
TURNS_MIN: Final = 100
"""With fewer turns in a row than this a loop is not spinning, however long they took: a step may be slow."""
GLANCE_SECONDS: Final = 0.01
"""How often a thread is looked at that may still call in: its end wakes nobody."""
COLLECTIONS_MAX: Final = 10
"""What a finaliser lets go may have a finaliser too; chains longer than this are not followed."""

_Events = list[tuple[selectors.SelectorKey, int]]


async def hangs(task: asyncio.Future[Any], seconds: float = BOUND_SECONDS) -> str:
    """Wait for `task` and say why it does not end: `""` once it is done, else a reason.

    `"quiescent"` comes at once and is final: only the caller can still wake the task. `"spinning"` means that the loop
    never rests. `"a timer"`, `"I/O"`, `"a thread"`, `"a pool job"` and `"a signal"` name what may still wake it; they
    come after `seconds`, the outer bound.

    It observes: it cancels nothing, makes no task, starts no timer, and leaves no callback on `task`. What a test has
    put on the loop instance (a task factory, a `call_soon` that swallows) does not reach it. It may be called again
    for the same task, and for several tasks at once. Refuses with `UsageError` a loop that is no `QuiescenceLoop`, and
    a task of another loop.

    Keeps: WATCH-01, WATCH-08, WATCH-11.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, QuiescenceLoop):
        raise UsageError("this loop cannot tell: mark the test with quiescence_loop, or run it on a QuiescenceLoop")
    if asyncio.Future.get_loop(task) is not loop:
        raise UsageError("the task belongs to another loop: watch it there")
    if asyncio.Future.done(task):
        return ""
    watch = _Watch(task, loop, seconds)
    loop.quiescence.begin(watch)
    try:
        return await watch
    finally:
        loop.quiescence.end(watch)


class _Watch:
    """What `hangs` awaits: a future as asyncio understands it, woken past everything that hangs on the loop instance.

    Keeps: WATCH-09.
    """

    _asyncio_future_blocking = False

    def __init__(self, task: asyncio.Future[Any], loop: QuiescenceLoop, seconds: float) -> None:
        """Watch `task` for `seconds` from now.

        Keeps: WATCH-06.
        """
        self.task = task
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds
        self._loop = loop
        self._verdict = ""
        self._cancelled = False
        self._wakeup: tuple[Callable[[_Watch], object], Context | None] | None = None

    def __await__(self) -> Generator[_Watch, None, str]:
        self._asyncio_future_blocking = True
        yield self
        return self._verdict

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, wakeup: Callable[[_Watch], object], *, context: Context | None = None) -> None:
        self._wakeup = wakeup, context

    def result(self) -> str:
        if self._cancelled:
            raise asyncio.CancelledError
        return self._verdict

    def cancel(self, msg: object = None) -> bool:
        """Cancel whoever awaits this, and nothing else.

        Keeps: WATCH-08.
        """
        self._cancelled = True
        return self.tell("")

    def tell(self, verdict: str) -> bool:
        """Wake whoever awaits this, once; whether it was this call that did.

        Keeps: WATCH-09.
        """
        if self._wakeup is None:
            return False
        (wakeup, context), self._wakeup = self._wakeup, None
        self._verdict = verdict
        asyncio.SelectorEventLoop.call_soon(self._loop, wakeup, self, context=context)
        return True


class Quiescence(selectors.DefaultSelector):
    """A selector that knows when nothing can wake its loop any more, and tells those who watch.

    Keeps: WATCH-01, WATCH-02, WATCH-03, WATCH-04, WATCH-05, WATCH-06, WATCH-07.
    """

    def __init__(self) -> None:
        super().__init__()
        self.watches: list[_Watch] = []
        self.signals: set[int] = set()
        self._own_files: set[object] = set()
        self._older_threads: set[object] = set()
        self._older_jobs: set[Job[Any]] = set()
        self._suspected = False
        self._busy_turns = 0
        self._busy_since = 0.0

    def take_bearings(self) -> None:
        """From now on, what is registered, what runs and what is queued already counts as nobody who calls in.

        These are the loop's own pipe, and threads older than the test: those of coverage and time-outs.

        Keeps: WATCH-01, WATCH-03, WATCH-04.
        """
        self._own_files = set(self.get_map())
        self._older_threads = _working_threads()
        self._older_jobs = set(_JOBS.running)

    def begin(self, watch: _Watch) -> None:
        """Look out for `watch` from now on."""
        self.watches.append(watch)
        self._busy_turns = 0

    def end(self, watch: _Watch) -> None:
        """Look out for it no longer; nothing happens if it was told already."""
        if watch in self.watches:
            self.watches.remove(watch)

    def select(self, timeout: float | None = None) -> _Events:
        """As the base class; but a watch whose task ended, hangs or is out of time is told before the loop sleeps.

        Keeps: WATCH-01, WATCH-08, WATCH-09.
        """
        if not self.watches:
            return super().select(timeout)
        suspected, self._suspected = self._suspected, False
        for watch in [each for each in self.watches if asyncio.Future.done(each.task)]:
            self._tell(watch, "")
            timeout = 0
        if timeout is not None and timeout <= 0:
            return self._busy_turn()
        return self._idle_turn(timeout, suspected)

    def _busy_turn(self) -> _Events:
        """Something is ready: only a loop that never comes to rest could hide behind that.

        Keeps: WATCH-07.
        """
        now = time.monotonic()
        if not self._busy_turns:
            self._busy_since = now
        self._busy_turns += 1
        restless = now - self._busy_since if self._busy_turns >= TURNS_MIN else 0.0
        for watch in list(self.watches):
            if self._busy_turns >= TURNS_MAX or restless >= watch.seconds:
                self._tell(watch, SPINNING)
        return super().select(0)

    def _idle_turn(self, timeout: float | None, suspected: bool) -> _Events:
        """Nothing is ready: report a hang if this is the second such turn in a row and nobody may call in.

        Who may call in is asked before the poll, so that whatever a thread posted before its end is seen by the poll.

        Keeps: WATCH-01, WATCH-02, WATCH-03, WATCH-07.
        """
        self._busy_turns = 0
        waker = self._waker()
        events = super().select(0)
        if events:
            return events
        if timeout is None and not waker:
            if suspected:
                for watch in list(self.watches):
                    self._tell(watch, QUIESCENT)
            else:
                _collect()
                self._suspected = True
            return super().select(0)
        return super().select(self._patience(timeout, waker))

    def _patience(self, timeout: float | None, waker: str) -> float:
        """How long to sleep: until the loop's timer, the next deadline or the next look at a thread.

        Keeps: WATCH-03, WATCH-06.
        """
        now = time.monotonic()
        for watch in list(self.watches):
            if watch.deadline <= now:
                self._tell(watch, waker or TIMER)
                return 0
        waits = [watch.deadline - now for watch in self.watches]
        if timeout is not None:
            waits.append(timeout)
        if waker in (THREAD, JOB):
            waits.append(GLANCE_SECONDS)
        return min(waits)

    def _waker(self) -> str:
        """Who may still call in from outside, or nothing. Jobs are asked before threads: a worker posts the result of a
        job that has just ended.

        Keeps: WATCH-03, WATCH-04, WATCH-05.
        """
        if set(self.get_map()) - self._own_files:
            return IO
        if _JOBS.running - self._older_jobs:
            return JOB
        if _working_threads() - self._older_threads:
            return THREAD
        return SIGNAL if self.signals else ""

    def _tell(self, watch: _Watch, verdict: str) -> None:
        self.end(watch)
        watch.tell(verdict)


class QuiescenceLoop(asyncio.SelectorEventLoop):
    """asyncio's selector loop on a `Quiescence`; use it wherever a loop factory is asked for."""

    def __init__(self) -> None:
        self.quiescence = Quiescence()
        super().__init__(self.quiescence)
        _JOBS.count()
        self.quiescence.take_bearings()

    # The base class can only be repeated with a TypeVarTuple, which Python has since 3.11.
    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """As the base class; from now on a signal may wake this loop.

        Keeps: WATCH-05.
        """
        super().add_signal_handler(sig, callback, *args)
        self.quiescence.signals.add(sig)

    def remove_signal_handler(self, sig: int) -> bool:
        """As the base class; that signal wakes nobody any more.

        Keeps: WATCH-05.
        """
        self.quiescence.signals.discard(sig)
        return super().remove_signal_handler(sig)

    def close(self) -> None:
        """As the base class; thread pools are left as they were found when the last such loop closes.

        Keeps: WATCH-04.
        """
        if not self.is_closed():
            _JOBS.uncount()
        super().close()


class _Jobs:
    """The jobs that thread pools took and have not finished, known while a quiescence loop is open.

    A job that no worker has picked up yet shows in no stack; only the call that submitted it tells.

    Keeps: WATCH-04.
    """

    def __init__(self) -> None:
        self.running: set[Job[Any]] = set()
        self._loops = 0
        self._submit: Any = None

    def count(self) -> None:
        """Begin to count, unless it was done for another loop.

        Keeps: WATCH-04.
        """
        self._loops += 1
        if self._loops > 1:
            return
        submit: Any = ThreadPoolExecutor.submit
        self._submit = submit

        @functools.wraps(submit)
        def counted(*args: Any, **kwargs: Any) -> Job[Any]:
            job: Job[Any] = submit(*args, **kwargs)
            self.running.add(job)
            job.add_done_callback(self.running.discard)
            return job

        ThreadPoolExecutor.submit = counted  # type: ignore[method-assign]

    def uncount(self) -> None:
        """End it, unless another loop still needs it.

        Keeps: WATCH-04.
        """
        self._loops -= 1
        if not self._loops:
            ThreadPoolExecutor.submit = self._submit  # type: ignore[method-assign]


_JOBS: Final = _Jobs()
"""One for the process: a pool may serve every loop."""


def _working_threads() -> set[object]:
    """Every other thread that may do something by itself: a `Thread`, or the number of one that Python has no name for.

    Threads are compared by object, because their numbers are used again. A pool's worker that waits for a job rests.

    Keeps: WATCH-03, WATCH-04.
    """
    frames = sys._current_frames()
    known: dict[int | None, object] = {thread.ident: thread for thread in threading.enumerate()}
    at_rest = {ident for ident, frame in frames.items() if _is_worker_at_rest(frame)}
    others = (known.keys() | frames.keys()) - at_rest - {threading.get_ident()}
    return {known.get(ident, ident) for ident in others}


def _is_worker_at_rest(frame: FrameType) -> bool:
    """Whether the innermost frame of a thread is the line on which a thread pool's worker waits.

    Keeps: WATCH-04.
    """
    code = frame.f_code
    return code.co_name == "_worker" and code.co_filename.endswith(os.path.join("concurrent", "futures", "thread.py"))


def _collect() -> None:
    """Let every finaliser run now: one of them may be the waker.

    Keeps: WATCH-02.
    """
    for _ in range(COLLECTIONS_MAX):
        if not gc.collect():
            break
