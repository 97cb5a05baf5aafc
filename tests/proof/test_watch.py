"""What somebody awaits who asks whether a task hangs: woken once, at once, and by a cancellation too."""

from __future__ import annotations

import asyncio

import pytest

from lastbus.proof.watchdog import QuiescenceLoop, _Watch, hangs

quiet = pytest.mark.quiescence_loop


async def turns(count: int) -> None:
    """Let the loop go round so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


@quiet
@pytest.mark.guarantee("WATCH-08")
async def test_who_asks_is_cancelled_at_once_and_not_when_there_is_an_answer():
    task = asyncio.ensure_future(asyncio.sleep(3600))
    asking = asyncio.ensure_future(hangs(task, 60))
    await turns(2)

    asking.cancel()
    await turns(3)

    assert asking.cancelled()
    assert not task.done()
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
