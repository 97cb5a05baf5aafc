"""The Redis back end: a bus and its three stores on one server. Needs `pip install 'lastbus[redis]'`."""

from lastbus._errors import MissingExtraError

try:
    import redis.asyncio  # noqa: F401  # Says early, and in our words, what is missing.
except ModuleNotFoundError as error:
    raise MissingExtraError(__name__, "redis") from error

from lastbus._backends.redis.bus import RedisEventBus as RedisEventBus
from lastbus._backends.redis.storage import RedisEventStorage as RedisEventStorage
from lastbus._backends.redis.subscriptions import RedisEventSubscriptionStorage as RedisEventSubscriptionStorage
from lastbus._backends.redis.tracker import RedisProcessingTracker as RedisProcessingTracker
