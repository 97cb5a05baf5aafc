"""Flows: a named row of nodes, each of which is a step of yours or a wait for an event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lastbus._errors import FlowExecutionException
from lastbus._model.names import check_name
from lastbus._model.numbers import check_optional_seconds
from lastbus._model.payload import as_json
from lastbus._model.subscription import wanted_type
from lastbus._services.bus import StoringBus


@dataclass
class ExecutionContext:
    """What a step is called with: which execution this is, what it was started with, what earlier nodes returned.

    `results` holds what each node has returned, by its id; of an event node that is the event's data. `event_bus` is
    the worker's bus, or None where it has none.
    """

    execution_id: str
    flow_id: str
    data: Mapping[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    event_bus: StoringBus | None = None


StepFunction = Callable[[ExecutionContext], Awaitable[Any]] | Callable[[ExecutionContext], Any]


@dataclass(frozen=True)
class Step:
    """A node that calls `run`, async or plain, on the event loop. What it returns is stored as JSON.

    It may be run more than once for one execution.
    """

    id: str
    run: StepFunction

    def __post_init__(self) -> None:
        check_name("id", self.id)


@dataclass(frozen=True)
class EventNode:
    """A node that suspends the execution until an event of `event_type` comes with the execution's id as correlation.

    `event_filter` names data that must be equal. After `timeout` seconds without such an event the execution ends with
    the status `timeout`. A type that begins with `$` is looked up in what the execution was started with.

    Keeps: SUBS-11.
    """

    id: str
    event_type: str
    event_filter: Mapping[str, Any] | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        check_name("id", self.id)
        wanted_type(self.event_type, "an event node has to state it")
        check_optional_seconds("timeout", self.timeout)
        if self.event_filter is not None:
            as_json("event_filter", dict(self.event_filter))

    def resolved_type(self, context: ExecutionContext) -> str:
        """The type to wait for in this execution; `FlowExecutionException` for a name that leads to no type.

        Keeps: FLOW-02.
        """
        if not self.event_type.startswith("$"):
            return self.event_type
        try:
            return wanted_type(context.data.get(self.event_type[1:]), "an event node has to state it")
        except ValueError as error:
            raise FlowExecutionException(
                context.execution_id, f"{self.event_type} leads to no type: {error}"
            ) from error


Node = Step | EventNode


@dataclass(frozen=True)
class Flow:
    """Nodes that are executed one after another. Ids of nodes are unique within the flow, and stay what they are."""

    flow_id: str
    nodes: Sequence[Node]

    def __post_init__(self) -> None:
        check_name("flow_id", self.flow_id)
        ids = [node.id for node in self.nodes]
        if not ids or len(set(ids)) < len(ids):
            raise ValueError(f"a flow needs at least one node, each with an id of its own, got {ids}")

    def after(self, node_id: str | None) -> Sequence[Node]:
        """The nodes that follow `node_id`; None: all of them. `KeyError` for an id that the flow does not have."""
        if node_id is None:
            return self.nodes
        ids = [node.id for node in self.nodes]
        if node_id not in ids:
            raise KeyError(node_id)
        return self.nodes[ids.index(node_id) + 1 :]
