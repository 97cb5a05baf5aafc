"""Held: waiting for a future that a callback of the close holds somehow."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from .shape import Closing, a_future, patiently, shape, wake


@shape()
async def through_a_built_in_method(closing: Closing) -> None:
    """a future's own method"""
    waiter = a_future()
    closing.add_done_callback(waiter.set_result)
    await waiter


@shape()
async def through_a_method(closing: Closing) -> None:
    """a method of a subclass of Future"""

    class Signal(asyncio.Future[Any]):
        def fire(self, _: object) -> None:
            self.set_result(None)

    signal = Signal()
    closing.add_done_callback(signal.fire)
    await signal


@shape()
async def through_a_method_that_is_a_closure(closing: Closing) -> None:
    """a method that is a closure"""
    waiter = a_future()

    class Opener:
        __slots__ = ()

        def open(self, _: object) -> None:
            wake(waiter)

    closing.add_done_callback(Opener().open)
    await waiter


@shape()
async def through_a_partial(closing: Closing) -> None:
    """a partial's argument"""
    waiter = a_future()
    closing.add_done_callback(functools.partial(wake, waiter))
    await waiter


@shape()
async def through_a_keyword(closing: Closing) -> None:
    """a partial's keyword"""
    waiter = a_future()
    closing.add_done_callback(functools.partial(lambda _, to_wake: wake(to_wake), to_wake=waiter))
    await waiter


@shape()
async def through_the_function_of_a_partial(closing: Closing) -> None:
    """a partial's function"""
    waiter = a_future()
    closing.add_done_callback(functools.partial(lambda _, __: wake(waiter), None))
    await waiter


@shape()
async def through_a_closure(closing: Closing) -> None:
    """a closure"""
    waiter = a_future()
    closing.add_done_callback(lambda _: wake(waiter))
    await waiter


@shape()
async def through_closures(closing: Closing) -> None:
    """a closure in a closure"""
    waiter = a_future()

    def inner() -> None:
        wake(waiter)

    closing.add_done_callback(lambda _: inner())
    await waiter


def nested(waiter: asyncio.Future[Any], depth: int) -> Callable[[Any], None]:
    """`depth` partials, each the argument of the next; calling the outermost wakes `waiter`."""

    def call(inner: Callable[[Any], None], result: Any) -> None:
        inner(result)

    callback: Callable[[Any], None] = functools.partial(wake, waiter)
    for _ in range(depth - 1):
        callback = functools.partial(call, callback)
    return callback


@shape()
async def through_nested_partials(closing: Closing) -> None:
    """64 partials in each other"""
    waiter = a_future()
    closing.add_done_callback(nested(waiter, 64))
    await waiter


@shape("incomplete", "incomplete")
async def through_too_many_partials(closing: Closing) -> None:
    """more than 64 partials in each other"""
    waiter = a_future()
    closing.add_done_callback(nested(waiter, 66))
    await waiter


class Gate:
    """A stranger: something that can be awaited, and keeps a future to itself."""

    def __init__(self, waiter: asyncio.Future[Any]) -> None:
        self._waiter = waiter

    def open(self, _: object = None) -> None:
        """Let whoever awaits the gate go on."""
        wake(self._waiter)

    def __await__(self) -> Any:
        return self._waiter.__await__()


@shape("incomplete", "incomplete")
async def through_a_stranger(closing: Closing) -> None:
    """a stranger that holds a future"""
    gate = Gate(a_future())
    closing.add_done_callback(gate.open)
    await gate


@shape("incomplete", "incomplete")
async def through_a_stranger_with_a_queue(closing: Closing) -> None:
    """a stranger that holds a queue"""

    class Inbox:
        def __init__(self) -> None:
            self.queue: asyncio.Queue[Any] = asyncio.Queue()

        def put(self, item: object) -> None:
            self.queue.put_nowait(item)

    inbox = Inbox()
    closing.add_done_callback(inbox.put)
    await inbox.queue.get()


@shape("clean", "clean")
async def beside_an_unarmed_stranger(closing: Closing) -> None:
    """a stranger that nobody waits for"""

    class Idle:
        def __init__(self) -> None:
            self.finished = a_future()
            self.finished.set_result(None)
            self.queue: asyncio.Queue[Any] = asyncio.Queue()
            self.event = asyncio.Event()
            self.pending = [a_future()]

        def note(self, _: object) -> None:
            """Wakes nobody."""

    idle = Idle()
    closing.add_done_callback(idle.note)
    await patiently(closing)
    assert idle.finished.done()
    assert not idle.pending[0].done()
    assert idle.queue.empty()
    assert not idle.event.is_set()


@shape("incomplete", "incomplete")
async def beside_a_stranger_that_raises(closing: Closing) -> None:
    """a stranger whose attributes raise"""

    class Touchy:
        def __getattribute__(self, name: str) -> Any:
            raise ValueError(name)

        def __call__(self, _: object) -> None:
            """Wakes nobody."""

    touchy = Touchy()
    closing.add_done_callback(touchy)
    await patiently(closing)
    try:
        vars(touchy)
    except ValueError:
        return
    raise AssertionError("its attributes can be read")
