"""Execution port: where executions of flows rest."""

from __future__ import annotations

from abc import ABC, abstractmethod

from lastbus._model.execution import ExecutionState


class ExecutionStorage(ABC):
    """Keeps the latest state of each execution."""

    @abstractmethod
    async def load_execution(self, execution_id: str) -> ExecutionState | None:
        """The latest state, or None for an unknown id; `EventError` for one that cannot be read."""

    @abstractmethod
    async def save_execution(self, state: ExecutionState) -> bool:
        """Keep `state` if nothing was kept since it was loaded; else False, and nothing changes.

        The stored version is one more than that of `state`. Judged and written in one step.
        """

    async def aclose(self) -> None:
        """Let go of connections; harmless when called again. Closing does not delete anything."""
