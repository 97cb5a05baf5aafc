"""Queue port: tasks for flow workers, each delivered at least once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from lastbus._model.task import FlowTask


class Delivery(NamedTuple):
    """A task in a worker's hands. `times` counts how often it was delivered, this time included."""

    entry_id: str
    task: FlowTask
    times: int


class DeadLetter(NamedTuple):
    """A task that nobody could do: its text as it was queued, why it was given up, and after how many deliveries."""

    entry_id: str
    payload: str
    reason: str
    deliveries: int


class TaskQueue(ABC):
    """Any number of workers take from one queue. What a worker has taken and not acknowledged is delivered again."""

    keep_seconds: float
    """How often a worker has to say that it still has a task in its hands."""

    @abstractmethod
    async def enqueue(self, task: FlowTask) -> str:
        """Append `task` and return the id of its entry."""

    @abstractmethod
    async def take(self) -> Delivery | None:
        """The next task, or None if there is none now. One that others have left lying comes before a new one."""

    @abstractmethod
    async def keep(self, entry_id: str) -> bool:
        """The task is still being done: its time begins anew. False if it is in other hands, or done."""

    @abstractmethod
    async def ack(self, entry_id: str) -> bool:
        """The task is done: forget it. False if it was forgotten before."""

    @abstractmethod
    async def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """At most `limit` tasks that nobody could do, oldest first."""

    async def aclose(self) -> None:
        """Let go of connections; harmless when called again. Closing does not delete anything."""
