"""Every error that lastbus raises by name, and whose fault each one is.

Two families: `EventError` says that an event, a subscription or a wait went wrong; `CloseError` says that a bus is
closing, closed, or could not close. An argument that can never work is a plain `ValueError` or `TypeError`.
"""

from __future__ import annotations


class EventError(Exception):
    """Something about an event went wrong; the base of all errors about events."""


class EventNotFoundError(EventError):
    """You asked the bus for an event that its storage does not hold: unknown, deleted, or older than its TTL."""

    def __init__(self, event_id: str) -> None:
        self.event_id = event_id
        super().__init__(
            f"no event {event_id!r} is stored; it may never have been published here, or its TTL has passed"
        )


class EventTimeoutError(EventError, TimeoutError):
    """No event that you waited for was published in time. Nothing of the wait is left behind."""

    def __init__(self, event_type: str, timeout: float) -> None:
        self.event_type = event_type
        self.timeout = timeout
        super().__init__(f"no event of type {event_type!r} was published within {timeout:g} s")


class EventStorageError(EventError):
    """The back end refused or lost a write or a read; the driver's own error is the `__cause__`."""


class SyncPublishError(EventError):
    """`publish_sync()` cannot run here without blocking the very loop that it needs; use `await publish()`."""


class FlowExecutionException(EventError):
    """An execution of a flow could not go on here. Nothing of this attempt was stored; its task is delivered again."""

    def __init__(self, execution_id: str, reason: str) -> None:
        self.execution_id = execution_id
        super().__init__(f"execution {execution_id}: {reason}")


class CloseError(RuntimeError):
    """A close was refused, or did not succeed. `kind` is a stable name that a program may test."""

    def __init__(self, kind: str, way_out: str = "") -> None:
        self.kind = kind
        super().__init__(f"error_kind={kind}: {way_out}" if way_out else f"error_kind={kind}")


class BusClosedError(CloseError):
    """You used a bus after its close began. Nothing was stored, registered or delivered."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        super().__init__("bus-closed", f"{verb}() refused: the bus is closing or closed; make a new bus")


class CloseTimeout(CloseError, TimeoutError):
    """Your own deadline for `close()` passed. The teardown goes on; call `close()` again to wait for its end."""

    def __init__(self, timeout: float, outstanding: str) -> None:
        self.timeout = timeout
        super().__init__(
            "close-timeout",
            f"still out after {timeout:g} s: {outstanding}; the teardown goes on, call close() again to wait for it",
        )


class MissingExtraError(ImportError):
    """A back end was asked for whose driver is not installed; the text says which extra to install."""

    def __init__(self, door: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{door} needs an optional driver: pip install 'lastbus[{extra}]'")
