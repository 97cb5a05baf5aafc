"""Requests: one future per question that waits for its answer, and none that outlives the asking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._model.numbers import check_seconds
from lastbus._owners.source import ended
from lastbus._tasks import spawn

Answer = TypeVar("Answer")

REQUEST_TIMEOUT_SECONDS: Final = 30.0


class RequestClosedError(RuntimeError):
    """The API was closed: before the request was sent, or before its answer came."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        super().__init__(f"request {request_id!r} has no answer: the API is closed")


class RequestApi(Generic[Answer]):
    """Sends requests with `send(request_id)` and hands each answer, given to `resolve`, to the caller that waits."""

    def __init__(self, send: Callable[[str], Awaitable[object]], *, clock: Clock | None = None) -> None:
        self._send = send
        self._clock = SYSTEM_CLOCK if clock is None else clock
        self._pending: dict[str, asyncio.Future[Answer]] = {}
        self._sending: dict[asyncio.Task[Any], str] = {}
        self._closed = False

    @property
    def pending(self) -> tuple[str, ...]:
        """The ids of the requests that wait for their answer."""
        return tuple(self._pending)

    async def request(self, request_id: str, timeout: float = REQUEST_TIMEOUT_SECONDS) -> Answer:
        """Send a request and return its answer.

        The built-in `TimeoutError` after `timeout` seconds, sending included; `RequestClosedError` once the API is
        closed; `ValueError` for an id that is waiting already; what `send` raises. Nothing of it is left afterwards.

        Keeps: CAP-22.
        """
        limit = check_seconds("timeout", timeout)
        if self._closed:
            raise RequestClosedError(request_id)
        if request_id in self._pending:
            raise ValueError(f"request {request_id!r} is waiting for its answer already; ids are unique while pending")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(limit, lambda: _fail(answer, TimeoutError(_late(request_id, limit))))
        self._pending[request_id] = answer
        try:
            self._start_sending(request_id, answer)
            return await answer
        finally:
            timer.cancel()
            self._stop_sending(request_id)
            del self._pending[request_id]

    def resolve(self, request_id: str, answer: Answer) -> bool:
        """Hand over an answer; False if nobody waits for it any more."""
        waiting = self._pending.get(request_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True

    async def aclose(self) -> None:
        """Fail every pending request by name, refuse further ones, and return when nothing is being sent any more.

        Harmless when called again.

        Keeps: CAP-18, CAP-22.
        """
        self._closed = True
        for request_id, answer in tuple(self._pending.items()):
            _fail(answer, RequestClosedError(request_id))
        for sending in tuple(self._sending):
            sending.cancel()
            await ended(sending)

    def _start_sending(self, request_id: str, answer: asyncio.Future[Answer]) -> None:
        async def ask() -> None:
            await self._send(request_id)  # In a coroutine, a StopIteration becomes what a future can carry.

        async def send() -> None:
            try:
                await ask()
            except Exception as error:  # The caller that waits for the answer gets it.
                _fail(answer, error)

        name = f"lastbus request {request_id}"
        spawn(send(), name=name, owner=self._sending, label=request_id, on_done=self._sending.pop)

    def _stop_sending(self, request_id: str) -> None:
        for sending, label in self._sending.items():
            if label == request_id:
                sending.cancel()


def _fail(answer: asyncio.Future[Answer], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # The caller may be cancelled in this turn: then nobody looks at it, and nobody has to.


def _late(request_id: str, timeout: float) -> str:
    return f"request {request_id!r} had no answer within {timeout:g} s"
