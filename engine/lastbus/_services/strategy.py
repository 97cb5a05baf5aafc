"""Strategy: how a node is executed where any worker may go on with the execution later."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from lastbus._errors import FlowExecutionException
from lastbus._model.payload import as_json
from lastbus._services.flow import EventNode, ExecutionContext, Flow, Node


@dataclass(frozen=True)
class NodeResult:
    """What came of a node: what it returned, or that the execution is suspended, and by which subscription."""

    output: Any = None
    is_suspend: bool = False
    subscription_id: str | None = None


class DistributedStrategy:
    """Runs a step here and now; at an event node records a subscription and suspends."""

    async def execute(self, flow: Flow, node: Node, context: ExecutionContext) -> NodeResult:
        """What came of `node`. Errors of a step are raised; `ValueError` if JSON cannot carry what it returned.

        Keeps: FLOW-03.
        """
        if isinstance(node, EventNode):
            return NodeResult(is_suspend=True, subscription_id=await self._subscribe_event(flow, node, context))
        output = node.run(context)
        if inspect.isawaitable(output):
            output = await output
        return NodeResult(output=as_json(f"what {node.id} returned", output))

    async def _subscribe_event(self, flow: Flow, node: EventNode, context: ExecutionContext) -> str:
        """The id of the subscription by which an event will find this execution; without one nothing may be suspended.

        Keeps: FLOW-01, FLOW-02.
        """
        if context.event_bus is None:
            raise FlowExecutionException(context.execution_id, f"{node.id} cannot wait for an event: there is no bus")
        event_type = node.resolved_type(context)
        try:
            return await context.event_bus.register_subscription(
                event_type=event_type,
                filter_condition=node.event_filter,
                correlation_id=context.execution_id,
                flow_id=flow.flow_id,
                node_id=node.id,
                timeout=node.timeout,
            )
        except Exception as error:
            raise FlowExecutionException(
                context.execution_id, f"{node.id} cannot wait for an event: it could not be subscribed to"
            ) from error
