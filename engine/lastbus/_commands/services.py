"""`filter` and `worker`: the services around a bus, each in a process of its own.

What the services keep (tasks, executions, who is here) is on the Redis server, whichever bus is chosen. The library
installs no signal handler; these commands do, and everything is closed on the way out.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Coroutine
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from lastbus._commands.console import err, out

if TYPE_CHECKING:
    from lastbus._services.bus import StoringBus
    from lastbus.redis import RedisExecutionStorage, RedisServiceDirectory, RedisStreamTaskQueue
    from lastbus.services import Flow

app = typer.Typer()

RedisUrl = Annotated[str, typer.Option("--redis-url", envvar="PLAITA_REDIS_URL", help="The server of the services.")]
DatabaseUrl = Annotated[str | None, typer.Option("--database-url", help="The database of a bus of the type db.")]
Queue = Annotated[str, typer.Option("--queue", envvar="PLAITA_QUEUE_NAME", help="The stream of tasks.")]
BusType = Annotated[str, typer.Option("--event-bus-type", help="redis, db, or memory (one process only).")]
LOCAL = "redis://localhost:6379/0"
STREAM = "plaita:flow:queue"
EXITS = "\n\nExit codes: 1 failure · 2 usage · 128 and the number of the signal that ended it."


@app.command(
    "filter",
    help="Queue the resumption of each suspended execution when its event comes, or its time is over.\n\n"
    "Example: lastbus filter --redis-url redis://localhost:6379/0" + EXITS,
)
def filter_(
    redis_url: RedisUrl = LOCAL,
    queue: Queue = STREAM,
    event_bus_type: BusType = "redis",
    database_url: DatabaseUrl = None,
) -> None:
    """Run the event filter until the process is told to leave.

    Keeps: CORE-34.
    """
    from lastbus.services import EventFilter

    bus = make_bus(event_bus_type, redis_url, database_url)
    control = Control(redis_url, queue)
    run(main_async(bus, control, "event_filter", EventFilter(bus, control.queue)))


@app.command(
    "worker",
    help="Execute flows from one rest to the next.\n\n"
    "Example: lastbus worker shop.flows:purchase --redis-url redis://localhost:6379/0" + EXITS,
)
def worker(
    flows: Annotated[list[str], typer.Argument(help="Flows, each as module:name.")],
    redis_url: RedisUrl = LOCAL,
    queue: Queue = STREAM,
    event_bus_type: BusType = "redis",
    database_url: DatabaseUrl = None,
    no_event_bus: Annotated[bool, typer.Option("--no-event-bus", help="Do without: nothing can be suspended.")] = False,
    use_event_bus: Annotated[bool, typer.Option("--use-event-bus", help="Deprecated: changes nothing.")] = False,
) -> None:
    """Run one flow worker until the process is told to leave.

    Keeps: FLOW-05.
    """
    from lastbus.services import FlowWorker

    if use_event_bus:
        err().print("lastbus: --use-event-bus is deprecated and changes nothing: the bus is used by default")
    bus = None if no_event_bus else make_bus(event_bus_type, redis_url, database_url)
    control = Control(redis_url, queue)
    service = FlowWorker([load_flow(each) for each in flows], control.queue, control.executions, bus)
    run(main_async(bus, control, "flow_worker", service))


def run(service: Coroutine[Any, Any, None]) -> None:
    """Run a service with its log on the terminal, until it ends or a signal tells it to.

    A server that fails is one line and the exit code 1; the exit code of a signal is 128 and its number.
    """
    import asyncio

    from lastbus import EventError

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        told = asyncio.run(until_told(service))
    except EventError as error:
        err().print(f"lastbus: {error}")
        raise typer.Exit(1) from error
    if told is not None:
        raise typer.Exit(128 + told)


async def until_told(service: Coroutine[Any, Any, None]) -> int | None:
    """Run `service` to its end; a signal cancels it, and its number is returned. A second one cancels its cleanup.

    The loop's own way is used here: an exception out of a signal handler may hit the loop between two of its steps,
    and what it was about to do is then never done.

    Keeps: FLOW-10.
    """
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    told: list[int] = []

    def leave(number: int) -> None:
        told.append(number)
        task.cancel()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, leave, number)
    try:
        await service
    except asyncio.CancelledError:
        if not told:
            raise
    return told[0] if told else None


class Control:
    """What the services keep on the Redis server: tasks, executions, and who is here. The bus has no say in it.

    Keeps: CORE-34.
    """

    def __init__(self, redis_url: str, queue: str) -> None:
        from lastbus.redis import RedisExecutionStorage, RedisServiceDirectory, RedisStreamTaskQueue

        self.queue: RedisStreamTaskQueue = RedisStreamTaskQueue(redis_url, queue)
        self.executions: RedisExecutionStorage = RedisExecutionStorage(redis_url)
        self.directory: RedisServiceDirectory = RedisServiceDirectory(redis_url)

    async def aclose(self) -> None:
        """Close the connections of all three."""
        for each in (self.queue, self.executions, self.directory):
            await each.aclose()


async def main_async(bus: object, control: Control, service_type: str, service: Any) -> None:
    """Run `service` until cancelled, on the list of services; then stop it, and close the bus and the connections.

    The bus is closed however this ends, and a close that fails keeps nothing else from being closed.

    Keeps: FLOW-08, FLOW-09.
    """
    from lastbus._services.bus import close_event_bus
    from lastbus.services import ServiceRegistry

    try:
        async with ServiceRegistry(control.directory, service_type) as registry, service:
            bus_name = "no bus" if bus is None else type(bus).__name__
            out().print(f"{service_type} {registry.info.instance_id} is running with {bus_name}")
            await stay()
    finally:
        await close_event_bus(bus)
        await control.aclose()


async def stay() -> None:
    """Never return: a service ends by a cancellation, or by a signal that becomes one."""
    from asyncio import get_running_loop

    await get_running_loop().create_future()


def make_bus(kind: str, redis_url: str, database_url: str | None) -> StoringBus:
    """The bus by the name of its back end; a usage error for one that cannot be made."""
    from lastbus import create_event_bus

    try:
        return cast("StoringBus", create_event_bus(kind, redis_url=redis_url, database_url=database_url))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def load_flow(place: str) -> Flow:
    """The flow that `module:name` names; a usage error if there is none."""
    from lastbus.services import Flow

    module, _, name = place.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        flow = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise typer.BadParameter(f"{place!r} names no flow: {error}") from error
    if not isinstance(flow, Flow):
        raise typer.BadParameter(f"{place!r} is no Flow but {type(flow).__name__}")
    return flow
