"""Executions: one run of a flow, as it is kept while it rests."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lastbus._errors import EventError
from lastbus._model.payload import encode


class ExecutionState(BaseModel):
    """Where an execution rests: suspended at a node until its subscription is answered, or ended.

    `data` is what it was started with, `results` what each node returned, by the node's id. `resumed` remembers which
    event has answered which subscription (None: its time ran out), so that no event answers twice. `version` counts
    how often it was stored; 0: never.
    """

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    execution_id: str
    flow_id: str
    status: Literal["suspended", "completed", "timeout"] = "completed"
    node_id: str | None = None
    subscription_id: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    results: dict[str, Any] = Field(default_factory=dict)
    resumed: dict[str, str | None] = Field(default_factory=dict)
    version: int = 0

    def encode(self) -> str:
        """The state as ASCII JSON text."""
        return encode(self.model_dump())

    @classmethod
    def decode(cls, text: str | bytes) -> ExecutionState:
        """The state that `encode` wrote; `EventError` for anything that is not one."""
        try:
            return cls.model_validate(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise EventError(f"not a stored execution ({type(error).__name__}): {text[:80]!r}") from error
