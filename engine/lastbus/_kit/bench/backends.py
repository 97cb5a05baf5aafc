"""Back ends under measurement, each opened with the server that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from lastbus._bus import BaseBus
from lastbus._kit.bench.contenders import MakeBus
from lastbus._kit.bench.cost import Unusable

TTL_SECONDS: Final = 600.0
"""What is written to a borrowed server is gone after this time."""


@contextmanager
def _memory() -> Iterator[MakeBus]:
    from lastbus.memory import InMemoryEventBus

    yield InMemoryEventBus


@contextmanager
def _redis() -> Iterator[MakeBus]:
    from lastbus._kit.servers import ServerUnavailable, redis_for_tests

    try:
        from lastbus.redis import RedisEventBus

        server = redis_for_tests()
    except (ImportError, ServerUnavailable) as error:
        raise Unusable(str(error)) from error

    def make(**options: Any) -> BaseBus:
        prefix = server.fresh_prefix()
        return RedisEventBus(
            server.url,
            event_key_prefix=f"{prefix}event:",
            subscription_key_prefix=f"{prefix}subscription:",
            processing_key_prefix=f"{prefix}processed:",
            ttl=TTL_SECONDS,
            **options,
        )

    with server:
        yield make


BACKENDS: Final[Mapping[str, Callable[[], AbstractContextManager[MakeBus]]]] = {"memory": _memory, "redis": _redis}
