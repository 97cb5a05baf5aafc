"""Subscriptions: a stored wish to hear of events of one exact type, for one correlation, flow or node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import uuid4

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lastbus._clock import wall_time
from lastbus._model.event import Event
from lastbus._model.matching import data_matches
from lastbus._model.names import check_name
from lastbus._model.numbers import check_seconds
from lastbus._model.patterns import EVERY_TYPE
from lastbus._model.payload import as_json

FLOW_KEY = "$FLOW_ID"
NODE_KEY = "$LAST_NODE"


def _named(field: str) -> AfterValidator:
    return AfterValidator(lambda value: check_name(field, value))


def wanted_type(event_type: object, reason: str) -> str:
    """Return `event_type` if somebody can wait for it; else raise `ValueError`, with `reason` and the way out."""
    try:
        return check_name("event_type", event_type)
    except ValueError as error:
        raise ValueError(f"{error}; {reason}, or say {EVERY_TYPE!r} for every type") from error


def _stored_filter(condition: dict[str, Any]) -> Any:
    """A filter as every store keeps it.

    Keeps: CORE-37.
    """
    return as_json("filter_condition", condition)


class EventSubscription(BaseModel):
    """Whom to tell about which event. `event_type` is compared exactly; only `"*"` on its own means every type.

    `created_at` is in seconds since the epoch, `timeout` in seconds after it (None: no end). A filter is kept as JSON
    keeps it. Invalid fields raise pydantic's `ValidationError`, a `ValueError` naming the field and the value.

    Keeps: CORE-35, CORE-36, CORE-37.
    """

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    event_type: Annotated[
        str, AfterValidator(lambda value: wanted_type(value, "a subscription states what it waits for"))
    ]
    subscription_id: Annotated[str, _named("subscription_id")] = Field(default_factory=lambda: str(uuid4()))
    filter_condition: Annotated[dict[str, Any], AfterValidator(_stored_filter)] | None = None
    correlation_id: Annotated[str, _named("correlation_id")] | None = None
    flow_id: Annotated[str, _named("flow_id")] | None = None
    node_id: Annotated[str, _named("node_id")] | None = None
    created_at: float = Field(default_factory=wall_time)
    timeout: Annotated[float, AfterValidator(lambda value: check_seconds("timeout", value))] | None = None
    processed_events: set[str] = Field(default_factory=set)

    def checked(self) -> EventSubscription:
        """A copy that shares nothing with this one; `ValueError` if this one was made past its own validation.

        Keeps: SUBS-10, SUBS-12.
        """
        return EventSubscription.model_validate(self.model_dump(warnings=False))

    def matches_event(self, event: Event, context: Mapping[str, Any] | None = None) -> bool:
        """Whether this subscription wants `event`; checked in the order type, correlation, flow and node, filter.

        A field that is None does not filter. Flow and node are compared with the context's `$FLOW_ID` and
        `$LAST_NODE`; a key that the context lacks does not filter either.

        Keeps: CORE-02, CORE-03, CORE-04, CORE-05, CORE-07, CORE-09.
        """
        if self.event_type not in (event.event_type, EVERY_TYPE):
            return False
        if self.correlation_id is not None and self.correlation_id != event.correlation_id:
            return False
        context = {} if context is None else context
        if self.flow_id is not None and context.get(FLOW_KEY, self.flow_id) != self.flow_id:
            return False
        if self.node_id is not None and context.get(NODE_KEY, self.node_id) != self.node_id:
            return False
        return data_matches(self.filter_condition, event.data)

    def mark_event_processed(self, event_id: str) -> None:
        """Note on this copy that `event_id` was handled; noting it twice is harmless."""
        self.processed_events.add(event_id)

    def is_event_processed(self, event_id: str) -> bool:
        """Whether this copy has noted `event_id`."""
        return event_id in self.processed_events
