"""Claims: which pairs a bus has in hand, who keeps them alive, and who is told when they went another way."""

from __future__ import annotations

import asyncio

import pytest

from lastbus import Event
from lastbus._dispatch.claims import Claim, ClaimWatcher
from lastbus._dispatch.registry import Registration
from lastbus.memory import InMemoryEventBus
from lastbus.testing import Gate, ManualClock, Recorder, everyone_blocked
from tests.contract.test_dedup import LapsingTracker
from tests.dispatch.test_log import NO_STORE, Tracker

pytestmark = pytest.mark.usefixtures("hygiene")


class Watcher(ClaimWatcher):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def refused(self, event: Event, registration: Registration) -> None:
        self.told.append(("refused", event, registration))

    def untaken(self, event: Event, registration: Registration) -> None:
        self.told.append(("untaken", event, registration))

    def unended(self, claim: Claim, succeeded: bool) -> None:
        self.told.append(("unended", claim, succeeded))


@pytest.mark.guarantee("REDIS-20")
async def test_a_pair_is_in_hand_from_the_start_of_its_delivery_to_its_end(gate: Gate) -> None:
    bus, event = InMemoryEventBus(), Event("t")
    await bus.register_handler("t", gate.hold, handler_id="h")

    await bus.publish(event)
    await everyone_blocked()
    during = bus._claims.pairs
    gate.open()
    await everyone_blocked()

    assert (during, bus._claims.pairs) == ({(event.event_id, "h")}, set())
    await bus.close()


@pytest.mark.guarantee("CORE-40")
async def test_the_renewer_comes_three_times_in_the_life_of_a_claim_and_is_gone_with_the_last(
    clock: ManualClock,
) -> None:
    gates = [Gate(), Gate()]
    bus = InMemoryEventBus(processing_tracker=LapsingTracker(clock), clock=clock)
    names: list[list[str]] = []

    for gate in gates:
        handler_id = await bus.register_handler("t", gate.hold)
        await bus.publish("t")
        await everyone_blocked()
        names.append([task.get_name() for task in bus._claims.renewers()])
        await bus.unregister_handler(handler_id)
        gate.open()
        await everyone_blocked()
        clock.advance(20)
        await everyone_blocked()
        names.append([task.get_name() for task in bus._claims.renewers()])

    assert names == [["lastbus claim renewer"], [], ["lastbus claim renewer"], []]
    assert clock.sleeps == [20.0, 20.0]
    await bus.close()


@pytest.mark.guarantee("CORE-40")
async def test_where_claims_do_not_lapse_nobody_renews_them(clock: ManualClock, gate: Gate) -> None:
    bus = InMemoryEventBus(clock=clock)
    await bus.register_handler("t", gate.hold)

    await bus.publish("t")
    await everyone_blocked()

    assert (bus._claims.renewers(), clock.pending) == ([], 0)
    gate.open()
    await bus.close()


@pytest.mark.guarantee("REDIS-20")
async def test_a_watcher_is_told_of_a_pair_that_is_in_somebody_elses_hands(recorder: Recorder) -> None:
    bus, watcher, event = InMemoryEventBus(), Watcher(), Event("t")
    await bus.register_handler("t", recorder, handler_id="h")
    await bus.processing_tracker.claim_event(event.event_id, "h", "somebody else")
    bus._claims.watcher = watcher

    await bus.publish(event)
    await everyone_blocked()

    assert watcher.told == [("refused", event, *bus._registry)]
    assert recorder.events == []
    await bus.close()


@pytest.mark.guarantee("FAULT-05")
async def test_a_watcher_is_told_of_a_claim_that_could_not_be_taken(recorder: Recorder) -> None:
    tracker, watcher, event = Tracker(), Watcher(), Event("t")
    tracker.errors["claim"] = NO_STORE
    bus = InMemoryEventBus(processing_tracker=tracker)
    await bus.register_handler("t", recorder)
    bus._claims.watcher = watcher

    await bus.publish(event)
    await everyone_blocked()

    assert watcher.told == [("untaken", event, *bus._registry)]
    assert recorder.events == []
    await bus.close()


@pytest.mark.guarantee("FAULT-05")
@pytest.mark.parametrize("succeeds", [True, False])
async def test_a_watcher_is_told_of_an_end_that_could_not_be_stored_and_how_it_was(succeeds: bool) -> None:
    tracker, watcher, event = Tracker(), Watcher(), Event("t")
    tracker.errors |= {"finish": NO_STORE, "release": NO_STORE}
    bus = InMemoryEventBus(processing_tracker=tracker)

    async def handler(event: Event) -> None:
        if not succeeds:
            raise asyncio.CancelledError

    await bus.register_handler("t", handler, handler_id="h")
    bus._claims.watcher = watcher

    await bus.publish(event)
    await everyone_blocked()

    assert watcher.told == [("unended", (event.event_id, "h", f"{bus.instance_id}-0"), succeeds)]
    await bus.close()
