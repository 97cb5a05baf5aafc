"""How services begin and end: rounds go on, stops are complete, buses are closed if they can be."""

from __future__ import annotations

import ast
import asyncio
import signal
from typing import Any

import pytest

from lastbus import BaseBus
from lastbus._services.bus import close_event_bus
from lastbus._services.periodic import Periodic
from lastbus.testing import ManualClock, everyone_blocked
from tests.services.shop import Shop
from tests.tidy.source import calls, imports, modules


class Rounds(Periodic):
    """A service that notes its rounds, and fails in those that it is told to."""

    name = "test service"

    def __init__(self, clock: ManualClock, failing: set[int] | None = None) -> None:
        super().__init__(5.0, clock)
        self.rounds = 0
        self.failing = failing or set()

    async def _round(self) -> None:
        self.rounds += 1
        if self.rounds in self.failing:
            raise ConnectionError(f"round {self.rounds}")


@pytest.mark.guarantee("FLOW-11")
async def test_rounds_go_on_after_failures_and_each_row_of_them_is_named_once(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    service = Rounds(clock, failing={1, 2, 4})

    async with service:
        for _ in range(5):
            await everyone_blocked()
            clock.advance(5.0)
        await everyone_blocked()

    assert (service.rounds, service.is_running) == (6, False)
    told = [each for each in caplog.records if each.levelname != "DEBUG"]
    assert [(each.levelname, each.getMessage()) for each in told] == [
        ("WARNING", "the test service failed; it is tried again every 5 s")
    ] * 2
    assert [str(each.exc_info[1]) for each in told if each.exc_info] == ["round 1", "round 4"]


async def test_the_task_of_a_service_is_named_after_it(clock: ManualClock) -> None:
    names = []

    class Named(Rounds):
        async def _round(self) -> None:
            task = asyncio.current_task()
            assert task is not None
            names.append(task.get_name())

    async with Named(clock):
        await everyone_blocked()

    assert names == ["lastbus test service"]


async def test_a_service_that_is_given_no_clock_goes_by_that_of_the_system() -> None:
    class Plain(Rounds):
        def __init__(self) -> None:
            super().__init__(ManualClock())
            Periodic.__init__(self, 60.0, None)

    async with Plain() as service:
        await everyone_blocked()
        assert (service.rounds, service.is_running) == (1, True)


def test_an_interval_that_is_none_is_refused_by_its_name(clock: ManualClock) -> None:
    class Hasty(Rounds):
        def __init__(self) -> None:
            Periodic.__init__(self, 0.0, clock)

    with pytest.raises(ValueError, match=r"^interval "):
        Hasty()


@pytest.mark.guarantee("FLOW-11")
async def test_after_stop_nothing_is_done_any_more(clock: ManualClock) -> None:
    service = Rounds(clock)
    await service.start()
    await service.start()
    await everyone_blocked()

    await service.stop()
    await service.stop()

    clock.advance(60)
    await everyone_blocked()
    assert (service.rounds, service.is_running, clock.pending) == (1, False, 0)


@pytest.mark.guarantee("FLOW-11")
async def test_stop_returns_when_the_round_has_ended(clock: ManualClock) -> None:
    entered, ended = asyncio.Event(), []

    class Slow(Rounds):
        async def _round(self) -> None:
            try:
                entered.set()
                await asyncio.get_running_loop().create_future()
            finally:
                await everyone_blocked()
                ended.append(True)

    service = Slow(clock)
    await service.start()
    await entered.wait()
    await service.stop()

    assert ended == [True]


# -- the bus ----------------------------------------------------------------------------------------------------


class OwnBus:
    """A bus of somebody else, which can be closed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.closes = 0
        self.error = error

    async def close(self) -> None:
        self.closes += 1
        if self.error is not None:
            raise self.error


class SyncBus(OwnBus):
    """Its `close` is no coroutine."""

    def close(self) -> None:  # type: ignore[override]
        self.closes += 1


@pytest.mark.guarantee("FLOW-07")
@pytest.mark.parametrize("kind", [OwnBus, SyncBus])
async def test_a_bus_that_can_be_closed_is_closed_once(kind: type[OwnBus], caplog: pytest.LogCaptureFixture) -> None:
    bus = kind()

    await close_event_bus(bus)

    assert (bus.closes, caplog.records) == (1, [])


@pytest.mark.guarantee("FLOW-07")
async def test_every_bus_of_ours_is_closed(bus: BaseBus) -> None:
    await close_event_bus(bus)

    with pytest.raises(Exception, match="bus-closed"):
        await bus.publish("job")


@pytest.mark.guarantee("FLOW-07")
@pytest.mark.parametrize("bus", [object(), None], ids=["no-close", "no-bus"])
async def test_a_bus_that_cannot_be_closed_is_passed_over_in_silence(
    bus: object, caplog: pytest.LogCaptureFixture
) -> None:
    await close_event_bus(bus)

    assert caplog.records == []


@pytest.mark.guarantee("FLOW-09")
async def test_a_close_that_fails_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    await close_event_bus(OwnBus(ConnectionError("away")))

    [warning] = caplog.records
    assert (warning.levelname, warning.getMessage()) == ("WARNING", "the event bus could not be closed")
    assert warning.exc_info is not None
    assert str(warning.exc_info[1]) == "away"


# -- signals ----------------------------------------------------------------------------------------------------

EDGE = ("lastbus.cli", "lastbus._commands", "lastbus.proof", "lastbus._kit")


@pytest.mark.guarantee("FLOW-10")
def test_no_source_of_the_bus_and_the_services_mentions_signals() -> None:
    found = [
        module
        for module, tree in modules(mentions="signal")
        if not module.startswith(EDGE)
        for name in ("add_signal_handler", "signal")
        if list(calls(tree, name)) or _imports_signal(tree)
    ]

    assert found == []


def _imports_signal(tree: ast.Module) -> bool:
    return any(target.split(".")[0] == "signal" for target, _ in imports("lastbus", tree))


@pytest.mark.guarantee("FLOW-10")
async def test_running_services_leave_signals_alone(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    added: list[Any] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", lambda *args: added.append(args))

    await shop.suspend("e1")
    async with shop.filter(), shop.worker():
        during = {number: signal.getsignal(number) for number in before}

    assert (added, during) == ([], before)
