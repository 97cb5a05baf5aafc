"""An outage: the server of everything is killed and comes back, and whoever waits is resumed.

Timing: a server takes its time to come back, and so do those who try to reach it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from lastbus._kit.servers import RedisServer, ServerUnavailable, missing
from lastbus.redis import RedisEventBus, RedisExecutionStorage, RedisStreamTaskQueue
from lastbus.services import EventFilter, EventNode, ExecutionStorage, Flow, FlowWorker, Step, start_flow

PATIENCE_SECONDS = 30
PAUSE_SECONDS = 0.02


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server of this test's own, which forgets nothing that it has acknowledged."""
    try:
        server = RedisServer(persist=True)
    except ServerUnavailable as absence:
        missing(absence)
    with server:
        yield server


async def becomes(status: str, executions: ExecutionStorage, execution_id: str) -> None:
    """Return when the execution rests in `status`; a server that is away is asked again."""

    async def look() -> None:
        while (state := await executions.load_execution(execution_id)) is None or state.status != status:
            await asyncio.sleep(PAUSE_SECONDS)

    await asyncio.wait_for(look(), PATIENCE_SECONDS)


@pytest.mark.slow
@pytest.mark.guarantee("FLOW-11")
async def test_a_server_that_was_killed_while_everybody_worked_costs_no_execution(own_server: RedisServer) -> None:
    """A server is killed and started."""
    ran: list[str] = []
    flow = Flow("f", [EventNode("wait", "go"), Step("after", lambda context: ran.append(context.execution_id))])
    queue, executions = RedisStreamTaskQueue(own_server.url), RedisExecutionStorage(own_server.url)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(queue.aclose)
        stack.push_async_callback(executions.aclose)
        bus = await stack.enter_async_context(RedisEventBus(own_server.url))
        await stack.enter_async_context(EventFilter(bus, queue, reconcile_seconds=0.5))
        await stack.enter_async_context(FlowWorker([flow], queue, executions, bus))
        ids = [await start_flow(queue, "f") for _ in range(5)]
        for each in ids:
            await becomes("suspended", executions, each)

        own_server.kill()
        await asyncio.sleep(0.5)
        own_server.start()
        async with RedisEventBus(own_server.url) as elsewhere:
            for each in ids:
                await elsewhere.publish("go", correlation_id=each)
        for each in ids:
            await becomes("completed", executions, each)

    assert sorted(ran) == sorted(ids)
