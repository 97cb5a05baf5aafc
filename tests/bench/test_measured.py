"""A benchmark measures what its name says: what is there while the clock runs, and how often it is done."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from lastbus._backends.redis.janitor import PORTION
from lastbus._close.selfclose import wake_verdict
from lastbus._kit.bench import closing, publishing, stores
from lastbus._kit.bench.cost import Unusable
from lastbus.memory import InMemoryEventBus


def others() -> int:
    """How many tasks there are besides the one that asks."""
    return len(asyncio.all_tasks()) - 1


async def test_a_close_is_measured_while_handlers_are_pending_and_they_end_with_it() -> None:
    before = others()

    async with closing._held(InMemoryEventBus, 7) as bus:
        assert others() - before >= 7
        assert logging.getLogger("lastbus.close").disabled
        await bus.publish("something else")

    assert others() == before
    assert not logging.getLogger("lastbus.close").disabled


async def test_a_look_is_measured_at_tasks_that_all_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def look(*args: Any) -> Any:
        seen.append(others())
        return wake_verdict(*args)

    monkeypatch.setattr(closing, "wake_verdict", look)
    before = others()

    assert await closing._look(5) > 0
    assert seen == [before + 5]


class Client:
    """What stands for a connection to Redis: it notes what it is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    async def execute_command(self, *words: Any, **options: Any) -> None:
        self.sent.append((*words, options))


class Bus:
    """A bus that sends `commands` for each event."""

    def __init__(self, commands: int = 1) -> None:
        self.redis = Client()
        self.event_storage = self
        self.published = 0
        self._commands = commands

    async def __aenter__(self) -> Bus:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Leaves nothing."""

    async def publish(self, event: Any) -> None:
        self.published += 1
        for _ in range(self._commands):
            await self.redis.execute_command("EVALSHA", event.event_type, keep=True)


@pytest.mark.parametrize(("is_bare", "published"), [(True, 0), (False, 7)], ids=["bare", "publish"])
async def test_publishing_is_measured_beside_the_one_command_that_it_sends(is_bare: bool, published: int) -> None:
    bus: Any = Bus()

    assert await publishing._sample(lambda: bus, 7, is_bare)() >= 0

    before = publishing.WARM_UP_EVENTS + 1
    assert bus.published == before + published
    assert len(bus.redis.sent) == before + 7
    assert {words[0] for words in bus.redis.sent} == {"EVALSHA"}
    assert all(words[-1] == {"keep": True} for words in bus.redis.sent)


@pytest.mark.parametrize(("bus", "words"), [(Bus(2), "sends 2 commands"), (InMemoryEventBus(), "no Redis client")])
async def test_a_bus_that_sends_no_one_command_cannot_be_compared(bus: Any, words: str) -> None:
    with pytest.raises(Unusable, match=words):
        await publishing._sample(lambda: bus, 7, True)()


async def test_the_janitor_is_measured_beside_as_many_calls_of_a_script_that_changes_nothing() -> None:
    told: list[tuple[Any, ...]] = []

    class Server:
        async def command(self, *words: Any) -> int:
            told.append(words)
            return 3 if words == ("SLOWLOG", "LEN") else 0

    assert await stores._slow_calls_of_nothing(Server(), dead=5 * PORTION) == 3

    assert told[0] == ("SLOWLOG", "RESET")
    assert [words[0] for words in told[1:]] == ["EVAL"] * 5 + ["SLOWLOG"]
    assert f"{stores.STEPS * PORTION} do" in told[1][1]
