"""What somebody awaits who asks whether a task hangs: woken once, at once, and by a cancellation too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from lastbus.proof import watchdog
from lastbus.proof.watchdog import GLANCE_SECONDS, IO, JOB, THREAD, TIMER, Quiescence, QuiescenceLoop, _Watch, hangs

quiet = pytest.mark.quiescence_loop


async def turns(count: int) -> None:
    """Let the loop go round so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


@quiet
@pytest.mark.guarantee("WATCH-08")
async def test_who_asks_is_cancelled_at_once_and_not_when_there_is_an_answer():
    event = asyncio.Event()
    timer = asyncio.get_running_loop().call_later(3600, event.set)
    task = asyncio.ensure_future(event.wait())
    asking = asyncio.ensure_future(hangs(task, 60))
    await turns(2)

    asking.cancel()
    await turns(3)

    assert asking.cancelled()
    assert not task.done()
    timer.cancel()
    task.cancel()


@quiet
@pytest.mark.guarantee("WATCH-09")
async def test_a_watch_wakes_whoever_awaits_it_once():
    loop = asyncio.get_running_loop()
    assert isinstance(loop, QuiescenceLoop)
    watch = _Watch(loop.create_future(), loop, 60)
    woken: list[object] = []

    assert watch.tell("too early") is False
    watch.add_done_callback(woken.append)
    assert watch.tell("quiescent") is True
    assert watch.tell("again") is False
    assert woken == []
    await turns(1)

    assert woken == [watch]
    assert (watch.result(), watch.get_loop()) == ("quiescent", loop)


@pytest.fixture
def quiescence() -> Iterator[Quiescence]:
    """A selector that no loop uses."""
    quiescence = Quiescence()
    yield quiescence
    quiescence.close()


@quiet
@pytest.mark.guarantee("WATCH-01", "WATCH-06")
async def test_a_watch_is_looked_out_for_until_it_is_told(quiescence):
    loop = asyncio.get_running_loop()
    assert isinstance(loop, QuiescenceLoop)
    one, other = (_Watch(loop.create_future(), loop, 60) for _ in range(2))
    for watch in (one, other):
        watch.add_done_callback(lambda _: None)
        quiescence.begin(watch)

    quiescence._tell(one, "quiescent")

    assert quiescence.watches == [other]
    assert one.result() == "quiescent"
    quiescence.end(one)
    quiescence.end(other)
    assert quiescence.watches == []


@quiet
@pytest.mark.guarantee("WATCH-03", "WATCH-06")
async def test_a_loop_sleeps_until_its_timer_the_next_deadline_or_the_next_look_at_a_thread(quiescence, monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: clock.now))
    loop = asyncio.get_running_loop()
    assert isinstance(loop, QuiescenceLoop)
    near, far = (_Watch(loop.create_future(), loop, seconds) for seconds in (2, 5))
    for watch in (near, far):
        quiescence.begin(watch)

    assert quiescence._patience(None, IO) == 2.0
    assert quiescence._patience(0.5, "") == 0.5
    assert quiescence._patience(None, THREAD) == quiescence._patience(60, JOB) == GLANCE_SECONDS
    clock.now = 102.0
    near.add_done_callback(lambda _: None)
    assert quiescence._patience(60, "") == 0
    assert (near.result(), quiescence.watches) == (TIMER, [far])


@pytest.mark.guarantee("WATCH-01", "WATCH-04")
def test_a_loop_that_can_tell_begins_with_nobody_to_tell_and_counts_jobs_until_it_is_closed(monkeypatch):
    monkeypatch.setattr(watchdog, "_JOBS", watchdog._Jobs())
    submit = ThreadPoolExecutor.submit

    loop = QuiescenceLoop()
    try:
        assert (loop.quiescence.watches, loop.quiescence.signals) == ([], set())
        assert loop.quiescence._own_files == set(loop.quiescence.get_map()) != set()
        assert ThreadPoolExecutor.submit is not submit
        assert loop.run_until_complete(hangs(loop.create_future())) == "quiescent"
    finally:
        loop.close()
    assert ThreadPoolExecutor.submit is submit
