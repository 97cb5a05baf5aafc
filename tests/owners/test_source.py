"""Source: one task, started and stopped by the object that owns it."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from lastbus.owners import Source
from lastbus.testing import everyone_blocked

pytestmark = pytest.mark.usefixtures("hygiene")


class Patient(Source):
    """Waits to be stopped; its clean-up waits for `may_end`."""

    def __init__(self) -> None:
        super().__init__("patient")
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.starts = 0
        self.cleaned = False

    async def run(self) -> None:
        self.starts += 1
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.cleaned = True


class Brief(Source):
    """Ends by itself, with `error` if there is one."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("brief")
        self.error = error

    async def run(self) -> None:
        if self.error is not None:
            raise self.error


def sources_running() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("lastbus source")]


@pytest.mark.guarantee("CAP-19")
async def test_stop_returns_only_when_the_task_has_ended() -> None:
    source = Patient()
    await source.on_start()
    await everyone_blocked()
    source.may_end.clear()

    stopping = asyncio.ensure_future(source.on_stop())
    await everyone_blocked()
    early = stopping.done()
    source.may_end.set()
    await asyncio.wait({stopping}, timeout=1)

    assert not early
    assert stopping.done()
    assert source.cleaned
    assert sources_running() == []


@pytest.mark.guarantee("CAP-19")
async def test_stopping_before_the_start_twice_and_after_the_end_is_harmless() -> None:
    patient, brief = Patient(), Brief()

    await patient.on_stop()
    await patient.on_start()
    await patient.on_stop()
    await patient.on_stop()
    await brief.on_start()
    await everyone_blocked()
    await brief.on_stop()

    assert not patient.is_running
    assert not brief.is_running
    assert sources_running() == []


@pytest.mark.guarantee("CAP-19")
async def test_starting_a_running_source_starts_nothing_more() -> None:
    async with Patient() as source:
        await source.on_start()
        await everyone_blocked()

        assert isinstance(source, Patient)
        assert source.starts == 1
        assert len(sources_running()) == 1


@pytest.mark.guarantee("CAP-19")
async def test_a_stopped_source_can_be_started_again() -> None:
    source = Patient()
    for _ in range(2):
        await source.on_start()
        await everyone_blocked()
        await source.on_stop()

    assert source.starts == 2


@pytest.mark.guarantee("CAP-19")
async def test_a_source_that_breaks_says_so_and_stops_without_an_error(caplog: pytest.LogCaptureFixture) -> None:
    source = Brief(ValueError("boom"))

    await source.on_start()
    await everyone_blocked()
    await source.on_stop()

    [record] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.getMessage() == "source brief ended with an error"
    assert record.exc_info is not None
    assert record.exc_info[1] is source.error


@pytest.mark.guarantee("CAP-19")
async def test_a_source_without_a_name_goes_by_the_name_of_its_class() -> None:
    class Nameless(Patient):
        def __init__(self) -> None:
            super().__init__()
            Source.__init__(self)

    async with Nameless():
        assert sources_running() == ["lastbus source Nameless"]


@pytest.mark.guarantee("CAP-19")
async def test_a_source_holds_its_task_until_the_task_has_ended_and_no_longer() -> None:
    source = Brief()
    await source.on_start()
    [task] = [weakref.ref(each) for each in asyncio.all_tasks() if each.get_name() == "lastbus source brief"]

    await source.on_stop()
    await everyone_blocked()
    gc.collect()

    assert task() is None


@pytest.mark.guarantee("CAP-20")
async def test_a_cancelled_caller_of_stop_gets_its_cancellation_and_the_task_is_stopped_all_the_same() -> None:
    source = Patient()
    await source.on_start()
    await everyone_blocked()
    source.may_end.clear()
    stopping = asyncio.ensure_future(source.on_stop())
    await everyone_blocked()

    stopping.cancel()
    await asyncio.wait({stopping}, timeout=1)
    ended = stopping.done()
    source.may_end.set()
    await everyone_blocked()

    assert ended
    assert stopping.cancelled()
    assert source.cleaned


@pytest.mark.guarantee("CAP-20")
async def test_a_caller_cancelled_in_the_turn_in_which_the_task_ends_gets_its_cancellation() -> None:
    source = Patient()
    await source.on_start()
    await everyone_blocked()
    stopping = asyncio.ensure_future(source.on_stop())
    await asyncio.sleep(0)

    stopping.cancel()
    await asyncio.wait({stopping}, timeout=1)

    assert stopping.cancelled()
    await everyone_blocked()
    assert sources_running() == []
