"""Executions in Redis: the latest state, and one winner among those who store it."""

from __future__ import annotations

import asyncio

import pytest

from lastbus import EventError
from lastbus.services import ExecutionState
from tests.services.shop import Control

STATE = ExecutionState(
    execution_id="e:1",
    flow_id="f",
    status="suspended",
    node_id="n",
    subscription_id="s",
    data={"a": [1]},
    results={"ü": {"b": None}},
    resumed={"r": "event", "t": None},
)


async def ttl_ms(control: Control) -> int:
    return int(await control.server.connection().command("PTTL", f"{control.server.prefix}execution:e:1"))


async def test_an_unknown_execution_is_none(control: Control) -> None:
    assert await control.executions().load_execution("e:1") is None


@pytest.mark.guarantee("FLOW-19")
async def test_a_state_comes_back_as_it_was_stored_with_the_next_version(control: Control) -> None:
    assert await control.executions().save_execution(STATE)

    assert await control.executions().load_execution("e:1") == STATE.model_copy(update={"version": 1})


@pytest.mark.guarantee("FLOW-19")
@pytest.mark.parametrize("version", [0, 2], ids=["older", "newer"])
async def test_a_state_that_was_not_loaded_last_is_refused(control: Control, version: int) -> None:
    executions = control.executions()
    await executions.save_execution(STATE)

    other = STATE.model_copy(update={"version": version, "node_id": "other"})

    assert not await executions.save_execution(other)
    assert await executions.load_execution("e:1") == STATE.model_copy(update={"version": 1})


@pytest.mark.guarantee("FLOW-19")
async def test_of_many_that_store_at_once_one_is_heard(control: Control) -> None:
    states = [STATE.model_copy(update={"node_id": str(number)}) for number in range(8)]

    heard = await asyncio.gather(*(control.executions().save_execution(each) for each in states))

    state = await control.executions().load_execution("e:1")
    assert sum(heard) == 1
    assert state is not None
    assert state.node_id == str(heard.index(True))


async def test_a_call_that_the_driver_sends_again_finds_its_own_state(control: Control) -> None:
    executions = control.executions()

    assert [await executions.save_execution(STATE), await executions.save_execution(STATE)] == [True, True]


async def test_a_suspended_execution_stays_and_an_ended_one_lives_for_its_ttl(control: Control) -> None:
    executions = control.executions(ttl=100)
    await executions.save_execution(STATE)
    suspended = await ttl_ms(control)

    await executions.save_execution(STATE.model_copy(update={"version": 1, "status": "completed"}))

    assert suspended == -1
    assert 0 < await ttl_ms(control) <= 100_000


async def test_a_state_that_cannot_be_read_is_an_error(control: Control) -> None:
    await control.server.connection().command("HSET", f"{control.server.prefix}execution:e:1", "state", "no json")

    with pytest.raises(EventError, match="not a stored execution"):
        await control.executions().load_execution("e:1")
