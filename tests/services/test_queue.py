"""The queue: a task is delivered until it is acknowledged, and what nobody can do is put aside."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

import pytest

from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.scripts import Script
from lastbus.redis import RedisStreamTaskQueue
from lastbus.services import DeadLetter, FlowTask
from tests.services.shop import Control

TASK = FlowTask(type="start", flow_id="f", execution_id="e", data={"n": [1, {"ü": None}]})


def task(number: int) -> FlowTask:
    return TASK.model_copy(update={"execution_id": str(number)})


async def entries(queue: RedisStreamTaskQueue) -> int:
    return int(await queue._connection.command("XLEN", queue._stream))


@pytest.mark.guarantee("FLOW-17")
async def test_a_task_is_taken_as_it_was_queued_in_order(control: Control) -> None:
    queue = control.queue()
    ids = [await queue.enqueue(each) for each in (TASK, task(2))]

    taken = [await queue.take(), await queue.take(), await queue.take()]

    assert taken == [(ids[0], TASK, 1), (ids[1], task(2), 1), None]


@pytest.mark.guarantee("FLOW-17")
async def test_a_task_that_was_queued_before_there_was_any_worker_is_delivered(control: Control) -> None:
    await control.queue().enqueue(TASK)

    assert await control.queue().take() is not None


@pytest.mark.guarantee("FLOW-17")
async def test_an_acknowledged_task_is_gone(control: Control) -> None:
    queue = control.queue(claim_idle_seconds=0)
    entry_id = await queue.enqueue(TASK)
    await queue.take()

    assert [await queue.ack(entry_id), await queue.ack(entry_id)] == [True, False]
    assert await queue.take() is None
    assert await entries(queue) == 0


@pytest.mark.guarantee("FLOW-17")
async def test_a_task_that_was_left_lying_comes_again_before_a_new_one(control: Control) -> None:
    first = await control.queue().enqueue(TASK)
    await control.queue().take()
    await control.queue().enqueue(task(2))

    again = await control.queue(claim_idle_seconds=0).take()

    assert again == (first, TASK, 2)


@pytest.mark.guarantee("FLOW-17")
async def test_a_task_in_somebodys_hands_is_left_there_for_its_time(control: Control) -> None:
    await control.queue().enqueue(TASK)
    await control.queue().take()

    assert await control.queue(claim_idle_seconds=60).take() is None


async def idle_ms(queue: RedisStreamTaskQueue, entry_id: str) -> int:
    """For how long nobody has spoken of a task, by the server's clock."""
    script = Script("return redis.call('XPENDING', KEYS[1], 'plaita-workers', ARGV[1], ARGV[1], 1)[1][3]")
    return int(await queue._connection.run(script, [queue._stream], entry_id))


@pytest.mark.guarantee("FLOW-23")
async def test_a_task_that_is_kept_begins_its_time_anew_and_is_not_counted_again(control: Control) -> None:
    queue = control.queue()
    entry_id = await queue.enqueue(TASK)
    await queue.take()
    while (before := await idle_ms(queue, entry_id)) < 20:
        pass

    # Without a new beginning it only grows; with one it is shorter, unless this test is stopped for as long each time.
    ages = [await idle_ms(queue, entry_id) for _ in range(20) if await queue.keep(entry_id)]

    assert min(ages) < before
    again = await control.queue(claim_idle_seconds=0).take()
    assert again == (entry_id, TASK, 2)


@pytest.mark.guarantee("FLOW-23")
async def test_a_task_in_other_hands_or_done_is_not_taken_back(control: Control) -> None:
    slow, quick = control.queue(), control.queue(claim_idle_seconds=0)
    entry_id = await slow.enqueue(TASK)
    await slow.take()
    await quick.take()

    kept = [await slow.keep(entry_id), await quick.keep(entry_id)]
    await quick.ack(entry_id)

    assert [*kept, await quick.keep(entry_id)] == [False, True, False]


def test_a_task_is_kept_three_times_in_its_time() -> None:
    assert RedisStreamTaskQueue("redis://localhost:6379/0", claim_idle_seconds=60).keep_seconds == 20


@pytest.mark.guarantee("FLOW-17")
async def test_many_workers_take_each_task_once(control: Control) -> None:
    queues = [control.queue() for _ in range(4)]
    for number in range(40):
        await queues[0].enqueue(task(number))

    async def take_all(queue: RedisStreamTaskQueue) -> list[str]:
        taken = []
        while (delivery := await queue.take()) is not None:
            taken.append(delivery.task.execution_id)
        return taken

    shares = await asyncio.gather(*map(take_all, queues))

    assert sorted(chain.from_iterable(shares)) == sorted(str(number) for number in range(40))


@pytest.mark.guarantee("FLOW-18")
async def test_a_task_that_was_delivered_too_often_is_put_aside(control: Control) -> None:
    queue = control.queue(claim_idle_seconds=0, max_deliveries=3)
    await queue.enqueue(TASK)

    times = [delivery.times for delivery in [await queue.take() for _ in range(4)] if delivery is not None]

    letters = await queue.dead_letters()
    assert times == [1, 2, 3]
    assert [(each.payload, each.reason, each.deliveries) for each in letters] == [
        (TASK.encode(), "delivered too often", 3)
    ]
    assert await entries(queue) == 0
    assert await queue.take() is None


@pytest.mark.guarantee("FLOW-18")
@pytest.mark.parametrize(
    "fields",
    [
        ("payload", "no json"),
        ("payload", "[]"),
        ("payload", '{"type":"start"}'),
        ("payload", '{"type":"resume","flow_id":"f","execution_id":"e","data":{}}'),
        ("other", "x"),
        ("payload", b"\xff"),
    ],
    ids=["no-json", "no-object", "half", "no-subscription", "no-payload", "no-text"],
)
async def test_what_is_no_task_is_put_aside_and_the_next_task_is_delivered(
    control: Control, fields: tuple[Any, Any]
) -> None:
    queue = control.queue()
    await queue._connection.command("XADD", queue._stream, "*", *fields)
    await queue.enqueue(TASK)

    delivery = await queue.take()

    assert delivery is not None
    assert delivery.task == TASK
    assert [(each.reason, each.deliveries) for each in await queue.dead_letters()] == [("not a task", 1)]


class CountingConnection(RedisConnection):
    """A connection that counts the scripts that it runs."""

    runs = 0

    async def run(self, *arguments: Any) -> Any:
        self.runs += 1
        return await super().run(*arguments)


@pytest.mark.guarantee("FLOW-18")
async def test_putting_aside_is_one_step(control: Control) -> None:
    connection = CountingConnection(client=control.server.client())
    queue = RedisStreamTaskQueue(
        stream_key=f"{control.server.prefix}queue", claim_idle_seconds=0, max_deliveries=1, connection=connection
    )
    for number in range(3):
        await queue.enqueue(task(number))
        await queue.take()
    connection.runs = 0

    taken = await queue.take()

    assert (taken, connection.runs) == (None, 1)
    assert len(await queue.dead_letters()) == 3
    await connection.aclose()


@pytest.mark.guarantee("FLOW-18")
async def test_dead_letters_are_listed_oldest_first_up_to_a_limit(control: Control) -> None:
    queue = control.queue(claim_idle_seconds=0, max_deliveries=1)
    for number in range(3):
        await queue.enqueue(task(number))
        await queue.take()
    await queue.take()

    letters: list[DeadLetter] = await queue.dead_letters(2)

    assert [FlowTask.decode(each.payload).execution_id for each in letters] == ["0", "1"]


async def test_a_task_that_was_trimmed_while_it_lay_is_passed_over(control: Control) -> None:
    queue = control.queue(claim_idle_seconds=0)
    await queue._connection.command("XDEL", queue._stream, await queue.enqueue(TASK))
    entry_id = await queue.enqueue(TASK)
    await queue.take()
    await queue._connection.command("XDEL", queue._stream, entry_id)

    assert [await queue.take(), await queue.take()] == [None, None]


@pytest.mark.parametrize(
    "options",
    [{"stream_key": ""}, {"max_deliveries": 0}, {"claim_idle_seconds": -1}, {"claim_idle_seconds": float("nan")}],
    ids=["no-name", "no-delivery", "negative", "nan"],
)
def test_a_queue_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        RedisStreamTaskQueue("redis://localhost:6379/0", **options)
