"""Components of every shape: what a close does with each of them, in each of the five places."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.adversary.stage import (
    NONE,
    RETURNED,
    SLOTS,
    UNBOUNDED,
    Bus,
    Component,
    Loop,
    Played,
    Row,
    State,
    play,
)


class Noting:
    """What was called, and with what, goes to the bus's `touched`."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    def note(self, what: str) -> None:
        self.bus.touched.append(what)


class AcloseAndClose(Noting):
    async def aclose(self) -> None:
        self.note("aclose")

    async def close(self) -> None:
        self.note("close")


class OnlyClose(Noting):
    async def close(self) -> None:
        self.note("close")


class OnlyDisconnect(Noting):
    async def disconnect(self) -> None:
        self.note("disconnect")


class NoVerb(Noting):
    pass


class Opaque(Noting):
    @property
    def aclose(self) -> Any:
        async def aclose(**flags: bool) -> None:
            self.note(f"aclose{flags}")

        aclose.__signature__ = 3  # type: ignore[attr-defined]
        return aclose


class WithFlag(Noting):
    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        self.note(f"aclose({close_connection_pool})")


class Plain(Noting):
    def close(self) -> None:
        self.note("close")


class Raising(Noting):
    async def aclose(self) -> None:
        self.note("aclose")
        raise OSError("gone")


class RaisingLookup(Noting):
    @property
    def aclose(self) -> Any:
        self.note("lookup")
        raise OSError("gone")


class Cancelled(Noting):
    async def aclose(self) -> None:
        self.note("aclose")
        if len(self.bus.touched) == 1:
            raise asyncio.CancelledError


def in_place(place: int, component: Callable[[Bus], Any]) -> Callable[[Bus, Loop], None]:
    """Put a component of this shape into one of the five slots."""
    return lambda bus, loop: setattr(bus, SLOTS[place], component(bus))


def stuck(place: int) -> Callable[[Bus, Loop], None]:
    """Let the component in one of the slots never end, until the curtain falls."""

    def prepare(bus: Bus, loop: Loop) -> None:
        component: Component = getattr(bus, SLOTS[place])
        component.may_end = bus.curtain

    return prepare


def touched(*what: str, calls: list[int]) -> Played:
    """Both closes return; this was called, and the others were released once."""
    return RETURNED._replace(calls=calls, calls_after=calls, touched=what)


def hangs_at(place: int) -> Played:
    """Both closes wait for the component in this slot; those before it were released, those after it were not."""
    calls = [1] * (place + 1) + [0] * (4 - place)
    return UNBOUNDED._replace(state=State(True, "PENDING", True, 1), calls=calls, calls_after=calls)


def cancelled_at(place: int, first: list[int], after: list[int]) -> Played:
    """The first close is incomplete, the second one releases everything that is still in place."""
    return Played(
        "teardown-incomplete from CancelledError",
        "returned",
        State(True, None, False, 1),
        first,
        after,
        touched=("aclose", "aclose"),
    )


REDIS = [1, 0, 1, 1, 1]

ROWS = [
    pytest.param(Row(None, touched("aclose", calls=REDIS), prepare=in_place(1, AcloseAndClose)), id="aclose-and-close"),
    pytest.param(Row(None, touched("close", calls=REDIS), prepare=in_place(1, OnlyClose)), id="only-close"),
    pytest.param(Row(None, touched("disconnect", calls=REDIS), prepare=in_place(1, OnlyDisconnect)), id="disconnect"),
    pytest.param(Row(None, touched(calls=REDIS), prepare=in_place(1, NoVerb)), id="no-verb"),
    pytest.param(Row(None, touched("aclose{}", calls=REDIS), prepare=in_place(1, Opaque)), id="opaque-signature"),
    pytest.param(Row(None, touched("aclose(True)", calls=REDIS), prepare=in_place(1, WithFlag)), id="pool-flag"),
    pytest.param(Row(None, touched("close", calls=REDIS), prepare=in_place(1, Plain)), id="returns-nothing"),
    pytest.param(Row(None, touched("aclose", calls=REDIS), prepare=in_place(1, Raising)), id="raises"),
    pytest.param(Row(None, touched("lookup", calls=REDIS), prepare=in_place(1, RaisingLookup)), id="lookup-raises"),
    pytest.param(
        Row(None, hangs_at(0), prepare=stuck(0)), marks=pytest.mark.guarantee("RES-R4"), id="pubsub-never-ends"
    ),
    pytest.param(
        Row(None, hangs_at(1), prepare=stuck(1)), marks=pytest.mark.guarantee("RES-R4"), id="redis-never-ends"
    ),
    pytest.param(
        Row(None, hangs_at(2), prepare=stuck(2)), marks=pytest.mark.guarantee("RES-R4"), id="event-storage-never-ends"
    ),
    pytest.param(
        Row(None, hangs_at(3), prepare=stuck(3)),
        marks=pytest.mark.guarantee("RES-R4"),
        id="subscription-storage-never-ends",
    ),
    pytest.param(
        Row(None, hangs_at(4), prepare=stuck(4)),
        marks=pytest.mark.guarantee("RES-R4"),
        id="processing-tracker-never-ends",
    ),
    pytest.param(
        Row(None, cancelled_at(0, NONE, [0, 1, 1, 1, 1]), prepare=in_place(0, Cancelled)), id="pubsub-cancels"
    ),
    pytest.param(
        Row(None, cancelled_at(1, [1, 0, 0, 0, 0], [1, 0, 1, 1, 1]), prepare=in_place(1, Cancelled)), id="redis-cancels"
    ),
    pytest.param(
        Row(None, cancelled_at(2, [1, 1, 0, 0, 0], [1, 1, 0, 1, 1]), prepare=in_place(2, Cancelled)),
        id="event-storage-cancels",
    ),
    pytest.param(
        Row(None, cancelled_at(4, [1, 1, 1, 1, 0], [1, 1, 2, 2, 0]), prepare=in_place(4, Cancelled)),
        id="processing-tracker-cancels",
    ),
]


@pytest.mark.parametrize("row", ROWS)
def test_both_closes_end_as_declared(row: Row) -> None:
    assert play(row) == row.played
