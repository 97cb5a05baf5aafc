"""Task factories, honest, clumsy and hostile: how both closes of a bus end under each of them.

Where eager execution is what matters, it is done by hand too, so that every version of Python plays the row.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from tests.adversary.stage import (
    EAGER,
    NEVER,
    NONE,
    RETURNED,
    TAMPERED,
    UNBOUNDED,
    Bus,
    Coro,
    LiesToBe,
    Loop,
    Row,
    State,
    Task,
    by_hand,
    other,
    play,
    refused,
)

WRITES_THROUGH = pytest.mark.skipif(
    sys.version_info < (3, 13), reason="a write to another frame's locals takes effect from Python 3.13 on"
)
WRITES_A_COPY = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="a write to another frame's locals takes effect from Python 3.13 on"
)
NEVER_AWAITED = "coroutine 'Adoption._teardown_entry' was never awaited"
NO_TASK = "OSError"
SECOND_DRIVER = RETURNED._replace(record="RuntimeError")
"""The engine sees no task, makes one, and that one comes too late: the close succeeds, the record says so."""

FALSE_SUCCESS = RETURNED._replace(state=State(True, "OK", True, 0), calls=NONE, calls_after=NONE)


def eager(bus: Bus, loop: Loop, coro: Coro) -> Any:
    return asyncio.eager_task_factory(loop, coro)


def eager_then_raises(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus.kept.append(asyncio.eager_task_factory(loop, coro))
    raise OSError("too late")


def runs_it_then_raises(bus: Bus, loop: Loop, coro: Coro) -> Any:
    by_hand(coro)
    raise OSError("too late")


def runs_it_then_returns_nothing(bus: Bus, loop: Loop, coro: Coro) -> Any:
    by_hand(coro)


def eager_wrapper_then_raises(bus: Bus, loop: Loop, coro: Coro) -> Any:
    async def wrapper() -> None:
        await coro

    bus.kept.append(asyncio.eager_task_factory(loop, wrapper()))
    raise OSError("too late")


def raises(bus: Bus, loop: Loop, coro: Coro) -> Any:
    raise OSError("no task today")


def raises_attribute_error(bus: Bus, loop: Loop, coro: Coro) -> Any:
    raise AttributeError("no such thing", name="something", obj=bus)


def fails_as_python_313_does(bus: Bus, loop: Loop, coro: Coro) -> Any:
    """There the loop names what a factory has returned, and trips over what is no task."""
    raise AttributeError("'int' object has no attribute 'set_name'", name="set_name", obj=42)


def makes_then_raises(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus.kept.append(Task(coro, loop=loop))
    raise OSError("too late")


def finished_future(bus: Bus, loop: Loop, coro: Coro) -> Any:
    future = loop.create_future()
    future.set_result(None)
    return future


class Awaitable:
    def __await__(self) -> Any:
        yield


class Proxy:
    """Stands for a task and is none."""

    def __init__(self, task: Any) -> None:
        self.task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def __await__(self) -> Any:
        return self.task.__await__()


def another_coroutine(bus: Bus, loop: Loop, coro: Coro) -> Any:
    return Task(other(), loop=loop)


def cancelled_at_once(bus: Bus, loop: Loop, coro: Coro) -> Any:
    task = Task(coro, loop=loop)
    task.cancel()
    return task


def on_another_loop(bus: Bus, loop: Loop, coro: Coro) -> Any:
    return Task(coro, loop=bus.elsewhere)


def on_a_loop_that_is_closed(bus: Bus, loop: Loop, coro: Coro) -> Any:
    gone = asyncio.new_event_loop()
    task = Task(coro, loop=gone)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    gone.close()
    return task


def wrapped(bus: Bus, loop: Loop, coro: Coro) -> Any:
    async def wrapper() -> None:
        await coro

    return Task(wrapper(), loop=loop)


def wrapped_with_delay(bus: Bus, loop: Loop, coro: Coro) -> Any:
    async def wrapper() -> None:
        await asyncio.sleep(0)
        try:
            await coro
        finally:
            for _ in range(5):
                await asyncio.sleep(0)

    return Task(wrapper(), loop=loop)


def wrapped_in_a_shield(bus: Bus, loop: Loop, coro: Coro) -> Any:
    async def wrapper() -> None:
        await asyncio.shield(Task(coro, loop=loop))

    return Task(wrapper(), loop=loop)


def settles_the_credential(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._close_future.set_result(None)
    return Task(other(), loop=loop)


def settles_and_forges_the_count(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._teardown_runs = 1
    return settles_the_credential(bus, loop, coro)


def settles_and_forges_the_record(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._teardown_error_kind = TAMPERED
    return settles_the_credential(bus, loop, coro)


def forges_the_record(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._teardown_error_kind = TAMPERED
    return Task(coro, loop=loop)


def settles_and_never_ends(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._close_future.set_result(None)
    return Task(bus.curtain.wait(), loop=loop)


def never_ends(bus: Bus, loop: Loop, coro: Coro) -> Any:
    return Task(bus.curtain.wait(), loop=loop)


def forges_the_count(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._teardown_runs += 1
    return Task(other(), loop=loop)


def forges_all_that_the_entry_shows(bus: Bus, loop: Loop, coro: Coro) -> Any:
    frame = coro.cr_frame  # type: ignore[attr-defined]
    for thing in [each for each in frame.f_locals.values() if each is not bus]:
        if isinstance(thing, asyncio.Future):
            thing.set_result(None)
        elif isinstance(thing, dict):
            thing.update(entered=True, task=None, future=None)
        elif isinstance(thing, list):
            thing.append(True)
    bus.touched += [*frame.f_locals, *coro.cr_code.co_freevars]  # type: ignore[attr-defined]
    return Task(other(), loop=loop)


def forges_a_handle_that_never_ends(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._teardown_entry_task = Task(bus.curtain.wait(), loop=loop)  # type: ignore[attr-defined]
    raise OSError("no task today")


def forges_a_handle_after_making_a_task(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._teardown_entry_task = Task(bus.curtain.wait(), loop=loop)  # type: ignore[attr-defined]
    bus.kept.append(Task(coro, loop=loop))
    raise OSError("too late")


def forges_a_finished_handle(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus._teardown_entry_task = bus.finished  # type: ignore[attr-defined]
    raise OSError("no task today")


def detaches_the_watchdog(bus: Bus, loop: Loop, coro: Coro) -> Any:
    task = Task(other(), loop=loop)

    def detach() -> None:
        for callback, _ in task._callbacks or ():  # type: ignore[attr-defined]
            task.remove_done_callback(callback)

    loop.call_soon(detach)
    return task


def rebinds_self(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus.kept.append(Bus())
    coro.cr_frame.f_locals["self"] = bus.kept[-1]  # type: ignore[attr-defined]
    return Task(coro, loop=loop)


def rewrites_a_frame_above(bus: Bus, loop: Loop, coro: Coro) -> Any:
    """Rebind the future in the frame that is about to hand it to the watchdog."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_spawn_teardown":
            frame.f_locals["future"] = loop.create_future()
            break
        frame = frame.f_back  # type: ignore[assignment]
    return Task(coro, loop=loop)


def runs_the_entry_of_another_bus(bus: Bus, loop: Loop, coro: Coro) -> Any:
    bus.kept.append(Bus())
    return Task(bus.kept[-1]._teardown_entry(), loop=loop)


ROWS = [
    # Honest.
    pytest.param(Row(None, RETURNED), id="none"),
    pytest.param(Row(lambda bus, loop, coro: Task(coro, loop=loop), RETURNED), id="plain"),
    pytest.param(Row(eager, RETURNED), marks=EAGER, id="eager"),
    pytest.param(Row(eager, RETURNED, in_flight=True), marks=EAGER, id="eager-with-work-in-flight"),
    pytest.param(Row(wrapped, RETURNED), marks=pytest.mark.guarantee("CLOSE-47"), id="wrapped"),
    pytest.param(Row(wrapped, RETURNED, in_flight=True), id="wrapped-with-work-in-flight"),
    pytest.param(
        Row(wrapped_with_delay, RETURNED._replace(state=State(True, "OK", True, 1))),
        marks=pytest.mark.guarantee("CLOSE-47"),
        id="wrapped-with-delay",
    ),
    pytest.param(Row(wrapped_in_a_shield, RETURNED), id="wrapped-in-a-shield"),
    # No task, or none that is returned.
    pytest.param(Row(raises, refused(NO_TASK)), marks=pytest.mark.guarantee("CLOSE-39"), id="raises"),
    pytest.param(Row(raises_attribute_error, refused("AttributeError")), id="raises-attribute-error"),
    pytest.param(
        Row(fails_as_python_313_does, RETURNED),
        marks=pytest.mark.guarantee("CLOSE-40"),
        id="fails-as-python-3.13-does",
    ),
    pytest.param(
        Row(makes_then_raises, RETURNED), marks=pytest.mark.guarantee("CLOSE-37", "CLOSE-39"), id="makes-then-raises"
    ),
    pytest.param(
        Row(makes_then_raises, RETURNED, in_flight=True),
        marks=pytest.mark.guarantee("CLOSE-37"),
        id="makes-then-raises-with-work-in-flight",
    ),
    pytest.param(
        Row(runs_it_then_raises, RETURNED),
        marks=pytest.mark.guarantee("CLOSE-38", "CLOSE-42"),
        id="runs-it-then-raises",
    ),
    pytest.param(Row(runs_it_then_returns_nothing, RETURNED), id="runs-it-then-returns-nothing"),
    pytest.param(
        Row(eager_then_raises, RETURNED), marks=[EAGER, pytest.mark.guarantee("CLOSE-38")], id="eager-then-raises"
    ),
    pytest.param(
        Row(eager_then_raises, RETURNED, in_flight=True),
        marks=[EAGER, pytest.mark.guarantee("CLOSE-38")],
        id="eager-then-raises-with-work",
    ),
    pytest.param(
        Row(eager_wrapper_then_raises, RETURNED, in_flight=True),
        marks=[EAGER, pytest.mark.guarantee("CLOSE-39")],
        id="eager-wrapper-then-raises",
    ),
    pytest.param(Row(finished_future, RETURNED), marks=pytest.mark.guarantee("CLOSE-40"), id="finished-future"),
    pytest.param(Row(finished_future, RETURNED, in_flight=True), id="finished-future-with-work-in-flight"),
    pytest.param(
        Row(lambda bus, loop, coro: Awaitable(), RETURNED), marks=pytest.mark.guarantee("CLOSE-40"), id="awaitable"
    ),
    pytest.param(
        Row(lambda bus, loop, coro: coro, RETURNED), marks=pytest.mark.guarantee("CLOSE-40"), id="the-coroutine"
    ),
    pytest.param(Row(lambda bus, loop, coro: None, RETURNED), marks=pytest.mark.guarantee("CLOSE-40"), id="nothing"),
    pytest.param(Row(lambda bus, loop, coro: 42, RETURNED), marks=pytest.mark.guarantee("CLOSE-40"), id="number"),
    pytest.param(
        Row(lambda bus, loop, coro: LiesToBe(asyncio.Task), RETURNED),
        marks=pytest.mark.guarantee("CLOSE-40"),
        id="liar-about-its-class",
    ),
    pytest.param(Row(lambda bus, loop, coro: Proxy(Task(coro, loop=loop)), RETURNED), id="proxy"),
    pytest.param(
        Row(lambda bus, loop, coro: Proxy(Task(coro, loop=loop)), RETURNED, in_flight=True),
        id="proxy-with-work-in-flight",
    ),
    pytest.param(
        Row(lambda bus, loop, coro: asyncio.tasks._PyTask(coro, loop=loop), SECOND_DRIVER), id="task-in-python"
    ),
    pytest.param(
        Row(lambda bus, loop, coro: asyncio.tasks._PyTask(coro, loop=loop), SECOND_DRIVER, in_flight=True),
        id="task-in-python-with-work-in-flight",
    ),
    # A task that does not run the teardown.
    pytest.param(Row(another_coroutine, NEVER), marks=pytest.mark.guarantee("CLOSE-43"), id="another-coroutine"),
    pytest.param(
        Row(cancelled_at_once, NEVER._replace(record="cancelled")),
        marks=pytest.mark.guarantee("CLOSE-44"),
        id="cancelled-at-once",
    ),
    pytest.param(
        Row(lambda bus, loop, coro: bus.finished, NEVER), marks=pytest.mark.guarantee("CLOSE-45"), id="finished-task"
    ),
    pytest.param(
        Row(on_another_loop, refused("teardown-foreign-loop")),
        marks=pytest.mark.guarantee("CLOSE-54"),
        id="on-another-loop",
    ),
    pytest.param(
        Row(on_a_loop_that_is_closed, refused("teardown-foreign-loop")),
        marks=pytest.mark.guarantee("CLOSE-54"),
        id="on-a-loop-that-is-closed",
    ),
    pytest.param(
        Row(runs_the_entry_of_another_bus, NEVER), marks=pytest.mark.guarantee("RES-R13d"), id="entry-of-another-bus"
    ),
    pytest.param(
        Row(rebinds_self, NEVER), marks=[WRITES_THROUGH, pytest.mark.guarantee("RES-R13d")], id="rebinds-self"
    ),
    pytest.param(
        Row(rebinds_self, RETURNED),
        marks=[WRITES_A_COPY, pytest.mark.guarantee("RES-R13d")],
        id="rebinds-self-in-a-copy",
    ),
    pytest.param(
        Row(rewrites_a_frame_above, RETURNED),
        marks=pytest.mark.guarantee("RES-R13d"),
        id="rewrites-a-frame-above",
    ),
    # Forgers.
    pytest.param(
        Row(forges_all_that_the_entry_shows, NEVER._replace(touched=("self", "self"))),
        marks=pytest.mark.guarantee("CLOSE-48", "CLOSE-49"),
        id="forges-the-entry",
    ),
    pytest.param(
        Row(forges_the_count, NEVER._replace(state=State(True, None, False, 1))),
        marks=pytest.mark.guarantee("CLOSE-48"),
        id="forges-the-count",
    ),
    pytest.param(
        Row(settles_the_credential, FALSE_SUCCESS._replace(record=TAMPERED, signals=1)),
        marks=pytest.mark.guarantee("CLOSE-87", "RES-R12a"),
        id="settles",
    ),
    pytest.param(
        Row(settles_and_forges_the_count, FALSE_SUCCESS._replace(state=State(True, "OK", True, 1))),
        marks=pytest.mark.guarantee("RES-R13c"),
        id="settles-and-forges-the-count",
    ),
    pytest.param(
        Row(settles_and_never_ends, FALSE_SUCCESS), marks=pytest.mark.guarantee("RES-R13c"), id="settles-and-never-ends"
    ),
    pytest.param(
        Row(settles_and_forges_the_record, FALSE_SUCCESS._replace(record=TAMPERED, signals=1)),
        marks=pytest.mark.guarantee("CLOSE-88"),
        id="settles-and-forges-the-record",
    ),
    pytest.param(
        Row(forges_the_record, RETURNED), marks=pytest.mark.guarantee("RES-R13c"), id="honest-with-a-forged-record"
    ),
    pytest.param(
        Row(forges_a_handle_that_never_ends, refused(NO_TASK)),
        marks=pytest.mark.guarantee("RES-R12b"),
        id="forges-a-handle-that-never-ends",
    ),
    pytest.param(
        Row(forges_a_handle_after_making_a_task, RETURNED),
        marks=pytest.mark.guarantee("RES-R12b"),
        id="forges-a-handle-after-making-a-task",
    ),
    pytest.param(
        Row(forges_a_finished_handle, refused(NO_TASK)),
        marks=pytest.mark.guarantee("RES-R12b"),
        id="forges-a-finished-handle",
    ),
    # Declared to hang.
    pytest.param(Row(never_ends, UNBOUNDED), marks=pytest.mark.guarantee("RES-R1", "RES-TIMER"), id="never-ends"),
    pytest.param(
        Row(detaches_the_watchdog, UNBOUNDED._replace(residue=(NEVER_AWAITED,))),
        marks=pytest.mark.guarantee("RES-R13a"),
        id="detaches-the-watchdog",
    ),
]


@pytest.mark.parametrize("row", ROWS)
def test_both_closes_end_as_declared(row: Row) -> None:
    assert play(row) == row.played
