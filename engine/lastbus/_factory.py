"""Factory: a bus by the name of its back end, and the one bus that everybody gets who asks for none in particular."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from lastbus._ports.bus import EventBus
from lastbus._settings import EXPERIMENTAL_DB


def create_event_bus(
    kind: str, *, redis_url: str | None = None, database_url: str | None = None, **options: Any
) -> EventBus:
    """A new bus of the kind `memory`, `redis`, or `db` (also called `sqlalchemy`); `options` go to its constructor.

    A back end is imported only when it is asked for: `MissingExtraError` says which extra to install. `ValueError` for
    an unknown kind, for a URL that the kind needs and lacks, and for `db` unless `PLAITA_ALLOW_EXPERIMENTAL_DB=1`.

    Keeps: CORE-31, CORE-32.
    """
    maker = _MAKERS.get(kind)
    if maker is None:
        raise ValueError(f"unknown event bus {kind!r}; there are: {', '.join(_MAKERS)}")
    return maker(redis_url, database_url, options)


def _memory(redis_url: str | None, database_url: str | None, options: dict[str, Any]) -> EventBus:
    from lastbus.memory import InMemoryEventBus

    return InMemoryEventBus(**options)


def _redis(redis_url: str | None, database_url: str | None, options: dict[str, Any]) -> EventBus:
    if redis_url is None:
        raise ValueError("a redis event bus needs redis_url")
    from lastbus.redis import RedisEventBus

    return RedisEventBus(redis_url, **options)


def _db(redis_url: str | None, database_url: str | None, options: dict[str, Any]) -> EventBus:
    if not EXPERIMENTAL_DB.is_on():
        raise ValueError(f"the SQL event bus is experimental: set {EXPERIMENTAL_DB.name}=1 to use it")
    if database_url is None and options.get("engine") is None:
        raise ValueError("a SQL event bus needs database_url, or an engine")
    from lastbus.sqlalchemy import SqlalchemyEventBus

    return SqlalchemyEventBus(database_url=database_url, **options)


_MAKERS: Final[dict[str, Callable[[str | None, str | None, dict[str, Any]], EventBus]]] = {
    "memory": _memory,
    "redis": _redis,
    "db": _db,
    "sqlalchemy": _db,
}


class _Default:
    """The bus of those who ask for none in particular."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._bus: EventBus | None = None

    def get(self) -> EventBus:
        with self._lock:
            if self._bus is None:
                self._bus = create_event_bus("memory")
            return self._bus

    def set(self, bus: EventBus | None) -> None:
        with self._lock:
            self._bus = bus


_default: Final = _Default()


def get_default_event_bus() -> EventBus:
    """The process's default bus: the one that was set, else a memory bus, made at the first call.

    Keeps: CORE-30.
    """
    return _default.get()


def set_default_event_bus(bus: EventBus | None) -> None:
    """Make `bus` the default; None: the next one who asks makes a new memory bus. The old bus is not closed."""
    _default.set(bus)
