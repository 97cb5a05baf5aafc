"""Writer: events and subscriptions from plain synchronous code, as the engine would write them.

A console or a request handler without an event loop stores and announces by the same calls as the asynchronous stores;
there is no second form in Redis. Every method blocks its thread, and may be called from any.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast
from uuid import uuid4

from redis import BlockingConnectionPool, Redis
from redis.client import NEVER_DECODE
from redis.exceptions import NoScriptError
from redis.retry import Retry

from lastbus._backends.redis import calls
from lastbus._backends.redis.announcements import Announcement, Note, announce
from lastbus._backends.redis.connection import DRIVER_ERRORS, RedisConnection, bounds
from lastbus._backends.redis.holes import EventHoles
from lastbus._backends.redis.keys import (
    EVENT_PREFIX,
    SUBSCRIPTION_PREFIX,
    Channels,
    EventKeys,
    SubscriptionKeys,
    check_prefix,
)
from lastbus._backends.redis.legacy import LegacyKeys
from lastbus._backends.redis.lifetime import lifetime_ms
from lastbus._clock import SYSTEM_CLOCK, Clock
from lastbus._errors import EventStorageError
from lastbus._model.event import Event
from lastbus._model.names import check_name
from lastbus._model.normalize import Publishable, normalize
from lastbus._settings import PRUNE_ON_WRITE_OFF

logger = logging.getLogger("lastbus.redis")

PRUNE_SECONDS: Final = 60.0
PRUNE_IDS: Final = 8
TYPES_MAX: Final = 1024
"""Of how many types the writer remembers when it has last looked for holes."""

Result = TypeVar("Result")


class RedisEventWriter:
    """Writes to a Redis server, given by a URL or by a redis-py client of yours; `close` closes either.

    Arguments are those of `RedisEventBus`; what it writes, every bus with the same prefixes finds and hears. After an
    event it looks for a few index entries of the same type whose event is gone, and drops them. Every method raises
    `EventStorageError` when the server fails.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        event_key_prefix: str = EVENT_PREFIX,
        subscription_key_prefix: str = SUBSCRIPTION_PREFIX,
        client: Redis | None = None,
        channel_prefix: str | None = None,
        *,
        ttl: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Keeps: STORE-08, IDX-21."""
        # It knows the server's address and what must not be shown of it; nothing is sent through it.
        self._server: Final = RedisConnection(redis_url, cast(Any, client))
        self._client: Final = (
            Redis(connection_pool=BlockingConnectionPool.from_url(cast(str, redis_url), **bounds(Retry)))
            if client is None
            else client
        )
        self._keys: Final = EventKeys(check_prefix("event_key_prefix", event_key_prefix))
        self._subscriptions: Final = SubscriptionKeys(check_prefix("subscription_key_prefix", subscription_key_prefix))
        self._channels: Final = Channels.beside(event_key_prefix, channel_prefix)
        self._legacy: Final = LegacyKeys(event_key_prefix)
        self._ttl_ms: Final = lifetime_ms(ttl)
        self._holes: Final = EventHoles(self._keys, self._ttl_ms, SYSTEM_CLOCK if clock is None else clock)
        self._turns: Final = None if PRUNE_ON_WRITE_OFF.is_on() else Turns(SYSTEM_CLOCK if clock is None else clock)
        self.instance_id: Final = str(uuid4())
        self._serial: Final = itertools.count()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._server.address})"

    def store_event(self, event: Event) -> str:
        """Keep `event` as `RedisEventStorage.store_event` does, and return its id. Nothing is announced.

        Keeps: STORE-07, IDX-23.
        """
        return self._store(event, event.model_dump_json(), None, "")

    def publish(self, event: Publishable, prevent_duplicate_consumption: bool = True, **data: Any) -> str:
        """Store and announce one event, and return its id; buses of other processes hear it. No handler runs here.

        A notice also goes to the channel on which consoles of earlier releases announced: deprecated, and gone with
        the next release. Arguments and refusals are those of `publish` of a bus.

        Keeps: STORE-08, IDX-29, IDX-30.
        """
        ready = normalize(event, data)
        note = Note(self.instance_id, f"{self.instance_id}-{next(self._serial)}", prevent_duplicate_consumption)
        channel, legacy = self._channels.channel(ready.event_type), self._legacy.channel(ready.event_type)
        return self._store(ready, ready.model_dump_json(), announce(channel, note), "" if legacy == channel else legacy)

    def delete_subscription(self, subscription_id: str) -> bool:
        """Forget a subscription with its marks and its entries in all four kinds of index; False if it was not there.

        Keeps: IDX-27.
        """
        check_name("subscription_id", subscription_id)
        return bool(self._run(calls.delete_subscription(self._subscriptions, subscription_id)))

    def close(self) -> None:
        """Close the client with every connection of its pool; the next use connects again."""
        self._guard(self._client.connection_pool.disconnect)

    def __enter__(self) -> RedisEventWriter:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _store(self, event: Event, text: str, announcement: Announcement | None, legacy: str) -> str:
        """Store, then look for holes.

        Keeps: STORE-07, IDX-23.
        """
        self._run(calls.store_event(self._keys, event, text, self._ttl_ms, announcement, legacy))
        self._prune(event.event_type)
        return event.event_id

    def _prune(self, event_type: str) -> None:
        """Drop what has no row of the oldest few of a type, now and then; a failure is not the writer's.

        Keeps: IDX-20, IDX-21, IDX-22, IDX-24.
        """
        if self._turns is None or not self._turns.is_due(event_type):
            return
        index = self._holes.index(event_type)
        try:
            oldest = self._guard(lambda: self._send("ZRANGE", index.key, 0, PRUNE_IDS - 1))
            for call in self._holes.calls(index, oldest):
                self._holes.account(index, self._run(call))
        except EventStorageError as error:
            logger.warning("the index of type %r was not looked through after a write: %s", event_type, error)

    def _run(self, call: calls.Call) -> Any:
        def run() -> Any:
            try:
                return self._send("EVALSHA", call.script.digest, *call.words)
            except NoScriptError:
                return self._send("EVAL", call.script.text, *call.words)

        return self._guard(run)

    def _send(self, *words: Any) -> Any:
        """Keeps: STORE-07."""
        execute: Any = self._client.execute_command  # Not typed by every version of redis-py.
        return execute(*words, **{NEVER_DECODE: True})

    def _guard(self, work: Callable[[], Result]) -> Result:
        """Do `work` of the driver: its errors come out as `EventStorageError` without any secret.

        Keeps: STORE-07.
        """
        try:
            return work()
        except DRIVER_ERRORS as error:
            failure = self._server.failure(error)
        # Raised outside the except block, so that not even `__context__` holds what was left out.
        raise failure


class Turns:
    """When a type is due for another look, at most once in `PRUNE_SECONDS`."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._last: Final[OrderedDict[str, float]] = OrderedDict()

    def is_due(self, event_type: str) -> bool:
        """Whether the type is due now; it then is not for a while. A clock that was put back does not count as wait.

        Keeps: IDX-20.
        """
        now = self._clock.time()
        with self._lock:
            last = self._last.get(event_type)
            if last is not None and 0 <= now - last < PRUNE_SECONDS:
                return False
            self._last[event_type] = now
            self._last.move_to_end(event_type)
            if len(self._last) > TYPES_MAX:
                self._last.popitem(last=False)
            return True
