"""Handing on: events go to those of their handlers to whom, as the server says, they are owed; so many at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.keys import TrackerKeys
from lastbus._backends.redis.missed import Pair, Recent
from lastbus._backends.redis.standing import Standing, State, standings
from lastbus._clock import Clock
from lastbus._dispatch.claims import Claim, Claims
from lastbus._dispatch.intake import Handlers
from lastbus._dispatch.registry import Registration
from lastbus._errors import EventStorageError
from lastbus._model.event import Event
from lastbus._ports.tracker import EventProcessingTracker

logger = logging.getLogger("lastbus.redis")

AT_ONCE: Final = 100
"""How many deliveries of a catch-up may run at once, however many more the bus allows."""

MakeUp = Callable[[Event, Handlers], Awaitable[list[asyncio.Future[Any]]]]


class HandingOn:
    """Hands on for one bus. `hold` gets each pair that somebody else holds; while `is_refused`, nothing starts.

    A pair `in_hand` has its delivery already. A claim of this bus on any other was granted by a server that could not
    say so: it is given back.

    `recent` says when an event was handed on to wildcard handlers (True) or to others (False).
    """

    def __init__(
        self,
        connection: RedisConnection,
        keys: TrackerKeys,
        *,
        claims: Claims,
        tracker: EventProcessingTracker,
        make_up: MakeUp,
        clock: Clock,
        in_hand: Callable[[], set[Pair]],
        hold: Callable[[Pair], None],
        is_refused: Callable[[], bool],
    ) -> None:
        self.recent: Final[Recent[tuple[str, bool]]] = Recent()
        self._connection: Final = connection
        self._keys: Final = keys
        self._claims: Final = claims
        self._tracker: Final = tracker
        self._orphans: Final[list[Claim]] = []
        self._make_up: Final = make_up
        self._clock: Final = clock
        self._in_hand: Final = in_hand
        self._hold: Final = hold
        self._is_refused: Final = is_refused
        self._running: set[asyncio.Future[Any]] = set()

    def begin_anew(self) -> None:
        """Another loop is running: what was started on the last one does not count any more."""
        self._running = set()

    async def hand_on(self, wanted: Sequence[tuple[Event, Handlers]]) -> None:
        """Hand each event to those of its handlers to whom it is owed, in the order given.

        Keeps: REDIS-17, REDIS-20, FAULT-01.
        """
        wanted = [(event, handlers) for event, handlers in wanted if handlers]
        asked = [(event.event_id, [each.handler_id for each in handlers]) for event, handlers in wanted]
        found = await standings(self._connection, self._keys, self._clock.time(), asked)
        mine = self._in_hand()
        self._orphans.clear()
        owed = [
            (
                event,
                [each for each, answer in zip(handlers, answers, strict=True) if self._owes(event, each, answer, mine)],
            )
            for (event, handlers), answers in zip(wanted, found, strict=True)
        ]
        for claim in self._orphans:
            await self._tracker.release_claim(*claim)
        for event, creditors in owed:
            if creditors:
                await self._start(event, tuple(creditors))

    def _owes(self, event: Event, handler: Registration, standing: Standing, mine: set[Pair]) -> bool:
        """Whether the handler is to get the event now; not what is in hand here, though its claim may have lapsed.

        Keeps: REDIS-20, FAULT-01, FAULT-08.
        """
        pair = (event.event_id, handler.handler_id)
        if pair in mine:
            return False
        if standing.state is State.HELD and self._claims.is_ours(standing.note):
            self._orphans.append((*pair, standing.note))
            return True
        if standing.state is State.HELD:
            self._hold(pair)
        elif standing.state is State.BROKEN:
            logger.error("event %s in handler %s cannot be caught up with: %s", *pair, standing.note)
        return standing.state is State.OWED

    async def _start(self, event: Event, handlers: Handlers) -> None:
        """Start the deliveries when there is room for them; not while the server refuses claims.

        Keeps: REDIS-21, FAULT-05.
        """
        if self._is_refused():
            raise EventStorageError(f"Redis at {self._connection.address} refuses claims")
        for kind in {each.is_wildcard for each in handlers}:
            self.recent.note((event.event_id, kind), self._clock.time())
        ends = await self._make_up(event, handlers)
        self._running.update(ends)
        for end in ends:
            end.add_done_callback(self._running.discard)
        while len(self._running) >= AT_ONCE:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
