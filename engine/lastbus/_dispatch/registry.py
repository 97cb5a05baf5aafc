"""Registry: which handlers an event type concerns, at a cost that does not grow with handlers that it does not."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import uuid4

from lastbus._model.event import Event
from lastbus._model.matching import data_matches
from lastbus._model.names import check_name
from lastbus._model.patterns import is_exact, matches_event_type
from lastbus._model.policy import RetryPolicy
from lastbus._ports.bus import Handler

CACHED_TYPES_MAX: Final = 1024


@dataclass(frozen=True, eq=False)
class Registration:
    """One handler with everything that decides when and how it is called."""

    handler_id: str
    pattern: str | None
    handler: Handler
    is_async: bool
    filter_condition: Mapping[str, Any] | None
    retry_policy: RetryPolicy | None
    task_name: str

    @property
    def is_wildcard(self) -> bool:
        """Whether the pattern can match other types than itself."""
        return self.pattern is None or not is_exact(self.pattern)

    def wants(self, event: Event) -> bool:
        """Whether the filter lets `event` through.

        Keeps: CORE-10.
        """
        return data_matches(self.filter_condition, event.data)


class HandlerRegistry:
    """The handlers of one bus in the order of their registration."""

    def __init__(self) -> None:
        self._by_id: dict[str, Registration] = {}
        self._matching: dict[str, tuple[Registration, ...]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Registration]:
        return iter(tuple(self._by_id.values()))

    def add(
        self,
        pattern: str | None,
        handler: Handler | None,
        filter_condition: Mapping[str, Any] | None,
        retry_policy: RetryPolicy | None,
        handler_id: str | None,
    ) -> Registration:
        """Register a handler; `ValueError` or `TypeError` naming the argument that cannot work, nothing registered.

        Keeps: CORE-39, CORE-47, CORE-48.
        """
        registration = _checked(pattern, handler, filter_condition, retry_policy, handler_id)
        if registration.handler_id in self._by_id:
            raise ValueError(f"handler_id {registration.handler_id!r} is registered already; ids are unique on a bus")
        self._by_id[registration.handler_id] = registration
        self._matching.clear()
        return registration

    def get(self, handler_id: str) -> Registration | None:
        """The handler of that id, if it is registered."""
        return self._by_id.get(handler_id)

    def remove(self, handler_id: str) -> Registration | None:
        """Forget a handler; None if it was not there.

        Keeps: CORE-43.
        """
        registration = self._by_id.pop(handler_id, None)
        self._matching.clear()
        return registration

    def matching(self, event: Event) -> tuple[Registration, ...]:
        """The handlers for `event`, by pattern and filter, in the order of their registration.

        Keeps: CORE-08, CORE-09, CORE-10, CORE-47, CORE-49.
        """
        found = self._matching.get(event.event_type)
        if found is None:
            found = self._find(event.event_type)
        for registration in found:
            if registration.filter_condition:
                return tuple(each for each in found if each.wants(event))
        return found

    def _find(self, event_type: str) -> tuple[Registration, ...]:
        if len(self._matching) >= CACHED_TYPES_MAX:
            self._matching.clear()
        found = tuple(each for each in self._by_id.values() if matches_event_type(each.pattern, event_type))
        self._matching[event_type] = found
        return found


def _checked(
    pattern: str | None,
    handler: Handler | None,
    filter_condition: Mapping[str, Any] | None,
    retry_policy: RetryPolicy | None,
    handler_id: str | None,
) -> Registration:
    if pattern is not None:
        check_name("event_type", pattern)
    if not callable(handler):
        raise TypeError(f"handler must be callable, got {handler!r:.80}")
    if filter_condition is not None and not isinstance(filter_condition, Mapping):
        raise TypeError(f"filter_condition must be a mapping or None, got {filter_condition!r:.80}")
    if retry_policy is not None and not isinstance(retry_policy, RetryPolicy):
        raise TypeError(f"retry_policy must be a RetryPolicy or None, got {retry_policy!r:.80}")
    handler_id = str(uuid4()) if handler_id is None else check_name("handler_id", handler_id)
    condition = None if filter_condition is None else dict(filter_condition)
    name = f"lastbus handler {handler_id}"
    return Registration(handler_id, pattern, handler, _is_async(handler), condition, retry_policy, name)


def _is_async(handler: Any) -> bool:
    while isinstance(handler, partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(handler.__call__)
