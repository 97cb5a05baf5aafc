"""Indexes in Redis against a model of a few lines: whatever happens, what has a row is found where it belongs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lastbus import Event, EventSubscription
from lastbus._backends.redis.janitor import Round
from lastbus._backends.redis.keys import INDEXED_FIELDS
from lastbus._backends.redis.migration import Migration
from lastbus.testing import ManualClock
from tests._backends.redis import FakeRedisBackend
from tests.property.profile import deterministic

T = TypeVar("T")
IDS = st.sampled_from(["1", "a:b", "é"])
NAMES = st.sampled_from(["x", "x:y", "*"])
KINDS = st.sampled_from(list(INDEXED_FIELDS))
VALUES = st.fixed_dictionaries(
    {"event_type": NAMES, **{name: st.none() | NAMES for name in ("correlation_id", "flow_id", "node_id")}}
)
BUDGETS = st.integers(1, 5)


class Indexes(RuleBasedStateMachine):
    """Rows come, are replaced, are deleted and lapse; listings, writers, janitors and migrations pass by."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.redis = FakeRedisBackend()
        self.clock = ManualClock()
        self.events = self.redis.event_storage(clock=self.clock)
        self.subscriptions = self.redis.subscription_storage()
        self.writer = self.redis.writer(clock=self.clock)
        self.raw = self.redis.connection()
        self.rounds = [Round(self.raw, each.holes) for each in (self.events, self.subscriptions)]
        self.types: dict[str, str] = {}
        self.stored: dict[str, EventSubscription] = {}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        try:
            self.sweep_to_the_end()
        finally:
            self.run(self.redis.__aexit__(None, None, None))
            self.run(self.loop.shutdown_asyncgens())
            self.loop.close()

    def key(self, rest: str) -> str:
        return f"{self.redis.prefix}{rest}"

    @rule(event_id=IDS, event_type=NAMES, is_sync=st.booleans())
    def store_event(self, event_id: str, event_type: str, is_sync: bool) -> None:
        event = Event(event_type, event_id=event_id, timestamp=1)
        self.clock.advance(31)
        if is_sync:
            self.writer.store_event(event)
        else:
            self.run(self.events.store_event(event))
        self.types[event_id] = event_type

    @rule(subscription_id=IDS, values=VALUES)
    def store_subscription(self, subscription_id: str, values: dict[str, Any]) -> None:
        stored = EventSubscription(subscription_id=subscription_id, created_at=1, **values)
        self.run(self.subscriptions.store_subscription(stored))
        self.stored[subscription_id] = stored

    @rule(event_id=IDS)
    def delete_event(self, event_id: str) -> None:
        assert self.run(self.events.delete_event(event_id)) is (self.types.pop(event_id, None) is not None)

    @rule(subscription_id=IDS, is_sync=st.booleans())
    def delete_subscription(self, subscription_id: str, is_sync: bool) -> None:
        was_there = self.stored.pop(subscription_id, None) is not None
        if is_sync:
            assert self.writer.delete_subscription(subscription_id) is was_there
        else:
            assert self.run(self.subscriptions.delete_subscription(subscription_id)) is was_there

    @rule(row_id=IDS)
    def lapse(self, row_id: str) -> None:
        rows = (self.key(f"event:events:{row_id}"), self.key(f"subscription:data:{row_id}"))
        self.run(self.raw.command("DEL", *rows))
        self.types.pop(row_id, None)
        self.stored.pop(row_id, None)

    @rule(kind=KINDS, name=NAMES)
    def lose_indexes_and_restore_them(self, kind: str, name: str) -> None:
        lost = (self.key(f"event:types:{name}"), self.key(f"subscription:{kind}:{name}"))
        self.run(self.raw.command("DEL", *lost))
        prefixes = (self.key("event:"), self.key("subscription:"))
        self.run(Migration(self.raw, *prefixes, apply=True).reindex())

    @rule(budget=BUDGETS)
    def sweep(self, budget: int) -> None:
        for each in self.rounds:
            assert self.run(each.sweep(budget)).examined <= budget

    @rule()
    def a_new_janitor_begins(self) -> None:
        self.rounds = [Round(self.raw, each.holes) for each in (self.events, self.subscriptions)]

    @invariant()
    def every_event_is_listed_under_its_type_alone(self) -> None:
        for name in ("x", "x:y", "*"):
            found = {event.event_id for event in self.run(self.events.list_events(name))}
            assert found == {event_id for event_id, known in self.types.items() if known == name}

    @invariant()
    def every_subscription_has_all_of_its_entries(self) -> None:
        for each in self.stored.values():
            for kind, field in INDEXED_FIELDS.items():
                value = getattr(each, field)
                if value is not None:
                    index = self.key(f"subscription:{kind}:{value}")
                    assert self.run(self.raw.command("SISMEMBER", index, each.subscription_id))

    def sweep_to_the_end(self) -> None:
        """Two rounds, however far the one at hand has come: no entry is left that has no row."""
        for each in self.rounds:
            for _ in range(2):
                self.run(each.sweep(10_000))
        for rest in self.run(self.raw.scan(self.redis.prefix)):
            if rest.startswith(b"event:types:"):
                ids = self.run(self.raw.command("ZRANGE", self.redis.prefix.encode() + rest, 0, -1))
                assert {each.decode() for each in ids} <= self.types.keys()
            elif rest.startswith(b"subscription:") and b":data:" not in rest:
                ids = self.run(self.raw.command("SMEMBERS", self.redis.prefix.encode() + rest))
                assert {each.decode() for each in ids} <= self.stored.keys()


TestIndexes = Indexes.TestCase
TestIndexes.settings = settings(
    deterministic, max_examples=15, stateful_step_count=15, phases=[Phase.explicit, Phase.generate]
)
TestIndexes = pytest.mark.guarantee("IDX-08", "IDX-16", "IDX-34", "IDX-36", "SUBS-16")(TestIndexes)
