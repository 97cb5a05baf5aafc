"""Slots: a bound by itself, and the failure of somebody who waits, on whatever loop that is."""

from __future__ import annotations

import asyncio

import pytest

from lastbus._dispatch.capacity import Slots, fail
from lastbus.testing import everyone_blocked

pytestmark = pytest.mark.usefixtures("hygiene")


@pytest.mark.guarantee("CAP-08")
def test_a_slot_that_no_heir_asks_for_is_free_again() -> None:
    slots = Slots(1)

    taken = [slots.try_take(), slots.try_take()]
    slots.give_back()

    assert taken == [True, False]
    assert slots.taken == 0
    assert slots.try_take()


@pytest.mark.guarantee("CAP-08")
async def test_what_is_given_back_goes_to_the_first_who_still_waits() -> None:
    slots = Slots(1)
    await slots.take()
    waiting = [asyncio.ensure_future(slots.take()) for _ in range(3)]
    await everyone_blocked()

    slots.waiting[0].cancel()
    slots.give_back()
    await asyncio.wait(waiting[:2], timeout=1)

    assert [each.done() for each in waiting] == [True, True, False]
    assert (waiting[0].cancelled(), waiting[1].cancelled()) == (True, False)
    assert (slots.taken, len(slots.waiting)) == (1, 1)
    slots.give_back()
    await asyncio.wait(waiting[2:], timeout=1)
    slots.give_back()
    assert (slots.taken, slots.waiting) == (0, [])


@pytest.mark.guarantee("CAP-10")
async def test_whoever_is_refused_is_failed_each_with_an_error_of_its_own_and_keeps_no_slot() -> None:
    slots = Slots(1)
    await slots.take()
    waiting = [asyncio.ensure_future(slots.take()) for _ in range(2)]
    await everyone_blocked()

    slots.refuse_waiting(OSError)
    errors = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(each) for each in errors] == [OSError] * 2
    assert errors[0] is not errors[1]
    assert (slots.taken, slots.waiting) == (1, [])


@pytest.mark.guarantee("CAP-10")
async def test_on_its_own_loop_a_future_is_failed_at_once() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    error = OSError("mine")

    fail(future, error)
    fail(future, OSError("too late"))

    assert future.exception() is error


@pytest.mark.guarantee("CAP-10")
@pytest.mark.parametrize("is_inside_a_loop", [False, True])
def test_on_another_loop_a_future_is_failed_by_that_loop(is_inside_a_loop: bool) -> None:
    home = asyncio.new_event_loop()
    future: asyncio.Future[None] = home.create_future()
    error = OSError("mine")

    async def fail_from_here() -> None:
        fail(future, error)

    if is_inside_a_loop:
        asyncio.run(fail_from_here())
    else:
        fail(future, error)
    early = future.done()
    home.run_until_complete(everyone_blocked())

    assert not early
    assert future.exception() is error
    home.close()


@pytest.mark.guarantee("CAP-10")
def test_on_another_loop_a_future_that_is_done_by_then_stays_as_it_is() -> None:
    home = asyncio.new_event_loop()
    complaints: list[object] = []
    home.set_exception_handler(lambda _, context: complaints.append(context))
    future: asyncio.Future[str] = home.create_future()

    fail(future, OSError("too late"))
    future.set_result("answer")
    home.run_until_complete(everyone_blocked())

    assert future.result() == "answer"
    assert complaints == []
    home.close()


@pytest.mark.guarantee("CAP-10")
def test_a_future_whose_loop_is_gone_is_left_alone() -> None:
    gone = asyncio.new_event_loop()
    future: asyncio.Future[None] = gone.create_future()
    gone.close()

    fail(future, OSError("nobody hears it"))

    assert not future.done()
