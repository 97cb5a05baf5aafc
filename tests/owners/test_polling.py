"""Polling source: round after round, whatever one target does."""

from __future__ import annotations

import asyncio

import pytest

from lastbus.owners import PollingSource
from lastbus.testing import ManualClock, everyone_blocked


class Meters(PollingSource[str]):
    """Notes each poll; the targets in `broken` raise."""

    def __init__(self, targets: list[str], clock: ManualClock, *broken: str) -> None:
        super().__init__(targets, 10.0, clock=clock, name="meters")
        self.broken = broken
        self.polled: list[str] = []

    async def poll(self, target: str) -> None:
        self.polled.append(target)
        if target in self.broken:
            raise ConnectionError(target)


@pytest.mark.guarantee("CAP-21")
async def test_a_failing_target_costs_the_others_nothing_and_is_asked_again(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    source = Meters(["a", "b", "c"], clock, "b")

    await source.on_start()
    await everyone_blocked()
    clock.advance(10)
    await everyone_blocked()
    await source.on_stop()

    assert source.polled == ["a", "b", "c"] * 2
    assert [each.getMessage() for each in caplog.records] == ["source meters could not poll 'b'"] * 2
    assert [str(each.exc_info and each.exc_info[1]) for each in caplog.records] == ["b"] * 2


@pytest.mark.guarantee("CAP-21")
def test_an_interval_that_is_no_duration_is_refused_by_its_name(clock: ManualClock) -> None:
    class Hasty(PollingSource[str]):
        async def poll(self, target: str) -> None:
            return

    with pytest.raises(ValueError, match=r"^interval must be"):
        Hasty(["a"], -1, clock=clock)


@pytest.mark.guarantee("CAP-21")
async def test_without_a_clock_the_time_is_the_machines() -> None:
    class Meter(PollingSource[str]):
        rounds = 0
        reached = asyncio.Event()

        async def poll(self, target: str) -> None:
            self.rounds += 1
            if self.rounds == 3:
                self.reached.set()

    async with Meter(["a"], 0) as source:
        assert isinstance(source, Meter)
        await asyncio.wait_for(source.reached.wait(), 5)


@pytest.mark.guarantee("CAP-21")
async def test_the_interval_is_waited_out_on_the_injected_clock(clock: ManualClock) -> None:
    source = Meters(["a"], clock)

    await source.on_start()
    await everyone_blocked()
    clock.advance(9.5)
    await everyone_blocked()

    assert source.polled == ["a"]
    await source.on_stop()


@pytest.mark.guarantee("CAP-21")
async def test_cancellation_ends_the_loop_in_the_middle_of_a_poll(clock: ManualClock) -> None:
    class Stuck(Meters):
        async def poll(self, target: str) -> None:
            self.polled.append(target)
            if len(self.polled) == 1:
                await asyncio.Event().wait()

    source = Stuck(["a", "b"], clock)
    await source.on_start()
    await everyone_blocked()

    stopping = asyncio.ensure_future(source.on_stop())
    await asyncio.wait({stopping}, timeout=1)

    ended, polled = stopping.done(), source.polled[:]
    stopping.cancel()
    assert ended
    assert polled == ["a"]


@pytest.mark.guarantee("CAP-21")
async def test_targets_may_come_and_go_between_rounds(clock: ManualClock) -> None:
    targets = ["a", "b"]
    source = Meters(targets, clock)
    await source.on_start()
    await everyone_blocked()

    targets[:] = ["b", "c"]
    clock.advance(10)
    await everyone_blocked()
    await source.on_stop()

    assert source.polled == ["a", "b", "b", "c"]
