"""Requests: a future each, and none that outlives the asking."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus.owners import RequestApi, RequestClosedError
from lastbus.testing import ManualClock, everyone_blocked

pytestmark = pytest.mark.usefixtures("hygiene")


class Line:
    """What requests are sent on; it can be stuck or broken."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.is_free = asyncio.Event()
        self.is_free.set()
        self.error: Exception | None = None

    async def send(self, request_id: str) -> None:
        await self.is_free.wait()
        if self.error is not None:
            raise self.error
        self.sent.append(request_id)


@pytest.fixture
def line() -> Line:
    """A line that works."""
    return Line()


@pytest.fixture
def api(line: Line, clock: ManualClock) -> RequestApi[int]:
    """An API on that line, on the test's own time."""
    return RequestApi[int](line.send, clock=clock)


async def outcome(asking: asyncio.Future[int]) -> Any:
    """What became of a request: its answer or its error; None if it still waits, which it must not."""
    await asyncio.wait({asking}, timeout=1)
    if not asking.done():
        return None
    return (await asyncio.gather(asking, return_exceptions=True))[0]


def sends() -> list[str]:
    """The names of the tasks that are sending now."""
    return [name for name in (task.get_name() for task in asyncio.all_tasks()) if name.startswith("lastbus request")]


@pytest.mark.guarantee("CAP-22")
async def test_an_answer_reaches_the_request_it_belongs_to(api: RequestApi[int], line: Line) -> None:
    first, second = (asyncio.ensure_future(api.request(name)) for name in ("one", "two"))
    await everyone_blocked()

    assert (api.resolve("two", 2), api.resolve("one", 1)) == (True, True)

    assert (await outcome(first), await outcome(second)) == (1, 2)
    assert line.sent == ["one", "two"]
    assert api.pending == ()


@pytest.mark.guarantee("CAP-22")
async def test_a_request_without_an_answer_is_the_builtin_timeout_and_leaves_nothing(
    api: RequestApi[int], clock: ManualClock
) -> None:
    asking = asyncio.ensure_future(api.request("one", timeout=5))
    await everyone_blocked()

    clock.advance(5)
    error = await outcome(asking)

    assert type(error) is TimeoutError
    assert str(error) == "request 'one' had no answer within 5 s"
    assert api.pending == ()
    assert api.resolve("one", 1) is False
    assert clock.pending == 0


@pytest.mark.guarantee("CAP-22")
async def test_a_cancelled_request_is_forgotten(api: RequestApi[int], clock: ManualClock) -> None:
    asking = asyncio.ensure_future(api.request("one"))
    await everyone_blocked()

    asking.cancel()
    await asyncio.wait({asking}, timeout=1)

    assert asking.cancelled()
    assert (api.pending, clock.pending) == ((), 0)


@pytest.mark.guarantee("CAP-22")
async def test_the_deadline_covers_a_send_that_is_stuck(api: RequestApi[int], line: Line, clock: ManualClock) -> None:
    line.is_free.clear()
    asking = asyncio.ensure_future(api.request("one", timeout=5))
    await everyone_blocked()

    clock.advance(5)
    await asyncio.wait({asking}, timeout=1)
    line.is_free.set()
    await everyone_blocked()

    assert type(asking.exception()) is TimeoutError
    assert line.sent == []


@pytest.mark.guarantee("CAP-22")
async def test_what_send_raises_is_raised_by_the_request(api: RequestApi[int], line: Line) -> None:
    line.error = ConnectionError("cut")

    assert await outcome(asyncio.ensure_future(api.request("one"))) is line.error
    assert api.pending == ()


@pytest.mark.guarantee("CAP-22")
async def test_a_send_that_runs_out_of_an_iterator_fails_its_request_at_once(clock: ManualClock) -> None:
    def send(request_id: str) -> Any:
        return next(iter(()))

    error = await outcome(asyncio.ensure_future(RequestApi[int](send, clock=clock).request("one")))

    assert isinstance(error, RuntimeError)
    assert isinstance(error.__cause__, StopIteration)


@pytest.mark.guarantee("CAP-22")
async def test_a_request_cancelled_in_the_turn_of_its_deadline_leaves_no_error_that_nobody_saw(
    api: RequestApi[int], clock: ManualClock
) -> None:
    asking = asyncio.ensure_future(api.request("one", timeout=5))
    await everyone_blocked()

    clock.advance(5)
    asking.cancel()

    assert isinstance(await outcome(asking), asyncio.CancelledError)


@pytest.mark.guarantee("CAP-22")
async def test_a_timeout_that_is_no_duration_is_refused_by_its_name(api: RequestApi[int], line: Line) -> None:
    error = await outcome(asyncio.ensure_future(api.request("one", timeout=-1)))

    assert isinstance(error, ValueError)
    assert str(error).startswith("timeout must be")
    assert line.sent == []


@pytest.mark.guarantee("CAP-22")
async def test_without_a_clock_the_time_is_the_machines(line: Line) -> None:
    asking = asyncio.ensure_future(RequestApi[int](line.send).request("one", timeout=0))

    assert type(await outcome(asking)) is TimeoutError


@pytest.mark.guarantee("CAP-22")
async def test_closing_fails_pending_requests_by_name_and_refuses_further_ones(api: RequestApi[int]) -> None:
    asking = asyncio.ensure_future(api.request("one"))
    await everyone_blocked()

    await api.aclose()
    await api.aclose()
    errors = [await outcome(each) for each in (asking, asyncio.ensure_future(api.request("two")))]

    assert [type(each) for each in errors] == [RequestClosedError] * 2
    assert [each.request_id for each in errors] == ["one", "two"]
    assert str(errors[0]) == "request 'one' has no answer: the API is closed"
    assert api.pending == ()


@pytest.mark.guarantee("CAP-18")
async def test_closing_stops_a_send_that_is_stuck_and_waits_for_its_end(api: RequestApi[int], line: Line) -> None:
    line.is_free.clear()
    asking = asyncio.ensure_future(api.request("one"))
    await everyone_blocked()
    before = sends()

    await api.aclose()

    assert (before, sends()) == (["lastbus request one"], [])
    assert isinstance(await outcome(asking), RequestClosedError)


@pytest.mark.guarantee("CAP-22")
async def test_an_id_is_unique_while_it_is_pending(api: RequestApi[int]) -> None:
    asking = asyncio.ensure_future(api.request("one"))
    await everyone_blocked()

    error = await outcome(asyncio.ensure_future(api.request("one")))
    api.resolve("one", 7)

    assert isinstance(error, ValueError)
    assert str(error) == "request 'one' is waiting for its answer already; ids are unique while pending"
    assert await outcome(asking) == 7
