"""Words: what a refusal says, in full: what was found, and the way out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lastbus._close import selfclose
from lastbus._close.refusal import refusal
from lastbus._close.selfclose import MAX_DEPTH, Verdict, wake_verdict
from lastbus._kit.shapes.held import Gate, nested
from tests.selfclose.chains import chain

WAY_OUT = "call request_close() and return; whoever no handler waits for may await close()"


def refused(*in_flight: asyncio.Future[Any], inside: bool = False) -> tuple[str, str] | None:
    """The kind and the text of the refusal of the running task, each without the other."""
    error = refusal(inside, in_flight)
    return error and (error.kind, str(error).removeprefix(f"error_kind={error.kind}: "))


@contextmanager
def its_end_calls(callback: Callable[..., object]) -> Iterator[None]:
    """Inside the block the end of the running task would call `callback`."""
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(callback)
    yield
    task.remove_done_callback(callback)


@pytest.mark.guarantee("SELF-12")
async def test_who_descends_from_a_handler_cannot_wait_for_its_end() -> None:
    assert refused(inside=True) == ("self-close", f"a handler cannot wait for its own end; {WAY_OUT}")


@pytest.mark.guarantee("SELF-12")
async def test_who_wakes_a_handler_is_told_that_it_does_so_through_others() -> None:
    waiter = asyncio.get_running_loop().create_future()

    with its_end_calls(waiter.set_result):
        found, nobody = refused(waiter), refused()

    assert found == ("self-close", f"a handler waits for this call, through others; {WAY_OUT}")
    assert nobody is None


@pytest.mark.guarantee("SELF-12")
async def test_who_cannot_be_looked_through_is_told_what_is_in_the_way() -> None:
    gate = Gate(asyncio.get_running_loop().create_future())

    with its_end_calls(gate.open):
        found = refused()

    seen = "whether a handler waits for this call cannot be seen: a Gate holds a waiting Future"
    assert found == ("wake-graph-incomplete", f"{seen}; {WAY_OUT}")


@pytest.mark.guarantee("SELF-12", "SELF-21")
async def test_who_wakes_too_many_is_told_how_many_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfclose, "MAX_NODES", 3)
    first = asyncio.get_running_loop().create_future()
    chain(first, 3)

    with its_end_calls(first.set_result):
        found = refused()

    seen = "whether a handler waits for this call would take too long to see: it wakes more than 3 tasks and futures"
    assert found == ("self-close-budget", f"{seen}; {WAY_OUT}")


@pytest.mark.guarantee("SELF-12", "SELF-25")
async def test_where_asyncio_lacks_something_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfclose, "_ANSWER", ["Queue._getters"])

    found = refused()

    lacks = "handlers run, and this asyncio lacks Queue._getters to see who waits"
    assert found == ("unsupported-runtime", f"{lacks}; {WAY_OUT}")


@pytest.mark.guarantee("SELF-23")
async def test_what_is_nested_too_deep_is_told_how_deep_is_too_deep() -> None:
    closing = asyncio.get_running_loop().create_future()
    closing.add_done_callback(nested(asyncio.Future(), MAX_DEPTH + 2))

    deep = f"callbacks that hold each other more than {MAX_DEPTH} deep"
    assert wake_verdict(closing, []) == Verdict("incomplete", deep)


@pytest.mark.guarantee("SELF-15")
async def test_a_kind_without_its_book_is_named_with_the_book(monkeypatch: pytest.MonkeyPatch) -> None:
    closing, event = asyncio.get_running_loop().create_future(), asyncio.Event()
    closing.add_done_callback(lambda _: event.set())
    gone = selfclose.KINDS[asyncio.Event]._replace(attributes=("_gone",), wakes=())
    monkeypatch.setitem(selfclose.KINDS, asyncio.Event, gone)

    assert wake_verdict(closing, []) == Verdict("incomplete", "Event has no _gone")


@pytest.mark.guarantee("SELF-24")
async def test_what_goes_wrong_is_named_by_its_class() -> None:
    class Touchy(asyncio.Future):  # type: ignore[type-arg]
        @property
        def _callbacks(self) -> Any:
            raise ValueError("no")

    closing = Touchy()

    assert wake_verdict(closing, []) == Verdict("incomplete", "ValueError while looking at what the caller wakes")


@pytest.mark.guarantee("SELF-13")
async def test_who_wakes_nobody_is_clean_and_needs_no_words() -> None:
    assert wake_verdict(asyncio.get_running_loop().create_future(), []) == Verdict("clean", "")
    assert Verdict("clean").detail == ""
