"""The Redis back end: a bus and its three stores on one server, and what services keep there.

Needs `pip install 'lastbus[redis]'`.
"""

from lastbus._errors import MissingExtraError

try:
    import redis.asyncio  # noqa: F401  # Says early, and in our words, what is missing.
except ModuleNotFoundError as error:
    raise MissingExtraError(__name__, "redis") from error

from lastbus._backends.redis.bus import RedisEventBus as RedisEventBus
from lastbus._backends.redis.directory import RedisServiceDirectory as RedisServiceDirectory
from lastbus._backends.redis.executions import RedisExecutionStorage as RedisExecutionStorage
from lastbus._backends.redis.legacy import list_events_of_consoles_too as list_events_of_consoles_too
from lastbus._backends.redis.metrics import IndexMetrics as IndexMetrics
from lastbus._backends.redis.metrics import event_index_pruned_metrics as event_index_pruned_metrics
from lastbus._backends.redis.metrics import index_sweep_metrics as index_sweep_metrics
from lastbus._backends.redis.metrics import prometheus_text as prometheus_text
from lastbus._backends.redis.queue import RedisStreamTaskQueue as RedisStreamTaskQueue
from lastbus._backends.redis.storage import RedisEventStorage as RedisEventStorage
from lastbus._backends.redis.subscriptions import RedisEventSubscriptionStorage as RedisEventSubscriptionStorage
from lastbus._backends.redis.tracker import RedisProcessingTracker as RedisProcessingTracker
from lastbus._backends.redis.writer import RedisEventWriter as RedisEventWriter
