"""Handlers: who is called with what, in which context, and who is not."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Any

import pytest

from lastbus import BaseBus, BusClosedError, Event, EventBus, EventSubscription, RetryPolicy, event_handler
from lastbus.memory import InMemoryEventBus
from lastbus.testing import Gate, Recorder, everyone_blocked
from tests._backends import Backend
from tests.contract.waiting import settled

USER: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


class DeafBus(InMemoryEventBus):
    """A bus whose back end cannot listen: covering fails, or takes for ever."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error

    async def _cover(self, pattern: str | None) -> None:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()


@pytest.mark.guarantee("CORE-08")
async def test_handlers_are_called_by_pattern(bus: BaseBus) -> None:
    every, users, none = Recorder(), Recorder(), Recorder()
    await bus.register_handler("*", every)
    await bus.register_handler("user.*", users)
    await bus.register_handler("User.*", none)
    await bus.register_handler("user", none)

    await bus.publish("user.created")
    await bus.publish("order.created")
    await settled(bus)

    assert sorted(event.event_type for event in every.events) == ["order.created", "user.created"]
    assert [event.event_type for event in users.events] == ["user.created"]
    assert none.events == []


@pytest.mark.guarantee("CORE-08")
async def test_a_handler_without_a_type_hears_everything(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler(handler=recorder)

    await bus.publish("a.b")
    await settled(bus)

    assert len(recorder.events) == 1


@pytest.mark.guarantee("CORE-09")
async def test_a_pattern_is_a_pattern_for_a_handler_and_a_plain_text_for_a_subscription(
    bus: BaseBus, recorder: Recorder
) -> None:
    await bus.register_handler("user.*", recorder)
    subscription_id = await bus.register_subscription("user.*")
    event = Event("user.created")

    await bus.publish(event)
    await settled(bus)

    subscription = await bus.subscription_storage.get_subscription(subscription_id)
    assert isinstance(subscription, EventSubscription)
    assert recorder.events == [event]
    assert EventBus.matches_event_type("user.*", "user.created")
    assert not subscription.matches_event(event)


@pytest.mark.guarantee("CORE-10")
async def test_a_filter_concerns_only_its_own_handler(bus: BaseBus) -> None:
    filtered, unfiltered = Recorder(), Recorder()
    await bus.register_handler("t", filtered, filter_condition={"k": 1})
    await bus.register_handler("t", unfiltered)

    await bus.publish("t", k=2)
    await bus.publish("t", k=1)
    await bus.publish("t")
    await settled(bus)

    assert [event.data for event in filtered.events] == [{"k": 1}]
    assert len(unfiltered.events) == 3


@pytest.mark.guarantee("CORE-10")
async def test_a_filter_is_the_one_that_was_handed_in(bus: BaseBus, recorder: Recorder) -> None:
    condition = {"k": 1}
    await bus.register_handler("t", recorder, filter_condition=condition)
    condition["k"] = 2

    await bus.publish("t", k=1)
    await settled(bus)

    assert len(recorder.events) == 1


@pytest.mark.guarantee("CORE-49")
async def test_a_registration_is_called_once_however_many_patterns_match(bus: BaseBus) -> None:
    twice, once = Recorder(), Recorder()
    await bus.register_handler("user.*", twice)
    await bus.register_handler("user.created", once)
    await bus.register_handler("*", twice)

    await bus.publish("user.created")
    await settled(bus)

    assert (len(twice.events), len(once.events)) == (2, 1)


@pytest.mark.guarantee("CORE-49")
async def test_handlers_of_one_event_start_in_the_order_of_their_registration() -> None:
    order: list[str] = []
    async with InMemoryEventBus() as bus:
        for name, pattern in (("b", "t"), ("a", "*"), ("c", "t")):
            bus.add_handler(pattern, functools.partial(_note_async, order, name))

        await bus.publish("t")
        await settled(bus)

    assert order == ["b", "a", "c"]


async def _note_async(order: list[str], name: str, event: Event) -> None:
    order.append(name)


@pytest.mark.guarantee("CORE-11")
async def test_the_decorator_registers_the_function_and_gives_it_back(bus: BaseBus) -> None:
    heard: list[str] = []

    @event_handler(bus, event_type="t")
    def plain(event: Event) -> str:
        heard.append(event.event_type)
        return "plain"

    @event_handler(bus, event_type="t", filter_condition={"n": 1}, handler_id="second")
    async def asynchronous(event: Event) -> None:
        heard.append("async")

    await bus.publish("t", n=1)
    await settled(bus)

    assert sorted(heard) == ["async", "t"]
    assert plain(Event("direct")) == "plain"
    assert heard[-1] == "direct"
    assert asyncio.iscoroutinefunction(asynchronous)
    assert await bus.unregister_handler("second")


@pytest.mark.guarantee("CORE-11")
def test_the_decorator_registers_with_everything_that_it_is_given(recorder: Recorder) -> None:
    bus, policy = InMemoryEventBus(), RetryPolicy(max_retries=7)

    event_handler(bus, "t.*", {"n": 1}, policy, "mine")(recorder)

    [registration] = bus._registry
    assert (registration.handler_id, registration.pattern, registration.handler) == ("mine", "t.*", recorder)
    assert (registration.filter_condition, registration.retry_policy) == ({"n": 1}, policy)


@pytest.mark.guarantee("CORE-11")
def test_the_decorator_needs_no_running_loop(recorder: Recorder) -> None:
    bus = InMemoryEventBus()

    assert event_handler(bus)(recorder) is recorder


@pytest.mark.guarantee("CORE-11")
async def test_a_plain_handler_may_return_anything(bus: BaseBus, caplog: pytest.LogCaptureFixture) -> None:
    for answer in (None, 7, "text", [1]):
        await bus.register_handler("t", functools.partial(_answer, answer))

    event_id = await bus.publish("t")
    await settled(bus)

    history = await bus.processing_tracker.get_processing_history(event_id)
    assert [line["status"] for line in history] == ["success"] * 4
    assert caplog.records == []


def _answer(answer: Any, event: Event) -> Any:
    return answer


@pytest.mark.guarantee("CORE-11")
async def test_what_a_plain_handler_returns_is_awaited_if_it_can_be(bus: BaseBus, recorder: Recorder) -> None:
    await bus.register_handler("t", lambda event: recorder(event))

    await bus.publish("t")
    await settled(bus)

    assert len(recorder.events) == 1


@pytest.mark.guarantee("CORE-11")
async def test_partials_methods_and_callable_objects_are_handlers(bus: BaseBus) -> None:
    recorder, order = Recorder(), list[str]()
    await bus.register_handler("t", recorder)
    await bus.register_handler("t", recorder.__call__)
    await bus.register_handler("t", functools.partial(functools.partial(_note_async, order), "partial"))

    await bus.publish("t")
    await settled(bus)

    assert (len(recorder.events), order) == (2, ["partial"])


@pytest.mark.guarantee("CORE-51")
async def test_a_plain_handler_runs_in_a_thread_and_blocks_nobody(bus: BaseBus, recorder: Recorder) -> None:
    go = threading.Event()
    threads: list[str] = []

    def plain(event: Event) -> None:
        threads.append(threading.current_thread().name)
        go.wait(1)

    await bus.register_handler("slow", plain)
    await bus.register_handler("quick", recorder)

    await bus.publish("slow")
    await bus.publish("quick")
    await recorder.has_heard()
    go.set()
    await settled(bus)

    assert [name.startswith("lastbus handler") for name in threads] == [True]


@pytest.mark.guarantee("CORE-51")
async def test_an_async_handler_runs_on_the_bus_loop() -> None:
    threads: list[int] = []

    async def where(event: Event) -> None:
        threads.append(threading.get_ident())

    async with InMemoryEventBus() as bus:
        await bus.register_handler("t", where)
        await bus.publish("t")
        await settled(bus)

    assert threads == [threading.get_ident()]


@pytest.mark.guarantee("CORE-51")
async def test_at_most_sixteen_threads_run_plain_handlers() -> None:
    go = threading.Event()
    names: set[str] = set()

    def plain(event: Event) -> None:
        names.add(threading.current_thread().name)
        go.wait(1)

    async with InMemoryEventBus() as bus:
        await bus.register_handler("t", plain)
        for _ in range(40):
            await bus.publish("t")
        await everyone_blocked()
        go.set()
        await settled(bus)

    assert len(names) <= 16


@pytest.mark.guarantee("CORE-51")
async def test_sixteen_plain_handlers_run_at_once() -> None:
    meeting = threading.Barrier(16)
    met: list[int] = []

    def plain(event: Event) -> None:
        met.append(meeting.wait(2))

    async with InMemoryEventBus() as bus:
        await bus.register_handler("t", plain)
        for _ in range(16):
            await bus.publish("t")
        await settled(bus)

    assert sorted(met) == list(range(16))


@pytest.mark.guarantee("CORE-45")
async def test_an_async_handler_sees_its_publishers_context_and_cannot_change_it(bus: BaseBus) -> None:
    seen: list[str] = []

    async def handler(event: Event) -> None:
        seen.append(USER.get())
        USER.set("handler")

    await bus.register_handler("t", handler)
    for name in ("ann", "ben"):
        USER.set(name)
        await bus.publish("t")
        await settled(bus)

    assert seen == ["ann", "ben"]
    assert USER.get() == "ben"


@pytest.mark.guarantee("CORE-45")
async def test_a_plain_handler_sees_its_publishers_context(bus: BaseBus) -> None:
    seen: list[str] = []

    def handler(event: Event) -> None:
        seen.append(USER.get())
        USER.set("handler")

    await bus.register_handler("t", handler)
    USER.set("ann")
    await bus.publish("t")
    await settled(bus)

    assert seen == ["ann"]
    assert USER.get() == "ann"


@pytest.mark.guarantee("CORE-45")
async def test_a_handler_that_waited_for_its_slot_sees_its_own_publishers_context(gate: Gate) -> None:
    seen: list[str] = []

    async def handler(event: Event) -> None:
        seen.append(USER.get())

    async with InMemoryEventBus(max_pending_callbacks=1) as bus:
        await bus.register_handler("t", gate.hold)
        await bus.register_handler("t", handler)
        USER.set("ann")
        await bus.publish("t")
        USER.set("ben")
        gate.open()
        await settled(bus)

    assert seen == ["ann"]


@pytest.mark.guarantee("CORE-47")
async def test_a_handler_that_registers_and_unregisters_others_changes_the_next_event_only(bus: BaseBus) -> None:
    order: list[str] = []

    async def first(event: Event) -> None:
        order.append("first")
        await bus.unregister_handler("first")
        await bus.unregister_handler("second")
        await bus.register_handler("v", functools.partial(_note_async, order, "late"))

    await bus.register_handler("v", first, handler_id="first")
    await bus.register_handler("v", functools.partial(_note_async, order, "second"), handler_id="second")

    await bus.publish("v")
    await settled(bus)
    assert sorted(order) == ["first", "second"]

    await bus.publish("v")
    await settled(bus)
    assert order[2:] == ["late"]


@pytest.mark.guarantee("CORE-47")
async def test_a_handler_registered_after_an_event_hears_the_next_of_its_type(bus: BaseBus) -> None:
    early, late = Recorder(), Recorder()
    await bus.register_handler("t", early)
    await bus.publish("t", n=1)

    await bus.register_handler("t", late)
    await bus.publish("t", n=2)
    await settled(bus)

    assert [event.data["n"] for event in late.events] == [2]
    assert len(early.events) == 2


@pytest.mark.guarantee("CORE-43")
async def test_an_unregistered_handler_hears_nothing_more(bus: BaseBus, recorder: Recorder) -> None:
    handler_id = await bus.register_handler("t", recorder)
    await bus.publish("t")
    await settled(bus)

    assert await bus.unregister_handler(handler_id) is True
    await bus.publish("t")
    await settled(bus)

    assert len(recorder.events) == 1


@pytest.mark.guarantee("CORE-43")
async def test_unregistering_what_is_not_registered_is_false(bus: BaseBus, recorder: Recorder) -> None:
    handler_id = await bus.register_handler("t", recorder)

    assert await bus.unregister_handler(handler_id) is True
    assert await bus.unregister_handler(handler_id) is False
    assert await bus.unregister_handler("nobody") is False


@pytest.mark.guarantee("CORE-43")
async def test_a_delivery_that_has_started_outlives_its_registration(bus: BaseBus, gate: Gate) -> None:
    handler_id = await bus.register_handler("t", gate.hold)
    event_id = await bus.publish("t")
    await gate.has_entered()

    await bus.unregister_handler(handler_id)
    gate.open()
    await settled(bus)

    assert [event.event_id for event in gate.left] == [event_id]
    assert gate.cancelled == []


@pytest.mark.guarantee("CORE-39")
async def test_a_registration_that_cannot_work_is_refused_by_the_name_of_its_argument(
    bus: BaseBus, recorder: Recorder
) -> None:
    await bus.register_handler("elsewhere", Recorder(), handler_id="taken")

    for name, bad, error in (
        ("handler", None, TypeError),
        ("handler", "not callable", TypeError),
        ("event_type", "", ValueError),
        ("event_type", 7, ValueError),
        ("filter_condition", [1], TypeError),
        ("retry_policy", {"max_retries": 1}, TypeError),
        ("handler_id", "", ValueError),
        ("handler_id", 7, ValueError),
        ("handler_id", "taken", ValueError),
    ):
        arguments: dict[str, Any] = {"event_type": "t", "handler": recorder, name: bad}
        with pytest.raises(error, match=name):
            await bus.register_handler(**arguments)
    await bus.publish("t")
    await settled(bus)

    assert recorder.events == []


@pytest.mark.guarantee("CORE-39")
async def test_a_registration_that_the_back_end_fails_registers_nothing(recorder: Recorder) -> None:
    bus = DeafBus(OSError("no listener"))

    with pytest.raises(OSError, match="no listener"):
        await bus.register_handler("t", recorder, handler_id="mine")
    await bus.publish("t")
    await settled(bus)

    assert recorder.events == []
    assert await bus.unregister_handler("mine") is False
    await bus.close()


@pytest.mark.guarantee("CORE-39")
async def test_a_cancelled_registration_registers_nothing(recorder: Recorder) -> None:
    bus = DeafBus()
    registering = asyncio.ensure_future(bus.register_handler("t", recorder, handler_id="mine"))
    await everyone_blocked()

    registering.cancel()
    await asyncio.gather(registering, return_exceptions=True)
    await bus.publish("t")
    await settled(bus)

    assert recorder.events == []
    assert await bus.unregister_handler("mine") is False
    await bus.close()


@pytest.mark.guarantee("CORE-39")
async def test_a_closed_bus_registers_nothing(bus: BaseBus, recorder: Recorder) -> None:
    await bus.close()

    with pytest.raises(BusClosedError, match="register_handler"):
        await bus.register_handler("t", recorder)
    with pytest.raises(BusClosedError, match="register_handler"):
        event_handler(bus)(recorder)
    assert len(bus._registry) == 0


@pytest.mark.guarantee("CORE-48")
async def test_a_handler_id_of_ones_own_is_returned_and_is_free_again_after_unregistering(
    bus: BaseBus, recorder: Recorder
) -> None:
    assert await bus.register_handler("t", recorder, handler_id="a:b 日本") == "a:b 日本"
    assert await bus.unregister_handler("a:b 日本")
    assert await bus.register_handler("t", recorder, handler_id="a:b 日本") == "a:b 日本"


@pytest.mark.guarantee("CORE-48")
async def test_a_handler_id_that_was_left_out_is_a_fresh_one(bus: BaseBus, recorder: Recorder) -> None:
    ids = {await bus.register_handler("t", recorder) for _ in range(3)}

    assert len(ids) == 3
    assert all(ids)


@pytest.mark.guarantee("CORE-48")
async def test_a_handler_of_the_same_id_on_another_bus_does_not_see_a_handled_event_again(backend: Backend) -> None:
    event, first, second = Event("t"), Recorder(), Recorder()
    before, after = backend.make_bus(), backend.make_bus()
    await before.register_handler("t", first, handler_id="mailer")
    await before.publish(event)
    await settled(before)
    await before.close()

    await after.register_handler("t", second, handler_id="mailer")
    await after.publish(event)
    await settled(after)

    assert (len(first.events), len(second.events)) == (1, 0)
