"""Metrics: what became of index entries in this process, counted since its start; as numbers and as Prometheus text.

Counting needs nothing beside the standard library, and no server of metrics. `prometheus-client` (the extra `metrics`)
is only imported by who asks for its formats.

Keeps: IDX-24, IDX-26.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lastbus._backends.redis.keys import INDEXED_FIELDS
from lastbus._errors import MissingExtraError

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily

PRUNED: Final = "event_index_pruned_total"
EXAMINED_BY_SWEEP: Final = "event_index_sweep_examined_total"
PRUNED_BY_SWEEP: Final = "event_index_sweep_pruned_total"
ERRORS_OF_SWEEP: Final = "event_index_sweep_errors_total"

EVENT_KIND: Final = "event_type"
"""The kind of the indexes over events."""
SUBSCRIPTION_KINDS: Final = {kind: f"sub_{kind}" for kind in INDEXED_FIELDS}
"""What the four kinds of index over subscriptions are called in metrics."""

MEANINGS: Final = {
    PRUNED: "Index entries dropped because their row is gone, on whatever occasion",
    EXAMINED_BY_SWEEP: "Index entries that the janitor has examined",
    PRUNED_BY_SWEEP: "Index entries that the janitor has dropped",
    ERRORS_OF_SWEEP: "Indexes and ticks that the janitor could not finish",
}


class _Counters:
    """Counters of any thread."""

    def __init__(self, *names: str) -> None:
        self._lock: Final = threading.Lock()
        self._counts: Final = dict.fromkeys(names, 0)

    def add(self, name: str, amount: int) -> None:
        with self._lock:
            self._counts[name] += amount

    def read(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


_pruned: Final = _Counters(EVENT_KIND, *SUBSCRIPTION_KINDS.values())
_swept: Final = _Counters(EXAMINED_BY_SWEEP, PRUNED_BY_SWEEP, ERRORS_OF_SWEEP)


def count_pruned(kind: str, amount: int) -> None:
    """So many entries of indexes of this kind were dropped.

    Keeps: IDX-24.
    """
    _pruned.add(kind, amount)


def count_sweep(examined: int, pruned: int, errors: int) -> None:
    """What one tick of a janitor came to.

    Keeps: IDX-25.
    """
    _swept.add(EXAMINED_BY_SWEEP, examined)
    _swept.add(PRUNED_BY_SWEEP, pruned)
    _swept.add(ERRORS_OF_SWEEP, errors)


def event_index_pruned_metrics() -> dict[str, int]:
    """How many index entries this process has dropped, by kind: `event_type`, `sub_type`, `sub_correlation`,
    `sub_flow`, `sub_node`.

    Keeps: IDX-24.
    """
    return _pruned.read()


def index_sweep_metrics() -> dict[str, int]:
    """What the janitors of this process have done, by the full name of the counter.

    Keeps: IDX-25.
    """
    return _swept.read()


class IndexMetrics:
    """All counters of this module as a collector: `registry.register(IndexMetrics())`. Needs the extra `metrics`."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The families, with the values of this moment.

        Keeps: IDX-24, IDX-26.
        """
        try:
            from prometheus_client.core import CounterMetricFamily
        except ModuleNotFoundError as error:
            raise MissingExtraError(f"{__name__}.{type(self).__name__}", "metrics") from error
        by_kind = CounterMetricFamily(PRUNED, MEANINGS[PRUNED], labels=["kind"])
        for kind, count in event_index_pruned_metrics().items():
            by_kind.add_metric([kind], count)
        yield by_kind
        for name, count in index_sweep_metrics().items():
            yield CounterMetricFamily(name, MEANINGS[name], value=count)


def prometheus_text() -> str:
    """All counters of this module in Prometheus' text format. Needs the extra `metrics`.

    Keeps: IDX-24, IDX-26.
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{__name__}.prometheus_text", "metrics") from error
    registry = CollectorRegistry()
    registry.register(IndexMetrics())
    return generate_latest(registry).decode()
