"""Catch-up: what was stored while nobody here could hear it is handed on afterwards, oldest first, and once.

Two things are made up for. A *gap* is a time in which a handler or a waiter heard nothing: while the listener was cut
off, and, for a handler with an id of its own, while its process was away. What was stored in it is found by the index
of its type. A *held* pair of event and handler is one that could not be claimed: somebody holds it who may have died,
or the server refused. It is looked at again when the claim may have lapsed, or the server may be well again.

Whether a handler is owed an event is for the server's marks and claims to say. An event without deduplication has
none, and its row does not say so: what ran without is remembered here, and what was made up for may still be heard.

Keeps: REDIS-17.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from redis.exceptions import ResponseError

from lastbus._backends.redis.alarm import Alarm
from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.handing import HandingOn
from lastbus._backends.redis.keys import EventKeys, TrackerKeys
from lastbus._backends.redis.listeners import Listener, Topic, Watcher
from lastbus._backends.redis.missed import Gaps, Pair, Recent, Wait
from lastbus._backends.redis.standing import greet
from lastbus._backends.redis.window import PAGE_EVENTS, pages, read_events
from lastbus._clock import Clock
from lastbus._dispatch.claims import Claim, Claims, ClaimWatcher
from lastbus._dispatch.intake import Handlers
from lastbus._dispatch.registry import HandlerRegistry, Registration
from lastbus._dispatch.waiters import Waiters
from lastbus._errors import BusClosedError, EventStorageError
from lastbus._model.event import Event
from lastbus._model.patterns import matches_event_type
from lastbus._ports.tracker import EventProcessingTracker
from lastbus._tasks import spawn

logger = logging.getLogger("lastbus.redis")

SKEW_SECONDS: Final = 60.0
"""How much earlier than its gap an event may be stamped: clocks differ, and a dead line is not seen at once."""
PRESENCE_SECONDS: Final = 600.0
"""How often the server is told that a handler's own id is still in use."""
HELD_MAX: Final = 100_000
RETRY_FIRST_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 60.0


class CatchUp(Watcher, ClaimWatcher):
    """Makes up for what the handlers and waiters of one bus have missed in the last `look_back` seconds (0: nothing).

    One task for each loop on which the bus listens does the work. A failure of the server makes it rest, and begin
    again where it was.
    """

    def __init__(
        self,
        connection: RedisConnection,
        event_keys: EventKeys,
        tracker_keys: TrackerKeys,
        *,
        registry: HandlerRegistry,
        waiters: Waiters,
        claims: Claims,
        tracker: EventProcessingTracker,
        make_up: Callable[[Event, Handlers], Awaitable[list[asyncio.Future[Any]]]],
        topic: Callable[[str | None], Topic],
        topic_of_type: Callable[[str], Topic],
        clock: Clock,
        look_back: float,
        life_ms: int,
    ) -> None:
        self.tasks: Final[dict[asyncio.Task[Any], None]] = {}
        self.gaps: Final = Gaps()
        self._connection: Final = connection
        self._event_keys: Final = event_keys
        self._tracker_keys: Final = tracker_keys
        self._registry: Final = registry
        self._waiters: Final = waiters
        self._tracker: Final = tracker
        self._topic: Final = topic
        self._topic_of_type: Final = topic_of_type
        self._clock: Final = clock
        self._look_back: Final = look_back
        self._life_ms: Final = life_ms
        self._listener: Listener | None = None
        self._newcomers: Final[dict[str, None]] = {}
        self._own_ids: Final[dict[str, None]] = {}
        self._held: Final[OrderedDict[Pair, None]] = OrderedDict()
        self._unended: Final[OrderedDict[Claim, bool]] = OrderedDict()
        self._loose: Final[Recent[Pair]] = Recent()
        self._handing: Final = HandingOn(
            connection,
            tracker_keys,
            claims=claims,
            tracker=tracker,
            make_up=make_up,
            clock=clock,
            in_hand=lambda: {*claims.pairs, *((event_id, handler_id) for event_id, handler_id, _ in self._unended)},
            hold=self._hold,
            is_refused=lambda: self._rest.is_set,
        )
        self._presence: Final = Alarm(clock, self._wake)
        self._lapse: Final = Alarm(clock, self._wake)
        self._rest: Final = Alarm(clock, self._wake)
        self._calm: Final = Alarm(clock, self._calm_down)
        self._failures = 0
        self._nap: asyncio.Future[None] | None = None

    def start(self, listener: Listener) -> None:
        """Work on the running loop, in the context of the caller, beside `listener`.

        Keeps: REDIS-21.
        """
        self._listener = listener
        self._handing.begin_anew()
        if self._held or self._own_ids:
            self._lapse.ring()
            self._presence.ring()
        if self._look_back and not any(task.get_loop() is listener.loop for task in self.tasks):
            spawn(self._run(), name="lastbus redis catch-up", owner=self.tasks, label=None, on_done=self.tasks.pop)

    # -- what there is to make up for -----------------------------------------------------------------------------

    def expect(self, handler_id: str) -> None:
        """A handler was registered under an id of its own; what it has missed is its due, once in the bus's life.

        Keeps: REDIS-18.
        """
        if self._look_back and handler_id not in self._own_ids:
            self._newcomers[handler_id] = None

    def forget(self, handler_id: str) -> None:
        """A handler is gone; what it misses from now on is not its due if it comes back to this bus."""
        self.gaps.forget(handler_id)

    async def welcome(self) -> None:
        """Make newcomers known at the server, and make up for what those have missed that were known there already.

        An id that is not known there has not been away: it gets what comes from now on. One whose time lies ahead was
        known before the clock was moved back: it gets all that the look-back covers.

        Keeps: REDIS-18, FAULT-07.
        """
        ids = [each for each in self._newcomers if self._registry.get(each)]
        now = self._clock.time()
        earliest = now - self._look_back
        known = await greet(self._connection, self._tracker_keys, now, self._life_ms, ids)
        for handler_id, since in zip(ids, known, strict=True):
            self._own_ids[handler_id] = None
            if since is not None:
                self.gaps.open(handler_id, earliest if since > now else max(since, earliest))
            self._presence.set(PRESENCE_SECONDS)
        self._newcomers.clear()
        self._wake()

    def lost(self) -> None:
        """The listener was cut off: nobody who is there now hears anything until it has returned.

        Keeps: REDIS-17.
        """
        self.gaps.begin(each.handler_id for each in self._registry)

    def returned(self, since: float) -> None:
        """The listener is connected again, and so can be what failed meanwhile: nothing rests any longer.

        Keeps: REDIS-17, REDIS-20.
        """
        self.gaps.end(since - SKEW_SECONDS)
        self._presence.ring()
        self._lapse.ring()
        self._rest.ring()
        self._calm_down()

    def confirmed(self) -> None:
        """One more topic is heard: gaps of its handlers can be closed for good."""
        self._wake()

    def refused(self, event: Event, registration: Registration) -> None:
        """Somebody else holds the pair, or is done with it: only one with an id of its own can have others.

        Keeps: REDIS-20.
        """
        if registration.handler_id in self._own_ids:
            self._hold((event.event_id, registration.handler_id))

    def untaken(self, event: Event, registration: Registration) -> None:
        """The server could not be asked for the claim: ask again after a rest.

        Keeps: FAULT-05.
        """
        if self._look_back:
            self._hold((event.event_id, registration.handler_id))
            self._lapse.ring()
            self._rest_a_while()

    def unended(self, claim: Claim, succeeded: bool) -> None:
        """A handler's end could not be stored: store it after a rest.

        Keeps: REDIS-20.
        """
        if not self._look_back:
            return
        self._unended[claim] = succeeded
        if len(self._unended) > HELD_MAX:
            self._unended.popitem(last=False)
        self._rest_a_while()

    def run_loosely(self, event: Event, wildcard: bool | None) -> None:
        """The event goes to handlers without deduplication: to those of one kind, or of both.

        Keeps: REDIS-19.
        """
        for each in self._registry.matching(event):
            if wildcard in (None, each.is_wildcard):
                self._loose.note((event.event_id, each.handler_id), self._clock.time())

    def failed_to_store(self, event: Event, error: EventStorageError) -> None:
        """The publisher gets `error`; if the server has stored and announced the event all the same, it is missed here.

        Keeps: FAULT-01, FAULT-05.
        """
        for each in self._registry.matching(event):
            self._loose.forget((event.event_id, each.handler_id))
            if not isinstance(error.__cause__, ResponseError):
                self.untaken(event, each)

    def has_made_up_for(self, event: Event, wildcard: bool) -> bool:
        """Whether an announcement of the event comes late, because it was made up for less than a minute ago.

        Keeps: REDIS-19.
        """
        made_up = self._handing.recent.get((event.event_id, wildcard))
        return made_up is not None and self._clock.time() - made_up < SKEW_SECONDS

    def _hold(self, pair: Pair) -> None:
        """Look at the pair again when its claim may have lapsed.

        Keeps: REDIS-20.
        """
        self._held[pair] = None
        if len(self._held) > HELD_MAX:
            pair, _ = self._held.popitem(last=False)
            logger.warning("event %s in handler %s is left to whoever holds it: too many pairs are held", *pair)
        self._lapse.set(self._tracker.claim_ttl or 0.0)

    # -- the task -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Work while there is work, sleep while there is none; ends when the bus closes.

        Keeps: REDIS-21.
        """
        try:
            while True:
                if self._has_work():
                    await self._work_guarded()
                else:
                    await self._sleep()
        except BusClosedError:
            logger.debug("the catch-up ends: the bus is closing")
        finally:
            for alarm in (self._presence, self._lapse, self._rest, self._calm):
                alarm.off()

    async def _work_guarded(self) -> None:
        """Whatever goes wrong, it goes on later; one WARNING for each series of failures.

        Keeps: FAULT-05.
        """
        try:
            await self._work()
        except BusClosedError:
            raise
        except EventStorageError as error:
            logger.log(logging.DEBUG if self._failures else logging.WARNING, "the catch-up has to wait: %s", error)
            self._rest_a_while()
        except Exception:  # It must outlive whatever it meets.
            logger.exception("the catch-up failed and will go on later")
            self._rest_a_while()

    def _has_work(self) -> bool:
        if self._rest.is_set:
            return False
        return self._presence.is_ringing or bool(self._unended) or self._is_lapse_over() or self._audience() is not None

    def _is_lapse_over(self) -> bool:
        return self._lapse.is_ringing and bool(self._held)

    async def _work(self) -> None:
        """What has ended is stored first, so that nothing that is done is done again.

        Keeps: REDIS-20.
        """
        # A connection that died with its server is found out by this: every redis-py repeats it, but not a pipeline.
        await self._connection.command("PING")
        if self._presence.is_ringing:
            await self._stay_known()
        await self._store_ends()
        if self._is_lapse_over():
            await self._look_at_held()
        audience = self._audience()
        if audience is not None:
            await self._close_gaps(audience)

    async def _stay_known(self) -> None:
        """Tell the server that the ids of this bus are in use; one that has lost its memory learns them anew.

        Keeps: REDIS-18.
        """
        self._presence.off()
        if not self._own_ids:
            return
        try:
            await greet(self._connection, self._tracker_keys, self._clock.time(), self._life_ms, list(self._own_ids))
        except EventStorageError as error:
            if not _is_hopeless(error):
                self._presence.ring()
                raise
            logger.error("the handlers of this bus cannot be made known: %s", error)
        self._presence.set(PRESENCE_SECONDS)

    def _audience(self) -> dict[str, float] | None:
        """The handlers whose gaps can be closed because they hear again; None if nobody's can.

        Whoever does not hear yet would miss what comes between the closing and the hearing.

        Keeps: REDIS-17.
        """
        listener = self._listener
        if listener is None or listener.absent_since is not None:
            return None
        audience: dict[str, float] = {}
        for handler_id, since in tuple(self.gaps.handlers.items()):
            registration = self._registry.get(handler_id)
            if registration is None:
                self.gaps.forget(handler_id)
            elif listener.hears({self._topic(registration.pattern)}):
                audience[handler_id] = since
        return audience if audience or self._served_waiters(listener) else None

    def _served_waiters(self, listener: Listener) -> dict[asyncio.Future[Event], Wait]:
        waiters = self.gaps.waiters.items()
        return {future: wait for future, wait in waiters if listener.hears({self._topic_of_type(wait.event_type)})}

    async def _store_ends(self) -> None:
        """Mark what was handled, and give back what was not, while the server could not be told.

        Keeps: REDIS-20, FAULT-08.
        """
        for claim, succeeded in tuple(self._unended.items()):
            verb = self._tracker.finish_event if succeeded else self._tracker.release_claim
            try:
                await verb(*claim)
            except EventStorageError as error:
                if not _is_hopeless(error):
                    raise
                logger.error("event %s in handler %s: its end can never be stored: %s", *claim[:2], error)
            self._unended.pop(claim, None)

    async def _look_at_held(self) -> None:
        """Hand on what is not held any more; what still is will be looked at again.

        Keeps: REDIS-20, FAULT-05.
        """
        self._lapse.off()
        pairs = tuple(self._held)
        for start in range(0, len(pairs), PAGE_EVENTS):
            page = pairs[start : start + PAGE_EVENTS]
            for pair in page:
                self._held.pop(pair, None)
            try:
                await self._look_at(page)
            except BaseException:
                for pair in page:
                    self._hold(pair)
                self._lapse.ring()
                raise

    async def _look_at(self, pairs: Sequence[Pair]) -> None:
        ids = dict.fromkeys(event_id.encode() for event_id, _ in pairs)
        events = await read_events(self._connection, self._event_keys, [(each, None) for each in ids])
        events.sort(key=lambda event: (event.timestamp, event.event_id))
        held = set(pairs)
        wanted = [
            (event, tuple(each for each in self._registry.matching(event) if (event.event_id, each.handler_id) in held))
            for event in events
        ]
        await self._handing.hand_on(wanted)

    async def _close_gaps(self, audience: Mapping[str, float]) -> None:
        """Hand on what was stored in the gaps of those who hear again; after a failure the rest of it is still open.

        Keeps: REDIS-17.
        """
        assert self._listener is not None
        waits = self._served_waiters(self._listener)
        for handler_id in audience:
            del self.gaps.handlers[handler_id]
        reached = earliest = self._clock.time() - self._look_back
        since = max(earliest, min([*audience.values(), *(wait.since for wait in waits.values())]))
        try:
            types = await self._types(audience, waits)
            async with aclosing(pages(self._connection, self._event_keys, types, since)) as stored:
                async for page in stored:
                    self._offer(page, waits)
                    await self._handing.hand_on([(event, self._audience_of(event, audience)) for event in page])
                    reached = page[-1].timestamp if page else reached
        except BaseException:
            for handler_id, start in audience.items():
                self.gaps.open(handler_id, max(start, reached))
            raise
        for future in waits:
            self.gaps.waiters.pop(future, None)

    async def _types(self, audience: Mapping[str, float], waits: Mapping[Any, Wait]) -> set[str]:
        """The types of events in which anybody is interested; only wildcards make the server look for all it knows."""
        patterns = [each.pattern for each in map(self._registry.get, audience) if each is not None]
        wildcards = [each for each in patterns if self._topic(each).is_pattern]
        types = {each for each in patterns if each is not None and each not in wildcards}
        types.update(wait.event_type for wait in waits.values())
        if wildcards:
            known = {each.decode(errors="replace") for each in await self._connection.scan(self._event_keys.types)}
            types.update(each for each in known if any(matches_event_type(wildcard, each) for wildcard in wildcards))
        return types

    def _audience_of(self, event: Event, audience: Mapping[str, float]) -> Handlers:
        """The handlers that may have missed the event: it lies in their gap, and did not run without deduplication.

        Keeps: REDIS-19.
        """
        return tuple(
            each
            for each in self._registry.matching(event)
            if audience.get(each.handler_id, float("inf")) <= event.timestamp
            and self._loose.get((event.event_id, each.handler_id)) is None
        )

    def _offer(self, page: Sequence[Event], waits: Mapping[asyncio.Future[Event], Wait]) -> None:
        """A waiter wants what came after it had begun to wait.

        Keeps: REDIS-17.
        """
        for event in page:
            for future, wait in waits.items():
                if wait.event_type == event.event_type and wait.since <= event.timestamp:
                    self._waiters.offer(event, future)

    # -- resting and waking ---------------------------------------------------------------------------------------

    def _rest_a_while(self) -> None:
        """Do nothing for a while, longer each time until nothing has failed for a minute.

        Keeps: FAULT-05.
        """
        if not self._rest.is_set:
            self._rest.off()
            delay = min(RETRY_FIRST_SECONDS * 2 ** min(self._failures, 32), RETRY_SECONDS_MAX)
            self._rest.set(delay)
            self._calm.off()
            self._calm.set(delay + RETRY_SECONDS_MAX)
            self._failures += 1

    def _calm_down(self) -> None:
        """Nothing has failed for a while, or the server is another one now."""
        self._calm.off()
        self._failures = 0

    async def _sleep(self) -> None:
        self._nap = asyncio.get_running_loop().create_future()
        try:
            await self._nap
        finally:
            self._nap = None

    def _wake(self) -> None:
        """Let the task look for work; it may be on another loop than whoever calls."""
        nap = self._nap
        if nap is None or nap.get_loop().is_closed():
            return
        nap.get_loop().call_soon_threadsafe(_end, nap)


def _end(nap: asyncio.Future[None]) -> None:
    if not nap.done():
        nap.set_result(None)


def _is_hopeless(error: EventStorageError) -> bool:
    """Whether asking again cannot help: the key holds something else."""
    return isinstance(error.__cause__, ResponseError) and "WRONGTYPE" in str(error)
