"""Words: what a close says, in full: what happened, to what, and the way out."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from lastbus import CloseError, CloseTimeout
from lastbus._close.state import CloseState
from lastbus.testing import everyone_blocked
from tests.close.rig import Outcome, Rig, closed, factory
from tests.close.test_drain import SOON, Deaf

pytestmark = pytest.mark.usefixtures("hygiene")

RETURNED = Outcome("returned")


def text_of(error: BaseException | None) -> str:
    """The text of a close error without its kind, of which other tests speak."""
    assert isinstance(error, CloseError)
    return str(error).removeprefix(f"error_kind={error.kind}: ")


async def refused(rig: Rig) -> CloseError:
    """The error of `rig.close()`."""
    closing = asyncio.ensure_future(rig.close())
    await asyncio.wait({closing}, timeout=2)
    error = closing.done() and closing.exception()
    assert isinstance(error, CloseError)
    return error


async def other() -> None:
    await asyncio.sleep(0)


def no_task(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
    raise OSError("no task today")


def another_task(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
    return asyncio.Task(other(), loop=loop)


class Liar(asyncio.Task):  # type: ignore[type-arg]
    """A task that says of itself what it likes."""

    def done(self) -> bool:
        return True


@pytest.mark.guarantee("CLOSE-32")
def test_without_a_loop_the_way_out_is_a_loop() -> None:
    with pytest.raises(CloseError) as caught:
        Rig().request_close()

    assert text_of(caught.value) == "call it inside a running event loop"
    assert caught.value.__suppress_context__


async def test_a_credential_that_was_replaced_is_said_to_be() -> None:
    rig = Rig()
    rig._close_future = "a stranger"  # type: ignore[assignment]

    assert text_of(await refused(rig)) == "something else was put where the close's future belongs"


@pytest.mark.guarantee("CLOSE-36")
async def test_a_close_that_has_not_begun_may_be_called_again() -> None:
    with factory(no_task):
        error = await refused(Rig())

    assert text_of(error) == "the loop made no task; close() may be called again"
    assert repr(error.__cause__) == "OSError('no task today')"


@pytest.mark.guarantee("CLOSE-55")
async def test_a_task_that_cannot_be_relied_on_is_refused_for_what_it_is() -> None:
    with factory(lambda loop, coro: Liar(coro, loop=loop)):
        error = await refused(Rig())

    assert text_of(error) == "the loop's task factory made an unusable task"
    assert str(error.__cause__) == "error_kind=teardown-hostile-task-methods"


@pytest.mark.guarantee("CLOSE-43")
async def test_a_teardown_that_never_ran_may_be_asked_for_again() -> None:
    with factory(another_task):
        error = await refused(Rig())

    assert text_of(error) == "the loop never ran the teardown; call close() again"


@pytest.mark.guarantee("CLOSE-28")
async def test_a_teardown_that_broke_names_the_error_that_broke_it() -> None:
    rig = Rig()
    rig.components["redis"].error = asyncio.CancelledError()

    error = await refused(rig)

    assert text_of(error) == "CancelledError in the teardown; call close() again to retry"


@pytest.mark.parametrize(
    ("kind", "step"), [("handler", "running handlers"), ("listener", "listeners and cancelled handlers"), ("redis", "")]
)
async def test_a_deadline_names_what_is_still_out(kind: str, step: str) -> None:
    rig, deaf = Rig(close_timeout=30), Deaf()
    if kind == "redis":
        rig.components["redis"].may_end = deaf.may_end
    else:
        rig.run("event", deaf.may_end.wait) if kind == "handler" else rig.listen(deaf)
    future = rig.request_close()
    await everyone_blocked()

    with pytest.raises(CloseTimeout) as caught:
        await rig.close(timeout=0)

    deaf.may_end.set()
    step = step or "the release of redis"
    assert text_of(caught.value).startswith(f"still out after 0 s: {step}; ")
    await asyncio.wait({future}, timeout=2)
    assert rig._outstanding_step == "nothing"


async def test_a_deadline_before_the_first_step_says_that_the_start_is_out() -> None:
    rig, may_end = Rig(), asyncio.Event()
    with factory(lambda loop, coro: asyncio.Task(may_end.wait(), loop=loop)):
        future = rig.request_close()

    with pytest.raises(CloseTimeout) as caught:
        await rig.close(timeout=0)

    may_end.set()
    assert text_of(caught.value).startswith("still out after 0 s: the start of the teardown; ")
    await asyncio.wait({future}, timeout=2)
    assert await closed(rig) == RETURNED


@pytest.mark.guarantee("CLOSE-13")
@pytest.mark.parametrize(("on_overdue", "verb"), [("release", "left to finish and recorded"), ("cancel", "cancelled")])
async def test_a_handler_that_is_overdue_is_named_with_its_event_the_bound_and_what_becomes_of_it(
    on_overdue: Any, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig, deaf = Rig(close_timeout=SOON, on_overdue=on_overdue), Deaf()
    rig.run("event-1", deaf)
    await everyone_blocked()

    outcome = await closed(rig)

    deaf.may_end.set()
    assert outcome == RETURNED
    told = [f"close: event event-1 in handler handler is not done after {SOON:g} s; {verb}"]
    if on_overdue == "cancel":
        told.append(f"close: ('event-1', 'handler') ignores its cancellation for {SOON:g} s and is left behind")
    assert caplog.messages == told


@pytest.mark.guarantee("CLOSE-13", "CLOSE-35")
async def test_what_is_overdue_is_named_once_though_something_was_stranded_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig, deaf, gone = Rig(close_timeout=SOON), Deaf(), asyncio.new_event_loop()
    rig._pending_tasks[gone.create_future()] = ("event-1", "handler-1")
    gone.close()
    rig.run("event-2", deaf)
    await everyone_blocked()

    outcome = await closed(rig)

    deaf.may_end.set()
    assert outcome == RETURNED
    late = f"is not done after {SOON:g} s; left to finish and recorded"
    assert caplog.messages == [
        f"close: event event-1 in handler handler-1 {late}",
        f"close: event event-2 in handler handler {late}",
    ]


@pytest.mark.guarantee("CLOSE-14")
async def test_a_listener_that_is_left_behind_is_named_with_the_bound(caplog: pytest.LogCaptureFixture) -> None:
    rig, deaf = Rig(close_timeout=SOON), Deaf()
    listener = rig.listen(deaf)
    await everyone_blocked()

    outcome = await closed(rig)

    deaf.may_end.set()
    assert outcome == RETURNED
    [told] = caplog.records
    assert told.args == (listener, SOON)
    assert told.msg == "close: %s ignores its cancellation for %g s and is left behind"


@pytest.mark.guarantee("CLOSE-42")
async def test_whoever_could_not_be_told_of_the_close_is_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()

    def deny() -> None:
        raise OSError("deny")

    rig._on_round_bound = deny  # type: ignore[method-assign]

    assert await closed(rig) == RETURNED

    [told] = caplog.records
    assert (told.name, told.levelname) == ("lastbus.close", "WARNING")
    assert told.getMessage() == "close: whoever waits on the bus could not be told"
    assert caplog.text.endswith("OSError: deny\n")


@pytest.mark.guarantee("CLOSE-75")
async def test_an_end_that_cannot_be_recorded_is_in_the_log_of_whoever_looks_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()

    def deny(task: asyncio.Task[None]) -> None:
        raise OSError("deny")

    rig._on_teardown_done = deny  # type: ignore[method-assign]
    caplog.set_level(logging.DEBUG, "lastbus.close")

    assert await closed(rig) == RETURNED
    await everyone_blocked()

    [told] = caplog.records
    assert (told.levelname, told.getMessage()) == ("DEBUG", "the end of a teardown could not be recorded")
    assert caplog.text.endswith("OSError: deny\n")


@pytest.mark.guarantee("CLOSE-72")
async def test_a_decoy_that_is_no_future_is_in_the_log_of_whoever_looks_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        rig._close_future = "no future"  # type: ignore[assignment]
        return asyncio.Task(coro, loop=loop)

    caplog.set_level(logging.DEBUG, "lastbus.close")
    with factory(make):
        rig.request_close()
    await everyone_blocked()

    [told] = caplog.records
    assert told.levelname == "DEBUG"
    assert told.getMessage() == "something that is no future stood where the close's future belongs"
    assert "TypeError: " in caplog.text


@pytest.mark.guarantee("CLOSE-87")
async def test_a_close_that_somebody_else_settled_is_told_in_words(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()

    def make(loop: asyncio.AbstractEventLoop, coro: Any) -> Any:
        assert rig._close_future is not None
        rig._close_future.set_result(None)
        return another_task(loop, coro)

    with factory(make):
        rig.request_close()
    await everyone_blocked()

    assert caplog.messages == ["teardown-settlement-tampered: a close was reported as done although no teardown ran"]


def test_an_unknown_treatment_of_late_handlers_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"^on_overdue must be 'release' or 'cancel', got 'shoot'$"):
        CloseState(on_overdue="shoot")  # type: ignore[arg-type]
