"""Back ends under measurement, each opened with the server that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from lastbus._kit.bench.contenders import MakeBus


@contextmanager
def _memory() -> Iterator[MakeBus]:
    from lastbus.memory import InMemoryEventBus

    yield InMemoryEventBus


BACKENDS: Final[Mapping[str, Callable[[], AbstractContextManager[MakeBus]]]] = {"memory": _memory}
