"""A shop: the flow that the tests of the services execute, and what is needed to execute it."""

from __future__ import annotations

from typing import Any

from lastbus import BaseBus, Event
from lastbus.redis import RedisExecutionStorage, RedisServiceDirectory, RedisStreamTaskQueue
from lastbus.services import (
    DeadLetter,
    Delivery,
    EventFilter,
    EventNode,
    ExecutionContext,
    ExecutionState,
    Flow,
    FlowTask,
    FlowWorker,
    Step,
    TaskQueue,
    start_flow,
)
from lastbus.testing import ManualClock
from tests._backends.redis import ValkeyBackend


class Control:
    """What the services keep on a server, each with a connection of its own."""

    def __init__(self, server: ValkeyBackend) -> None:
        self.server = server

    def queue(self, **options: Any) -> RedisStreamTaskQueue:
        return RedisStreamTaskQueue(
            stream_key=f"{self.server.prefix}queue", connection=self.server.connection(), **options
        )

    def executions(self, **options: Any) -> RedisExecutionStorage:
        return RedisExecutionStorage(
            key_prefix=f"{self.server.prefix}execution:", connection=self.server.connection(), **options
        )

    def directory(self) -> RedisServiceDirectory:
        return RedisServiceDirectory(key_prefix=f"{self.server.prefix}registry:", connection=self.server.connection())


class Shop:
    """Order, wait for `approved`, ship. `ran` lists the steps that were run, with the execution's id."""

    def __init__(self, bus: BaseBus, control: Control, clock: ManualClock, **approval: Any) -> None:
        self.bus = bus
        self.clock = clock
        self.queue: Any = control.queue()
        self.executions = control.executions()
        self.ran: list[tuple[str, str]] = []
        self.flow = Flow(
            "purchase",
            [Step("order", self._order), EventNode("approval", "approved", **approval), Step("ship", self._ship)],
        )

    def worker(self, **options: Any) -> FlowWorker:
        options = {"event_bus": self.bus, "clock": self.clock, **options}
        return FlowWorker([self.flow], self.queue, self.executions, **options)

    def filter(self, bus: Any = None, **options: Any) -> EventFilter:
        return EventFilter(bus or self.bus, options.pop("queue", self.queue), clock=self.clock, **options)

    async def work(self) -> None:
        """Do every task that is there."""
        worker = self.worker()
        while await worker.work_once():
            pass

    async def suspend(self, execution_id: str) -> ExecutionState:
        """Start an execution and let it run until it waits for its approval."""
        await start_flow(self.queue, "purchase", {"item": "lamp"}, execution_id)
        await self.work()
        state = await self.state(execution_id)
        assert state.status == "suspended"
        return state

    async def state(self, execution_id: str) -> ExecutionState:
        state = await self.executions.load_execution(execution_id)
        assert state is not None
        return state

    def approval(self, execution_id: str | None, **fields: Any) -> Event:
        """An event that approves an execution, now."""
        fields = {"timestamp": self.clock.time(), **fields}
        return Event("approved", {"by": "Ada"}, execution_id, **fields)

    async def tasks(self) -> list[Any]:
        """What a look into the queue finds, without taking anything."""
        entries = await self.queue._connection.command("XRANGE", self.queue._stream, "-", "+")
        return [entry_id for entry_id, _ in entries]

    async def _order(self, context: ExecutionContext) -> dict[str, Any]:
        self.ran.append(("order", context.execution_id))
        return {"ordered": context.data["item"]}

    def _ship(self, context: ExecutionContext) -> str:
        self.ran.append(("ship", context.execution_id))
        return f"shipped {context.results['order']['ordered']}, approved by {context.results['approval']['by']}"


class ListQueue(TaskQueue):
    """A queue in a list, which delivers each task once."""

    keep_seconds = 20.0

    def __init__(self) -> None:
        self.tasks: list[FlowTask] = []
        self.acked: list[str] = []
        self._taken = 0

    async def enqueue(self, task: FlowTask) -> str:
        self.tasks.append(task)
        return str(len(self.tasks))

    async def take(self) -> Delivery | None:
        if self._taken == len(self.tasks):
            return None
        self._taken += 1
        return Delivery(str(self._taken), self.tasks[self._taken - 1], 1)

    async def keep(self, entry_id: str) -> bool:
        return True

    async def ack(self, entry_id: str) -> bool:
        self.acked.append(entry_id)
        return True

    async def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        return []
