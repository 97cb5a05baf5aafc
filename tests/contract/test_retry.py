"""Retrying: how often a failing handler is called, how long the bus waits in between, and who hears of the failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from lastbus import BaseBus, Event, RetryPolicy
from lastbus.memory import InMemoryEventBus
from lastbus.testing import ManualClock, Recorder, everyone_blocked
from tests._backends import Backend
from tests.contract.waiting import EagerClock, settled


class Failing:
    """A handler that fails the first `times` calls."""

    def __init__(self, times: int, make: Callable[[], BaseException] = lambda: KeyError("oops")) -> None:
        self.times = times
        self.make = make
        self.calls = 0

    async def __call__(self, event: Event) -> None:
        self.calls += 1
        if self.calls <= self.times:
            raise self.make()


class PlainFailing(Failing):
    """The same, as a plain function."""

    def __call__(self, event: Event) -> None:  # type: ignore[override]
        self.calls += 1
        if self.calls <= self.times:
            raise self.make()


async def publish_once(bus: BaseBus, event_type: str = "t") -> str:
    """Publish without dedup, so that no claim has to be renewed on the test's clock, and wait for the handlers."""
    event_id = await bus.publish(event_type, False)
    await settled(bus)
    return event_id


def errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.guarantee("CORE-20")
async def test_a_handler_that_always_fails_is_called_once_and_once_per_retry(backend: Backend) -> None:
    clock, failing = EagerClock(), Failing(99)
    bus = backend.make_bus(clock=clock)
    await bus.register_handler("t", failing, retry_policy=RetryPolicy(max_retries=2))

    await publish_once(bus)

    assert failing.calls == 3
    assert clock.sleeps == [1.0, 2.0]


@pytest.mark.guarantee("CORE-20")
async def test_the_last_failure_is_logged_once_and_not_raised_to_the_publisher(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    bus = backend.make_bus(clock=EagerClock())
    await bus.register_handler("t", Failing(99), retry_policy=RetryPolicy(max_retries=2), handler_id="mailer")

    event_id = await publish_once(bus)

    (record,) = errors(caplog)
    assert all(part in record.getMessage() for part in ("mailer", event_id, "(t)"))
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)


@pytest.mark.guarantee("CORE-20")
async def test_retries_end_with_the_first_success(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    clock, failing = EagerClock(), Failing(1)
    bus = backend.make_bus(clock=clock)
    await bus.register_handler("t", failing, retry_policy=RetryPolicy(max_retries=5, initial_delay=3))

    await publish_once(bus)

    assert (failing.calls, clock.sleeps, errors(caplog)) == (2, [3.0], [])


@pytest.mark.guarantee("CORE-20")
async def test_a_policy_of_no_retries_means_one_call(backend: Backend) -> None:
    clock, failing = EagerClock(), Failing(99)
    bus = backend.make_bus(clock=clock)
    await bus.register_handler("t", failing, retry_policy=RetryPolicy(max_retries=0))

    await publish_once(bus)

    assert (failing.calls, clock.sleeps) == (1, [])


@pytest.mark.guarantee("CORE-20")
async def test_the_second_call_comes_when_the_delay_is_over_and_not_before(clock: ManualClock) -> None:
    failing = Failing(99)
    async with InMemoryEventBus(clock=clock, close_timeout=0, on_overdue="cancel") as bus:
        await bus.register_handler("t", failing, retry_policy=RetryPolicy(initial_delay=10))
        await bus.publish("t")
        await everyone_blocked()

        clock.advance(9.9)
        await everyone_blocked()
        assert failing.calls == 1
        clock.advance(0.1)
        await everyone_blocked()
        assert failing.calls == 2


@pytest.mark.guarantee("CORE-20")
async def test_a_handler_that_waits_for_its_retry_holds_up_nobody(clock: ManualClock, recorder: Recorder) -> None:
    async with InMemoryEventBus(clock=clock, close_timeout=0, on_overdue="cancel") as bus:
        await bus.register_handler("*", Failing(99), retry_policy=RetryPolicy())
        await bus.register_handler("*", recorder)

        await bus.publish("poison")
        await bus.publish("fine")
        await everyone_blocked()

        assert [event.event_type for event in recorder.events] == ["poison", "fine"]


@pytest.mark.guarantee("CORE-21")
async def test_without_a_policy_a_failing_handler_is_called_once_and_logged_once(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    clock, failing = EagerClock(), Failing(99)
    bus = backend.make_bus(clock=clock)
    await bus.register_handler("t", failing, handler_id="mailer")

    event_id = await publish_once(bus)

    assert (failing.calls, clock.sleeps) == (1, [])
    (record,) = errors(caplog)
    assert "mailer" in record.getMessage()
    assert event_id in record.getMessage()


@pytest.mark.guarantee("CORE-21")
@pytest.mark.parametrize("kind", [Failing, PlainFailing])
async def test_a_failure_is_seen_whether_the_handler_is_async_or_plain(
    bus: BaseBus, recorder: Recorder, caplog: pytest.LogCaptureFixture, kind: type[Failing]
) -> None:
    await bus.register_handler("t", kind(99), handler_id="bad")
    await bus.register_handler("t", recorder)

    await publish_once(bus)

    assert len(recorder.events) == 1
    assert ["bad" in record.getMessage() for record in errors(caplog)] == [True]


@pytest.mark.guarantee("CORE-46")
@pytest.mark.parametrize("kind", [Failing, PlainFailing])
async def test_the_oddest_exception_is_an_ordinary_failure(
    bus: BaseBus, caplog: pytest.LogCaptureFixture, kind: type[Failing]
) -> None:
    odd = (BaseException, GeneratorExit, StopIteration, StopAsyncIteration)
    handlers = [kind(99, error) for error in odd]
    for number, failing in enumerate(handlers):
        await bus.register_handler("t", failing, handler_id=f"odd {number}")

    event_id = await publish_once(bus)

    assert [failing.calls for failing in handlers] == [1] * len(odd)
    assert sorted(record.args[0] for record in errors(caplog)) == [f"odd {number}" for number in range(len(odd))]
    statuses = [line["status"] for line in await bus.processing_tracker.get_processing_history(event_id)]
    assert statuses == ["error"] * len(odd)


@pytest.mark.guarantee("CORE-46")
async def test_what_is_not_an_exception_is_not_retried(backend: Backend) -> None:
    clock, failing = EagerClock(), Failing(99, BaseException)
    bus = backend.make_bus(clock=clock)
    await bus.register_handler("t", failing, retry_policy=RetryPolicy())

    await publish_once(bus)

    assert (failing.calls, clock.sleeps) == (1, [])


@pytest.mark.guarantee("CORE-46")
async def test_a_handler_that_cancels_itself_ends_without_a_failure(
    bus: BaseBus, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing(1, asyncio.CancelledError)
    event = Event("t")
    await bus.register_handler("t", failing, retry_policy=RetryPolicy())

    for _ in range(2):
        await bus.publish(event)
        await settled(bus)

    assert failing.calls == 2
    assert errors(caplog) == []


@pytest.mark.guarantee("CORE-46")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("kind", [Failing, PlainFailing])
def test_an_interrupt_in_a_handler_stops_the_program(kind: type[Failing], error: type[BaseException]) -> None:
    failing = kind(99, error)

    async def program() -> None:
        bus = InMemoryEventBus()
        await bus.register_handler("t", failing, retry_policy=RetryPolicy(initial_delay=0))
        await bus.publish("t")
        await settled(bus)

    with pytest.raises(error):
        asyncio.run(program())
    assert failing.calls == 1


@pytest.mark.guarantee("CORE-50")
async def test_the_history_of_an_event_names_every_call_and_its_end(backend: Backend) -> None:
    bus = backend.make_bus(clock=EagerClock())
    await bus.register_handler("given.up", Failing(99), retry_policy=RetryPolicy(max_retries=1), handler_id="h")
    await bus.register_handler("recovered", Failing(1), retry_policy=RetryPolicy(max_retries=1), handler_id="h2")
    await bus.register_handler("unsupervised", Failing(99), handler_id="h3")

    lines = {}
    for event_type in ("given.up", "recovered", "unsupervised"):
        event_id = await publish_once(bus, event_type)
        history = await bus.processing_tracker.get_processing_history(event_id)
        lines[event_type] = [(line["handler_id"], line["status"], line["error"]) for line in history]

    oops = "KeyError: 'oops'"
    assert lines == {
        "given.up": [("h", "error", oops), ("h", "error", oops), ("h", "failed", oops)],
        "recovered": [("h2", "error", oops), ("h2", "success", None)],
        "unsupervised": [("h3", "error", oops)],
    }
