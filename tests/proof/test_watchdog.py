"""The watchdog: every hang is told, no waker is overlooked.

Timing: threads, files and signals are real here, so a waker that comes late comes after real time.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lastbus.proof import watchdog
from lastbus.proof.errors import UsageError
from lastbus.proof.watchdog import QuiescenceLoop, hangs

quiet = pytest.mark.quiescence_loop

SOON = 0.1
"""A bound for what is not told at once."""
LATE = 0.2
"""After which a waker calls in: long enough for a watchdog that overlooks it to be wrong."""


def start(coro: Any) -> asyncio.Task[Any]:
    """A task, whatever task factory is installed."""
    return asyncio.Task(coro, loop=asyncio.get_running_loop())


def quiescence() -> watchdog.Quiescence:
    """The selector of the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, QuiescenceLoop)
    return loop.quiescence


class Threads:
    """Threads that wait until the test is over, so that none outlives it."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.started: list[threading.Thread] = []

    def run(self, work: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=work)
        self.started.append(thread)
        thread.start()
        return thread

    def wait(self) -> threading.Thread:
        """A thread that does nothing until the test is over."""
        return self.run(self.over.wait)

    def late(self, work: Callable[[], object]) -> threading.Thread:
        """A thread that does `work` late, or at once when the test is over."""
        return self.run(lambda: (self.over.wait(LATE), work()))


class Naps:
    """How long the loop sleeps. What is longer than a few glances is not slept but skipped, and time with it."""

    LONG = 5 * watchdog.GLANCE_SECONDS

    def __init__(self) -> None:
        self.skipped = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped

    def select(self, selector: Any, timeout: float | None) -> Any:
        if timeout is None or timeout <= 0:
            return SELECT(selector, timeout)
        self.slept.append(timeout)
        if timeout <= self.LONG:
            return SELECT(selector, timeout)
        self.skipped += timeout
        return SELECT(selector, 0)


SELECT: Any = selectors.DefaultSelector.select


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    """The naps of the loop, which cost the test no time."""
    naps = Naps()
    monkeypatch.setattr(watchdog, "time", naps)
    monkeypatch.setattr(selectors.DefaultSelector, "select", lambda *args: naps.select(*args))
    return naps


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads()
    yield made
    made.over.set()
    for thread in made.started:
        thread.join()


@quiet
@pytest.mark.guarantee("WATCH-01")
async def test_a_task_that_nobody_can_wake_hangs_until_the_test_wakes_it(naps):
    event = asyncio.Event()
    task = start(event.wait())

    assert await hangs(task) == "quiescent"
    assert naps.slept == []

    event.set()
    assert await hangs(task) == ""
    assert task.done()


@quiet
@pytest.mark.guarantee("WATCH-01")
async def test_a_task_that_is_done_does_not_hang():
    task = start(asyncio.sleep(0))
    await task

    assert await hangs(task) == ""


@quiet
@pytest.mark.guarantee("WATCH-01")
async def test_a_task_that_a_timer_ends_does_not_hang():
    assert await hangs(start(asyncio.sleep(0.01))) == ""


@quiet
@pytest.mark.guarantee("WATCH-01")
async def test_a_cancelled_timer_is_no_timer():
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(100, event.set).cancel()

    assert await hangs(start(event.wait()), SOON) == "quiescent"
    event.set()


class Waker:
    """A cycle, so that only a collection ends it; then it does its work."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work
        self.me = self

    def __del__(self) -> None:
        self.work()


@quiet
@pytest.mark.guarantee("WATCH-02")
async def test_garbage_may_hold_the_waker():
    event = asyncio.Event()
    Waker(event.set)

    assert await hangs(start(event.wait())) == ""


@quiet
@pytest.mark.guarantee("WATCH-02")
async def test_garbage_may_hold_garbage_that_holds_the_waker():
    event = asyncio.Event()
    Waker(lambda: Waker(lambda: Waker(event.set)))

    assert await hangs(start(event.wait())) == ""


@quiet
@pytest.mark.guarantee("WATCH-02")
async def test_an_abandoned_async_generator_may_be_the_waker():
    event = asyncio.Event()

    async def numbers():
        try:
            yield 1
        finally:
            event.set()

    async def abandon():
        each = numbers()
        await each.__anext__()
        cycle: list[Any] = [each]
        cycle.append(cycle)

    await abandon()

    assert await hangs(start(event.wait())) == ""


@quiet
@pytest.mark.guarantee("WATCH-03")
async def test_a_thread_may_call_in(threads):
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    threads.late(lambda: loop.call_soon_threadsafe(event.set))

    assert await hangs(start(event.wait())) == ""


@quiet
@pytest.mark.guarantee("WATCH-03")
async def test_a_thread_may_bring_a_coroutine(threads):
    event = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def wake():
        event.set()

    threads.late(lambda: asyncio.run_coroutine_threadsafe(wake(), loop).result())

    assert await hangs(start(event.wait())) == ""


@quiet
@pytest.mark.guarantee("WATCH-03")
async def test_what_a_thread_posts_just_before_it_ends_is_seen(monkeypatch):
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    looks: list[int] = []

    def ended_while_looked_at() -> set[object]:
        looks.append(1)
        if len(looks) == 2:
            loop.call_soon_threadsafe(event.set)
        return set()

    monkeypatch.setattr(watchdog, "_working_threads", ended_while_looked_at)

    assert await hangs(start(event.wait())) == ""


@quiet
@pytest.mark.guarantee("WATCH-03")
async def test_when_the_last_thread_ends_without_a_word_the_hang_is_told(threads, naps):
    event = asyncio.Event()
    threads.late(int)

    assert await hangs(start(event.wait()), 4) == "quiescent"
    assert max(naps.slept) <= watchdog.GLANCE_SECONDS
    event.set()


@quiet
@pytest.mark.guarantee("WATCH-03")
async def test_a_thread_that_is_older_than_the_loop_does_not_count(threads):
    event = asyncio.Event()
    threads.wait()
    quiescence().take_bearings()

    assert await hangs(start(event.wait()), SOON) == "quiescent"
    event.set()


@quiet
@pytest.mark.guarantee("WATCH-03")
async def test_a_thread_with_the_number_of_an_older_one_counts(monkeypatch):
    class Numbered:
        ident = 7

    event = asyncio.Event()
    old, young = Numbered(), Numbered()
    monkeypatch.setattr(threading, "enumerate", lambda: [old])
    quiescence().take_bearings()
    assert await hangs(start(event.wait()), SOON) == "quiescent"

    monkeypatch.setattr(threading, "enumerate", lambda: [young])
    assert await hangs(start(event.wait()), SOON) == "a thread"
    event.set()


@quiet
@pytest.mark.guarantee("WATCH-03")
async def test_a_thread_without_a_thread_object_counts():
    event = asyncio.Event()
    begun, over, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        over.wait()
        ended.set()

    _thread.start_new_thread(work, ())
    begun.wait()

    assert await hangs(start(event.wait()), SOON) == "a thread"
    over.set()
    ended.wait()
    event.set()


@pytest.fixture
def pool(threads: Threads) -> Iterator[ThreadPoolExecutor]:
    """A pool of one worker, which a job may hold until the test is over."""
    with ThreadPoolExecutor(1) as made:
        yield made
        threads.over.set()


@quiet
@pytest.mark.guarantee("WATCH-04")
async def test_a_job_in_the_loop_s_own_pool_may_call_in(threads):
    assert await hangs(start(asyncio.to_thread(threads.over.wait, LATE))) == ""


@quiet
@pytest.mark.guarantee("WATCH-04")
async def test_a_job_that_no_worker_has_picked_up_counts(threads, pool):
    pool.submit(threads.over.wait)
    quiescence().take_bearings()
    task = start(_job(pool))

    assert await hangs(task, SOON) == "a pool job"

    threads.over.set()
    assert await hangs(task) == ""


async def _job(pool: ThreadPoolExecutor) -> None:
    await asyncio.wrap_future(pool.submit(int))


@quiet
@pytest.mark.guarantee("WATCH-04")
async def test_a_job_that_is_older_than_the_loop_does_not_count(threads, pool):
    event, begun = asyncio.Event(), threading.Event()
    pool.submit(lambda: (begun.set(), threads.over.wait()))
    begun.wait()  # Until then its worker is at rest, and would be a thread that has only begun since.
    quiescence().take_bearings()

    assert await hangs(start(event.wait()), SOON) == "quiescent"
    event.set()


@quiet
@pytest.mark.guarantee("WATCH-04")
async def test_many_short_jobs_never_look_like_a_hang(pool):
    async def work() -> None:
        for _ in range(300):
            await _job(pool)

    assert await hangs(start(work())) == ""


@quiet
@pytest.mark.guarantee("WATCH-04")
async def test_a_worker_that_waits_for_jobs_does_not_count():
    event = asyncio.Event()
    await asyncio.to_thread(int)

    assert await hangs(start(event.wait()), 0.5) == "quiescent"
    event.set()


@pytest.mark.guarantee("WATCH-04")
def test_thread_pools_are_left_as_they_were_found(monkeypatch):
    monkeypatch.setattr(watchdog, "_JOBS", watchdog._Jobs())  # Whatever other loops are open does not count here.
    found = ThreadPoolExecutor.submit
    one, two = QuiescenceLoop(), QuiescenceLoop()
    changed = ThreadPoolExecutor.submit

    one.close()
    one.close()
    kept = ThreadPoolExecutor.submit
    two.close()

    assert changed is kept
    assert changed is not found
    assert ThreadPoolExecutor.submit is found


@quiet
@pytest.mark.guarantee("WATCH-05")
async def test_a_file_that_is_registered_may_wake_until_it_is_removed():
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    with near, far:
        loop.add_reader(near, event.set)
        task = start(event.wait())
        assert await hangs(task, SOON) == "I/O"

        far.send(b"x")
        assert await hangs(task) == ""

        loop.remove_reader(near)
        event.clear()
        assert await hangs(start(event.wait()), SOON) == "quiescent"
        event.set()


@quiet
@pytest.mark.guarantee("WATCH-05")
async def test_a_signal_with_a_handler_may_wake_until_that_is_removed():
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, event.set)
    task = start(event.wait())
    assert await hangs(task, SOON) == "a signal"

    os.kill(os.getpid(), signal.SIGUSR1)
    assert await hangs(task) == ""

    loop.remove_signal_handler(signal.SIGUSR1)
    event.clear()
    assert await hangs(start(event.wait()), SOON) == "quiescent"
    event.set()


@quiet
@pytest.mark.guarantee("WATCH-05")
async def test_a_child_process_that_is_waited_for_may_wake():
    async def child() -> int:
        process = await asyncio.create_subprocess_exec("sleep", str(LATE))
        return await process.wait()

    assert await hangs(start(child())) == ""


@quiet
@pytest.mark.guarantee("WATCH-06")
async def test_a_distant_timer_is_named_when_the_bound_is_over(naps):
    event = asyncio.Event()
    timer = asyncio.get_running_loop().call_later(100, event.set)

    assert await hangs(start(event.wait()), SOON) == "a timer"
    assert sum(naps.slept) == pytest.approx(SOON, abs=SOON / 2)
    timer.cancel()
    event.set()


@quiet
@pytest.mark.guarantee("WATCH-06")
async def test_a_thread_that_says_nothing_is_named_when_the_bound_is_over(threads):
    event = asyncio.Event()
    threads.wait()

    assert await hangs(start(event.wait()), SOON) == "a thread"
    event.set()


async def spin(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


@quiet
@pytest.mark.guarantee("WATCH-07")
async def test_a_task_that_is_woken_in_every_turn_is_spinning(monkeypatch):
    monkeypatch.setattr(watchdog, "TURNS_MAX", 500)
    one, two = start(spin(5_000)), start(asyncio.Event().wait())

    assert await asyncio.gather(hangs(one), hangs(two)) == ["spinning", "spinning"]
    one.cancel()
    two.cancel()


@quiet
@pytest.mark.guarantee("WATCH-07")
async def test_a_task_that_has_io_in_every_turn_is_spinning(monkeypatch):
    monkeypatch.setattr(watchdog, "TURNS_MAX", 200_000)
    loop = asyncio.get_running_loop()
    end = time.monotonic() + 3 * SOON

    async def post() -> None:
        turns = 0
        while time.monotonic() < end or turns < 1_000:
            turns += 1
            loop.call_soon_threadsafe(int)
            await asyncio.sleep(0)

    task = start(post())

    assert await hangs(task, SOON) == "spinning"
    task.cancel()


@quiet
@pytest.mark.guarantee("WATCH-07")
async def test_a_task_that_is_busy_and_then_ends_is_not_spinning():
    async def work() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)

    assert await hangs(start(work())) == ""


@quiet
@pytest.mark.guarantee("WATCH-07")
async def test_a_task_with_a_slow_step_is_not_spinning():
    async def work() -> None:
        for _ in range(3):
            time.sleep(SOON)
            await asyncio.sleep(0)

    assert await hangs(start(work()), SOON) == ""


@quiet
@pytest.mark.guarantee("WATCH-07")
async def test_a_loop_that_rests_now_and_then_is_not_spinning(monkeypatch):
    monkeypatch.setattr(watchdog, "TURNS_MAX", 50)

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.002)

    task = start(tick())

    assert await hangs(task, LATE) == "a timer"
    task.cancel()


@quiet
@pytest.mark.guarantee("WATCH-08")
async def test_watching_leaves_the_task_as_it_is_and_may_be_repeated():
    event = asyncio.Event()
    task = start(event.wait())
    before = asyncio.all_tasks()

    assert [await hangs(task), await hangs(task)] == ["quiescent", "quiescent"]

    assert asyncio.all_tasks() == before
    event.set()
    assert await task is True


@quiet
@pytest.mark.guarantee("WATCH-08")
async def test_each_of_several_watched_tasks_gets_its_own_answer():
    event = asyncio.Event()
    stuck, free = start(event.wait()), start(asyncio.sleep(0.01))

    assert await asyncio.gather(hangs(stuck), hangs(free)) == ["quiescent", ""]
    event.set()


@quiet
@pytest.mark.guarantee("WATCH-08")
async def test_cancelling_the_one_who_asks_does_not_touch_the_task():
    event = asyncio.Event()
    task = start(event.wait())
    asking = start(hangs(task))
    await asyncio.sleep(0)

    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
    assert quiescence().watches == []
    assert await hangs(task) == "quiescent"
    event.set()
    assert await task is True


@quiet
@pytest.mark.guarantee("WATCH-09")
async def test_a_hostile_task_factory_does_not_reach_it():
    event = asyncio.Event()
    task = start(event.wait())
    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, coro, **_: coro.close())

    assert await hangs(task) == "quiescent"
    event.set()
    assert await hangs(task) == ""
    loop.set_task_factory(None)


@quiet
@pytest.mark.guarantee("WATCH-09")
async def test_a_task_that_denies_its_end_has_ended():
    class Liar(asyncio.Task[Any]):
        def done(self) -> bool:
            return False

    task = Liar(asyncio.sleep(0), loop=asyncio.get_running_loop())

    assert await hangs(task) == ""


class Swallower:
    """A `call_soon` on the loop instance that keeps what it is given, until it is told or the loop goes to sleep.

    A loop that sleeps waits for what was swallowed: a test that is never woken must end as well.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, patch: pytest.MonkeyPatch) -> None:
        self.loop = loop
        self.patch = patch
        self.kept: list[tuple[Any, Any, Any]] = []

    def __enter__(self) -> None:
        vars(self.loop)["call_soon"] = self.call_soon
        self.patch.setattr(selectors.DefaultSelector, "select", lambda *args: self.select(*args))

    def __exit__(self, *_: object) -> None:
        self.patch.undo()
        self.give_back()

    def select(self, selector: Any, timeout: float | None) -> Any:
        if timeout == 0:
            return SELECT(selector, 0)
        self.give_back()
        return SELECT(selector, 0)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> None:
        self.kept.append((callback, args, context))

    def give_back(self) -> None:
        vars(self.loop).pop("call_soon", None)
        while self.kept:
            callback, args, context = self.kept.pop(0)
            self.loop.call_soon_threadsafe(callback, *args, context=context)


@quiet
@pytest.mark.guarantee("WATCH-09")
async def test_a_call_soon_that_swallows_hides_neither_a_hang_nor_an_end(monkeypatch):
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    waits = start(event.wait())
    await asyncio.sleep(0)

    async def end() -> None:
        event.set()

    ends = start(end())
    with Swallower(loop, monkeypatch):
        assert await hangs(ends) == ""
        assert await hangs(waits) == "quiescent"

    assert await hangs(waits) == ""


@quiet
@pytest.mark.guarantee("WATCH-10")
async def test_a_marked_test_runs_on_the_loop_that_can_tell(on_its_loop):
    assert on_its_loop is asyncio.get_running_loop()
    assert isinstance(on_its_loop, QuiescenceLoop)


@pytest.mark.guarantee("WATCH-10")
async def test_an_unmarked_test_keeps_its_loop(on_its_loop):
    assert on_its_loop is asyncio.get_running_loop()
    assert not isinstance(on_its_loop, QuiescenceLoop)


@pytest.fixture
async def on_its_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest.mark.guarantee("WATCH-11")
async def test_a_loop_that_cannot_tell_is_refused():
    with pytest.raises(UsageError, match="quiescence_loop"):
        await hangs(asyncio.get_running_loop().create_future())


@quiet
@pytest.mark.guarantee("WATCH-11")
async def test_a_task_of_another_loop_is_refused():
    other = asyncio.new_event_loop()
    future = other.create_future()
    other.close()

    with pytest.raises(UsageError, match="another loop"):
        await hangs(future)
