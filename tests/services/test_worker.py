"""The flow worker: executions go on once, by their own answer, and nothing that fails on the way is forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest

from lastbus import BaseBus, EventSubscription
from lastbus.memory import InMemoryEventBus
from lastbus.services import (
    EventNode,
    ExecutionContext,
    Flow,
    FlowExecutionException,
    FlowTask,
    FlowWorker,
    Step,
    start_flow,
)
from lastbus.testing import Gate, ManualClock, everyone_blocked
from tests.contract.waiting import until
from tests.services.mortal import Mortal
from tests.services.shop import Control, ListQueue, Shop


async def answer(shop: Shop, subscription_id: str | None, execution_id: str, **data: Any) -> None:
    """Queue the resumption of an execution by an approval."""
    about = {"subscription_id": subscription_id, "event_id": "event 1", "event_data": {"by": "Ada"}, **data}
    await shop.queue.enqueue(
        FlowTask(type="resume", flow_id="purchase", execution_id=execution_id, resume_type="event", data=about)
    )


async def held_at(step: Gate, action: Callable[[Any], Any], shop: Shop) -> FlowWorker:
    """A worker that has taken up an execution and is held at its one step."""
    shop.flow = Flow("purchase", [Step("order", action)])
    shop.queue = ListQueue()
    await start_flow(shop.queue, "purchase", execution_id="e1")
    worker = shop.worker()
    await worker.start()
    await step.has_entered()
    return worker


@pytest.mark.guarantee("FLOW-03")
async def test_a_suspended_execution_rests_with_its_one_subscription(shop: Shop) -> None:
    state = await shop.suspend("e1")

    stored = await shop.bus.subscription_storage.list_subscriptions(correlation_id="e1")
    assert [each.subscription_id for each in stored] == [state.subscription_id]
    assert (state.node_id, state.results) == ("approval", {"order": {"ordered": "lamp"}})


async def test_where_an_execution_rests_is_logged_with_its_flow(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lastbus.services")

    await shop.suspend("e1")

    assert "execution e1 of flow purchase is suspended" in [record.getMessage() for record in caplog.records]


@pytest.mark.guarantee("FLOW-20")
async def test_an_answer_resumes_and_ends_the_subscription(shop: Shop) -> None:
    waiting = await shop.suspend("e1")

    await answer(shop, waiting.subscription_id, "e1")
    await shop.work()

    state = await shop.state("e1")
    assert (state.status, state.results["ship"]) == ("completed", "shipped lamp, approved by Ada")
    assert (state.node_id, state.subscription_id) == (None, None)
    assert await shop.bus.subscription_storage.list_subscriptions() == []
    assert await shop.tasks() == []


@pytest.mark.guarantee("FLOW-20")
async def test_an_answer_that_comes_again_changes_nothing(shop: Shop) -> None:
    waiting = await shop.suspend("e1")

    for _ in range(2):
        await answer(shop, waiting.subscription_id, "e1")
        await shop.work()

    assert shop.ran == [("order", "e1"), ("ship", "e1")]
    assert await shop.tasks() == []


@pytest.mark.guarantee("FLOW-20")
async def test_a_start_that_comes_again_changes_nothing(shop: Shop) -> None:
    waiting = await shop.suspend("e1")

    await start_flow(shop.queue, "purchase", {"item": "chair"}, "e1")
    await shop.work()

    assert await shop.state("e1") == waiting
    assert shop.ran == [("order", "e1")]


@pytest.mark.guarantee("FLOW-20")
async def test_an_answer_to_a_suspension_that_is_not_stored_yet_stays_in_the_queue(shop: Shop) -> None:
    await answer(shop, "recorded a moment ago", "e1")
    await shop.work()
    await shop.suspend("e2")
    await answer(shop, "recorded a moment ago", "e2")
    await shop.work()

    assert len(await shop.tasks()) == 2
    assert (await shop.state("e2")).status == "suspended"


@pytest.mark.guarantee("FLOW-20")
async def test_an_event_answers_one_wait_of_an_execution_only(
    bus: BaseBus, control: Control, clock: ManualClock
) -> None:
    shop = Shop(bus, control, clock)
    shop.flow = Flow("purchase", [EventNode("first", "approved"), EventNode("second", "approved")])
    first = await shop.suspend("e1")
    await answer(shop, first.subscription_id, "e1")
    await shop.work()

    second = await shop.state("e1")
    await answer(shop, second.subscription_id, "e1")
    await shop.work()
    assert await shop.state("e1") == second
    assert await shop.tasks() == []

    await answer(shop, second.subscription_id, "e1", event_id="event 2")
    await shop.work()
    assert (await shop.state("e1")).status == "completed"


@pytest.mark.guarantee("FLOW-19")
async def test_of_two_workers_that_start_the_same_execution_one_leaves_its_mark(shop: Shop) -> None:
    slow = shop.worker()

    async def order_while_another_worker_is_faster(context: Any) -> dict[str, Any]:
        if not shop.ran:
            shop.ran.append(("slow", context.execution_id))
            await start_flow(shop.queue, "purchase", {"item": "lamp"}, "e1")
            await shop.work()
        return {"ordered": "by the slow one"}

    fast_flow = shop.flow
    slow._flows["purchase"] = Flow(
        "purchase", [Step("order", order_while_another_worker_is_faster), *fast_flow.nodes[1:]]
    )
    await start_flow(shop.queue, "purchase", {"item": "lamp"}, "e1")
    await slow.work_once()

    state = await shop.state("e1")
    stored = await shop.bus.subscription_storage.list_subscriptions(correlation_id="e1")
    assert state.results == {"order": {"ordered": "lamp"}}
    assert [each.subscription_id for each in stored] == [state.subscription_id]


@pytest.mark.guarantee("FLOW-21")
async def test_a_failing_step_is_named_stores_nothing_and_is_delivered_again(
    shop: Shop, control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [ConnectionError("no stock"), None]

    def order(_: Any) -> str:
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        return "ordered"

    shop.flow = Flow("purchase", [Step("order", order)])
    shop.queue = control.queue(claim_idle_seconds=0)
    await start_flow(shop.queue, "purchase", execution_id="e1")

    assert await shop.worker().work_once()
    assert await shop.executions.load_execution("e1") is None
    [entry_id] = await shop.tasks()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", f"task {entry_id.decode()} of execution e1 failed at its delivery 1")
    ]

    await shop.work()
    assert (await shop.state("e1")).results == {"order": "ordered"}


@pytest.mark.guarantee("FLOW-21")
async def test_a_step_that_is_cancelled_by_its_own_doing_fails_and_ends_no_worker(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    async def order(_: Any) -> None:
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting

    shop.flow = Flow("purchase", [Step("order", order)])
    shop.queue = ListQueue()
    await start_flow(shop.queue, "purchase", execution_id="e1")
    await start_flow(shop.queue, "purchase", execution_id="e2")

    await shop.work()

    assert shop.queue.acked == []
    failures = [each for each in caplog.records if each.levelname == "ERROR"]
    assert [each.getMessage().split()[4] for each in failures] == ["e1", "e2"]
    reasons = [each.exc_info[1] for each in failures if each.exc_info is not None]
    assert [(type(each), str(each)) for each in reasons] == [
        (FlowExecutionException, f"execution {name}: a step was cancelled") for name in ("e1", "e2")
    ]


async def test_a_step_is_told_its_execution_and_flow_and_its_task_is_named_after_them(shop: Shop) -> None:
    told = []

    async def order(context: ExecutionContext) -> None:
        task = asyncio.current_task()
        assert task is not None
        told.append((context.execution_id, context.flow_id, task.get_name()))

    shop.flow = Flow("purchase", [Step("order", order)])
    shop.queue = ListQueue()
    await start_flow(shop.queue, "purchase", execution_id="e1")

    await shop.work()

    assert told == [("e1", "purchase", "lastbus task of execution e1")]


async def test_a_step_that_fails_as_its_worker_is_stopped_is_not_reported_by_asyncio(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    step = Gate()

    async def order(_: Any) -> None:
        try:
            await step.hold(shop.approval("e1"))
        finally:
            raise ConnectionError("no stock")

    worker = await held_at(step, order, shop)

    await worker.stop()
    gc.collect()

    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


async def test_a_worker_that_does_not_know_a_flow_says_which_it_knows(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    queue = ListQueue()
    await start_flow(queue, "purchase", execution_id="e1")
    known = [Flow(name, [Step("only", print)]) for name in ("sale", "return")]

    await FlowWorker(known, queue, shop.executions, clock=shop.clock).work_once()

    [failed] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert failed.exc_info is not None
    assert isinstance(failed.exc_info[1], FlowExecutionException)
    assert str(failed.exc_info[1]) == "execution e1: flow 'purchase' is not known here; known: sale, return"


async def test_a_worker_that_is_stopped_cancels_its_step_and_leaves_its_task(shop: Shop) -> None:
    step = Gate()
    worker = await held_at(step, lambda _: step.hold(shop.approval("e1")), shop)

    await worker.stop()

    assert len(step.cancelled) == 1
    assert shop.queue.acked == []
    assert not worker.is_running


async def test_a_worker_looks_for_tasks_five_times_a_second_unless_it_is_told_otherwise(shop: Shop) -> None:
    shop.queue = ListQueue()

    async with shop.worker():
        await until(lambda: bool(shop.clock.sleeps))

    assert shop.clock.sleeps == [0.2]


class KeptQueue(ListQueue):
    """A queue that notes how often its task was kept."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

    async def keep(self, entry_id: str) -> bool:
        self.kept.append(entry_id)
        return True


@pytest.mark.guarantee("FLOW-23")
async def test_a_worker_keeps_its_task_while_it_does_it_and_no_longer(shop: Shop) -> None:
    queue, step = KeptQueue(), Gate()
    shop.flow = Flow("purchase", [Step("order", lambda _: step.hold(shop.approval("e1")))])
    shop.queue = queue
    await start_flow(queue, "purchase", execution_id="e1")
    working = asyncio.ensure_future(shop.worker().work_once())
    await step.has_entered()

    for _ in range(3):
        await everyone_blocked()
        shop.clock.advance(20)
    await everyone_blocked()
    assert queue.kept == ["1", "1", "1"]

    step.open()
    await working
    shop.clock.advance(60)
    await everyone_blocked()
    assert (queue.kept, queue.acked) == (["1", "1", "1"], ["1"])


@pytest.mark.guarantee("FLOW-21")
@pytest.mark.parametrize("nodes", [["elsewhere"], []], ids=["node-gone", "flow-gone"])
async def test_a_task_of_a_flow_that_is_not_known_here_stays_in_the_queue(
    shop: Shop, nodes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    waiting = await shop.suspend("e1")
    shop.flow = Flow("purchase" if nodes else "another", [EventNode("elsewhere", "x")])

    await answer(shop, waiting.subscription_id, "e1")
    await shop.work()

    assert len(await shop.tasks()) == 1
    assert await shop.state("e1") == waiting
    [failed] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert failed.exc_info is not None
    reason = failed.exc_info[1]
    assert isinstance(reason, FlowExecutionException)
    assert reason.execution_id == "e1"
    assert ("has no node 'approval' any more" if nodes else "is not known here; known: another") in str(reason)


@pytest.mark.guarantee("FLOW-01")
async def test_an_execution_that_cannot_be_suspended_stays_in_the_queue(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    await start_flow(shop.queue, "purchase", {"item": "lamp"}, "e1")

    await shop.worker(event_bus=None).work_once()

    assert await shop.executions.load_execution("e1") is None
    assert len(await shop.tasks()) == 1
    assert "there is no bus" in caplog.text


@pytest.mark.guarantee("FLOW-20")
async def test_an_answer_to_an_execution_that_has_ended_ends_the_subscription(
    control: Control, clock: ManualClock
) -> None:
    shop = Shop(InMemoryEventBus(clock=clock), control, clock)
    shop.flow = Flow("purchase", [Step("only", lambda _: None)])
    await start_flow(shop.queue, "purchase", execution_id="e1")
    await shop.work()
    left_over = EventSubscription(event_type="approved", correlation_id="e1", flow_id="purchase")
    await shop.bus.subscription_storage.store_subscription(left_over)

    await answer(shop, left_over.subscription_id, "e1")
    await shop.work()

    assert await shop.bus.subscription_storage.list_subscriptions() == []
    assert await shop.tasks() == []
    await shop.bus.close()


# -- dying ------------------------------------------------------------------------------------------------------


def dying_worker(shop: Shop, calls: int) -> FlowWorker:
    """A worker whose process makes `calls` calls, and then dies."""
    left = [calls]
    bus: Any = Mortal(shop.bus, left)
    bus.subscription_storage = Mortal(shop.bus.subscription_storage, left)
    return FlowWorker([shop.flow], Mortal(shop.queue, left), Mortal(shop.executions, left), bus, clock=shop.clock)


@pytest.mark.guarantee("FLOW-21")
@pytest.mark.parametrize("calls", range(6))
@pytest.mark.parametrize("task", ["start", "answer"])
async def test_wherever_a_worker_dies_another_one_brings_the_execution_to_the_same_end(
    shop: Shop, control: Control, task: str, calls: int
) -> None:
    shop.queue = control.queue(claim_idle_seconds=0)
    if task == "start":
        await start_flow(shop.queue, "purchase", {"item": "lamp"}, "e1")
    else:
        await answer(shop, (await shop.suspend("e1")).subscription_id, "e1")
    with contextlib.suppress(ConnectionResetError):
        await dying_worker(shop, calls).work_once()

    await shop.work()
    if task == "start":
        await shop.filter().handle_event(shop.approval("e1"))
        await shop.work()

    state = await shop.state("e1")
    assert (state.status, state.results["ship"]) == ("completed", "shipped lamp, approved by Ada")
    assert await shop.tasks() == []
    assert {step for step, _ in shop.ran} == {"order", "ship"}
