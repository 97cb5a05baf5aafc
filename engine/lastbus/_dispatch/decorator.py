"""Decorator: register a function as a handler where it is defined."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from lastbus._model.policy import RetryPolicy
from lastbus._ports.bus import Handler

Function = TypeVar("Function", bound=Callable[..., Any])


class Registers(Protocol):
    """A bus on which a handler can be registered without awaiting."""

    def add_handler(
        self,
        event_type: str | None,
        handler: Handler,
        filter_condition: Mapping[str, Any] | None = None,
        retry_policy: RetryPolicy | None = None,
        handler_id: str | None = None,
    ) -> str: ...


def event_handler(
    bus: Registers,
    event_type: str | None = None,
    filter_condition: Mapping[str, Any] | None = None,
    retry_policy: RetryPolicy | None = None,
    handler_id: str | None = None,
) -> Callable[[Function], Function]:
    """Register the decorated function, async or plain, and return it unchanged; no running loop is needed.

    On a back end with a listener, events of other processes are heard once the bus has started.

    Keeps: CORE-11.
    """

    def register(function: Function) -> Function:
        bus.add_handler(event_type, function, filter_condition, retry_policy, handler_id)
        return function

    return register
