"""The event filter: every event becomes one task for each execution that waits for it, whatever dies on the way."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from lastbus import BaseBus, EventSubscription
from lastbus.services import EventFilter
from lastbus.testing import ManualClock
from tests._backends import open_backend
from tests.contract.waiting import settled, until
from tests.services.mortal import Mortal
from tests.services.shop import Control, ListQueue, Shop

CLAIM_SECONDS = 60


@pytest.mark.guarantee("FLOW-04")
async def test_an_event_resumes_the_execution_that_it_names_and_no_other(shop: Shop) -> None:
    await shop.suspend("e1")
    shop.clock.advance(1)
    await shop.suspend("e2")

    async with shop.filter():
        await shop.bus.publish(shop.approval("e2"))
        await settled(shop.bus)
    await shop.work()

    assert [(await shop.state(each)).status for each in ("e1", "e2")] == ["suspended", "completed"]


@pytest.mark.guarantee("FLOW-04")
async def test_an_event_that_names_no_execution_resumes_nothing(shop: Shop) -> None:
    await shop.suspend("e1")

    handled = await shop.filter().handle_event(shop.approval(None))

    assert (handled, await shop.tasks()) == (0, [])


@pytest.mark.guarantee("FLOW-04")
async def test_an_event_of_another_type_or_with_other_data_resumes_nothing(
    bus: BaseBus, control: Control, clock: ManualClock
) -> None:
    shop = Shop(bus, control, clock, event_filter={"by": "Grace"})
    await shop.suspend("e1")
    other_type = shop.approval("e1")
    other_type.event_type = "refused"

    assert await shop.filter().handle_event(other_type) == 0
    assert await shop.filter().handle_event(shop.approval("e1")) == 0


@pytest.mark.guarantee("FLOW-04")
async def test_a_subscription_that_no_flow_has_made_is_no_task(shop: Shop) -> None:
    await shop.bus.register_subscription("approved", correlation_id="e1")

    assert await shop.filter().handle_event(shop.approval("e1")) == 0


@pytest.mark.guarantee("FLOW-06")
async def test_the_filter_looks_into_the_subscription_storage_of_its_bus(shop: Shop) -> None:
    assert shop.filter().subscription_storage is shop.bus.subscription_storage


@pytest.mark.guarantee("FLOW-06")
async def test_a_filter_in_another_process_resumes_what_a_worker_has_suspended(
    request: pytest.FixtureRequest, control: Control, clock: ManualClock
) -> None:
    async with open_backend("valkey", request) as backend:
        shop = Shop(backend.make_bus(clock=clock), control, clock)
        await shop.suspend("e1")
        elsewhere = backend.make_bus(clock=clock)

        async with shop.filter(elsewhere, queue=control.queue()):
            await backend.make_bus().publish(shop.approval("e1"))
            heard = elsewhere._pending_tasks
            await until(lambda: bool(heard))
            await settled(elsewhere)
        await shop.work()

        assert (await shop.state("e1")).status == "completed"


@pytest.mark.guarantee("FLOW-15")
@pytest.mark.parametrize(
    ("age", "answers"), [(1.5, 0), (1.0, 1), (0.5, 1), (-60, 1)], ids=["old", "just", "within-clocks", "new"]
)
async def test_what_was_published_before_the_wait_is_no_answer(shop: Shop, age: float, answers: int) -> None:
    await shop.suspend("e1")
    event = shop.approval("e1", timestamp=shop.clock.time() - age)

    assert await shop.filter().handle_event(event) == answers


@pytest.mark.guarantee("FLOW-15")
async def test_an_old_event_that_the_reconciler_finds_is_no_answer(shop: Shop) -> None:
    await shop.bus.publish(shop.approval("e1"))
    shop.clock.advance(2)
    await shop.suspend("e1")

    assert await shop.filter().reconciler.scan_once() == 0


@pytest.mark.guarantee("FLOW-12")
async def test_an_event_that_is_handled_again_is_queued_once(shop: Shop) -> None:
    await shop.suspend("e1")
    event = shop.approval("e1")

    handled = [await each.handle_event(event) for each in (shop.filter(), shop.filter())]

    assert handled == [1, 0]
    assert len(await shop.tasks()) == 1


@pytest.mark.guarantee("FLOW-12")
async def test_each_subscription_of_an_execution_gets_its_own_task(shop: Shop) -> None:
    await shop.suspend("e1")
    await shop.bus.register_subscription("*", correlation_id="e1", flow_id="purchase")

    assert await shop.filter().handle_event(shop.approval("e1")) == 2


async def test_a_filter_is_started_and_stopped_any_number_of_times(shop: Shop) -> None:
    await shop.suspend("e1")
    service = shop.filter()

    for _ in range(2):
        await service.start()
        await service.start()
        await service.stop()
        await service.stop()
    await shop.bus.publish(shop.approval("e1"))
    await settled(shop.bus)

    assert await shop.tasks() == []
    assert [service.reconciler.is_running, service.timeout_checker.is_running] == [False, False]


async def test_a_filter_is_stopped_as_its_block_is_left(shop: Shop) -> None:
    await shop.suspend("e1")

    async with shop.filter() as service:
        assert service.reconciler.is_running
    await shop.bus.publish(shop.approval("e1"))
    await settled(shop.bus)

    assert (await shop.tasks(), service.reconciler.is_running) == ([], False)


# -- dying ------------------------------------------------------------------------------------------------------


def dying_filter(shop: Shop, calls: int) -> EventFilter:
    """A filter whose process makes `calls` calls, and then dies."""
    left = [calls]
    bus: Any = SimpleNamespace(
        event_storage=shop.bus.event_storage,
        subscription_storage=Mortal(shop.bus.subscription_storage, left),
        processing_tracker=Mortal(shop.bus.processing_tracker, left),
    )
    return shop.filter(bus, queue=Mortal(shop.queue, left))


CALLS = ["nothing", "found", "claimed", "queued", "marked"]


@pytest.mark.guarantee("FLOW-13")
@pytest.mark.parametrize("calls", range(len(CALLS)), ids=CALLS)
@pytest.mark.parametrize("where", ["valkey", "sqlite"])
async def test_whatever_a_filter_has_done_when_it_dies_the_execution_goes_on_once(
    request: pytest.FixtureRequest, control: Control, clock: ManualClock, where: str, calls: int
) -> None:
    async with open_backend(where, request) as backend:
        shop = Shop(backend.make_bus(clock=clock), control, clock)
        await shop.suspend("e1")
        event = shop.approval("e1")
        await shop.bus.publish(event)
        with contextlib.suppress(ConnectionResetError):
            await dying_filter(shop, calls).handle_event(event)

        survivor = shop.filter()
        for _ in range(2):
            await survivor.reconciler.scan_once()
            clock.advance(CLAIM_SECONDS + 1)
        await shop.work()

        assert (await shop.state("e1")).status == "completed"
        assert shop.ran == [("order", "e1"), ("ship", "e1")]
        assert await shop.tasks() == []


@pytest.mark.guarantee("FLOW-13")
async def test_a_death_between_queue_and_mark_queues_a_second_task_that_changes_nothing(
    request: pytest.FixtureRequest, control: Control, clock: ManualClock
) -> None:
    async with open_backend("valkey", request) as backend:
        shop = Shop(backend.make_bus(clock=clock), control, clock)
        await shop.suspend("e1")
        event = shop.approval("e1")
        with contextlib.suppress(ConnectionResetError):
            await dying_filter(shop, CALLS.index("queued")).handle_event(event)
        clock.advance(CLAIM_SECONDS + 1)

        assert await shop.filter().handle_event(event) == 1
        assert len(await shop.tasks()) == 2
        await shop.work()
        assert shop.ran == [("order", "e1"), ("ship", "e1")]


class BrokenQueue:
    """A queue whose server is away."""

    async def enqueue(self, task: Any) -> str:
        raise ConnectionError("away")


@pytest.mark.guarantee("FLOW-13")
async def test_a_queue_that_fails_leaves_the_answer_free_at_once(shop: Shop) -> None:
    await shop.suspend("e1")
    event = shop.approval("e1")

    with pytest.raises(ConnectionError):
        await shop.filter(queue=BrokenQueue()).handle_event(event)

    assert await shop.filter().handle_event(event) == 1


@pytest.mark.guarantee("FLOW-13")
async def test_a_claim_that_cannot_be_given_back_is_named_and_the_failure_is_the_queues(
    shop: Shop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await shop.suspend("e1")
    lost = ConnectionResetError("lost")

    async def release(*_: str) -> bool:
        raise lost

    monkeypatch.setattr(shop.bus.processing_tracker, "release_claim", release)

    event = shop.approval("e1")
    with pytest.raises(ConnectionError, match="away"):
        await shop.filter(queue=BrokenQueue()).handle_event(event)

    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    pair = (event.event_id, waiting.subscription_id)
    assert warning.getMessage() == f"the claim of {pair} could not be given back; it has to lapse"
    assert warning.exc_info is not None
    assert warning.exc_info[1] is lost


@pytest.mark.guarantee("FLOW-13")
async def test_no_two_filters_claim_in_the_same_name(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: list[str] = []

    async def claim(_event_id: str, _handler_id: str, owner: str) -> bool:
        owners.append(owner)
        return True

    await shop.suspend("e1")
    monkeypatch.setattr(shop.bus.processing_tracker, "claim_event", claim)

    for each in (shop.filter(), shop.filter()):
        for _ in range(2):
            await each.handle_event(shop.approval("e1"))

    assert len(set(owners)) == 4


@pytest.mark.guarantee("FLOW-13")
async def test_who_queues_too_slowly_does_not_end_the_claim_of_whoever_has_taken_over(
    request: pytest.FixtureRequest, control: Control, clock: ManualClock
) -> None:
    async with open_backend("sqlite", request) as backend:
        shop = Shop(backend.make_bus(clock=clock), control, clock)
        waiting = await shop.suspend("e1")
        event = shop.approval("e1")
        pair = (event.event_id, str(waiting.subscription_id))
        tracker = shop.bus.processing_tracker

        class SlowQueue(ListQueue):
            async def enqueue(self, task: Any) -> str:
                clock.advance(CLAIM_SECONDS + 1)
                assert await tracker.claim_event(*pair, "another filter")
                return await super().enqueue(task)

        assert await shop.filter(queue=SlowQueue()).handle_event(event) == 1

        assert not await tracker.is_event_processed(*pair)
        assert await tracker.renew_claim(*pair, "another filter")


@pytest.mark.guarantee("FLOW-13")
async def test_an_answer_in_other_hands_is_an_error_until_it_is_known_to_be_queued(shop: Shop) -> None:
    waiting = await shop.suspend("e1")
    event = shop.approval("e1")
    pair = (event.event_id, str(waiting.subscription_id))
    await shop.bus.processing_tracker.claim_event(*pair, "another filter")

    with pytest.raises(Exception, match="in other hands"):
        await shop.filter().handle_event(event)
    await shop.bus.processing_tracker.mark_event_processed(*pair, "another filter")

    assert await shop.filter().handle_event(event) == 0


# -- time-outs --------------------------------------------------------------------------------------------------


@pytest.fixture
def hasty(bus: BaseBus, control: Control, clock: ManualClock) -> Shop:
    """A shop that waits a minute for an approval."""
    return Shop(bus, control, clock, timeout=60.0)


@pytest.mark.guarantee("FLOW-16")
async def test_a_wait_that_is_over_ends_the_execution_once(hasty: Shop) -> None:
    waiting = await hasty.suspend("e1")
    checker = hasty.filter().timeout_checker

    hasty.clock.advance(59.5)
    early = await checker.check_once()
    hasty.clock.advance(0.5)
    queued = [await checker.check_once(), await checker.check_once()]
    await hasty.work()

    assert (early, queued) == (0, [1, 0])
    state = await hasty.state("e1")
    assert (state.status, state.resumed) == ("timeout", {waiting.subscription_id: None})
    assert hasty.ran == [("order", "e1")]
    assert await hasty.bus.subscription_storage.list_subscriptions() == []


@pytest.mark.guarantee("FLOW-16")
async def test_a_time_out_that_cannot_be_queued_stops_no_other_and_is_tried_again(
    hasty: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    first = await hasty.suspend("e1")
    await hasty.suspend("e2")
    hasty.clock.advance(60)
    pair = (str(first.subscription_id), "timeout")
    await hasty.bus.processing_tracker.claim_event(*pair, "another filter")
    checker = hasty.filter().timeout_checker

    assert await checker.check_once() == 1
    [warning] = caplog.records
    assert warning.getMessage() == f"the time-out of subscription {first.subscription_id} could not be queued"
    assert warning.exc_info is not None
    assert "in other hands" in str(warning.exc_info[1])
    await hasty.bus.processing_tracker.release_claim(*pair, "another filter")
    assert await checker.check_once() == 1


@pytest.mark.guarantee("FLOW-16")
async def test_a_wait_that_goes_on_hides_no_later_one_that_is_over(hasty: Shop) -> None:
    patient = EventSubscription(event_type="approved", correlation_id="e0", flow_id="purchase", created_at=1.0)
    await hasty.bus.subscription_storage.store_subscription(patient)
    await hasty.suspend("e1")
    hasty.clock.advance(60)

    assert await hasty.filter().timeout_checker.check_once() == 1


@pytest.mark.guarantee("FLOW-16")
async def test_only_what_has_a_time_out_and_a_flow_behind_it_runs_out_of_time(shop: Shop) -> None:
    await shop.suspend("e1")
    await shop.bus.subscription_storage.store_subscription(
        EventSubscription(event_type="approved", timeout=1.0, created_at=shop.clock.time())
    )
    shop.clock.advance(3600)

    assert await shop.filter().timeout_checker.check_once() == 0


@pytest.mark.guarantee("FLOW-16")
async def test_unless_it_is_told_otherwise_a_filter_looks_for_time_outs_every_ten_seconds(shop: Shop) -> None:
    async with shop.filter():
        await until(lambda: len(shop.clock.sleeps) == 2)

    assert sorted(shop.clock.sleeps) == [10.0, 300.0]


@pytest.mark.guarantee("FLOW-14")
@pytest.mark.parametrize(("backfill_seconds", "found"), [(49, 0), (50, 1)])
async def test_how_far_back_a_filter_looks_is_for_its_maker_to_say(
    shop: Shop, backfill_seconds: int, found: int
) -> None:
    await shop.suspend("e1")
    shop.clock.advance(100)
    await shop.bus.event_storage.store_event(shop.approval("e1", timestamp=shop.clock.time() - 50))

    assert await shop.filter(backfill_seconds=backfill_seconds).reconciler.scan_once() == found


@pytest.mark.guarantee("FLOW-16")
async def test_a_running_filter_looks_for_time_outs_by_the_clock(hasty: Shop) -> None:
    await hasty.suspend("e1")
    queue = ListQueue()

    async with hasty.filter(queue=queue, timeout_check_seconds=7) as service:
        await until(lambda: 7 in hasty.clock.sleeps or not service.timeout_checker.is_running)
        assert service.timeout_checker.is_running
        hasty.clock.advance(60)
        await until(lambda: bool(queue.tasks))

    assert [(task.execution_id, task.resume_type) for task in queue.tasks] == [("e1", "timeout")]


@pytest.mark.guarantee("STORE-03")
async def test_a_running_filter_looks_for_missed_events_by_the_clock(shop: Shop) -> None:
    await shop.suspend("e1")
    queue = ListQueue()

    async with shop.filter(queue=queue, reconcile_seconds=7) as service:
        await until(lambda: 7 in shop.clock.sleeps or not service.reconciler.is_running)
        assert service.reconciler.is_running
        await shop.bus.event_storage.store_event(shop.approval("e1"))
        shop.clock.advance(7)
        await until(lambda: bool(queue.tasks))

    assert [(task.execution_id, task.resume_type) for task in queue.tasks] == [("e1", "event")]
