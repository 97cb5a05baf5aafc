"""Built in: waiting with what asyncio offers for it."""

from __future__ import annotations

import asyncio
from typing import Any

from .shape import Closing, patiently, shape


@shape()
async def awaited(closing: Closing) -> None:
    """await task"""
    await closing


@shape()
async def awaited_through_a_task(closing: Closing) -> None:
    """await a task that awaits it"""
    await asyncio.ensure_future(awaited(closing))


@shape()
async def gathered(closing: Closing) -> None:
    """gather"""
    await asyncio.gather(closing, asyncio.sleep(0))


@shape()
async def shielded(closing: Closing) -> None:
    """shield"""
    await asyncio.shield(closing)


@shape()
async def waited(closing: Closing) -> None:
    """wait"""
    await asyncio.wait({closing})


@shape()
async def waited_for(closing: Closing) -> None:
    """wait_for"""
    await asyncio.wait_for(closing, 60)


@shape()
async def as_completed(closing: Closing) -> None:
    """as_completed"""
    for each in asyncio.as_completed([closing]):
        await each


@shape()
async def queue_getter(closing: Closing) -> None:
    """Queue, getter"""
    queue: asyncio.Queue[Any] = asyncio.Queue()
    closing.add_done_callback(queue.put_nowait)
    await queue.get()


@shape()
async def queue_putter(closing: Closing) -> None:
    """Queue, putter"""
    queue: asyncio.Queue[Any] = asyncio.Queue(1)
    queue.put_nowait(None)
    closing.add_done_callback(lambda _: queue.get_nowait())
    await queue.put(None)


@shape()
async def queue_subclass(closing: Closing) -> None:
    """PriorityQueue, a subclass"""
    queue: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()
    closing.add_done_callback(lambda _: queue.put_nowait(1))
    await queue.get()


@shape()
async def event(closing: Closing) -> None:
    """Event"""
    done = asyncio.Event()
    closing.add_done_callback(lambda _: done.set())
    await done.wait()


@shape()
async def condition(closing: Closing) -> None:
    """Condition"""
    changed = asyncio.Condition()
    telling: list[asyncio.Future[None]] = []

    async def tell() -> None:
        async with changed:
            changed.notify_all()

    closing.add_done_callback(lambda _: telling.append(asyncio.ensure_future(tell())))
    async with changed:
        await changed.wait()
    await telling[0]


@shape()
async def semaphore(closing: Closing) -> None:
    """Semaphore"""
    places = asyncio.Semaphore(0)
    closing.add_done_callback(lambda _: places.release())
    await places.acquire()


@shape()
async def lock(closing: Closing) -> None:
    """Lock"""
    held = asyncio.Lock()
    await held.acquire()
    closing.add_done_callback(lambda _: held.release())
    await held.acquire()


@shape()
async def stream_reader(closing: Closing) -> None:
    """StreamReader"""
    reader = asyncio.StreamReader()
    closing.add_done_callback(lambda _: reader.feed_eof())
    await reader.read()


@shape(since=(3, 11))
async def barrier(closing: Closing) -> None:
    """Barrier"""
    newest: Any = asyncio
    both = newest.Barrier(2)
    meeting: list[asyncio.Future[Any]] = []
    closing.add_done_callback(lambda _: meeting.append(asyncio.ensure_future(both.wait())))
    await both.wait()
    await meeting[0]


@shape(since=(3, 11))
async def task_group(closing: Closing) -> None:
    """TaskGroup, at its end"""
    newest: Any = asyncio
    async with newest.TaskGroup() as group:
        group.create_task(awaited(closing))


@shape(since=(3, 11))
async def nested_task_groups(closing: Closing) -> None:
    """TaskGroup in a TaskGroup"""
    newest: Any = asyncio
    async with newest.TaskGroup() as group:
        group.create_task(task_group(closing))


@shape("incomplete", "incomplete", since=(3, 11))
async def task_group_in_its_body(closing: Closing) -> None:
    """TaskGroup, in its body"""
    newest: Any = asyncio
    async with newest.TaskGroup() as group:
        group.create_task(awaited(closing))
        await patiently(closing)


@shape(since=(3, 11))
async def within_a_timeout(closing: Closing) -> None:
    """timeout()"""
    newest: Any = asyncio
    async with newest.timeout(60):
        await closing
