"""The Redis bus: `BaseBus` over three stores on one server, with a listener for what other processes announce."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from redis.asyncio import Redis

from lastbus._backends.redis.announcements import Note, announce
from lastbus._backends.redis.catchup import CatchUp
from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.janitor import IndexJanitor, is_disabled
from lastbus._backends.redis.keys import (
    EVENT_PREFIX,
    SUBSCRIPTION_PREFIX,
    TRACKER_PREFIX,
    Channels,
    EventKeys,
    TrackerKeys,
)
from lastbus._backends.redis.lifetime import lifetime_ms
from lastbus._backends.redis.listeners import Listener, Topic
from lastbus._backends.redis.storage import RedisEventStorage
from lastbus._backends.redis.subscriptions import RedisEventSubscriptionStorage
from lastbus._backends.redis.tracker import RedisProcessingTracker
from lastbus._bus import BaseBus
from lastbus._errors import EventStorageError
from lastbus._model.event import Event
from lastbus._model.numbers import check_seconds
from lastbus._model.patterns import is_exact
from lastbus._model.policy import RetryPolicy
from lastbus._ports.bus import Handler
from lastbus._settings import CATCH_UP, CATCH_UP_OFF

PRESENCE_LIFE_MS: Final = 3_600_000
"""How much longer than events the server knows the id of a handler."""


class RedisEventBus(BaseBus):
    """An event bus for any number of processes on one Redis server, given by a URL or a redis-py asyncio client.

    The prefixes say where things are kept; a custom event prefix also moves the channels, unless `channel_prefix` says
    where they are. `ttl` is the life of events and of their marks in seconds. Other options are those of every bus:
    `close_timeout`, `on_overdue`, `max_pending_callbacks`, `publish_sync_drain_timeout`, `clock`. Closing the bus
    closes its connections, those of a client that was handed in included.

    A started bus has a janitor for the indexes of its stores, unless `PLAITA_DISABLE_EVENT_INDEX_SWEEP=1`; of several
    buses on the same keys one is enough, and the others can be made with `sweep_indexes=False`.

    What other processes announce while the listener is cut off is made up for when it is back, and what they announce
    while a process is away when it comes back to handlers with a `handler_id` of their own; up to `catch_up` seconds
    ago (default: `PLAITA_EVENT_CATCH_UP_SECONDS`; 0 turns it off, as `PLAITA_DISABLE_EVENT_CATCH_UP=1` does).
    """

    event_storage: RedisEventStorage
    subscription_storage: RedisEventSubscriptionStorage

    def __init__(
        self,
        redis_url: str | None = None,
        event_key_prefix: str = EVENT_PREFIX,
        subscription_key_prefix: str = SUBSCRIPTION_PREFIX,
        processing_key_prefix: str = TRACKER_PREFIX,
        client: Redis | None = None,
        channel_prefix: str | None = None,
        *,
        ttl: float | None = None,
        catch_up: float | None = None,
        sweep_indexes: bool = True,
        **options: Any,
    ) -> None:
        shared = RedisConnection(redis_url, client)
        clock = options.get("clock")
        super().__init__(
            event_storage=RedisEventStorage(None, event_key_prefix, ttl, clock=clock, connection=shared),
            subscription_storage=RedisEventSubscriptionStorage(None, subscription_key_prefix, connection=shared),
            processing_tracker=RedisProcessingTracker(None, processing_key_prefix, ttl, clock=clock, connection=shared),
            **options,
        )
        self.pubsub: Listener | None = None
        self.redis: RedisConnection | None = None
        self._connection: Final = shared
        self._channels: Final = Channels.beside(event_key_prefix, channel_prefix)
        self._control_prefix: Final = f"{event_key_prefix}wake:"
        self._serial: Final = itertools.count()
        self._waited: Final[Counter[Topic]] = Counter()
        self._private_loop: asyncio.AbstractEventLoop | None = None
        self._catch_up: Final = CatchUp(
            shared,
            EventKeys(event_key_prefix),
            TrackerKeys(processing_key_prefix),
            registry=self._registry,
            waiters=self._waiters,
            claims=self._claims,
            tracker=self.processing_tracker,
            make_up=self._foreign.make_up,
            topic=self._topic,
            topic_of_type=self._topic_of_type,
            clock=self._clock,
            look_back=_look_back(catch_up),
            life_ms=_presence_life_ms(ttl),
        )
        self._claims.watcher = self._catch_up
        self._sweeps_indexes: Final = sweep_indexes
        self._janitor: IndexJanitor | None = None

    async def _open(self) -> None:
        """Reach the server, and hear whatever handlers are there already.

        Keeps: IDX-11, REDIS-05, REDIS-13, REDIS-18.
        """
        await self._connection.command("PING")
        self._refuse_closed("start")
        self.redis = self._connection
        if topics := self._wanted():
            await self._listen(topics)
            await self._catch_up.welcome()
        self._refuse_closed("start")
        self._sweep_indexes()

    async def _store(self, event: Event, text: str, deduplicate: bool) -> None:
        """Store, index and announce in one round trip.

        Keeps: REDIS-01, REDIS-19, FAULT-01.
        """
        note = Note(self.instance_id, f"{self.instance_id}-{next(self._serial)}", deduplicate)
        announcement = announce(self._channels.channel(event.event_type), note)
        if not deduplicate:
            self._catch_up.run_loosely(event, wildcard=None)
        try:
            await self.event_storage.store_encoded(event, text, announcement)
        except EventStorageError as error:
            self._catch_up.failed_to_store(event, error)
            raise

    async def _cover(self, pattern: str | None) -> None:
        """Return when handlers of `pattern` are heard.

        Keeps: REDIS-05, REDIS-18.
        """
        await self._listen({self._topic(pattern)})
        await self._catch_up.welcome()

    def add_handler(
        self,
        event_type: str | None,
        handler: Handler | None,
        filter_condition: Mapping[str, Any] | None = None,
        retry_policy: RetryPolicy | None = None,
        handler_id: str | None = None,
    ) -> str:
        """As on every bus; what a handler with an id of its own has missed is made up for once it is heard.

        Keeps: REDIS-18.
        """
        added = super().add_handler(event_type, handler, filter_condition, retry_policy, handler_id)
        if handler_id is not None:
            self._catch_up.expect(added)
        return added

    async def unregister_handler(self, handler_id: str) -> bool:
        """As on every bus; what the handler has missed so far is not made up for any more."""
        self._catch_up.forget(handler_id)
        return await super().unregister_handler(handler_id)

    async def _receive(self, event: Event, deduplicate: bool, wildcard: bool) -> None:
        """Without deduplication it is not handed on a second time if it was made up for before it was heard.

        Keeps: REDIS-19.
        """
        if not deduplicate:
            deduplicate = self._catch_up.has_made_up_for(event, wildcard)
            if not deduplicate:
                self._catch_up.run_loosely(event, wildcard)
        await super()._receive(event, deduplicate, wildcard)

    def _uncover(self, pattern: str | None) -> None:
        if self.pubsub is not None:
            self.pubsub.touch()

    async def _cover_waiter(self, event_type: str, future: asyncio.Future[Event]) -> None:
        """Hear the type until `future` is done.

        Keeps: REDIS-05, REDIS-13.
        """
        topic = self._topic_of_type(event_type)
        self._waited[topic] += 1
        self._catch_up.gaps.wait(future, event_type, self._clock.time())
        future.add_done_callback(lambda _: self._uncover_waiter(topic))
        try:
            await self._listen({topic}, future)
        except BaseException:
            future.cancel()
            raise

    def _uncover_waiter(self, topic: Topic) -> None:
        self._waited[topic] -= 1
        if not self._waited[topic]:
            del self._waited[topic]
        self._uncover(None)

    async def _listen(self, topics: set[Topic], unless: asyncio.Future[Any] | None = None) -> None:
        """Return when `topics` are heard on this loop; the first call starts the listener."""
        listener = self.pubsub
        if listener is None or listener.loop is not asyncio.get_running_loop():
            self._refuse_closed("start")
            # In the bus's own context: what it hears is not to look as if it came from whoever asked first.
            listener = self.pubsub = self._owner_context.copy().run(self._start_listener)
        await listener.confirm(topics, unless)

    def _start_listener(self) -> Listener:
        """A listener for the running loop. One on a loop that is gone has left a gap.

        Keeps: REDIS-17.
        """
        before = self.pubsub
        if before is not None:
            before.go_deaf()
        listener = Listener(
            self._connection,
            self._channels,
            self._control_prefix,
            origin=self.instance_id,
            wanted=self._wanted,
            receive=self._receive,
            clock=self._clock,
            watcher=self._catch_up,
            absent_since=None if before is None else before.absent_since,
        )
        listener.start()
        if listener.loop is not self._private_loop:
            self._catch_up.start(listener)
        return listener

    @asynccontextmanager
    async def _private_connections(self) -> AsyncIterator[None]:
        """A private loop ends with its publish: nothing is made up for there."""
        self._private_loop = asyncio.get_running_loop()
        try:
            async with super()._private_connections():
                yield
        finally:
            self._private_loop = None

    def _sweep_indexes(self) -> None:
        """Have one janitor, on the running loop.

        Keeps: IDX-11, IDX-18.
        """
        if not self._sweeps_indexes or self._janitors_here() or is_disabled():
            return
        stores = (self.event_storage.holes, self.subscription_storage.holes)
        janitor = IndexJanitor(
            self._connection,
            stores,
            clock=self._clock,
            is_wanted=lambda: self._janitor is janitor and not self._closing,
        )
        self._janitor = janitor
        self._owner_context.copy().run(janitor.start)

    def _janitors_here(self) -> list[asyncio.Task[Any]]:
        """The janitor's task, if it runs on this loop: one of another loop ends by itself when it is not wanted."""
        loop = asyncio.get_running_loop()
        tasks = () if self._janitor is None else self._janitor.tasks
        return [each for each in tasks if each.get_loop() is loop]

    def _running_listeners(self) -> list[asyncio.Task[Any]]:
        """Keeps: IDX-11."""
        listening = () if self.pubsub is None else self.pubsub.tasks
        return [*super()._running_listeners(), *listening, *self._catch_up.tasks, *self._janitors_here()]

    def _wanted(self) -> set[Topic]:
        """What handlers and waiters need to hear, now."""
        return {self._topic(each.pattern) for each in self._registry} | set(self._waited)

    def _topic(self, pattern: str | None) -> Topic:
        """What a handler's pattern is heard by: its own channel if it is one type, the pattern of all if it is not.

        Keeps: REDIS-04.
        """
        if pattern is None or not is_exact(pattern):
            return Topic(self._channels.pattern, is_pattern=True)
        return self._topic_of_type(pattern)

    def _topic_of_type(self, event_type: str) -> Topic:
        return Topic(self._channels.channel(event_type), is_pattern=False)


def _presence_life_ms(ttl: float | None) -> int:
    """How long the server knows the id of a handler that is gone.

    Keeps: REDIS-18.
    """
    return lifetime_ms(ttl) + PRESENCE_LIFE_MS


def _look_back(seconds: float | None) -> float:
    """How old an event may be that is made up for.

    Keeps: REDIS-17.
    """
    if CATCH_UP_OFF.is_on():
        return 0.0
    return CATCH_UP.read() if seconds is None else check_seconds("catch_up", seconds)
