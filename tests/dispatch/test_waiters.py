"""Waiters: who waits for which type, and that nothing of them is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus import Event
from lastbus._dispatch.waiters import Waiters, check_condition
from lastbus.testing import everyone_blocked

pytestmark = pytest.mark.usefixtures("hygiene")


@pytest.mark.guarantee("CORE-28")
async def test_waiters_are_counted_over_all_types_and_forgotten_one_by_one() -> None:
    waiters = Waiters()
    first, second, other = waiters.add("t", None), waiters.add("t", None), waiters.add("u", None)

    assert (len(waiters), list(waiters)) == (3, [first, second, other])

    waiters.discard("t", first)
    waiters.discard("t", first)
    assert list(waiters) == [second, other]

    waiters.discard("t", second)
    waiters.discard("t", second)
    waiters.discard("u", other)
    assert (len(waiters), list(waiters)) == (0, [])


@pytest.mark.guarantee("CORE-27")
async def test_an_event_is_offered_to_the_one_who_still_waits_and_wants_it() -> None:
    waiters, event = Waiters(), Event("t", {"n": 1})
    asked: list[Event] = []

    def never(event: Event) -> bool:
        asked.append(event)
        return False

    wants, refuses, gone, answered = (waiters.add("t", condition) for condition in (None, never, None, never))
    waiters.discard("t", gone)
    answered.set_result(Event("t", {"n": 0}))

    for future in (wants, refuses, gone, answered):
        waiters.offer(event, future)
    waiters.offer(Event("u"), refuses)
    waiters.resolve(Event("u"))

    assert wants.result() == event
    assert (refuses.done(), gone.done()) == (False, False)
    assert answered.result().data == {"n": 0}
    assert asked == [event]


@pytest.mark.guarantee("CORE-53")
@pytest.mark.parametrize("comes_first", [False, True])
def test_on_another_loop_a_waiter_gets_its_event_unless_it_was_done_by_then(comes_first: bool) -> None:
    waiters, event = Waiters(), Event("t")
    home = asyncio.new_event_loop()

    async def add() -> asyncio.Future[Event]:
        return waiters.add("t", None)

    async def resolve() -> None:
        waiters.resolve(event)

    future = home.run_until_complete(add())
    complaints: list[object] = []
    home.set_exception_handler(lambda _, context: complaints.append(context))
    asyncio.run(resolve())
    early = future.done()
    if comes_first:
        future.cancel()
    home.run_until_complete(everyone_blocked())

    assert (early, future.cancelled(), complaints) == (False, comes_first, [])
    assert comes_first or future.result() == event
    home.close()


@pytest.mark.guarantee("CAP-10")
async def test_every_waiter_is_refused_with_an_error_of_its_own() -> None:
    waiters = Waiters()
    futures = [waiters.add(event_type, None) for event_type in ("t", "t", "u")]

    waiters.refuse_all(OSError)

    errors = [future.exception() for future in futures]
    assert [type(error) for error in errors] == [OSError] * 3
    assert len({id(error) for error in errors}) == 3


@pytest.mark.guarantee("CORE-27")
async def test_an_interrupt_in_a_condition_is_nobodys_answer() -> None:
    waiters = Waiters()

    def interrupt(event: Event) -> bool:
        raise KeyboardInterrupt

    future = waiters.add("t", interrupt)

    with pytest.raises(KeyboardInterrupt):
        waiters.resolve(Event("t"))
    assert not future.done()


async def is_async(event: Any) -> bool:
    return True


@pytest.mark.guarantee("CORE-27")
@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("yes", "condition must be callable or None, got 'yes'"),
        (is_async, f"condition must be a plain function, not an async one, got {is_async!r:.80}"),
    ],
    ids=["text", "async"],
)
def test_a_condition_that_cannot_be_asked_is_named_with_what_was_given(condition: object, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        check_condition(condition)

    assert str(caught.value) == text


@pytest.mark.guarantee("CORE-27")
def test_no_condition_and_a_plain_one_can_be_asked() -> None:
    check_condition(None)
    check_condition(lambda event: True)
