"""Requests: a future each, and none that outlives the asking."""

from __future__ import annotations

import asyncio

import pytest

from lastbus.owners import RequestApi, RequestClosedError
from lastbus.testing import ManualClock, everyone_blocked


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


@pytest.mark.guarantee("CAP-22")
async def test_an_answer_reaches_the_request_it_belongs_to(api: RequestApi[int], line: Line) -> None:
    first, second = (asyncio.ensure_future(api.request(name)) for name in ("one", "two"))
    await everyone_blocked()

    assert (api.resolve("two", 2), api.resolve("one", 1)) == (True, True)

    assert (await first, await second) == (1, 2)
    assert line.sent == ["one", "two"]
    assert api.pending == ()


@pytest.mark.guarantee("CAP-22")
async def test_a_request_without_an_answer_is_the_builtin_timeout_and_leaves_nothing(
    api: RequestApi[int], clock: ManualClock
) -> None:
    asking = asyncio.ensure_future(api.request("one", timeout=5))
    await everyone_blocked()

    clock.advance(5)
    await asyncio.wait({asking}, timeout=1)

    assert type(asking.exception()) is TimeoutError
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

    with pytest.raises(ConnectionError, match="cut"):
        await api.request("one")
    assert api.pending == ()


@pytest.mark.guarantee("CAP-22")
async def test_closing_fails_pending_requests_by_name_and_refuses_further_ones(api: RequestApi[int]) -> None:
    asking = asyncio.ensure_future(api.request("one"))
    await everyone_blocked()

    await api.aclose()
    await api.aclose()
    await asyncio.wait({asking}, timeout=1)

    assert asking.done()
    with pytest.raises(RequestClosedError, match="'one'"):
        await asking
    with pytest.raises(RequestClosedError, match="'two'"):
        await api.request("two")
    assert api.pending == ()


@pytest.mark.guarantee("CAP-18")
async def test_closing_stops_a_send_that_is_stuck_and_waits_for_its_end(api: RequestApi[int], line: Line) -> None:
    line.is_free.clear()
    asking = asyncio.ensure_future(api.request("one"))
    await everyone_blocked()

    await api.aclose()

    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "lastbus request one"] == []
    assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], RequestClosedError)


@pytest.mark.guarantee("CAP-22")
async def test_an_id_is_unique_while_it_is_pending(api: RequestApi[int]) -> None:
    asking = asyncio.ensure_future(api.request("one"))
    await everyone_blocked()

    with pytest.raises(ValueError, match="'one' is waiting"):
        await api.request("one")

    api.resolve("one", 7)
    assert await asking == 7
