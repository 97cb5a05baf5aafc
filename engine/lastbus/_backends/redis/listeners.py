"""Listener: one task and one connection that hear what other buses announce, for as long as the bus lives.

Only the task itself touches the connection, so that nothing is ever sent while the driver is reconnecting it. Whoever
wants to hear more says so in `wanted`, and wakes the task with a message on a channel that only this listener hears.

A type is heard by its own channel, wildcards by one pattern. What comes by a channel is for handlers and waiters of
exactly that type, what comes by the pattern for wildcard handlers only, so that nobody hears an event twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol
from uuid import uuid4

from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError

from lastbus._backends.redis.alarm import Alarm
from lastbus._backends.redis.announcements import Remembered, read_event, read_note
from lastbus._backends.redis.cancellation import heed
from lastbus._backends.redis.connection import DRIVER_ERRORS, Held, RedisConnection
from lastbus._backends.redis.keys import Channels
from lastbus._clock import Clock
from lastbus._errors import BusClosedError, EventError, EventStorageError
from lastbus._model.event import Event
from lastbus._tasks import spawn

logger = logging.getLogger("lastbus.redis")

CONFIRM_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 5.0
"""After so long without a message the server is asked whether it is still there, and has so long to answer."""
READ_SECONDS: Final = 1.0
"""How long one look for a message may last before the listener thinks of other things."""
RECONNECT_FIRST_SECONDS: Final = 0.1
RECONNECT_SECONDS_MAX: Final = 5.0


class Topic(NamedTuple):
    """A channel, or the pattern of channels, that can be subscribed to."""

    name: str
    is_pattern: bool


class Receive(Protocol):
    """Takes what was heard: an event, whether to deduplicate it, and for which kind of handlers it is."""

    def __call__(self, event: Event, deduplicate: bool, wildcard: bool) -> Awaitable[None]:
        """Return when the next event may come."""


class Watcher:
    """Is told of the listener's absences; this one has nothing to make up for."""

    def lost(self) -> None:
        """The connection is gone: nothing is heard from now on, and perhaps for a while already."""

    def returned(self, since: float) -> None:
        """The server is there again; what was announced after `since`, by the bus's clock, may not have been heard."""

    def confirmed(self) -> None:
        """One more topic is heard."""


class Listener:
    """Hears every topic of `wanted()` on the running loop, and hands what it hears to `receive`.

    What the bus `origin` has announced itself is passed over: it was delivered there already. `watcher` is told of
    absences; one that has begun before this listener was made has lasted since `absent_since`.
    """

    def __init__(
        self,
        connection: RedisConnection,
        channels: Channels,
        control_prefix: str,
        *,
        origin: str,
        wanted: Callable[[], Iterable[Topic]],
        receive: Receive,
        clock: Clock,
        watcher: Watcher | None = None,
        absent_since: float | None = None,
    ) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.tasks: Final[dict[asyncio.Task[Any], None]] = {}
        self.alive_at: float | None = None
        """When the server last gave a sign of life, by the bus's clock; None before the first."""
        self.absent_since = absent_since
        """The earliest that the bus's clock has shown since the listener was cut off; None while it is not."""
        self._connection: Final = connection
        self._channels: Final = channels
        self._control: Final = f"{control_prefix}{uuid4().hex}"
        self._origin: Final = origin
        self._wanted: Final = wanted
        self._receive: Final = receive
        self._clock: Final = clock
        self._watcher: Final = Watcher() if watcher is None else watcher
        self._is_alive = False
        self._remembered: Final = Remembered()
        self._waiting: Final[dict[asyncio.Future[None], frozenset[Topic]]] = {}
        self._held: Held | None = None
        self._pubsub: PubSub | None = None
        self._asked: set[Topic] = set()
        self._unanswered: Counter[Topic] = Counter()
        self._confirmed: set[Topic] = set()
        self._is_stale = True
        self._failures = 0
        self._pause: asyncio.Future[None] | None = None
        self._wakes_wanted = 0
        self._is_waking = False

    def start(self) -> None:
        """Begin to listen, in a task that ends only when it is cancelled."""
        self._spawn(self._run(), "lastbus redis listener")

    def touch(self) -> None:
        """`wanted` may have shrunk; the listener follows when it next moves.

        Keeps: REDIS-13.
        """
        self._is_stale = True

    async def confirm(self, topics: Iterable[Topic], unless: asyncio.Future[Any] | None = None) -> None:
        """Return when the server has confirmed each of `topics`, which are wanted by now, or when `unless` is done.

        `EventStorageError` if the server fails or does not confirm within `CONFIRM_SECONDS`; `BusClosedError` if the
        listener ends.

        Keeps: REDIS-05, REDIS-07.
        """
        needed = frozenset(topics)
        if needed <= self._confirmed:
            return
        confirmation: asyncio.Future[None] = self.loop.create_future()

        def resolve(_: object) -> None:
            if not confirmation.done():
                confirmation.set_result(None)

        def expire() -> None:
            reason = (
                f"Redis at {self._connection.address} has not confirmed a subscription within {CONFIRM_SECONDS:g} s"
            )
            _fail(confirmation, EventStorageError(reason))

        self._waiting[confirmation] = needed
        timer = self._clock.call_later(CONFIRM_SECONDS, expire)
        if unless is not None:
            unless.add_done_callback(resolve)
        try:
            self._wake()
            await confirmation
        finally:
            timer.cancel()
            self._waiting.pop(confirmation, None)
            if unless is not None:
                unless.remove_done_callback(resolve)

    def hears(self, topics: Iterable[Topic]) -> bool:
        """Whether the server has confirmed each of `topics` on the present connection."""
        return self._confirmed.issuperset(topics)

    def go_deaf(self) -> None:
        """Nothing is heard from now on, and perhaps for a while already; harmless when called again.

        Keeps: REDIS-17, FAULT-04.
        """
        if self._is_alive:
            self._is_alive = False
            self.absent_since = self.alive_at
            self._watcher.lost()

    async def aclose(self) -> None:
        """Close the connection, and with it every subscription; harmless when called again.

        Keeps: REDIS-11.
        """
        pubsub, self._pubsub = self._pubsub, None
        held, self._held = self._held, None
        if pubsub is not None:
            # `aclose` is there since redis-py 5.0.1; before, `close` returns something to await.
            verb: Any = getattr(pubsub, "aclose", None) or pubsub.close
            await self._connection.guard(verb())
        if held is not None:
            await self._connection.guard(held.aclose())

    # -- the task -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Listen, and begin again whenever that has ended, until cancelled.

        Keeps: REDIS-06.
        """
        try:
            while True:
                await self._hear_guarded()
                await self._hang_up()
                await self._rest()
        finally:
            self.go_deaf()
            for confirmation in self._waiting:
                _fail(confirmation, BusClosedError("register_handler"))

    async def _hear_guarded(self) -> None:
        """Listen until the connection breaks. Whatever goes wrong, the listener goes on.

        Keeps: REDIS-06, REDIS-07.
        """
        try:
            await self._hear()
        except DRIVER_ERRORS as error:
            # One WARNING for each outage; the attempts that follow it tell nothing new.
            level = logging.DEBUG if self._failures else logging.WARNING
            logger.log(
                level, "the listener lost its connection and will reconnect: %s", self._connection.failure(error)
            )
        except Exception:
            logger.exception("the listener failed and will start again")

    async def _hear(self) -> None:
        """Read until the connection breaks or the server has been silent for too long.

        Keeps: REDIS-07, FAULT-04.
        """
        self._held = await self._connection.listening_client()
        self._pubsub = pubsub = self._held.client.pubsub()
        await heed(pubsub.subscribe(self._control))
        self._is_stale = True
        is_asked_for_life = False
        silence = Alarm(self._clock)
        silence.set(IDLE_SECONDS)
        try:
            while True:
                if self._is_stale:
                    await self._ask(pubsub)
                message = await pubsub.get_message(timeout=READ_SECONDS)
                if message is not None:
                    self.alive_at = self._clock.time()
                    await self._heard(message)
                    is_asked_for_life = False
                elif not silence.is_ringing:
                    continue
                elif is_asked_for_life:
                    raise RedisConnectionError("the server has stopped answering")
                else:
                    self._is_stale = is_asked_for_life = True
                    await heed(pubsub.ping())
                if silence.is_ringing:
                    silence.off()
                    silence.set(IDLE_SECONDS)
        finally:
            silence.off()

    async def _ask(self, pubsub: PubSub) -> None:
        """Subscribe to what is wanted and not asked for yet, and the other way round.

        Keeps: REDIS-13.
        """
        self._is_stale = False
        wanted = set(self._wanted())
        gone, new = self._asked - wanted, wanted - self._asked
        self._asked = wanted
        self._confirmed -= gone
        self._unanswered.update([*gone, *new])
        for verb, topics, is_pattern in (
            (pubsub.unsubscribe, gone, False),
            (pubsub.punsubscribe, gone, True),
            (pubsub.subscribe, new, False),
            (pubsub.psubscribe, new, True),
        ):
            names = [topic.name for topic in topics if topic.is_pattern is is_pattern]
            if names:
                await heed(verb(*names))
        self._let_go(wanted)

    def _let_go(self, wanted: set[Topic]) -> None:
        """Nobody waits for the confirmation of what is not wanted any more.

        Keeps: REDIS-13.
        """
        for confirmation, needed in self._waiting.items():
            self._waiting[confirmation] = needed & wanted
        self._confirm_waiting()

    def _confirm_waiting(self) -> None:
        for confirmation, needed in self._waiting.items():
            if needed <= self._confirmed and not confirmation.done():
                confirmation.set_result(None)

    async def _heard(self, message: dict[str, Any]) -> None:
        """Tell answers from events, and an event's own channel from the pattern that covers all of them.

        Keeps: REDIS-04.
        """
        kind, channel = message["type"], _text(message["channel"])
        if channel == self._control:
            self._recovered(kind)
        elif kind in ("message", "pmessage"):
            await self._pass_on(channel, message["data"], wildcard=kind == "pmessage")
        elif kind in ("subscribe", "psubscribe", "unsubscribe", "punsubscribe"):
            self._answered(Topic(channel, kind.startswith("p")), kind in ("subscribe", "psubscribe"))

    def _recovered(self, kind: str) -> None:
        """The control channel is heard: the connection works. Everything else on it only wakes the task.

        Keeps: REDIS-17.
        """
        if kind != "subscribe":
            return
        if self._failures:
            logger.info("the listener is connected again")
        self._failures = 0
        self._is_alive = True
        if self.absent_since is not None:
            self._note_time()
            since, self.absent_since = self.absent_since, None
            self._watcher.returned(since)

    def _answered(self, topic: Topic, is_subscribed: bool) -> None:
        """An answer counts when none is left to come: a topic can be dropped and wanted again in between.

        Keeps: REDIS-05.
        """
        self._unanswered[topic] -= 1
        if self._unanswered[topic] > 0:
            return
        del self._unanswered[topic]
        if not is_subscribed or topic not in self._asked:
            return
        self._confirmed.add(topic)
        self._confirm_waiting()
        self._watcher.confirmed()

    async def _pass_on(self, channel: str, data: str | bytes, wildcard: bool) -> None:
        """Hand on a foreign event that was not heard before; what cannot be one is named and passed over.

        Keeps: REDIS-02, REDIS-03, REDIS-06, REDIS-15.
        """
        try:
            note = read_note(data)
            if note.origin == self._origin or not self._remembered.is_new(note.announcement_id, wildcard):
                return
            event = read_event(data)
            if channel != self._channels.channel(event.event_type):
                raise EventError(f"an event of type {event.event_type!r} on the wrong channel")
        except EventError as error:
            logger.warning("a message on channel %r is skipped: %s", channel, error)
            return
        try:
            await self._receive(event, note.deduplicate, wildcard)
        except Exception:  # The listener must outlive whatever it feeds.
            logger.exception("event %s was heard but could not be handed on", event.event_id)

    async def _hang_up(self) -> None:
        """Forget what was asked for on a connection that is gone, so that all of it is asked for on the next one.

        Keeps: REDIS-06, REDIS-17.
        """
        self._asked, self._confirmed = set(), set()
        self._unanswered.clear()
        self.go_deaf()
        try:
            await self.aclose()
        except EventStorageError as error:
            logger.debug("the broken connection did not close properly: %s", error)

    async def _rest(self) -> None:
        """Wait before the next attempt, longer each time; a sign of life of the server ends it early.

        Keeps: REDIS-07, FAULT-07.
        """
        self._note_time()
        delay = min(RECONNECT_FIRST_SECONDS * 2 ** min(self._failures, 32), RECONNECT_SECONDS_MAX)
        self._failures += 1
        self._pause = self.loop.create_future()
        timer = self._clock.call_later(delay, self._end_rest)
        try:
            await self._pause
        finally:
            timer.cancel()
            self._pause = None

    def _note_time(self) -> None:
        """A clock that is moved back during an absence makes it longer: events are stamped with the time it shows.

        Keeps: FAULT-07.
        """
        if self.absent_since is not None:
            self.absent_since = min(self.absent_since, self._clock.time())

    def _end_rest(self) -> None:
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)

    # -- waking it ----------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Make the task look at `wanted`. Wakes that are asked for while one is on its way become one more.

        Keeps: REDIS-13.
        """
        self._is_stale = True
        self._wakes_wanted += 1
        if not self._is_waking:
            self._is_waking = True
            self._spawn(self._send_wakes(), "lastbus redis wake")

    async def _send_wakes(self) -> None:
        sent = 0
        try:
            while sent != self._wakes_wanted:
                sent = self._wakes_wanted
                await self._connection.command("PUBLISH", self._control, b"")
                self._end_rest()
        except EventStorageError as error:
            for confirmation in self._waiting:
                _fail(confirmation, error)
        finally:
            self._is_waking = False

    def _spawn(self, coro: Any, name: str) -> None:
        spawn(coro, name=name, owner=self.tasks, label=None, on_done=self.tasks.pop)


def _fail(future: asyncio.Future[None], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _text(name: str | bytes | None) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
