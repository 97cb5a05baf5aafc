"""Bus port: the verbs that every bus offers, on whatever back end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from lastbus._model.event import Event
from lastbus._model.normalize import Publishable
from lastbus._model.patterns import matches_event_type
from lastbus._model.policy import RetryPolicy

Handler = Callable[[Event], Awaitable[Any]] | Callable[[Event], Any]
Condition = Callable[[Event], object]


class EventBus(ABC):
    """Publish, handle, wait, subscribe, close. `BaseBus` keeps these promises on every back end of this package.

    A bus, an event storage, a subscription storage and a tracker are four abstractions; none is another.

    Keeps: CORE-33.
    """

    @staticmethod
    def matches_event_type(pattern: str | None, event_type: str) -> bool:
        """Whether a handler registered for `pattern` gets events of `event_type` (shell wildcards)."""
        return matches_event_type(pattern, event_type)

    @abstractmethod
    async def publish(self, event: Publishable, prevent_duplicate_consumption: bool = True, **data: Any) -> str:
        """Store and announce one event; return its id."""

    @abstractmethod
    def publish_sync(self, event: Publishable, prevent_duplicate_consumption: bool = True, **data: Any) -> str:
        """`publish` for code that has no running loop."""

    @abstractmethod
    async def batch_publish(
        self, events: Iterable[Publishable], prevent_duplicate_consumption: bool = True
    ) -> list[str]:
        """Publish several events in order; a malformed one is refused before any is stored."""

    @abstractmethod
    async def register_handler(
        self,
        event_type: str | None = None,
        handler: Handler | None = None,
        filter_condition: Mapping[str, Any] | None = None,
        retry_policy: RetryPolicy | None = None,
        handler_id: str | None = None,
    ) -> str:
        """Call `handler` for every event whose type matches; return the handler's id."""

    @abstractmethod
    async def unregister_handler(self, handler_id: str) -> bool:
        """Stop calling a handler; False if the id is unknown."""

    @abstractmethod
    async def register_subscription(
        self,
        event_type: str,
        filter_condition: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        flow_id: str | None = None,
        node_id: str | None = None,
        timeout: float | None = None,
    ) -> str:
        """Store a subscription; return its id."""

    @abstractmethod
    async def unregister_subscription(self, subscription_id: str) -> bool:
        """Delete a stored subscription; False if the id is unknown."""

    @abstractmethod
    async def wait_for_event(
        self, event_type: str, timeout: float | None = None, condition: Condition | None = None
    ) -> Event:
        """The next event of exactly this type for which `condition` holds."""

    @abstractmethod
    async def get_event(self, event_id: str) -> Event:
        """A stored event; `EventNotFoundError` for an unknown id."""

    @abstractmethod
    def request_close(self) -> asyncio.Future[None]:
        """Begin to close, now; return the future of the close's outcome."""

    @abstractmethod
    async def close(self, timeout: float | None = None) -> None:
        """Close: no new work, running handlers awaited in bounds, every component released."""
