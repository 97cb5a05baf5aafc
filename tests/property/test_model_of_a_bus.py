"""A memory bus against a model of a few lines: who has handled which event, after any sequence of verbs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lastbus import Event, EventNotFoundError
from lastbus.memory import InMemoryEventBus
from tests.contract.waiting import settled
from tests.property.profile import deterministic

T = TypeVar("T")
TYPES = st.sampled_from(["user.created", "user.deleted", "order"])
PATTERNS = st.sampled_from(["user.*", "*", "order", "user.created", "nothing"])
HANDLERS = st.sampled_from(["h1", "h2", "h3"])
EVENTS = st.sampled_from(["e1", "e2", "e3"])


class Bus(RuleBasedStateMachine):
    """Handlers come and go and fail at times; events are published again and again under few ids."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.bus = InMemoryEventBus(max_pending_callbacks=2)
        self.calls: Counter[tuple[str, str]] = Counter()
        self.broken: set[str] = set()
        self.patterns: dict[str, str] = {}
        self.stored: dict[str, str] = {}
        self.marked: set[tuple[str, str]] = set()
        self.expected: Counter[tuple[str, str]] = Counter()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.bus.close())
        self.loop.close()

    @rule(pattern=PATTERNS, handler_id=HANDLERS)
    def register(self, pattern: str, handler_id: str) -> None:
        async def handler(event: Event) -> None:
            self.calls[event.event_id, handler_id] += 1
            if handler_id in self.broken:
                raise RuntimeError

        if handler_id in self.patterns:
            with pytest.raises(ValueError, match="handler_id"):
                self.run(self.bus.register_handler(pattern, handler, handler_id=handler_id))
            return
        assert self.run(self.bus.register_handler(pattern, handler, handler_id=handler_id)) == handler_id
        self.patterns[handler_id] = pattern

    @rule(handler_id=HANDLERS)
    def unregister(self, handler_id: str) -> None:
        was_there = self.patterns.pop(handler_id, None) is not None
        assert self.run(self.bus.unregister_handler(handler_id)) is was_there

    @precondition(lambda self: self.patterns)
    @rule(handler_id=HANDLERS)
    def break_or_mend(self, handler_id: str) -> None:
        self.broken ^= {handler_id}

    @rule(event_id=EVENTS, event_type=TYPES, deduplicate=st.booleans())
    def publish(self, event_id: str, event_type: str, deduplicate: bool) -> None:
        event = Event(event_type, event_id=event_id)
        assert self.run(self.bus.publish(event, deduplicate)) == event_id
        self.run(settled(self.bus))
        self.stored[event_id] = event_type
        for handler_id, pattern in self.patterns.items():
            pair = event_id, handler_id
            if fnmatchcase(event_type, pattern) and not (deduplicate and pair in self.marked):
                self.expected[pair] += 1
                if deduplicate and handler_id not in self.broken:
                    self.marked.add(pair)

    @rule(event_id=EVENTS)
    def get(self, event_id: str) -> None:
        if event_id in self.stored:
            assert self.run(self.bus.get_event(event_id)).event_type == self.stored[event_id]
        else:
            with pytest.raises(EventNotFoundError):
                self.run(self.bus.get_event(event_id))

    @invariant()
    def the_calls_are_those_of_the_model(self) -> None:
        assert self.calls == self.expected

    @invariant()
    def nothing_is_left_running(self) -> None:
        assert not self.bus._pending_tasks
        assert len(self.bus._waiters) == 0


TestBus = Bus.TestCase
TestBus.settings = settings(deterministic, max_examples=25, stateful_step_count=20)
TestBus = pytest.mark.guarantee("CORE-14", "CORE-15", "CORE-16", "CORE-43", "CORE-47")(TestBus)
