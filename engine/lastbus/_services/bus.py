"""The bus as services see it: three verbs, three stores, and perhaps a `close`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from lastbus._model.event import Event
from lastbus._ports.storage import EventStorage, EventSubscriptionStorage
from lastbus._ports.tracker import EventProcessingTracker

logger = logging.getLogger("lastbus.services")


class StoringBus(Protocol):
    """What services need of a bus. Every bus of this package has it; one of yours may do without a `close`."""

    @property
    def event_storage(self) -> EventStorage:
        """Where the bus keeps events."""

    @property
    def subscription_storage(self) -> EventSubscriptionStorage:
        """Where the bus keeps subscriptions."""

    @property
    def processing_tracker(self) -> EventProcessingTracker:
        """Where the bus keeps who has handled what."""

    async def register_handler(
        self,
        event_type: str | None = None,
        handler: Callable[[Event], Awaitable[Any]] | None = None,
        *,
        handler_id: str | None = None,
    ) -> str:
        """Call `handler` for every event whose type matches; return the handler's id."""

    async def unregister_handler(self, handler_id: str) -> bool:
        """Stop calling a handler; False if the id is unknown."""

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


async def close_event_bus(bus: object) -> None:
    """Close `bus` if it can be closed. A close that fails becomes a WARNING: there is nobody left to handle it.

    Keeps: FLOW-07, FLOW-09.
    """
    close = getattr(bus, "close", None)
    if close is None:
        return
    try:
        result = close()
        if inspect.isawaitable(result):
            await result
    except Exception:
        logger.warning("the event bus could not be closed", exc_info=True)
