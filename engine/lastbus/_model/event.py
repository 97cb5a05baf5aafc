"""One event: what somebody says has happened, with an id and a time.

An `Event` is a small slotted object, because one is made for every publish; it is checked when it is turned into its
stored form, so that nothing unusable is ever stored, on any back end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from lastbus._clock import wall_time
from lastbus._errors import EventError
from lastbus._model.names import check_name, check_optional_name
from lastbus._model.numbers import is_finite_number
from lastbus._model.payload import encode


class Event:
    """What happened (`event_type`, `data`), where and for whom (`source`, `correlation_id`), which one and when.

    `event_id` (text, a fresh uuid4) and `timestamp` (seconds since the epoch) fill themselves in. Two events are equal
    if all six fields are. `data` is the object that you gave; the bus never changes it.

    Keeps: CORE-01.
    """

    __slots__ = ("correlation_id", "data", "event_id", "event_type", "source", "timestamp")

    def __init__(
        self,
        event_type: str,
        data: Mapping[str, Any] | None = None,
        correlation_id: str | None = None,
        source: str = "",
        *,
        event_id: str | None = None,
        timestamp: float | None = None,
    ) -> None:
        self.event_type = event_type
        self.data: Mapping[str, Any] = {} if data is None else data
        self.correlation_id = correlation_id
        self.source = source
        self.event_id = str(uuid4()) if event_id is None else event_id
        self.timestamp = wall_time() if timestamp is None else timestamp

    def model_dump(self) -> dict[str, Any]:
        """The six fields as a new dictionary; `data` is not copied."""
        return {
            "event_id": self.event_id,
            "event_type": self.event_type,
            "data": self.data,
            "timestamp": self.timestamp,
            "source": self.source,
            "correlation_id": self.correlation_id,
        }

    def model_dump_json(self) -> str:
        """The event as ASCII JSON text, the form that every back end stores.

        Raises `ValueError`, naming the field, for a type or id that is not a name, a timestamp that is not finite, or
        data that JSON cannot carry (nan and inf included).

        Keeps: CORE-01, CORE-35, CORE-36, CORE-37.
        """
        check_name("event_type", self.event_type)
        check_name("event_id", self.event_id)
        check_optional_name("correlation_id", self.correlation_id)
        _check_fields(self)
        fields = self.model_dump()
        try:
            return encode(fields)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"data of event {self.event_type!r} cannot be stored as JSON: {error}") from error

    @classmethod
    def model_validate_json(cls, text: str | bytes) -> Event:
        """The event that `model_dump_json` wrote, unknown keys ignored; `EventError` for anything that is not one.

        Keeps: CORE-01, CORE-37.
        """
        try:
            fields = json.loads(text, parse_constant=_refuse_constant)
            event = cls(
                fields["event_type"],
                fields["data"],
                fields.get("correlation_id"),
                fields.get("source", ""),
                event_id=fields["event_id"],
                timestamp=fields["timestamp"],
            )
            check_name("event_type", event.event_type)
            check_name("event_id", event.event_id)
            check_optional_name("correlation_id", event.correlation_id)
            _check_fields(event)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise EventError(f"not a stored event ({type(error).__name__}: {error}): {text[:80]!r}") from error
        return event

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self.model_dump() == other.model_dump()

    __hash__ = None  # type: ignore[assignment]  # An event holds mutable data; use its event_id as a key.

    def __repr__(self) -> str:
        return f"Event({self.event_type!r}, event_id={self.event_id!r})"


def _check_fields(event: Event) -> None:
    """Keeps: CORE-36, CORE-37."""
    if type(event.data) is not dict and not isinstance(event.data, Mapping):
        raise ValueError(f"data must be a mapping with text keys, got {event.data!r:.80}")
    for key in event.data:
        if type(key) is not str:
            raise ValueError(f"data must be a mapping with text keys, got the key {key!r:.80}")
    if not is_finite_number(event.timestamp):
        raise ValueError(f"timestamp must be a finite number of seconds, got {type(event.timestamp).__name__}")
    if not isinstance(event.source, str):
        raise ValueError(f"source must be text, got {event.source!r:.80}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
