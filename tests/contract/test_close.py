"""Close: intake stops, running handlers are awaited in bounds, late ones are named, and calling again is harmless.

A few tests let a small `close_timeout` pass on the loop's own time, which is the contract there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lastbus import BaseBus, BusClosedError, CloseError, CloseTimeout, Event
from lastbus.memory import InMemoryEventBus
from lastbus.testing import Gate, Recorder, everyone_blocked
from tests._backends import Backend
from tests.contract.slow_storage import SlowStorage
from tests.contract.waiting import hears, is_over, settled, until

SOON = 0.05
LONG = 30.0


def warnings(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """The WARNINGs that contain every word."""
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    return [message for message in said if all(word in message for word in words)]


async def ends(awaitable: Awaitable[Any], seconds: float = 1) -> bool:
    """Whether `awaitable` ends within the time that a test has; it is not cancelled, and its error is raised here."""
    task = asyncio.ensure_future(awaitable)
    if await is_over(task, seconds=seconds):
        task.result()
    return task.done()


async def occupied(bus: BaseBus, gate: Gate, event_type: str = "job") -> tuple[str, str]:
    """Let `gate` hold an event of `bus`; (event id, handler id)."""
    handler_id = await bus.register_handler(event_type, gate.hold)
    event_id = await bus.publish(event_type)
    await gate.has_entered()
    return event_id, handler_id


class Stubborn:
    """A handler that swallows its cancellation."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.may_end = asyncio.Event()
        self.cancellations = 0

    async def __call__(self, event: Event) -> None:
        self.entered.set()
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.cancellations += 1


VERBS: dict[str, Callable[[BaseBus], Awaitable[Any]]] = {
    "publish": lambda bus: bus.publish("job"),
    "batch_publish": lambda bus: bus.batch_publish(["job"]),
    "register_handler": lambda bus: bus.register_handler("job", print),
    "register_subscription": lambda bus: bus.register_subscription("job"),
    "wait_for_event": lambda bus: bus.wait_for_event("job", timeout=LONG),
    "start": lambda bus: bus.start(),
}


@pytest.mark.guarantee("CAP-11")
async def test_a_closing_bus_refuses_every_verb_by_name_and_does_nothing(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus()
    await occupied(bus, gate)
    closing = bus.request_close()
    held = dict(bus._pending_tasks)

    for verb, call in VERBS.items():
        with pytest.raises(BusClosedError, match="error_kind=bus-closed") as caught:
            await call(bus)
        assert (caught.value.kind, caught.value.verb) == ("bus-closed", verb)

    assert bus._pending_tasks == held
    assert len(bus._registry) == 1
    gate.open()
    await is_over(closing, seconds=5)


@pytest.mark.guarantee("CAP-11")
@pytest.mark.parametrize("verb", VERBS)
async def test_a_closed_bus_refuses_every_verb_by_name(verb: str) -> None:
    bus = InMemoryEventBus()
    await bus.close()

    with pytest.raises(BusClosedError, match=verb):
        await VERBS[verb](bus)


@pytest.mark.guarantee("CAP-11")
def test_a_closed_bus_refuses_publish_sync_and_the_decorator_without_a_loop() -> None:
    bus = InMemoryEventBus()
    asyncio.run(bus.close())

    with pytest.raises(BusClosedError, match="publish_sync"):
        bus.publish_sync("job")
    with pytest.raises(BusClosedError, match="register_handler"):
        bus.add_handler("job", print)


@pytest.mark.guarantee("CAP-10")
async def test_pending_waits_end_when_the_bus_closes(bus: BaseBus) -> None:
    waits = [asyncio.ensure_future(bus.wait_for_event("job", timeout=LONG)) for _ in range(2)]
    await until(lambda: len(bus._waiters) == 2)
    await everyone_blocked()

    assert await ends(bus.close(), 5)
    await is_over(*waits)

    assert [type(each.exception()) for each in waits if each.done()] == [BusClosedError] * 2
    assert len(bus._waiters) == 0


@pytest.mark.guarantee("CAP-10")
async def test_a_close_that_could_not_begin_leaves_waits_and_publishers_alone(gate: Gate) -> None:
    bus = InMemoryEventBus(max_pending_callbacks=1)
    await occupied(bus, gate)
    waiting = asyncio.ensure_future(bus.wait_for_event("other", timeout=LONG))
    publishing = asyncio.ensure_future(bus.publish("job"))
    await everyone_blocked()

    def refuse(loop: asyncio.AbstractEventLoop, coro: Any, **_: Any) -> Any:
        raise OSError("no task today")

    asyncio.get_running_loop().set_task_factory(refuse)
    try:
        with pytest.raises(CloseError, match="teardown-spawn-failed"):
            bus.request_close()
    finally:
        asyncio.get_running_loop().set_task_factory(None)
    await everyone_blocked()

    assert (waiting.done(), publishing.done()) == (False, False)
    gate.open()
    await is_over(publishing)
    await bus.publish("other")
    assert (await waiting).event_type == "other"
    await bus.close()


@pytest.mark.guarantee("CAP-12", "MEM-06")
async def test_close_waits_for_a_running_handler_and_leaves_it_in_peace(
    backend: Backend, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    bus = backend.make_bus(close_timeout=LONG, on_overdue="cancel")
    await occupied(bus, gate)
    closing = asyncio.ensure_future(bus.close())
    await everyone_blocked()
    assert not closing.done()

    gate.open()

    assert await ends(closing, 5)
    assert (len(gate.left), gate.cancelled) == (1, [])
    assert warnings(caplog) == []
    await closing


@pytest.mark.guarantee("CAP-12")
async def test_leaving_the_block_closes(backend: Backend, gate: Gate) -> None:
    async with backend.make_bus() as bus:
        await occupied(bus, gate)
        gate.open()

    assert len(gate.left) == 1
    with pytest.raises(BusClosedError):
        await bus.publish("job")


@pytest.mark.guarantee("CAP-13")
async def test_overdue_handlers_are_named_one_by_one_and_left_running(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    bus = backend.make_bus(close_timeout=SOON)
    gates = [Gate(), Gate()]
    labels = [await occupied(bus, gate, f"job-{n}") for n, gate in enumerate(gates)]

    assert await ends(bus.close(), 5)

    assert [len(warnings(caplog, *label)) for label in labels] == [1, 1]
    assert [gate.cancelled for gate in gates] == [[], []]
    for gate in gates:
        gate.open()
        await asyncio.wait_for(gate.has_left(), 1)
    await settled(bus)


@pytest.mark.guarantee("CAP-13")
async def test_overdue_handlers_are_cancelled_and_their_clean_up_is_awaited(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    bus = backend.make_bus(close_timeout=SOON, on_overdue="cancel")
    entered, seen = asyncio.Event(), []

    async def handler(event: Event) -> None:
        try:
            entered.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            await everyone_blocked()
            seen.append("cleaned up")

    handler_id = await bus.register_handler("job", handler)
    event_id = await bus.publish("job")
    await entered.wait()

    assert await ends(bus.close(), 5)

    assert seen == ["cancelled", "cleaned up"]
    assert len(warnings(caplog, event_id, handler_id)) == 1


@pytest.mark.guarantee("CAP-13")
async def test_a_thousand_late_handlers_are_named_and_cancelled_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    bus = InMemoryEventBus(close_timeout=0, on_overdue="cancel")
    gate = Gate()
    handler_id = await bus.register_handler("job", gate.hold)
    await bus.batch_publish(["job"] * 1000)
    await gate.has_entered(1000)

    returned = await ends(bus.close(), 5)
    await settled(bus)

    assert returned
    assert len(gate.cancelled) == 1000
    named = {each.args[0] for each in caplog.records if each.args and handler_id in each.getMessage()}
    assert named == {event.event_id for event in gate.entered}


@pytest.mark.guarantee("CAP-13")
async def test_the_error_of_a_cancelled_handler_does_not_come_out_of_close() -> None:
    bus = InMemoryEventBus(close_timeout=SOON, on_overdue="cancel")
    gate = Gate()

    async def handler(event: Event) -> None:
        try:
            await gate.hold(event)
        finally:
            raise ValueError("boom")

    await bus.register_handler("job", handler)
    await bus.publish("job")
    await gate.has_entered()

    closing = asyncio.ensure_future(bus.close())
    await is_over(closing)

    assert closing.done()
    assert closing.exception() is None


@pytest.mark.guarantee("CAP-13")
async def test_a_handler_that_ignores_its_cancellation_is_named_again_and_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = InMemoryEventBus(close_timeout=SOON, on_overdue="cancel")
    stubborn = Stubborn()
    handler_id = await bus.register_handler("job", stubborn)
    event_id = await bus.publish("job")
    await stubborn.entered.wait()

    returned = await ends(bus.close())

    stubborn.may_end.set()
    await settled(bus)
    assert returned
    assert stubborn.cancellations == 1
    assert len(warnings(caplog, event_id, handler_id)) == 2


@pytest.mark.guarantee("CAP-14")
async def test_an_idle_bus_closes_without_waiting(backend: Backend) -> None:
    bus = backend.make_bus(close_timeout=1.0)
    await bus.publish("job")

    assert await ends(bus.close(), 0.5)


@pytest.mark.guarantee("CAP-14")
async def test_ten_closes_at_once_and_one_more_are_one_close(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(close_timeout=SOON, on_overdue="cancel")
    stubborn = Stubborn()
    await bus.register_handler("job", stubborn)
    await bus.publish("job")
    await stubborn.entered.wait()

    closings = [asyncio.ensure_future(bus.close()) for _ in range(10)]
    await is_over(*closings, seconds=5)
    again = await ends(bus.close())
    stubborn.may_end.set()
    await settled(bus)

    assert [each.done() and each.exception() for each in closings] == [None] * 10
    assert again
    assert (bus._teardown_runs, stubborn.cancellations) == (1, 1)
    assert bus.request_close() is bus.request_close()


@pytest.mark.guarantee("CAP-14")
def test_a_closed_bus_may_be_closed_again_from_another_loop() -> None:
    bus = InMemoryEventBus()
    bus.publish_sync("job")

    asyncio.run(bus.close())
    asyncio.run(bus.close())

    assert bus._teardown_runs == 1


@pytest.mark.guarantee("CAP-15")
async def test_cancelling_a_caller_of_close_changes_nothing_but_its_wait(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(close_timeout=SOON, on_overdue="cancel")
    await occupied(bus, gate)
    closing = asyncio.ensure_future(bus.close())
    await everyone_blocked()

    closing.cancel()
    await is_over(closing)

    assert closing.cancelled()
    with pytest.raises(BusClosedError):
        await bus.publish("job")
    again = asyncio.ensure_future(bus.close())
    await is_over(again, seconds=5)
    assert again.done()
    assert again.exception() is None
    assert (len(gate.cancelled), bus._teardown_runs) == (1, 1)


@pytest.mark.guarantee("CAP-16")
async def test_a_close_whose_teardown_was_cancelled_can_be_repeated(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(close_timeout=LONG)
    await occupied(bus, gate)
    closing = asyncio.ensure_future(bus.close())
    await everyone_blocked()
    assert bus._teardown_task is not None

    bus._teardown_task.cancel()
    await is_over(closing)

    error = closing.exception()
    assert isinstance(error, CloseError)
    assert error.kind == "teardown-incomplete"
    with pytest.raises(BusClosedError):
        await bus.publish("job")
    gate.open()
    assert await ends(bus.close(), 5)
    assert (bus._teardown_runs, len(gate.left)) == (2, 1)


@pytest.mark.guarantee("CAP-16")
async def test_a_close_interrupted_while_it_waits_for_cancelled_handlers_finishes_them_when_repeated() -> None:
    bus = InMemoryEventBus(close_timeout=SOON, on_overdue="cancel")
    stubborn = Stubborn()
    await bus.register_handler("job", stubborn)
    await bus.publish("job")
    await stubborn.entered.wait()
    closing = bus.request_close()
    await until(lambda: stubborn.cancellations == 1)
    assert bus._teardown_task is not None

    bus._teardown_task.cancel()
    await is_over(closing)
    stubborn.may_end.set()
    returned = await ends(bus.close())

    assert isinstance(closing.exception(), CloseError)
    assert returned
    assert dict(bus._pending_tasks) == {}


async def close_here(bus: BaseBus) -> None:
    await bus.close()


async def close_in_a_child(bus: BaseBus) -> None:
    await asyncio.ensure_future(bus.close())


@pytest.mark.guarantee("CAP-17")
@pytest.mark.parametrize("close", [close_here, close_in_a_child], ids=["itself", "child-task"])
async def test_a_handler_cannot_close_the_bus_and_the_bus_stays_open(
    backend: Backend, recorder: Recorder, close: Callable[[BaseBus], Awaitable[None]]
) -> None:
    bus = backend.make_bus()
    refused: list[str] = []
    ended = asyncio.Event()

    async def handler(event: Event) -> None:
        try:
            await close(bus)
        except CloseError as error:
            refused.append(error.kind)
        ended.set()

    await bus.register_handler("job", handler)
    await bus.register_handler("after", recorder)
    await bus.publish("job")
    await ends(ended.wait(), 0.5)

    assert refused == ["self-close"]
    assert (bus._closing, bus._close_future, bus._teardown_runs) == (False, None, 0)
    await bus.publish("after")
    await hears(recorder)


@pytest.mark.guarantee("CAP-17")
@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="eager tasks came with Python 3.12")
async def test_a_handler_that_starts_eagerly_cannot_close_the_bus_either() -> None:
    bus = InMemoryEventBus()
    refused: list[str] = []

    async def handler(event: Event) -> None:
        try:
            await bus.close()
        except CloseError as error:
            refused.append(error.kind)

    await bus.register_handler("job", handler)
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
    try:
        await bus.publish("job")
        await everyone_blocked()
    finally:
        asyncio.get_running_loop().set_task_factory(None)

    assert refused == ["self-close"]
    assert not bus._closing
    await bus.close()


@pytest.mark.guarantee("CAP-18")
async def test_a_task_that_a_handler_made_for_itself_survives_the_close(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(close_timeout=SOON, on_overdue="cancel")
    may_end = asyncio.Event()
    made: list[asyncio.Future[Any]] = []

    async def handler(event: Event) -> None:
        made.append(asyncio.ensure_future(may_end.wait()))
        await gate.hold(event)

    await bus.register_handler("job", handler)
    await bus.publish("job")
    await gate.has_entered()

    assert await ends(bus.close(), 5)

    assert len(gate.cancelled) == 1
    assert [each.done() for each in made] == [False]
    may_end.set()
    assert await ends(made[0])
    assert not made[0].cancelled()


@pytest.mark.guarantee("CAP-27")
async def test_close_waits_for_a_publish_that_is_being_stored_and_then_for_its_handlers(gate: Gate) -> None:
    storage = SlowStorage()
    bus = InMemoryEventBus(event_storage=storage, close_timeout=LONG)
    await bus.register_handler("job", gate.hold)
    storage.may_store.clear()
    publishing = asyncio.ensure_future(bus.publish("job"))
    await everyone_blocked()

    closing = asyncio.ensure_future(bus.close())
    await everyone_blocked()
    during_store = closing.done()
    storage.may_store.set()
    await is_over(publishing)
    await everyone_blocked()
    during_handler = closing.done()
    gate.open()

    assert await ends(closing)
    assert (during_store, during_handler) == (False, False)
    assert len(gate.left) == 1


@pytest.mark.guarantee("CAP-27")
async def test_a_store_that_outlasts_the_close_is_named(caplog: pytest.LogCaptureFixture) -> None:
    storage = SlowStorage()
    bus = InMemoryEventBus(event_storage=storage, close_timeout=SOON)
    storage.may_store.clear()
    event = Event("job")
    publishing = asyncio.ensure_future(bus.publish(event))
    await everyone_blocked()

    returned = await ends(bus.close())
    storage.may_store.set()
    await is_over(publishing)

    assert returned
    assert len(warnings(caplog, event.event_id, "being published")) == 1


@pytest.mark.guarantee("CAP-31")
async def test_a_caller_may_bring_its_own_deadline_while_the_close_goes_on(backend: Backend, gate: Gate) -> None:
    bus = backend.make_bus(close_timeout=LONG)
    await occupied(bus, gate)

    with pytest.raises(CloseTimeout, match="running handlers") as caught:
        await bus.close(timeout=SOON)

    assert isinstance(caught.value, TimeoutError)
    assert caught.value.kind == "close-timeout"
    assert bus._teardown_task is not None
    gate.open()
    assert await ends(bus.close(), 5)
    assert bus._teardown_runs == 1


@pytest.mark.guarantee("CAP-31")
@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "1"], ids=repr)
async def test_a_deadline_that_is_none_is_refused_and_closes_nothing(timeout: Any) -> None:
    bus = InMemoryEventBus()

    with pytest.raises(ValueError, match="timeout"):
        await bus.close(timeout=timeout)

    assert not bus._closing
    await bus.close()


@pytest.mark.guarantee("CAP-32")
async def test_with_cancel_queued_handlers_are_named_and_never_start(
    backend: Backend, gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus = backend.make_bus(close_timeout=SOON, on_overdue="cancel", max_pending_callbacks=1)
    await bus.register_handler("job", gate.hold)
    queued = await bus.register_handler("job", recorder)
    event_id = await bus.publish("job")
    await gate.has_entered()

    assert await ends(bus.close(), 5)
    await settled(bus)

    assert recorder.events == []
    assert len(warnings(caplog, event_id, queued)) == 1


@pytest.mark.guarantee("CAP-32")
async def test_with_cancel_a_store_that_outlasts_the_close_starts_nothing(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    storage = SlowStorage()
    bus = InMemoryEventBus(event_storage=storage, close_timeout=SOON, on_overdue="cancel", max_pending_callbacks=1)
    handler_id = await bus.register_handler("job", recorder)
    storage.may_store.clear()
    event = Event("job")
    publishing = asyncio.ensure_future(bus.publish(event))
    await everyone_blocked()
    await ends(bus.close())

    storage.may_store.set()
    await is_over(publishing)
    await everyone_blocked()

    assert publishing.done()
    assert recorder.events == []
    assert len(warnings(caplog, event.event_id, handler_id)) == 1
    assert bus._slots.taken == 0


@pytest.mark.guarantee("CAP-33")
async def test_with_release_queued_handlers_are_named_and_start_all_the_same(
    backend: Backend, gate: Gate, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    bus = backend.make_bus(close_timeout=SOON, max_pending_callbacks=1)
    await bus.register_handler("job", gate.hold)
    queued = await bus.register_handler("job", recorder)
    event_id = await bus.publish("job", prevent_duplicate_consumption=False)
    await gate.has_entered()

    assert await ends(bus.close(), 5)
    assert (recorder.events, len(warnings(caplog, event_id, queued))) == ([], 1)
    gate.open()
    await hears(recorder)
    await settled(bus)


@pytest.mark.guarantee("CAP-34")
async def test_a_handler_may_request_the_close_and_finishes_undisturbed(backend: Backend) -> None:
    bus = backend.make_bus(close_timeout=LONG, on_overdue="cancel")
    may_end, requested, finished = asyncio.Event(), asyncio.Event(), []

    async def handler(event: Event) -> None:
        bus.request_close()
        requested.set()
        await may_end.wait()
        finished.append(event)

    await bus.register_handler("job", handler)
    await bus.publish("job")
    await asyncio.wait_for(requested.wait(), 1)
    closing = asyncio.ensure_future(bus.close())
    await everyone_blocked()
    assert not closing.done()

    may_end.set()

    assert await ends(closing, 5)
    assert len(finished) == 1


@pytest.mark.guarantee("CAP-35")
@pytest.mark.parametrize("on_overdue", ["release", "cancel"])
async def test_a_function_in_a_thread_is_named_and_left_to_finish(
    on_overdue: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bus = InMemoryEventBus(close_timeout=SOON, on_overdue=on_overdue)
    entered, may_end, finished = threading.Event(), threading.Event(), threading.Event()

    def handler(event: Event) -> None:
        entered.set()
        may_end.wait(10)
        finished.set()

    handler_id = await bus.register_handler("job", handler)
    event_id = await bus.publish("job")
    await until(entered.is_set)

    returned = await ends(bus.close())
    still_running = not finished.is_set()
    may_end.set()
    await settled(bus)

    assert (returned, still_running) == (True, True)
    assert len(warnings(caplog, event_id, handler_id)) >= 1
    assert finished.wait(2)


@pytest.mark.guarantee("CAP-35")
async def test_close_waits_for_a_function_in_a_thread() -> None:
    bus = InMemoryEventBus(close_timeout=LONG)
    entered, may_end, finished = threading.Event(), threading.Event(), threading.Event()

    def handler(event: Event) -> None:
        entered.set()
        may_end.wait(10)
        finished.set()

    await bus.register_handler("job", handler)
    await bus.publish("job")
    await until(entered.is_set)
    closing = asyncio.ensure_future(bus.close())
    await everyone_blocked()
    early = closing.done()
    may_end.set()

    assert await ends(closing)
    assert not early
    assert finished.is_set()


def close_on_another_loop(bus: BaseBus) -> str:
    """The kind with which a close on a loop of another thread is refused; "closed" if it is not."""
    outcome = []

    async def close() -> None:
        try:
            await bus.close(timeout=1)
            outcome.append("closed")
        except CloseError as error:
            outcome.append(error.kind)

    thread = threading.Thread(target=lambda: asyncio.run(close()))
    thread.start()
    thread.join(10)
    return outcome[0]


@pytest.mark.guarantee("CAP-36")
async def test_a_bus_that_stores_is_not_closed_from_another_loop() -> None:
    storage = SlowStorage()
    bus = InMemoryEventBus(event_storage=storage)
    storage.may_store.clear()
    publishing = asyncio.ensure_future(bus.publish("job"))
    await everyone_blocked()

    outcome = close_on_another_loop(bus)
    storage.may_store.set()
    await is_over(publishing)

    assert outcome == "cross-loop-close"
    assert (bus._closing, bus._teardown_runs) == (False, 0)
    assert publishing.exception() is None
    await bus.close()


@pytest.mark.guarantee("CAP-36")
async def test_a_bus_whose_handlers_run_is_not_closed_from_another_loop(bus: BaseBus, gate: Gate) -> None:
    await occupied(bus, gate)

    assert close_on_another_loop(bus) == "cross-loop-close"
    assert not bus._closing
    gate.open()


@pytest.mark.guarantee("CAP-36")
async def test_a_bus_on_which_a_publisher_waits_is_not_closed_from_another_loop(gate: Gate) -> None:
    bus = InMemoryEventBus(max_pending_callbacks=1)
    await bus.register_handler("job", gate.hold)
    assert bus._slots.try_take()
    publishing = asyncio.ensure_future(bus.publish("job"))
    await everyone_blocked()

    outcome = close_on_another_loop(bus)

    bus._slots.give_back()
    gate.open()
    await is_over(publishing)
    assert outcome == "cross-loop-close"
    assert not bus._closing
    await bus.close()


@pytest.mark.guarantee("CAP-36")
async def test_a_bus_on_which_somebody_waits_for_an_event_is_not_closed_from_another_loop() -> None:
    bus = InMemoryEventBus()
    waiting = asyncio.ensure_future(bus.wait_for_event("job"))
    await everyone_blocked()

    outcome = close_on_another_loop(bus)

    await bus.publish("job")
    await is_over(waiting)
    assert outcome == "cross-loop-close"
    assert waiting.result().event_type == "job"
    await bus.close()


@pytest.mark.guarantee("CAP-36")
async def test_a_close_that_is_under_way_is_not_joined_from_another_loop(gate: Gate) -> None:
    bus = InMemoryEventBus(close_timeout=LONG)
    await occupied(bus, gate)
    closing = bus.request_close()

    outcome = close_on_another_loop(bus)

    gate.open()
    await is_over(closing)
    assert outcome == "cross-loop-close"
    assert closing.exception() is None
    assert bus._teardown_runs == 1


@pytest.mark.guarantee("CAP-36")
async def test_an_idle_bus_may_be_closed_from_another_loop() -> None:
    bus = InMemoryEventBus()
    await bus.publish("job")

    assert close_on_another_loop(bus) == "closed"


class Connecting(InMemoryEventBus):
    """A bus whose back end takes its time to connect; what it opens is released with the slot `redis`."""

    def __init__(self) -> None:
        super().__init__(close_timeout=LONG)
        self.may_connect = asyncio.Event()
        self.redis: Any = None
        self.released: list[str] = []

    async def aclose(self) -> None:
        self.released.append("connection")

    async def _open(self) -> None:
        await self.may_connect.wait()
        self.redis = self


@pytest.mark.guarantee("CAP-37")
async def test_a_close_waits_for_a_start_and_releases_what_it_opened() -> None:
    bus = Connecting()
    starting = asyncio.ensure_future(bus.start())
    await everyone_blocked()

    closing = asyncio.ensure_future(bus.close())
    await everyone_blocked()
    early = closing.done()
    bus.may_connect.set()
    await is_over(starting, closing)

    assert not early
    assert isinstance(starting.exception(), BusClosedError)
    assert closing.exception() is None
    assert bus.released == ["connection"]
