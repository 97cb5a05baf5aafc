"""The memory back end: a bus within one process, and its three stores."""

from lastbus._backends.memory.bus import InMemoryEventBus as InMemoryEventBus
from lastbus._backends.memory.storage import MemoryEventStorage as MemoryEventStorage
from lastbus._backends.memory.subscriptions import (
    InMemoryEventSubscriptionStorage as InMemoryEventSubscriptionStorage,
)
from lastbus._backends.memory.tracker import InMemoryProcessingTracker as InMemoryProcessingTracker
