"""What flow workers exchange: tasks and executions, in the one form in which a queue or a store keeps them."""

from __future__ import annotations

import json

import pytest

from lastbus import Event, EventError, EventSubscription
from lastbus._model.execution import ExecutionState
from lastbus._model.task import FlowTask, event_task, start_task, timeout_task

WAITING = EventSubscription(
    subscription_id="s-1", event_type="paid", flow_id="order", correlation_id="x-1", node_id="wait", timeout=5
)


def resumption() -> FlowTask:
    """The task at the end of the wait."""
    task = timeout_task(WAITING)
    assert task is not None
    return task


def test_a_task_to_start_carries_what_the_flow_is_given() -> None:
    task = start_task("order", "x-1", {"item": "lamp"})

    assert task == FlowTask(type="start", flow_id="order", execution_id="x-1", data={"item": "lamp"})
    with pytest.raises(ValueError, match=r"^data cannot be stored"):
        start_task("order", "x-1", {"item": object()})


@pytest.mark.guarantee("FLOW-04")
def test_a_task_to_resume_names_the_execution_the_subscription_and_the_event() -> None:
    task = event_task(WAITING, Event("paid", {"n": 1}, event_id="e-1"))

    assert task is not None
    assert (task.type, task.resume_type, task.flow_id, task.execution_id) == ("resume", "event", "order", "x-1")
    assert task.subscription_id == "s-1"
    assert task.data == {
        "event_id": "e-1",
        "event_type": "paid",
        "event_data": {"n": 1},
        "subscription_id": "s-1",
        "node_id": "wait",
    }


@pytest.mark.guarantee("FLOW-04")
def test_a_task_at_the_end_of_a_wait_names_no_event() -> None:
    task = timeout_task(WAITING)

    assert task is not None
    assert task.resume_type == "timeout"
    assert task.data == {"event_type": "paid", "subscription_id": "s-1", "node_id": "wait"}


@pytest.mark.guarantee("FLOW-04")
@pytest.mark.parametrize("missing", ["flow_id", "correlation_id"])
def test_a_subscription_without_an_execution_behind_it_resumes_nothing(missing: str) -> None:
    lonely = WAITING.model_copy(update={missing: None})

    assert event_task(lonely, Event("paid")) is None
    assert timeout_task(lonely) is None


@pytest.mark.parametrize("task", [start_task("order", "x-1", {"item": "lämp"}), resumption()])
def test_a_task_survives_its_stored_form_which_is_ascii(task: FlowTask) -> None:
    stored = task.encode()

    assert stored.isascii()
    assert FlowTask.decode(stored) == FlowTask.decode(stored.encode()) == task


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "[" * 100_000, json.dumps({**json.loads(resumption().encode()), "data": {}})],
    ids=["empty", "object", "list", "deep", "no-subscription"],
)
def test_anything_that_is_no_task_is_an_event_error_with_its_cause(text: str) -> None:
    with pytest.raises(EventError) as caught:
        FlowTask.decode(text)
    cause = caught.value.__cause__
    assert str(caught.value) == f"not a task ({type(cause).__name__}): {text[:80]!r}"
    assert cause is not None


def test_an_execution_survives_its_stored_form_which_is_ascii() -> None:
    state = ExecutionState(execution_id="x-1", flow_id="order", status="suspended", data={"item": "lämp"}, version=3)

    stored = state.encode()

    assert stored.isascii()
    assert ExecutionState.decode(stored) == ExecutionState.decode(stored.encode()) == state


@pytest.mark.parametrize("text", ["", "{}", "[]", "[" * 100_000], ids=["empty", "object", "list", "deep"])
def test_anything_that_is_no_execution_is_an_event_error_with_its_cause(text: str) -> None:
    with pytest.raises(EventError) as caught:
        ExecutionState.decode(text)
    cause = caught.value.__cause__
    assert str(caught.value) == f"not a stored execution ({type(cause).__name__}): {text[:80]!r}"
    assert cause is not None


def test_a_task_to_resume_nothing_is_refused_by_its_field() -> None:
    stored = json.dumps({**json.loads(resumption().encode()), "data": {"subscription_id": ""}})

    with pytest.raises(EventError) as caught:
        FlowTask.decode(stored)

    assert str(caught.value.__cause__).startswith("subscription_id must not be empty")
