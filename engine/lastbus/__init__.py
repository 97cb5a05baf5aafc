"""lastbus: an asyncio event bus that proves what it promises.

The names below are resolved on first use, so that `import lastbus` is light and `import lastbus.proof` loads nothing
of the bus.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastbus._bus import BaseBus as BaseBus
    from lastbus._dispatch.decorator import event_handler as event_handler
    from lastbus._errors import BusClosedError as BusClosedError
    from lastbus._errors import CloseError as CloseError
    from lastbus._errors import CloseTimeout as CloseTimeout
    from lastbus._errors import EventError as EventError
    from lastbus._errors import EventNotFoundError as EventNotFoundError
    from lastbus._errors import EventStorageError as EventStorageError
    from lastbus._errors import EventTimeoutError as EventTimeoutError
    from lastbus._errors import MissingExtraError as MissingExtraError
    from lastbus._errors import SyncPublishError as SyncPublishError
    from lastbus._factory import create_event_bus as create_event_bus
    from lastbus._factory import get_default_event_bus as get_default_event_bus
    from lastbus._factory import set_default_event_bus as set_default_event_bus
    from lastbus._model.event import Event as Event
    from lastbus._model.policy import RetryPolicy as RetryPolicy
    from lastbus._model.subscription import EventSubscription as EventSubscription
    from lastbus._ports.bus import EventBus as EventBus
    from lastbus._ports.storage import EventStorage as EventStorage
    from lastbus._ports.storage import EventSubscriptionStorage as EventSubscriptionStorage
    from lastbus._ports.tracker import EventProcessingTracker as EventProcessingTracker
    from lastbus.memory import InMemoryEventBus as InMemoryEventBus

_HOMES = {
    "BaseBus": "_bus",
    "BusClosedError": "_errors",
    "CloseError": "_errors",
    "CloseTimeout": "_errors",
    "Event": "_model.event",
    "EventBus": "_ports.bus",
    "EventError": "_errors",
    "EventNotFoundError": "_errors",
    "EventProcessingTracker": "_ports.tracker",
    "EventStorage": "_ports.storage",
    "EventStorageError": "_errors",
    "EventSubscription": "_model.subscription",
    "EventSubscriptionStorage": "_ports.storage",
    "EventTimeoutError": "_errors",
    "InMemoryEventBus": "memory",
    "MissingExtraError": "_errors",
    "RetryPolicy": "_model.policy",
    "SyncPublishError": "_errors",
    "create_event_bus": "_factory",
    "event_handler": "_dispatch.decorator",
    "get_default_event_bus": "_factory",
    "set_default_event_bus": "_factory",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lastbus' has no attribute {name!r}")
    value = getattr(import_module(f"lastbus.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
