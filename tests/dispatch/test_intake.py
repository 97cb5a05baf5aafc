"""Intake: what is being stored counts as in flight until the last of it is stored."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lastbus.memory import InMemoryEventBus
from lastbus.testing import everyone_blocked

pytestmark = pytest.mark.usefixtures("hygiene")


@pytest.mark.guarantee("CAP-27", "CAP-36")
async def test_the_moment_when_nothing_is_stored_any_more_comes_once_the_last_has_left() -> None:
    intake = InMemoryEventBus()._intake
    before = intake.emptied()
    for event_id in ("a", "a", "b"):
        intake.enter(event_id)
    moments = [intake.emptied(), intake.emptied()]

    seen = []
    for event_id in ("a", "b", "a"):
        seen.append((intake.storing(), moments[0] is not None and moments[0].done()))
        intake.leave(event_id)

    assert before is None
    assert moments[0] is moments[1]
    assert seen == [(["a", "b"], False), (["a", "b"], False), (["a"], False)]
    assert moments[0] is not None
    assert moments[0].done()
    assert (intake.storing(), intake.emptied()) == ([], None)


@pytest.mark.guarantee("CAP-27")
async def test_a_moment_that_somebody_has_called_off_is_no_moment_for_others() -> None:
    intake = InMemoryEventBus()._intake
    intake.enter("a")
    first = intake.emptied()
    assert first is not None

    first.cancel()
    second = intake.emptied()
    assert second is not None
    early = second.done()
    intake.leave("a")

    assert (early, second.done(), second.cancelled()) == (False, True, False)


@pytest.mark.guarantee("CAP-27")
async def test_a_moment_called_off_just_before_it_comes_disturbs_nobody() -> None:
    intake = InMemoryEventBus()._intake
    intake.enter("a")
    moment = intake.emptied()
    assert moment is not None

    moment.cancel()
    intake.leave("a")

    assert (intake.storing(), intake.emptied()) == ([], None)


@pytest.mark.guarantee("CAP-36")
async def test_the_moment_belongs_to_the_loop_that_stores() -> None:
    intake = InMemoryEventBus()._intake
    intake.enter("a")
    moments: list[object] = []

    asking = threading.Thread(target=lambda: moments.append(intake.emptied()))
    asking.start()
    asking.join(5)
    await everyone_blocked()

    [moment] = moments
    assert isinstance(moment, asyncio.Future)
    assert moment.get_loop() is asyncio.get_running_loop()
    intake.leave("a")
