"""A bus to close: five components that note their calls, gates in each of them, and hostile task factories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from lastbus._close.closer import Closer
from lastbus._close.state import OnOverdue
from tests.contract.waiting import is_over

SLOTS = ("pubsub", "redis", "event_storage", "subscription_storage", "processing_tracker")


class Component:
    """Something to release; it notes each call, can stop in it, and can fail in it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.calls = 0
        self.error: BaseException | None = None
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def aclose(self) -> None:
        self.calls += 1
        self.log.append(f"release {self.name}")
        await self.may_end.wait()
        if self.error is not None:
            raise self.error


class State(NamedTuple):
    """What an observer sees of a bus that closes."""

    closing: bool
    future: str
    has_task: bool
    runs: int


class Rig(Closer):
    """The close contract with nothing else around it."""

    def __init__(self, close_timeout: float = 0.05, on_overdue: OnOverdue = "release") -> None:
        super().__init__(close_timeout=close_timeout, on_overdue=on_overdue)
        self.log: list[str] = []
        self.components = {name: Component(name, self.log) for name in SLOTS}
        for name, component in self.components.items():
            setattr(self, name, component)
        self.bound = 0

    @property
    def calls(self) -> list[int]:
        """How often each component was released, in the order of their release."""
        return [self.components[name].calls for name in SLOTS]

    @property
    def state(self) -> State:
        """The state tuple."""
        field = self._close_future
        if field is None:
            future = "None"
        elif not field.done():
            future = "PENDING"
        else:
            error = field.exception()
            future = "OK" if error is None else f"ERR({getattr(error, 'kind', error)})"
        return State(self._closing, future, self._teardown_task is not None, self._teardown_runs)

    def _on_round_bound(self) -> None:
        self.bound += 1

    def run(self, name: str, work: Callable[[], Any]) -> asyncio.Task[Any]:
        """Let `work` be in flight under (`name`, "handler")."""
        task = asyncio.ensure_future(work())
        self._pending_tasks[task] = (name, "handler")
        task.add_done_callback(lambda ended: self._pending_tasks.pop(ended, None))
        return task

    def listen(self, work: Callable[[], Any]) -> asyncio.Task[Any]:
        """Let `work` serve the bus until it closes."""
        task = asyncio.ensure_future(work())
        self._listeners.append(task)
        return task


class Outcome(NamedTuple):
    """How a call of `close()` ended: "returned", "raised" or "hang", and the kind of what it raised."""

    word: str
    kind: str = ""


async def closed(rig: Rig) -> Outcome:
    """The outcome of `rig.close()` under a watchdog that observes and cancels nothing."""
    closing = asyncio.ensure_future(rig.close())
    if not await is_over(closing):
        return Outcome("hang")
    if closing.cancelled():
        return Outcome("raised", "CancelledError")
    error = closing.exception()
    return (
        Outcome("returned") if error is None else Outcome("raised", str(getattr(error, "kind", type(error).__name__)))
    )


class factory:  # noqa: N801  # It reads as a verb: with factory(make): …
    """Tasks are made by `make(loop, coro)` inside the block."""

    def __init__(self, make: Callable[[asyncio.AbstractEventLoop, Any], Any]) -> None:
        self.make = make

    def __enter__(self) -> None:
        make = self.make

        def made(loop: asyncio.AbstractEventLoop, coro: Any, **_: Any) -> Any:
            if getattr(coro, "__qualname__", "").endswith("_teardown_entry"):
                return make(loop, coro)
            return asyncio.Task(coro, loop=loop)

        asyncio.get_running_loop().set_task_factory(made)

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().set_task_factory(None)
