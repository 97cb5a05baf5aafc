"""Tasks: what a flow worker is asked to do, in the one form in which a queue keeps it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lastbus._errors import EventError
from lastbus._model.event import Event
from lastbus._model.names import check_name
from lastbus._model.payload import as_json, encode
from lastbus._model.subscription import EventSubscription

Name = Annotated[str, AfterValidator(lambda value: check_name("a task's id", value))]


class FlowTask(BaseModel):
    """Start an execution of a flow, or resume one: because of an event, or because its subscription ran out of time.

    `data` is what a start hands to the flow, and what a resumption knows of its subscription and its event.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    type: Literal["start", "resume"]
    flow_id: Name
    execution_id: Name
    resume_type: Literal["event", "timeout"] | None = None
    data: dict[str, Any] = Field(default_factory=dict)

    def encode(self) -> str:
        """The task as ASCII JSON text."""
        return encode(self.model_dump())

    @classmethod
    def decode(cls, text: str | bytes) -> FlowTask:
        """The task that `encode` wrote; `EventError` for anything that is not one.

        Keeps: FLOW-18.
        """
        try:
            task = cls.model_validate(json.loads(text))
            if task.type == "resume":
                check_name("subscription_id", task.data.get("subscription_id"))
        except (ValueError, RecursionError) as error:
            raise EventError(f"not a task ({type(error).__name__}): {text[:80]!r}") from error
        return task

    @property
    def subscription_id(self) -> str:
        """The subscription that a resumption answers."""
        return str(self.data["subscription_id"])


def start_task(flow_id: str, execution_id: str, data: dict[str, Any]) -> FlowTask:
    """The task that starts an execution; `ValueError` for data that JSON cannot carry."""
    return FlowTask(type="start", flow_id=flow_id, execution_id=execution_id, data=as_json("data", data))


def event_task(subscription: EventSubscription, event: Event) -> FlowTask | None:
    """The task that resumes the execution which waits for `event`; None if no execution is behind the subscription."""
    about = {"event_id": event.event_id, "event_type": event.event_type, "event_data": dict(event.data)}
    return _resume_task(subscription, "event", about)


def timeout_task(subscription: EventSubscription) -> FlowTask | None:
    """The task that ends the wait of an execution; None if no execution is behind the subscription."""
    return _resume_task(subscription, "timeout", {"event_type": subscription.event_type})


def _resume_task(
    subscription: EventSubscription, resume_type: Literal["event", "timeout"], about: dict[str, Any]
) -> FlowTask | None:
    """A subscription of a suspended execution names its flow, and its correlation is the execution's id.

    Keeps: FLOW-04.
    """
    if subscription.flow_id is None or subscription.correlation_id is None:
        return None
    return FlowTask(
        type="resume",
        flow_id=subscription.flow_id,
        execution_id=subscription.correlation_id,
        resume_type=resume_type,
        data={**about, "subscription_id": subscription.subscription_id, "node_id": subscription.node_id},
    )
