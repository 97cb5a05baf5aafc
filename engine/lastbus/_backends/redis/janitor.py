"""Janitor: goes through all indexes a little at a time, so that entries of what nobody asks about leave as well.

Redis lets a row lapse and leaves its index entries where they are. Listings drop the entries that they meet; what is
never listed again is met by the janitor. Where it is on its way, it only knows itself: a new one begins anew, which
does no harm, because a row that is there keeps its entry however often it is looked at.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from redis.exceptions import ResponseError

from lastbus._backends.redis.connection import SCAN_COUNT, RedisConnection
from lastbus._backends.redis.holes import Holes, Index, close_holes
from lastbus._backends.redis.keys import glob_escape
from lastbus._backends.redis.metrics import count_sweep
from lastbus._clock import Clock
from lastbus._errors import EventStorageError
from lastbus._settings import SWEEP_BUDGET, SWEEP_INTERVAL, SWEEP_OFF
from lastbus._tasks import spawn

logger = logging.getLogger("lastbus.redis")

PORTION: Final = 50
"""How many entries one call is to examine, twice as many at most, so that none keeps the server from others for long.
"""
LOOKS_MAX: Final = 500
"""How many times in one tick a store's part of the janitor looks for indexes among the keys of the server."""


class Sweep(NamedTuple):
    """What a tick came to."""

    examined: int
    pruned: int
    errors: int


class Round:
    """The way through all indexes of one store, again and again, and where on it the janitor is."""

    def __init__(self, connection: RedisConnection, holes: Holes) -> None:
        self._connection: Final = connection
        self._holes: Final = holes
        self._searches: Final[deque[tuple[str, str]]] = deque()
        self._search_cursor = 0
        self._indexes: Final[deque[Index]] = deque()
        self._cursor = 0
        self._ids: Final[deque[bytes]] = deque()
        self._is_down = False

    async def sweep(self, budget: int) -> Sweep:
        """Examine at most `budget` entries from where the last tick has stopped, until the round is over.

        An index costs at least one of the budget. One that is no index at all is passed over; whatever else goes wrong
        ends the tick, and the next one goes on behind it.

        Keeps: IDX-12, IDX-13, IDX-14, IDX-17, IDX-36.
        """
        if not self._indexes and not self._searches:
            self._searches.extend(self._holes.prefixes.items())
        examined = pruned = errors = looks = 0
        left = budget
        while left > 0 and (self._indexes or (self._searches and looks < LOOKS_MAX)):
            try:
                if not self._indexes:
                    looks += 1
                    await self._look()
                    self._is_down = False
                    continue
                seen, dropped = await self._examine(self._indexes[0], left)
            except EventStorageError as error:
                errors, left = errors + 1, left - 1
                if not self._pass_over(error):
                    break
            else:
                examined, pruned, left = examined + seen, pruned + dropped, left - max(1, seen)
                self._is_down = False
        return Sweep(examined, pruned, errors)

    def _pass_over(self, error: EventStorageError) -> bool:
        """Leave what is at hand; whether the server goes on serving others. An outage is one WARNING, however long.

        Keeps: IDX-17.
        """
        place = "the server's keys"
        if self._indexes:
            place = f"index {self._indexes[0].value!r}"
            self._leave()
        is_alone = _is_about_one_key(error)
        level = logging.DEBUG if self._is_down and not is_alone else logging.WARNING
        logger.log(level, "the janitor of %s passes over %s: %s", self._holes.name, place, error)
        self._is_down = not is_alone
        return is_alone

    async def _look(self) -> None:
        """Take one look at the server's keys for more indexes, of one kind after the other.

        Keeps: IDX-16.
        """
        kind, prefix = self._searches[0]
        words = ("SCAN", self._search_cursor, "MATCH", f"{glob_escape(prefix)}*", "COUNT", SCAN_COUNT)
        cursor, keys = await self._connection.command(*words)
        cut = len(prefix.encode())
        self._indexes.extend(Index(kind, key, key[cut:].decode(errors="replace")) for key in keys)
        self._search_cursor = int(cursor)
        if self._search_cursor == 0:
            self._searches.popleft()

    async def _examine(self, index: Index, most: int) -> tuple[int, int]:
        """Examine at most `most` of the entries of `index` that are not examined yet; leave it when there are none.

        Keeps: IDX-12, IDX-14, IDX-15.
        """
        if not self._ids:
            words = (self._holes.scan, index.key, self._cursor, "COUNT", min(most, PORTION))
            cursor, found = await self._connection.command(*words)
            self._cursor = int(cursor)
            self._ids.extend(self._holes.ids(found))
        # A server may find more than it was asked for: a few are taken along, of many the rest is for later.
        ids = [self._ids.popleft() for _ in range(min(most, 2 * PORTION, len(self._ids)))]
        dropped = await close_holes(self._connection, self._holes, index, ids)
        if not self._ids and self._cursor == 0:
            self._leave()
        return len(ids), dropped

    def _leave(self) -> None:
        """Go to the next index.

        Keeps: IDX-13.
        """
        self._indexes.popleft()
        self._cursor = 0
        self._ids.clear()


class IndexJanitor:
    """Sweeps the indexes of several stores, tick by tick, for as long as `is_wanted` says so.

    `budget` (entries for each store in each tick) and `interval` (seconds between ticks) are those of the settings.
    """

    def __init__(
        self, connection: RedisConnection, stores: Iterable[Holes], *, clock: Clock, is_wanted: Callable[[], bool]
    ) -> None:
        self.tasks: Final[dict[asyncio.Task[Any], None]] = {}
        self.interval: Final = SWEEP_INTERVAL.read()
        self.budget: Final = int(SWEEP_BUDGET.read())
        self._rounds: Final = [Round(connection, holes) for holes in stores]
        self._clock: Final = clock
        self._is_wanted: Final = is_wanted

    def start(self) -> None:
        """Begin, with a pause, in a task that its owner may cancel at any time.

        Keeps: IDX-11.
        """
        spawn(self._run(), name="lastbus redis janitor", owner=self.tasks, label=None, on_done=self.tasks.pop)

    async def sweep(self) -> Sweep:
        """One tick: a part of each store, counted, and told in one line.

        Keeps: IDX-12, IDX-25.
        """
        parts = [await each.sweep(self.budget) for each in self._rounds]
        whole = Sweep(*map(sum, zip(*parts, strict=True)))
        count_sweep(*whole)
        logger.info("the janitor has examined %d index entries, dropped %d, and met %d errors", *whole)
        return whole

    async def _run(self) -> None:
        """Whatever goes wrong in a tick, the next one comes.

        Keeps: IDX-11, IDX-17, IDX-19.
        """
        while True:
            await self._clock.sleep(self.interval)
            if not self._is_wanted():
                return
            try:
                await self.sweep()
            except Exception:  # The janitor must outlive whatever it meets in a store.
                logger.exception("the janitor failed and will start again")


def _is_about_one_key(error: EventStorageError) -> bool:
    """Whether the server refuses just this key, because it holds something else.

    Keeps: IDX-17.
    """
    cause = error.__cause__
    return isinstance(cause, ResponseError) and str(cause).startswith("WRONGTYPE")


def is_disabled() -> bool:
    """Whether the environment wants no janitor; a WARNING says so.

    Keeps: IDX-18.
    """
    if not SWEEP_OFF.is_on():
        return False
    logger.warning("%s=1: index entries without a row stay until somebody lists them", SWEEP_OFF.name)
    return True
