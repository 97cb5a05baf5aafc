"""Window: the events stored since a moment, of some types, oldest first, a page at a time, however many there are.

The indexes grow while they are read. An event that was there when the reading began is read; one that came later may
be. What cannot be read is named in the log and passed over, a whole type as well as a single event.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Final, NamedTuple

from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.keys import EventKeys
from lastbus._errors import EventError, EventStorageError
from lastbus._model.event import Event

logger = logging.getLogger("lastbus.redis")

PAGE_EVENTS: Final = 100
COMMANDS_MAX: Final = 500
"""How many indexes are asked in one round trip."""


class Entry(NamedTuple):
    """One member of a type's index."""

    score: float
    event_id: bytes


class Lane:
    """What is left to read of one type's index."""

    def __init__(self, event_type: str, index: str, since: float) -> None:
        self.event_type: Final = event_type
        self.index: Final = index
        self.entries: deque[Entry] = deque()
        self.is_over = False
        self._since = since
        self._until = float("inf")
        self._read: set[bytes] = set()

    @property
    def last(self) -> tuple[str | int, ...]:
        """The command that asks for the youngest entry."""
        return ("ZREVRANGE", self.index, 0, 0, "WITHSCORES")

    @property
    def further(self) -> tuple[str | int, ...]:
        """The command that asks for the next page; entries of the same time may have been read already."""
        return ("ZRANGEBYSCORE", self.index, repr(self._since), repr(self._until), "WITHSCORES", "LIMIT", 0, self._size)

    def end_at(self, entries: Sequence[Entry]) -> None:
        """What is younger than the youngest entry was stored after the reading began.

        Keeps: REDIS-22.
        """
        self.is_over = not entries
        if entries:
            self._until = entries[-1].score

    def take(self, entries: Sequence[Entry]) -> None:
        """Take a page. More entries of one time than a page holds are read all the same, each once.

        Keeps: REDIS-22.
        """
        self.is_over = len(entries) < self._size
        self.entries.extend(each for each in entries if each.score != self._since or each.event_id not in self._read)
        if entries and entries[-1].score != self._since:
            self._since, self._read = entries[-1].score, set()
        self._read.update(each.event_id for each in entries if each.score == self._since)

    @property
    def _size(self) -> int:
        return PAGE_EVENTS + len(self._read)


async def pages(
    connection: RedisConnection, keys: EventKeys, types: Iterable[str], since: float
) -> AsyncGenerator[list[Event], None]:
    """The events of `types` that are stamped `since` or later, oldest first (timestamp, then id).

    Keeps: REDIS-22.
    """
    lanes = [Lane(each, keys.type_index(each), since) for each in types]
    for lane, entries in await _ask(connection, [(lane, lane.last) for lane in lanes]):
        lane.end_at(entries)
    while True:
        empty = [lane for lane in lanes if not lane.entries and not lane.is_over]
        for lane, entries in await _ask(connection, [(lane, lane.further) for lane in empty]):
            lane.take(entries)
        page = _next_page(lanes)
        if not page:
            return
        yield await read_events(connection, keys, page)


def _next_page(lanes: Sequence[Lane]) -> list[tuple[bytes, str]]:
    """The oldest entries of all lanes (id and type); it ends where a lane has to be asked for more.

    Keeps: REDIS-22.
    """
    heap = [(*lane.entries[0], number) for number, lane in enumerate(lanes) if lane.entries]
    heapq.heapify(heap)
    page: list[tuple[bytes, str]] = []
    while heap and len(page) < PAGE_EVENTS:
        _, event_id, number = heapq.heappop(heap)
        lane = lanes[number]
        page.append((event_id, lane.event_type))
        lane.entries.popleft()
        if lane.entries:
            heapq.heappush(heap, (*lane.entries[0], number))
        elif not lane.is_over:
            break
    return page


async def read_events(
    connection: RedisConnection, keys: EventKeys, page: Sequence[tuple[bytes, str | None]]
) -> list[Event]:
    """The stored events of `page` (id, and type where that is known); what is gone, or of another type, is left out."""
    rows = await connection.command("MGET", *(keys.rows.encode() + event_id for event_id, _ in page))
    events = (_read(event_id, row) for (event_id, _), row in zip(page, rows, strict=True) if row is not None)
    expected = dict(page)
    return [each for each in events if each and expected[each.event_id.encode()] in (None, each.event_type)]


def _read(event_id: bytes, row: bytes) -> Event | None:
    name = event_id.decode(errors="replace")
    try:
        event = Event.model_validate_json(row)
    except EventError as error:
        logger.warning("event %s cannot be read and is not caught up with: %s", name, error)
        return None
    return event if event.event_id == name else None


async def _ask(
    connection: RedisConnection, questions: Sequence[tuple[Lane, tuple[Any, ...]]]
) -> list[tuple[Lane, list[Entry]]]:
    """The entries that each command found; a key that is no index ends its own lane.

    Keeps: FAULT-08.
    """
    answers: list[tuple[Lane, list[Entry]]] = []
    for start in range(0, len(questions), COMMANDS_MAX):
        some = questions[start : start + COMMANDS_MAX]
        replies = await connection.outcomes([command for _, command in some])
        for (lane, _), reply in zip(some, replies, strict=True):
            if isinstance(reply, EventStorageError):
                logger.error("events of type %r cannot be caught up with: %s", lane.event_type, reply)
            answers.append((lane, [] if isinstance(reply, EventStorageError) else _entries(reply)))
    return answers


def _entries(reply: Sequence[Any]) -> list[Entry]:
    """RESP2 lists members and scores in turn, RESP3 as pairs."""
    pairs = reply if reply and isinstance(reply[0], list | tuple) else zip(reply[::2], reply[1::2], strict=True)
    return [Entry(float(score), event_id) for event_id, score in pairs]
