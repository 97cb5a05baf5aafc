"""Unseen: waiting in ways that the guard does not see; declared, and bounded by the drain all the same."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

from .held import Gate
from .shape import Closing, a_future, patiently, shape, wake


@shape("clean", "clean")
async def through_two_strangers(closing: Closing) -> None:
    """a stranger in a stranger"""

    class Outer:
        def __init__(self, gate: Gate) -> None:
            self.gate = gate

        def open(self, _: object) -> None:
            self.gate.open()

    gate = Gate(a_future())
    closing.add_done_callback(Outer(gate).open)
    await gate


@shape("clean", "clean")
async def through_slots(closing: Closing) -> None:
    """a stranger with slots"""

    class Slotted:
        __slots__ = ("waiter",)

        def __init__(self, waiter: asyncio.Future[Any]) -> None:
            self.waiter = waiter

        def open(self, _: object) -> None:
            wake(self.waiter)

    waiter = a_future()
    closing.add_done_callback(Slotted(waiter).open)
    await waiter


@shape("clean", "clean")
async def through_a_list(closing: Closing) -> None:
    """a list in a closure"""
    waiters = [a_future()]
    closing.add_done_callback(lambda _: wake(waiters[0]))
    await waiters[0]


@shape("clean", "clean")
async def through_a_default(closing: Closing) -> None:
    """a default argument"""
    waiter = a_future()

    def open_it(_: object, to_wake: asyncio.Future[Any] = waiter) -> None:
        wake(to_wake)

    closing.add_done_callback(open_it)
    await waiter


@shape("clean", "clean")
async def through_a_concurrent_future(closing: Closing) -> None:
    """a future of a thread"""
    across: concurrent.futures.Future[None] = concurrent.futures.Future()
    closing.add_done_callback(lambda _: across.set_result(None))
    await asyncio.wrap_future(across)


@shape("clean", "clean")
async def too_late(closing: Closing) -> None:
    """a wait that begins later"""
    await patiently(closing)
    await closing
