"""Normalize: what a publisher may hand in becomes one `Event`, and the publisher's objects stay as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastbus._model.event import Event

Publishable = Event | Mapping[str, Any] | str
_OWN_KEYS = ("event_type", "correlation_id", "source")


def normalize(event: Publishable, data: Mapping[str, Any]) -> Event:
    """The event that was meant by an `Event`, by a mapping with `event_type`, or by a type's name plus `data`.

    A mapping keeps every key but `event_type`, `correlation_id` and `source` as data; the same three are recognised
    among keyword arguments. `ValueError` for a mapping without `event_type`, or keywords beside an `Event`;
    `TypeError` for anything else.

    Keeps: CORE-38.
    """
    if isinstance(event, Event):
        if data:
            raise ValueError(f"an Event carries its own data; unexpected keywords: {', '.join(sorted(data))}")
        return event
    if isinstance(event, str):
        return _build({"event_type": event, **data})
    if isinstance(event, Mapping):
        if "event_type" not in event:
            raise ValueError(f"a mapping needs the key event_type, got {sorted(map(str, event))}")
        return _build({**event, **data})
    raise TypeError(f"publish takes an Event, a mapping or an event type, got {type(event).__name__}")


def _build(fields: Mapping[str, Any]) -> Event:
    data = {key: value for key, value in fields.items() if key not in _OWN_KEYS}
    return Event(fields["event_type"], data, fields.get("correlation_id"), fields.get("source", ""))
