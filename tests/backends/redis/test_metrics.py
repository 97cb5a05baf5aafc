"""Metrics: every index entry that is dropped is counted once, under its kind, with or without a library for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from lastbus import MissingExtraError
from lastbus._backends.redis import metrics
from lastbus._backends.redis.connection import RedisConnection
from lastbus._backends.redis.janitor import IndexJanitor
from lastbus.redis import IndexMetrics, event_index_pruned_metrics, index_sweep_metrics, prometheus_text
from lastbus.testing import ManualClock
from tests._backends.redis import RedisBackend

KINDS = ("event_type", "sub_type", "sub_correlation", "sub_flow", "sub_node")


@pytest.fixture
def counted() -> Callable[[], dict[str, int]]:
    """What was counted since the last look, without what was not."""
    seen = event_index_pruned_metrics()

    def look() -> dict[str, int]:
        now = event_index_pruned_metrics()
        news = {kind: now[kind] - seen[kind] for kind in now if now[kind] != seen[kind]}
        seen.update(now)
        return news

    return look


async def bury(raw: RedisConnection, redis: RedisBackend) -> None:
    """One dead entry in an index of each kind; the kinds differ in how many there are."""
    await raw.command("ZADD", f"{redis.prefix}event:types:t", 1, "e")
    for number, kind in enumerate(("type", "correlation", "flow", "node"), start=2):
        dead = [f"s{each}" for each in range(number)]
        await raw.command("SADD", f"{redis.prefix}subscription:{kind}:v", *dead)


@pytest.mark.guarantee("IDX-24")
async def test_a_listing_counts_what_it_drops(
    redis: RedisBackend, raw: RedisConnection, counted: Callable[[], dict[str, int]]
) -> None:
    await bury(raw, redis)
    events, subscriptions = redis.event_storage(), redis.subscription_storage()

    await events.list_events("t")
    assert counted() == {"event_type": 1}
    await subscriptions.list_subscriptions(event_type="v")
    assert counted() == {"sub_type": 2}
    await subscriptions.list_subscriptions(correlation_id="v")
    assert counted() == {"sub_correlation": 3}
    await subscriptions.list_subscriptions(flow_id="v")
    assert counted() == {"sub_flow": 4}
    await subscriptions.list_subscriptions(node_id="v")
    assert counted() == {"sub_node": 5}
    await events.list_events("t")
    assert counted() == {}


@pytest.mark.guarantee("IDX-24")
async def test_the_janitor_counts_what_it_drops(
    redis: RedisBackend, raw: RedisConnection, clock: ManualClock, counted: Callable[[], dict[str, int]]
) -> None:
    await bury(raw, redis)
    stores = (redis.event_storage().holes, redis.subscription_storage().holes)
    janitor = IndexJanitor(raw, stores, clock=clock, is_wanted=lambda: True)

    await janitor.sweep()

    assert counted() == {"event_type": 1, "sub_type": 2, "sub_correlation": 3, "sub_flow": 4, "sub_node": 5}


@pytest.mark.guarantee("IDX-24", "IDX-25")
def test_all_counters_are_shown_in_prometheus_format() -> None:
    before = event_index_pruned_metrics()
    metrics.count_pruned("sub_flow", 3)
    metrics.count_sweep(5, 4, 1)

    text = prometheus_text().splitlines()

    for kind in KINDS:
        count = before[kind] + (3 if kind == "sub_flow" else 0)
        assert f'event_index_pruned_total{{kind="{kind}"}} {count:.1f}' in text
    for name, count in index_sweep_metrics().items():
        assert f"{name} {count:.1f}" in text
    assert list(index_sweep_metrics()) == [
        "event_index_sweep_examined_total",
        "event_index_sweep_pruned_total",
        "event_index_sweep_errors_total",
    ]
    assert "# TYPE event_index_pruned_total counter" in text


@pytest.mark.guarantee("IDX-26")
def test_the_back_end_counts_without_any_library_of_metrics() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import lastbus.redis as redis\n"
        "print(sum(redis.event_index_pruned_metrics().values()), sum(redis.index_sweep_metrics().values()))\n"
        "print(*sorted(name for name in sys.modules if 'prometheus' in name or name.endswith('server.metrics')))"
    )

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)

    assert said.stdout.splitlines() == ["0 0", "prometheus_client"]


@pytest.mark.guarantee("IDX-26")
def test_who_asks_for_a_format_is_told_which_extra_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("prometheus_client", "prometheus_client.core"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(MissingExtraError, match=r"lastbus\[metrics\]"):
        prometheus_text()
    with pytest.raises(MissingExtraError, match=r"lastbus\[metrics\]"):
        next(IndexMetrics().collect())
