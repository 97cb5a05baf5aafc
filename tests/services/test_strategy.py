"""Suspension: nothing is suspended without a recorded subscription, and what is recorded finds the execution again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lastbus import BaseBus, EventStorageError, EventSubscription
from lastbus.memory import InMemoryEventSubscriptionStorage
from lastbus.services import (
    DistributedStrategy,
    EventNode,
    ExecutionContext,
    Flow,
    FlowExecutionException,
    Step,
)
from tests._backends import Backend

NODE = EventNode("approval", "approved", {"amount": 3}, timeout=60.0)
FLOW = Flow("purchase", [NODE])


class SpyBus:
    """A bus that notes how it is subscribed to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[dict[str, Any]] = []
        self.error = error

    async def register_subscription(self, **keywords: Any) -> str:
        self.calls.append(keywords)
        if self.error is not None:
            raise self.error
        return f"subscription {len(self.calls)}"


class FullStorage(InMemoryEventSubscriptionStorage):
    """A storage that refuses to store."""

    async def store_subscription(self, subscription: EventSubscription) -> str:
        raise EventStorageError("no room")


def context(bus: Any, **data: Any) -> ExecutionContext:
    return ExecutionContext("execution 1", "purchase", data, event_bus=bus)


@pytest.mark.guarantee("FLOW-01")
async def test_without_a_bus_nothing_is_suspended() -> None:
    with pytest.raises(FlowExecutionException, match="there is no bus") as raised:
        await DistributedStrategy().execute(FLOW, NODE, context(None))

    assert raised.value.execution_id == "execution 1"


@pytest.mark.guarantee("FLOW-01")
async def test_a_bus_that_does_not_subscribe_suspends_nothing() -> None:
    failure = ConnectionError("gone")

    with pytest.raises(FlowExecutionException, match="approval cannot wait for an event") as raised:
        await DistributedStrategy().execute(FLOW, NODE, context(SpyBus(failure)))

    assert raised.value.__cause__ is failure
    assert raised.value.execution_id == "execution 1"


@pytest.mark.guarantee("FLOW-01")
async def test_a_storage_that_does_not_store_suspends_nothing(backend: Backend) -> None:
    bus = backend.make_bus()
    bus.subscription_storage = FullStorage()

    with pytest.raises(FlowExecutionException):
        await DistributedStrategy().execute(FLOW, NODE, context(bus))


@pytest.mark.guarantee("FLOW-02")
async def test_the_subscription_names_type_filter_execution_flow_node_and_time() -> None:
    bus = SpyBus()

    await DistributedStrategy().execute(FLOW, NODE, context(bus))

    assert bus.calls == [
        {
            "event_type": "approved",
            "filter_condition": {"amount": 3},
            "correlation_id": "execution 1",
            "flow_id": "purchase",
            "node_id": "approval",
            "timeout": 60.0,
        }
    ]


@pytest.mark.guarantee("FLOW-02")
async def test_a_type_may_come_from_what_the_execution_was_started_with() -> None:
    bus, node = SpyBus(), EventNode("approval", "$wanted")

    await DistributedStrategy().execute(Flow("f", [node]), node, context(bus, wanted="order:approved"))

    assert [call["event_type"] for call in bus.calls] == ["order:approved"]


@pytest.mark.guarantee("FLOW-02")
@pytest.mark.parametrize("data", [{}, {"wanted": ""}, {"wanted": 3}], ids=["absent", "empty", "no-text"])
async def test_a_name_that_leads_to_no_type_suspends_nothing(data: dict[str, Any]) -> None:
    bus, node = SpyBus(), EventNode("approval", "$wanted")

    with pytest.raises(FlowExecutionException, match=r"\$wanted leads to no type") as raised:
        await DistributedStrategy().execute(Flow("f", [node]), node, context(bus, **data))

    assert bus.calls == []
    assert raised.value.execution_id == "execution 1"
    assert "; an event node has to state it, or" in str(raised.value)


@pytest.mark.guarantee("FLOW-03")
async def test_success_suspends_with_the_one_subscription_that_was_recorded(bus: BaseBus) -> None:
    result = await DistributedStrategy().execute(FLOW, NODE, context(bus))

    stored = await bus.subscription_storage.list_subscriptions(correlation_id="execution 1")
    assert result.is_suspend
    assert [each.subscription_id for each in stored] == [result.subscription_id]


@pytest.mark.parametrize("returned", [float("nan"), object(), {1: {2}}], ids=["nan", "object", "set"])
async def test_what_json_cannot_carry_is_no_result(returned: Any) -> None:
    step = Step("odd", lambda _: returned)

    with pytest.raises(ValueError, match="what odd returned"):
        await DistributedStrategy().execute(Flow("f", [step]), step, context(None))


@pytest.mark.guarantee("SUBS-11")
@pytest.mark.parametrize("event_type", ["", " \t"], ids=["empty", "blank"])
def test_an_event_node_without_a_type_is_refused_in_words_of_its_own(event_type: str) -> None:
    with pytest.raises(ValueError) as by_node:
        EventNode("approval", event_type)
    with pytest.raises(ValueError) as by_subscription:
        EventSubscription(event_type=event_type)

    node, subscription = str(by_node.value), by_subscription.value.errors()[0]["msg"]
    opening = "event_type must not be empty or blank"
    assert node.startswith(opening)
    assert opening in subscription
    assert "; an event node has to state it, or" in node
    assert "an event node has to state it" not in subscription
    assert "'*' for every type" in node
    assert "'*' for every type" in subscription


def test_what_follows_a_node_is_asked_by_its_id_and_an_unknown_one_is_named() -> None:
    flow = Flow("f", [Step(each, print) for each in ("a", "b", "c")])

    assert [[node.id for node in flow.after(each)] for each in (None, "a", "c")] == [["a", "b", "c"], ["b", "c"], []]
    with pytest.raises(KeyError, match="elsewhere"):
        flow.after("elsewhere")


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), True, "60"], ids=repr)
def test_an_event_node_that_would_wait_for_no_duration_is_refused(timeout: Any) -> None:
    with pytest.raises(ValueError, match=r"^timeout "):
        EventNode("approval", "approved", timeout=timeout)


def test_an_event_node_whose_filter_json_cannot_carry_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^event_filter "):
        EventNode("approval", "approved", {"amount": object()})


@pytest.mark.parametrize("ids", [[], ["a", "a"]], ids=["none", "twice"])
def test_a_flow_needs_nodes_with_ids_of_their_own(ids: list[str]) -> None:
    with pytest.raises(ValueError, match="at least one node"):
        Flow("f", [Step(each, print) for each in ids])


@pytest.mark.parametrize(
    "make",
    [lambda name: Step(name, print), lambda name: EventNode(name, "approved"), lambda name: Flow(name, [NODE])],
    ids=["step", "event-node", "flow"],
)
@pytest.mark.parametrize("name", ["", "nul\x00"], ids=["empty", "nul"])
def test_an_id_that_is_no_name_is_refused_where_it_is_written(make: Callable[[str], Any], name: str) -> None:
    with pytest.raises(ValueError, match="id must "):
        make(name)
