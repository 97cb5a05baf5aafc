"""Publishing from code without a loop: on the bus's own loop if it is alive, else on a private one, and in bounds."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lastbus import BaseBus, BusClosedError, Event, SyncPublishError, event_handler
from lastbus._dispatch import bridge
from lastbus.memory import InMemoryEventBus, MemoryEventStorage
from lastbus.testing import Gate, ManualClock, Recorder, everyone_blocked
from tests._backends import Backend
from tests.contract.slow_storage import SlowStorage
from tests.contract.waiting import settled, until

USER: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


class LoopStoppingStorage(MemoryEventStorage):
    """Stops the loop in the middle of a store."""

    async def store_encoded(self, event: Event, text: str) -> str:
        """Never returns."""
        asyncio.get_running_loop().stop()
        await asyncio.Event().wait()
        return ""


async def slow(event: Event) -> None:
    """A handler that takes a hundred turns, and says so in the event."""
    for _ in range(100):
        await asyncio.sleep(0)
    assert isinstance(event.data, dict)
    event.data["handled"] = True


async def in_thread(bus: BaseBus, *args: Any, **data: Any) -> asyncio.Future[str]:
    """`publish_sync` in a thread; the loop of the caller goes on."""
    return asyncio.ensure_future(asyncio.to_thread(bus.publish_sync, *args, **data))


def on_live_loop(home: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, home).result(5)


@pytest.mark.guarantee("CORE-22")
def test_code_without_a_loop_publishes_and_gets_the_id_of_a_stored_event() -> None:
    bus, event = InMemoryEventBus(), Event("t", {"n": 1}, "c", "s")

    assert bus.publish_sync(event) == event.event_id
    assert asyncio.run(bus.get_event(event.event_id)) == event


@pytest.mark.guarantee("CORE-22")
@pytest.mark.parametrize("is_started", [False, True], ids=["private", "live"])
async def test_a_thread_publishes_on_any_back_end(bus: BaseBus, recorder: Recorder, is_started: bool) -> None:
    bus.add_handler("t", recorder)
    if is_started:
        await bus.start()

    event_id = await (await in_thread(bus, "t", n=1))

    assert (await bus.get_event(event_id)).data == {"n": 1}
    assert [event.event_id for event in recorder.events] == [event_id]


@pytest.mark.guarantee("CORE-22")
def test_publishing_again_and_again_without_a_loop_deduplicates_as_ever() -> None:
    bus, event, handled = InMemoryEventBus(), Event("t"), list[str]()
    bus.add_handler("t", lambda event: handled.append(event.event_id))

    for deduplicate, runs in ((True, 1), (True, 1), (False, 2)):
        bus.publish_sync(event, deduplicate)
        assert len(handled) == runs


@pytest.mark.guarantee("CORE-22")
@pytest.mark.parametrize("bad", [Event("", event_id="bad"), Event("t", {"v": float("nan")}), {"n": 1}], ids=range(3))
def test_what_cannot_be_stored_is_refused_without_a_loop_too(bad: Any) -> None:
    bus = InMemoryEventBus()

    with pytest.raises(ValueError):
        bus.publish_sync(bad)
    assert asyncio.run(bus.event_storage.list_events()) == []


@pytest.mark.guarantee("CORE-22")
def test_a_closed_bus_refuses_without_a_loop_too() -> None:
    bus = InMemoryEventBus()
    asyncio.run(bus.close())

    with pytest.raises(BusClosedError, match="publish_sync"):
        bus.publish_sync("t")


@pytest.mark.guarantee("CORE-23")
def test_its_handlers_are_done_when_it_returns() -> None:
    bus, event = InMemoryEventBus(), Event("t", {})
    bus.add_handler("t", slow)

    bus.publish_sync(event)

    assert event.data == {"handled": True}


@pytest.mark.guarantee("CORE-23")
@pytest.mark.parametrize("is_started", [False, True], ids=["private", "live"])
async def test_its_handlers_are_done_on_every_back_end(bus: BaseBus, is_started: bool) -> None:
    event = Event("t", {})
    bus.add_handler("t", slow)
    if is_started:
        await bus.start()

    await (await in_thread(bus, event))

    assert event.data == {"handled": True}


@pytest.mark.guarantee("CORE-23")
def test_a_plain_handler_is_waited_for_too_and_may_publish_itself() -> None:
    bus, heard = InMemoryEventBus(), list[str]()

    def outer(event: Event) -> None:
        bus.publish_sync("inner")
        heard.append("outer")

    bus.add_handler("outer", outer)
    bus.add_handler("inner", lambda event: heard.append("inner"))

    bus.publish_sync("outer")

    assert heard == ["inner", "outer"]


@pytest.mark.guarantee("CORE-24")
async def test_the_drain_ends_after_its_time_and_cancels_nothing(clock: ManualClock, gate: Gate) -> None:
    async with InMemoryEventBus(clock=clock) as bus:
        await bus.register_handler("t", gate.hold)
        publishing = await in_thread(bus, "t")
        await gate.has_entered()
        clock.advance(4.9)
        await everyone_blocked()
        assert not publishing.done()

        clock.advance(0.2)
        await asyncio.wait({publishing}, timeout=0.5)
        was_done = publishing.done()
        gate.open()
        await settled(bus)

        assert was_done
        assert await publishing == gate.entered[0].event_id
        assert (len(gate.left), gate.cancelled) == (1, [])


@pytest.mark.guarantee("CORE-24")
def test_a_drain_that_takes_too_long_says_how_many_handlers_of_which_event_are_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    bus = InMemoryEventBus(clock=clock, publish_sync_drain_timeout=2.5)

    async def endless(event: Event) -> None:
        await slow(event)
        await slow(event)
        clock.advance(2.5)
        await asyncio.Event().wait()

    bus.add_handler("t", endless)
    bus.add_handler("t", slow)

    event_id = bus.publish_sync("t")

    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert all(part in record.getMessage() for part in ("publish_sync", "1 of 2", event_id, "2.5 s"))


@pytest.mark.guarantee("CORE-24")
def test_what_still_runs_on_a_private_loop_is_cancelled_with_it_and_gives_its_claim_back() -> None:
    clock = ManualClock()
    bus, ends = InMemoryEventBus(clock=clock, publish_sync_drain_timeout=9), list[str]()

    async def endless(event: Event) -> None:
        clock.advance(9)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    bus.add_handler("t", endless, handler_id="h")

    event_id = bus.publish_sync("t")

    assert ends == ["cancelled"]
    assert not bus._pending_tasks
    assert asyncio.run(bus.processing_tracker.claim_event(event_id, "h", "somebody else"))


@pytest.mark.guarantee("CORE-24")
async def test_a_straggler_of_a_private_loop_gives_its_claim_back_on_every_back_end(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    bus = backend.make_bus(clock=clock)

    async def endless(event: Event) -> None:
        clock.advance(5)
        await asyncio.Event().wait()

    bus.add_handler("t", endless, handler_id="h")

    event_id = await (await in_thread(bus, "t"))

    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert await bus.processing_tracker.claim_event(event_id, "h", "somebody else")


@pytest.mark.guarantee("CORE-24")
def test_a_private_loop_waits_in_bounds_for_what_does_not_heed_its_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bridge, "FAREWELL_SECONDS", 0.01)
    bus, ends = InMemoryEventBus(publish_sync_drain_timeout=0), list[str]()

    async def stubborn(event: Event) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 2)
        except asyncio.CancelledError:
            ends.append("cancelled again")
            raise
        except asyncio.TimeoutError:
            ends.append("waited for without a bound")

    bus.add_handler("t", stubborn)

    bus.publish_sync("t")

    assert ends == ["cancelled", "cancelled again"]


@pytest.mark.guarantee("CORE-24")
def test_a_private_loop_does_not_linger_when_what_it_cancelled_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    bus, slept, sleep = InMemoryEventBus(publish_sync_drain_timeout=0), list[float](), asyncio.sleep

    async def noted(delay: float) -> None:
        slept.append(delay)
        await sleep(0)

    async def endless(event: Event) -> None:
        await asyncio.Event().wait()

    bus.add_handler("t", endless)
    monkeypatch.setattr(asyncio, "sleep", noted)

    bus.publish_sync("t")

    assert set(slept) == {0}


@pytest.mark.guarantee("CORE-24")
async def test_what_a_drain_has_found_late_stays_late(clock: ManualClock) -> None:
    loop = asyncio.get_running_loop()
    early, late = loop.create_future(), loop.create_future()
    draining = asyncio.ensure_future(bridge.drain([early, late], 5, clock))
    await everyone_blocked()

    early.set_result(None)
    await everyone_blocked()
    clock.advance(5)
    left = await asyncio.wait_for(draining, 1)
    late.set_result(None)
    await everyone_blocked()

    assert left == {late}
    assert clock.pending == 0


@pytest.mark.guarantee("CORE-22")
def test_a_caller_that_has_set_a_loop_for_its_thread_finds_it_there_afterwards() -> None:
    mine = asyncio.new_event_loop()
    asyncio.set_event_loop(mine)

    try:
        InMemoryEventBus().publish_sync("t")

        assert asyncio.get_event_loop() is mine
    finally:
        asyncio.set_event_loop(None)
        mine.close()


@pytest.mark.guarantee("CORE-24")
def test_a_drain_of_no_time_returns_at_once_and_five_seconds_is_the_default() -> None:
    assert InMemoryEventBus().publish_sync_drain_timeout == 5.0
    bus, event = InMemoryEventBus(publish_sync_drain_timeout=0), Event("t", {})
    bus.add_handler("t", slow)

    bus.publish_sync(event)

    assert event.data == {}


@pytest.mark.guarantee("CORE-24", "CORE-36")
@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), None, "5"])
def test_a_drain_limit_that_is_no_duration_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="publish_sync_drain_timeout"):
        InMemoryEventBus(publish_sync_drain_timeout=bad)


@pytest.mark.guarantee("CORE-25")
async def test_handlers_of_other_events_are_not_waited_for(bus: BaseBus, gate: Gate, recorder: Recorder) -> None:
    await bus.register_handler("old", gate.hold)
    await bus.register_handler("new", recorder)
    await bus.publish("old")
    await gate.has_entered()

    publishing = await in_thread(bus, "new")
    await asyncio.wait({publishing}, timeout=0.5)
    was_done = publishing.done()
    gate.open()

    assert was_done
    assert len(recorder.events) == 1


@pytest.mark.guarantee("CORE-26")
async def test_its_own_handlers_are_waited_for_whether_or_not_the_back_end_listens(bus: BaseBus) -> None:
    event = Event("t", {})
    await bus.register_handler("t", slow)

    await (await in_thread(bus, event))

    assert event.data == {"handled": True}


@pytest.mark.guarantee("CORE-26")
async def test_its_own_late_handlers_are_named_whether_or_not_the_back_end_listens(
    backend: Backend, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    bus = backend.make_bus(clock=clock)
    await bus.register_handler("t", gate.hold)
    publishing = await in_thread(bus, "t")
    await gate.has_entered()

    clock.advance(5)
    event_id = await publishing
    gate.open()

    late = [record.getMessage() for record in caplog.records if "publish_sync" in record.getMessage()]
    assert [event_id in each for each in late] == [True]


@pytest.mark.guarantee("CORE-26")
async def test_handlers_of_other_buses_are_not_waited_for(backend: Backend, gate: Gate) -> None:
    publisher, other = backend.make_bus(), backend.make_bus()
    await other.register_handler("t", gate.hold)
    await publisher.start()

    publishing = await in_thread(publisher, "t")
    await asyncio.wait({publishing}, timeout=0.5)
    was_done = publishing.done()
    gate.open()

    assert was_done


@pytest.mark.guarantee("CORE-41")
async def test_inside_the_loop_of_the_bus_it_is_refused_by_name_and_nothing_is_stored(bus: BaseBus) -> None:
    await bus.start()

    with pytest.raises(SyncPublishError, match=r"await bus\.publish"):
        bus.publish_sync("t")

    assert await bus.event_storage.list_events() == []


@pytest.mark.guarantee("CORE-41")
async def test_inside_a_loop_it_is_refused_even_if_the_bus_has_none(bus: BaseBus) -> None:
    with pytest.raises(SyncPublishError) as caught:
        bus.publish_sync("t")

    assert str(caught.value) == ("publish_sync() was called inside a running event loop; use: await bus.publish(...)")


@pytest.mark.guarantee("CORE-41")
async def test_from_another_thread_its_handlers_run_on_the_loop_of_the_bus(bus: BaseBus) -> None:
    threads: list[int] = []

    async def where(event: Event) -> None:
        threads.append(threading.get_ident())

    await bus.register_handler("t", where)

    await (await in_thread(bus, "t"))

    assert threads == [threading.get_ident()]


@pytest.mark.guarantee("CORE-41")
async def test_a_plain_handler_of_a_live_bus_may_publish_from_its_thread(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("inner", recorder)
    await bus.register_handler("outer", lambda event: bus.publish_sync("inner"))

    await bus.publish("outer")
    await settled(bus)

    assert len(recorder.events) == 1


@pytest.mark.guarantee("CORE-41")
async def test_two_threads_without_a_loop_take_turns(gate: Gate) -> None:
    bus, entered, go, order = InMemoryEventBus(), threading.Event(), threading.Event(), list[str]()

    def first(event: Event) -> None:
        entered.set()
        assert go.wait(5)
        order.append("first")

    bus.add_handler("first", first)
    bus.add_handler("second", slow)
    bus.add_handler("second", lambda event: order.append("second"))

    one = await in_thread(bus, "first")
    await until(entered.is_set)
    event = Event("second", {})
    two = await in_thread(bus, event)
    await asyncio.wait({two}, timeout=0.05)
    go.set()
    await asyncio.gather(one, two)

    assert order == ["first", "second"]
    assert event.data == {"handled": True}


@pytest.mark.guarantee("CORE-41")
def test_a_loop_that_stops_in_the_middle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "LOOP_CHECK_SECONDS", 0.01)
    bus, home, up = InMemoryEventBus(event_storage=LoopStoppingStorage()), asyncio.new_event_loop(), threading.Event()

    async def start() -> None:
        await bus.start()
        up.set()

    home.create_task(start())
    serving = threading.Thread(target=home.run_forever)
    serving.start()
    assert up.wait(5)

    with pytest.raises(SyncPublishError, match=r"^the bus's event loop stopped before the publish was done$"):
        bus.publish_sync("t")

    serving.join()
    home.run_until_complete(everyone_blocked())
    assert not asyncio.all_tasks(home)
    home.close()


@pytest.mark.guarantee("CORE-41")
def test_a_publish_that_ends_in_the_moment_of_a_look_at_the_loop_is_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(concurrent.futures.Future[str]):
        def result(self, timeout: float | None = None) -> str:
            if not self.done():
                self.set_result("id")
                raise concurrent.futures.TimeoutError
            return super().result(timeout)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", lambda coro, loop: coro.close() or Late())
    loop = asyncio.new_event_loop()

    assert bridge._run_elsewhere(loop, everyone_blocked()) == "id"  # type: ignore[comparison-overlap]
    loop.close()


@pytest.mark.guarantee("CORE-41")
def test_looking_at_a_loop_that_runs_does_not_disturb_the_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    class Slow(concurrent.futures.Future[str]):
        def result(self, timeout: float | None = None) -> str:
            if not self.done():
                looks.append(timeout)
                if len(looks) < 3:
                    raise concurrent.futures.TimeoutError
                self.set_result("id")
            return super().result(timeout)

    class Running:
        def is_running(self) -> bool:
            return True

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", lambda coro, loop: coro.close() or Slow())

    assert bridge._run_elsewhere(Running(), everyone_blocked()) == "id"  # type: ignore[arg-type,comparison-overlap]
    assert looks == [bridge.LOOP_CHECK_SECONDS] * 3


@pytest.mark.guarantee("CORE-41")
async def test_a_publish_whose_task_the_loop_of_the_bus_cancels_is_named() -> None:
    storage = SlowStorage()
    storage.may_store.clear()
    async with InMemoryEventBus(event_storage=storage) as bus:
        before = asyncio.all_tasks()
        publishing = await in_thread(bus, "t")
        await until(lambda: bool(bus._intake.storing()))

        for task in asyncio.all_tasks() - before - {publishing}:
            task.cancel()
        await asyncio.wait({publishing}, timeout=5)

        assert publishing.done()
        assert isinstance(publishing.exception(), SyncPublishError)


@pytest.mark.guarantee("CORE-45")
def test_a_handler_on_a_private_loop_sees_its_publishers_context() -> None:
    bus, seen = InMemoryEventBus(), list[str]()

    async def handler(event: Event) -> None:
        seen.append(USER.get())

    bus.add_handler("t", handler)
    context = contextvars.copy_context()
    context.run(USER.set, "ann")

    context.run(bus.publish_sync, "t")

    assert seen == ["ann"]


class PrivateBus(InMemoryEventBus):
    """A bus that notes when the connections of a private loop come and go."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.connected = False

    @asynccontextmanager
    async def _private_connections(self) -> AsyncIterator[None]:
        self.connected = True
        try:
            yield
        finally:
            self.connected = False


@pytest.mark.guarantee("CORE-24")
def test_a_straggler_of_a_private_loop_ends_while_its_connections_are_there() -> None:
    bus = PrivateBus(publish_sync_drain_timeout=0.0)
    connected_at_the_end = []

    @event_handler(bus, "job")
    async def straggle(event: Event) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            connected_at_the_end.append(bus.connected)

    bus.publish_sync("job")

    assert connected_at_the_end == [True]
    assert not bus.connected
