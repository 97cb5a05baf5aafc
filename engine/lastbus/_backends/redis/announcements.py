"""Announcements: an event on its channel, with a note of who announced it, once.

The message is the event's JSON object with one more key, so that whoever can read events can read announcements. A
message without that key comes from other software: it is foreign to every bus here, and it is deduplicated.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, Final, NamedTuple

from lastbus._errors import EventError
from lastbus._model.event import Event
from lastbus._model.payload import encode

NOTE_KEY: Final = "lastbus"
REMEMBERED_MAX: Final = 4096
"""How many announcements a listener recognises when they come again."""


class Announcement(NamedTuple):
    """Where to publish an event, and the text that takes the place of the closing brace of its JSON."""

    channel: str
    ending: str


class Note(NamedTuple):
    """What an announcement says beside the event; the defaults are those of other software.

    Keeps: REDIS-02.
    """

    origin: str | None = None
    announcement_id: str | None = None
    deduplicate: bool = True


def announce(channel: str, note: Note) -> Announcement:
    """The announcement of an event on `channel` by one of our buses.

    Keeps: REDIS-02.
    """
    fields = {"origin": note.origin, "id": note.announcement_id, "deduplicate": note.deduplicate}
    return Announcement(channel, f',"{NOTE_KEY}":{encode(fields)}}}')


def read_note(message: str | bytes) -> Note:
    """The note of a message; `EventError` if the message cannot be an announcement.

    Keeps: REDIS-02.
    """
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise EventError(f"no announcement ({type(error).__name__}): {message[:80]!r}") from error
    if not isinstance(fields, dict):
        raise EventError(f"no announcement (no JSON object): {message[:80]!r}")
    return _note(fields.get(NOTE_KEY))


def read_event(message: str | bytes) -> Event:
    """The event of a message; `EventError` if there is none."""
    return Event.model_validate_json(message)


def _note(fields: Any) -> Note:
    if not isinstance(fields, dict):
        return Note()
    origin, announcement_id = fields.get("origin"), fields.get("id")
    if not isinstance(origin, str) or not isinstance(announcement_id, str):
        return Note()
    return Note(origin, announcement_id, fields.get("deduplicate") is not False)


class Remembered:
    """The latest announcements, so that one which the driver has published twice is heard once."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, bool], None] = OrderedDict()

    def is_new(self, announcement_id: str | None, wildcard: bool) -> bool:
        """Whether this is the first time for this id on this kind of subscription; one without an id always is new.

        Keeps: REDIS-03.
        """
        if announcement_id is None:
            return True
        key = (announcement_id, wildcard)
        if key in self._known:
            return False
        self._known[key] = None
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return True
