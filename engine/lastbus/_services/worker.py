"""Flow worker: takes tasks from a queue, and executes flows from one rest to the next.

A task is acknowledged when the state that it led to is stored. Until then it is delivered again, so the nodes between
two rests may be executed again: that is what "at least once" means here. Which task has led to which state is part of
the state, so that a task that comes again after that changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import uuid4

from lastbus._clock import Clock
from lastbus._errors import FlowExecutionException
from lastbus._model.execution import ExecutionState
from lastbus._model.task import FlowTask, start_task
from lastbus._ports.executions import ExecutionStorage
from lastbus._ports.queue import TaskQueue
from lastbus._services.bus import StoringBus
from lastbus._services.flow import ExecutionContext, Flow, Node
from lastbus._services.periodic import Periodic
from lastbus._services.strategy import DistributedStrategy
from lastbus._tasks import spawn

logger = logging.getLogger("lastbus.services")


async def start_flow(
    queue: TaskQueue, flow_id: str, data: dict[str, Any] | None = None, execution_id: str | None = None
) -> str:
    """Ask for an execution of a flow and return its id, which is the correlation of the events that resume it."""
    execution_id = str(uuid4()) if execution_id is None else execution_id
    await queue.enqueue(start_task(flow_id, execution_id, data or {}))
    return execution_id


class _Keeper(Periodic):
    """Says to the queue, while a task is done, that it is in good hands.

    Keeps: FLOW-23.
    """

    name = "keeper of a task"
    begins_with_a_round = False

    def __init__(self, queue: TaskQueue, entry_id: str, clock: Clock) -> None:
        super().__init__(queue.keep_seconds, clock)
        self._queue = queue
        self._entry_id = entry_id

    async def _round(self) -> None:
        await self._queue.keep(self._entry_id)


class FlowWorker(Periodic):
    """Between `start` and `stop`, does what `queue` asks for, looking for tasks every `poll_seconds`.

    Without `event_bus` no execution can be suspended. Stopping cancels a task in the middle; it is delivered again.
    """

    name = "flow worker"

    def __init__(
        self,
        flows: Iterable[Flow],
        queue: TaskQueue,
        executions: ExecutionStorage,
        event_bus: StoringBus | None = None,
        *,
        poll_seconds: float = 0.2,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(poll_seconds, clock)
        self.event_bus: Final = event_bus
        self._flows: Final = {flow.flow_id: flow for flow in flows}
        self._queue: Final = queue
        self._executions: Final = executions
        self._strategy: Final = DistributedStrategy()
        self._doing: Final[dict[asyncio.Task[Any], None]] = {}

    async def _round(self) -> None:
        while await self.work_once():
            pass

    async def work_once(self) -> bool:
        """Take one task and do it; False if there was none. What fails, or comes too early, is delivered again later.

        Keeps: FLOW-20, FLOW-21, FLOW-23.
        """
        delivery = await self._queue.take()
        if delivery is None:
            return False
        try:
            async with _Keeper(self._queue, delivery.entry_id, self._clock):
                is_done = await self._attempt(delivery.task)
        except Exception:  # Steps are user code, and stores may be away for a while: the queue decides when to give up.
            shown = (delivery.entry_id, delivery.task.execution_id, delivery.times)
            logger.exception("task %s of execution %s failed at its delivery %d", *shown)
            return True
        if is_done:
            await self._queue.ack(delivery.entry_id)
        return True

    async def _attempt(self, task: FlowTask) -> bool:
        """`_do` in a task of its own, so that a step which is cancelled by its own doing fails, and ends no worker.

        Keeps: FLOW-21.
        """
        name = f"lastbus task of execution {task.execution_id}"
        doing = spawn(self._do(task), name=name, owner=self._doing, label=None, on_done=self._doing.pop)
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError:
            doing.cancel()
            await asyncio.wait({doing})
            doing.cancelled() or doing.exception()
            raise
        if doing.cancelled():
            raise FlowExecutionException(task.execution_id, "a step was cancelled")
        return bool(doing.result())

    async def _do(self, task: FlowTask) -> bool:
        """Whether the task is done with, by this call or before.

        Keeps: FLOW-20.
        """
        state = await self._executions.load_execution(task.execution_id)
        if task.type == "start":
            if state is None:
                fresh = ExecutionState(execution_id=task.execution_id, flow_id=task.flow_id, data=task.data)
                await self._advance(fresh, self._flow(fresh).nodes)
            return True
        if state is None:
            return False
        return await self._resume(state, task)

    async def _resume(self, state: ExecutionState, task: FlowTask) -> bool:
        """Go on with an execution if this is the answer to its very subscription, and no older event.

        Keeps: FLOW-04, FLOW-16, FLOW-20.
        """
        answered = task.subscription_id
        if state.status != "suspended" or answered in state.resumed:
            await self._unsubscribe(answered)
            return True
        event_id = task.data.get("event_id")
        if event_id is not None and event_id in state.resumed.values():
            return True
        if state.subscription_id != answered:
            return False  # It was recorded, but its suspension is not yet stored, or never will be.
        resumed = {**state.resumed, answered: event_id}
        if task.resume_type == "timeout":
            await self._rest(state.model_copy(update={"status": "timeout", "resumed": resumed}))
        else:
            assert state.node_id is not None
            results = {**state.results, state.node_id: task.data.get("event_data")}
            following = self._following(state)
            await self._advance(state.model_copy(update={"resumed": resumed, "results": results}), following)
        await self._unsubscribe(answered)
        return True

    async def _advance(self, state: ExecutionState, nodes: Sequence[Node]) -> None:
        """Execute `nodes` until one of them suspends, or all are done; store where the execution rests then.

        Keeps: FLOW-03, FLOW-19.
        """
        flow = self._flow(state)
        context = ExecutionContext(
            execution_id=state.execution_id,
            flow_id=state.flow_id,
            data=state.data,
            results=dict(state.results),
            event_bus=self.event_bus,
        )
        rest = {"status": "completed", "node_id": None, "subscription_id": None}
        for node in nodes:
            result = await self._strategy.execute(flow, node, context)
            if result.is_suspend:
                rest = {"status": "suspended", "node_id": node.id, "subscription_id": result.subscription_id}
                break
            context.results[node.id] = result.output
        await self._rest(state.model_copy(update={**rest, "results": context.results}))

    async def _rest(self, state: ExecutionState) -> None:
        """Store `state`, unless another worker was faster: then its subscription is one too many.

        Keeps: FLOW-19.
        """
        if await self._executions.save_execution(state):
            logger.info("execution %s of flow %s is %s", state.execution_id, state.flow_id, state.status)
        elif state.status == "suspended" and state.subscription_id is not None:
            await self._unsubscribe(state.subscription_id)

    async def _unsubscribe(self, subscription_id: str) -> None:
        if self.event_bus is not None:
            await self.event_bus.subscription_storage.delete_subscription(subscription_id)

    def _flow(self, state: ExecutionState) -> Flow:
        flow = self._flows.get(state.flow_id)
        if flow is None:
            known = ", ".join(self._flows)
            raise FlowExecutionException(
                state.execution_id, f"flow {state.flow_id!r} is not known here; known: {known}"
            )
        return flow

    def _following(self, state: ExecutionState) -> Sequence[Node]:
        """Keeps: FLOW-21."""
        try:
            return self._flow(state).after(state.node_id)
        except KeyError as error:
            reason = f"flow {state.flow_id!r} has no node {state.node_id!r} any more"
            raise FlowExecutionException(state.execution_id, reason) from error
