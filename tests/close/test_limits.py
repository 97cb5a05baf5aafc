"""Limits: what a close leaves behind does not grow with the number of closes."""

from __future__ import annotations

import asyncio
import gc

import pytest

from lastbus import CloseError
from lastbus._close.state import ACCEPTED
from lastbus.memory import InMemoryEventBus
from lastbus.testing import everyone_blocked
from tests.close.rig import Rig

ROUNDS = 1000
NOISE = 200
"""Objects that an interpreter may make for itself in the meantime; a round that left one behind would make 1000."""


class FailingRig(Rig):
    """A bus whose every teardown fails at its first step."""

    async def _drain(self) -> set[asyncio.Future[object]]:
        raise OSError("not today")


def living() -> int:
    """How many objects the collector knows."""
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.guarantee("CLOSE-52", "CLOSE-68")
async def test_a_thousand_closed_buses_leave_nothing_behind() -> None:
    await InMemoryEventBus().close()
    await everyone_blocked()
    before, known = living(), len(ACCEPTED)

    for _ in range(ROUNDS):
        await InMemoryEventBus().close()
    await everyone_blocked()

    assert living() - before < NOISE
    assert len(ACCEPTED) <= known


@pytest.mark.guarantee("CLOSE-52", "CLOSE-68")
async def test_a_thousand_failed_rounds_of_one_bus_leave_no_more_than_one() -> None:
    rig = FailingRig()
    with pytest.raises(CloseError):
        await rig.close()
    await everyone_blocked()
    before, known, fields = living(), len(ACCEPTED), set(vars(rig))

    for _ in range(ROUNDS):
        with pytest.raises(CloseError, match="teardown-incomplete"):
            await rig.close()
    await everyone_blocked()

    assert living() - before < NOISE
    assert set(vars(rig)) == fields
    assert rig._teardown_runs == ROUNDS + 1
    assert len(ACCEPTED) <= known + 1
