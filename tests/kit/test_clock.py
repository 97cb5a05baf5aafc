"""A manual clock stands still until a test moves it, and then everything happens in order of its time."""

from __future__ import annotations

import asyncio

from lastbus.testing import ManualClock, everyone_blocked


def test_a_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(100.0)

    assert clock.time() == clock.time() == 100.0
    clock.advance(2.5)
    assert clock.time() == 102.5


def test_calls_are_made_in_order_of_their_time_and_see_it() -> None:
    clock = ManualClock(0.0)
    calls: list[tuple[str, float]] = []
    clock.call_later(3.0, lambda: calls.append(("late", clock.time())))
    clock.call_later(1.0, lambda: calls.append(("early", clock.time())))

    clock.advance(0.9)
    assert calls == []
    clock.advance(5.0)
    assert calls == [("early", 1.0), ("late", 3.0)]
    assert clock.time() == 5.9


def test_a_call_made_on_the_way_is_due_on_the_same_way() -> None:
    clock = ManualClock(0.0)
    calls: list[float] = []

    def again() -> None:
        calls.append(clock.time())
        clock.call_later(1.0, again)

    clock.call_later(1.0, again)
    clock.advance(3.0)

    assert calls == [1.0, 2.0, 3.0]
    assert clock.pending == 1


def test_a_call_that_was_called_off_is_not_made_and_not_pending() -> None:
    clock = ManualClock()
    calls: list[str] = []
    timer = clock.call_later(1.0, lambda: calls.append("made"))

    assert clock.pending == 1
    timer.cancel()
    assert clock.pending == 0
    clock.advance(2.0)
    assert calls == []


async def test_a_sleep_is_noted_and_ends_when_the_time_has_come() -> None:
    clock = ManualClock()
    sleeping = asyncio.ensure_future(clock.sleep(5.0))
    await everyone_blocked()

    clock.advance(4.9)
    await everyone_blocked()
    assert (sleeping.done(), clock.sleeps, clock.pending) == (False, [5.0], 1)
    clock.advance(0.1)
    await everyone_blocked()
    assert sleeping.done()


async def test_a_sleep_that_is_cancelled_leaves_no_timer() -> None:
    clock = ManualClock()
    sleeping = asyncio.ensure_future(clock.sleep(5.0))
    await everyone_blocked()

    sleeping.cancel()
    await asyncio.gather(sleeping, return_exceptions=True)

    assert sleeping.cancelled()
    assert clock.pending == 0


async def test_a_sleeper_that_was_cancelled_as_its_time_came_is_not_woken_twice() -> None:
    clock = ManualClock()
    sleeping = asyncio.ensure_future(clock.sleep(5.0))
    await everyone_blocked()

    sleeping.cancel()
    clock.advance(5.0)
    await asyncio.gather(sleeping, return_exceptions=True)

    assert sleeping.cancelled()
