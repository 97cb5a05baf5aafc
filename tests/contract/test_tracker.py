"""Processing tracker, on every back end: who may handle an event, who has handled it, and what happened on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus import EventProcessingTracker
from lastbus._ports.tracker import Attempt
from lastbus.testing import ManualClock
from tests._backends import Backend
from tests._backends.catalogue import NAMES as NAMES_OF_BACKENDS
from tests.contract.test_event_storage import NAMES, NO_NAMES, short, timed_by_the_clock


@pytest.fixture
def tracker(backend: Backend, clock: ManualClock) -> EventProcessingTracker:
    return backend.tracker(clock)


def success(event_id: str, handler_id: str, timestamp: float) -> Attempt:
    """The line that a success leaves in the history."""
    return {
        "event_id": event_id,
        "handler_id": handler_id,
        "status": "success",
        "error": None,
        "timestamp": timestamp,
    }


# Claims in memory die with their process; where a store outlives a process, they lapse.
shared = pytest.mark.parametrize("backend", [name for name in NAMES_OF_BACKENDS if name != "memory"], indirect=True)


# Claiming -----------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("SQL-08")
async def test_a_claim_stands_in_everybodys_way_even_its_owners(tracker: EventProcessingTracker) -> None:
    assert await tracker.claim_event("e", "h", "me") is True

    assert await tracker.claim_event("e", "h", "you") is False
    assert await tracker.claim_event("e", "h", "me") is False
    assert await tracker.is_event_processed("e", "h") is False


@pytest.mark.guarantee("CORE-16")
async def test_claims_and_marks_are_per_event_and_handler(tracker: EventProcessingTracker) -> None:
    await tracker.claim_event("e", "h", "me")
    await tracker.mark_event_processed("e", "h", "me")

    assert await tracker.claim_event("e", "other", "me") is True
    assert await tracker.claim_event("other", "h", "me") is True
    assert await tracker.is_event_processed("e", "other") is False
    assert await tracker.is_event_processed("other", "h") is False


@pytest.mark.guarantee("SQL-08")
async def test_exactly_one_of_concurrent_claims_is_true(backend: Backend, clock: ManualClock) -> None:
    trackers = [backend.tracker(clock) for _ in range(3)]

    claims = await asyncio.gather(*(each.claim_event("e", "h", f"owner-{n}") for n, each in enumerate(trackers * 5)))

    assert sorted(claims) == [False] * 14 + [True]


async def test_a_released_pair_can_be_claimed_again(tracker: EventProcessingTracker) -> None:
    await tracker.claim_event("e", "h", "me")

    assert await tracker.release_claim("e", "h", "me") is True

    assert await tracker.release_claim("e", "h", "me") is False
    assert await tracker.claim_event("e", "h", "you") is True


async def test_a_stranger_can_neither_renew_nor_release_a_claim(tracker: EventProcessingTracker) -> None:
    await tracker.claim_event("e", "h", "me")

    assert await tracker.renew_claim("e", "h", "you") is False
    assert await tracker.release_claim("e", "h", "you") is False

    assert await tracker.claim_event("e", "h", "you") is False
    assert await tracker.renew_claim("e", "h", "me") is True


async def test_nobody_can_renew_or_release_what_was_never_claimed(tracker: EventProcessingTracker) -> None:
    assert await tracker.renew_claim("e", "h", "me") is False
    assert await tracker.release_claim("e", "h", "me") is False


@pytest.mark.guarantee("CORE-35")
async def test_pairs_of_any_names_are_told_apart(tracker: EventProcessingTracker) -> None:
    pairs = [(name, f"h{place}") for place, name in enumerate(NAMES)] + [("e", name) for name in NAMES]

    assert [await tracker.claim_event(*pair, "me") for pair in pairs] == [True] * len(pairs)
    assert [await tracker.mark_event_processed(*pair, "me") for pair in pairs] == [True] * len(pairs)
    assert [await tracker.is_event_processed(*pair) for pair in pairs] == [True] * len(pairs)


async def test_a_colon_never_makes_two_pairs_one(tracker: EventProcessingTracker) -> None:
    await tracker.mark_event_processed("a:b", "c")

    assert await tracker.is_event_processed("a", "b:c") is False
    assert await tracker.claim_event("a", "b:c", "me") is True


# Lapsing ------------------------------------------------------------------------------------------------------------


@shared
async def test_a_claim_stands_for_a_minute_where_processes_share_the_store(tracker: EventProcessingTracker) -> None:
    assert tracker.claim_ttl == 60.0


@shared
async def test_a_claim_lapses_at_the_end_of_its_life(tracker: EventProcessingTracker, clock: ManualClock) -> None:
    await tracker.claim_event("e", "h", "me")

    clock.advance(59)
    assert await tracker.claim_event("e", "h", "you") is False

    clock.advance(1)
    assert await tracker.claim_event("e", "h", "you") is True


@pytest.mark.guarantee("SQL-08")
@shared
async def test_exactly_one_of_concurrent_claims_takes_over_a_lapsed_one(backend: Backend, clock: ManualClock) -> None:
    trackers = [backend.tracker(clock) for _ in range(3)]
    await trackers[0].claim_event("e", "h", "me")
    clock.advance(60)

    claims = await asyncio.gather(*(each.claim_event("e", "h", f"owner-{n}") for n, each in enumerate(trackers * 5)))

    assert sorted(claims) == [False] * 14 + [True]


@shared
async def test_a_renewed_claim_stands_for_another_life(tracker: EventProcessingTracker, clock: ManualClock) -> None:
    await tracker.claim_event("e", "h", "me")
    clock.advance(59)

    assert await tracker.renew_claim("e", "h", "me") is True

    clock.advance(59)
    assert await tracker.claim_event("e", "h", "you") is False
    clock.advance(1)
    assert await tracker.claim_event("e", "h", "you") is True


@shared
async def test_a_lapsed_claim_is_its_owners_until_somebody_takes_it(
    tracker: EventProcessingTracker, clock: ManualClock
) -> None:
    await tracker.claim_event("e", "h", "me")
    clock.advance(3600)

    assert await tracker.renew_claim("e", "h", "me") is True
    assert await tracker.claim_event("e", "h", "you") is False

    clock.advance(3600)
    assert await tracker.release_claim("e", "h", "me") is True


@pytest.mark.guarantee("SQL-08")
@shared
async def test_the_owner_of_a_lost_claim_has_no_effect_on_the_new_one(
    tracker: EventProcessingTracker, clock: ManualClock
) -> None:
    await tracker.claim_event("e", "h", "me")
    clock.advance(60)
    await tracker.claim_event("e", "h", "you")

    assert await tracker.renew_claim("e", "h", "me") is False
    assert await tracker.release_claim("e", "h", "me") is False
    assert await tracker.mark_event_processed("e", "h", "me") is False

    assert await tracker.is_event_processed("e", "h") is False
    assert await tracker.claim_event("e", "h", "me") is False
    assert await tracker.mark_event_processed("e", "h", "you") is True


@shared
async def test_a_late_owner_may_mark_while_nobody_else_has_claimed(
    tracker: EventProcessingTracker, clock: ManualClock
) -> None:
    await tracker.claim_event("e", "h", "me")
    clock.advance(61)

    assert await tracker.mark_event_processed("e", "h", "me") is True
    assert await tracker.claim_event("e", "h", "you") is False


@pytest.mark.parametrize("backend", ["memory"], indirect=True)
async def test_a_claim_in_memory_never_lapses(tracker: EventProcessingTracker, clock: ManualClock) -> None:
    await tracker.claim_event("e", "h", "me")

    clock.advance(10**9)

    assert tracker.claim_ttl is None
    assert await tracker.claim_event("e", "h", "you") is False


# Marking ------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("CORE-14")
async def test_a_mark_is_true_the_first_time_and_false_again(tracker: EventProcessingTracker) -> None:
    assert await tracker.is_event_processed("e", "h") is False

    assert await tracker.mark_event_processed("e", "h") is True

    assert await tracker.mark_event_processed("e", "h") is False
    assert await tracker.is_event_processed("e", "h") is True


async def test_a_mark_ends_its_owners_claim_and_refuses_every_later_one(tracker: EventProcessingTracker) -> None:
    await tracker.claim_event("e", "h", "me")

    assert await tracker.mark_event_processed("e", "h", "me") is True

    assert await tracker.renew_claim("e", "h", "me") is False
    assert await tracker.release_claim("e", "h", "me") is False
    assert await tracker.claim_event("e", "h", "me") is False
    assert await tracker.mark_event_processed("e", "h", "me") is False


async def test_a_mark_does_not_lapse_with_the_claim_that_it_ended(
    tracker: EventProcessingTracker, clock: ManualClock
) -> None:
    await tracker.claim_event("e", "h", "me")
    await tracker.mark_event_processed("e", "h", "me")

    clock.advance(3600)

    assert await tracker.is_event_processed("e", "h") is True
    assert await tracker.claim_event("e", "h", "you") is False


async def test_whoever_has_given_a_claim_back_may_still_mark(tracker: EventProcessingTracker) -> None:
    await tracker.claim_event("e", "h", "me")
    await tracker.release_claim("e", "h", "me")

    assert await tracker.mark_event_processed("e", "h", "me") is True
    assert await tracker.is_event_processed("e", "h") is True


async def test_a_mark_by_a_stranger_leaves_the_claim_standing(tracker: EventProcessingTracker) -> None:
    await tracker.claim_event("e", "h", "me")

    assert await tracker.mark_event_processed("e", "h", "you") is False

    assert await tracker.is_event_processed("e", "h") is False
    assert await tracker.renew_claim("e", "h", "me") is True


async def test_a_mark_in_nobodys_name_ends_any_claim(tracker: EventProcessingTracker) -> None:
    await tracker.claim_event("e", "h", "me")

    assert await tracker.mark_event_processed("e", "h") is True

    assert await tracker.is_event_processed("e", "h") is True
    assert await tracker.renew_claim("e", "h", "me") is False


async def test_exactly_one_of_concurrent_marks_is_true(backend: Backend, clock: ManualClock) -> None:
    trackers = [backend.tracker(clock) for _ in range(3)]

    marks = await asyncio.gather(*(each.mark_event_processed("e", "h") for each in trackers * 5))

    assert sorted(marks) == [False] * 14 + [True]


@pytest.mark.guarantee("SQL-08")
async def test_finishing_marks_the_pair_ends_its_claim_and_records_one_success(
    tracker: EventProcessingTracker, clock: ManualClock
) -> None:
    await tracker.claim_event("e", "h", "me")
    clock.advance(2.5)

    assert await tracker.finish_event("e", "h", "me") is True

    assert await tracker.is_event_processed("e", "h") is True
    assert await tracker.renew_claim("e", "h", "me") is False
    assert await tracker.release_claim("e", "h", "me") is False
    assert await tracker.get_processing_history("e") == [success("e", "h", clock.time())]


@shared
async def test_finishing_after_the_claim_was_lost_marks_nothing_and_still_records_the_success(
    tracker: EventProcessingTracker, clock: ManualClock
) -> None:
    await tracker.claim_event("e", "h", "me")
    clock.advance(60)
    await tracker.claim_event("e", "h", "you")

    assert await tracker.finish_event("e", "h", "me") is False

    assert await tracker.is_event_processed("e", "h") is False
    assert await tracker.get_processing_history("e") == [success("e", "h", clock.time())]
    assert await tracker.finish_event("e", "h", "you") is True


async def test_a_stranger_cannot_finish_what_somebody_else_has_claimed(
    tracker: EventProcessingTracker, clock: ManualClock
) -> None:
    await tracker.claim_event("e", "h", "me")

    assert await tracker.finish_event("e", "h", "you") is False

    assert await tracker.is_event_processed("e", "h") is False
    assert await tracker.renew_claim("e", "h", "me") is True
    assert await tracker.get_processing_history("e") == [success("e", "h", clock.time())]


async def test_finishing_again_is_false_and_recorded_again(tracker: EventProcessingTracker, clock: ManualClock) -> None:
    await tracker.claim_event("e", "h", "me")

    assert [await tracker.finish_event("e", "h", "me") for _ in range(2)] == [True, False]

    assert await tracker.is_event_processed("e", "h") is True
    assert await tracker.get_processing_history("e") == [success("e", "h", clock.time())] * 2


async def test_finishing_touches_no_other_pair(tracker: EventProcessingTracker) -> None:
    await tracker.claim_event("e", "other", "me")
    await tracker.claim_event("e", "h", "me")

    await tracker.finish_event("e", "h", "me")

    assert await tracker.is_event_processed("e", "other") is False
    assert await tracker.renew_claim("e", "other", "me") is True
    assert await tracker.get_processing_history("other") == []


@timed_by_the_clock
async def test_marks_live_as_long_as_events(
    backend: Backend, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAITA_EVENT_TTL_SECONDS", "100")
    tracker = backend.tracker(clock)
    await tracker.mark_event_processed("e", "h")

    clock.advance(99)
    assert await tracker.is_event_processed("e", "h") is True

    clock.advance(2)
    await tracker.claim_event("other", "h", "me")
    assert await tracker.is_event_processed("e", "h") is False
    assert await tracker.claim_event("e", "h", "me") is True


# History ------------------------------------------------------------------------------------------------------------


async def test_the_history_holds_every_attempt_in_the_order_of_recording(
    tracker: EventProcessingTracker, clock: ManualClock
) -> None:
    started = clock.time()
    await tracker.record_processing_attempt("e", "h", "error", "boom")
    await tracker.record_processing_attempt("other", "h", "success")
    clock.advance(1.5)
    await tracker.record_processing_attempt("e", "g", "failed", "")
    await tracker.record_processing_attempt("e", "h", "success")

    assert await tracker.get_processing_history("e") == [
        {"event_id": "e", "handler_id": "h", "status": "error", "error": "boom", "timestamp": started},
        {"event_id": "e", "handler_id": "g", "status": "failed", "error": "", "timestamp": started + 1.5},
        {"event_id": "e", "handler_id": "h", "status": "success", "error": None, "timestamp": started + 1.5},
    ]


async def test_attempts_of_one_moment_keep_their_order(tracker: EventProcessingTracker) -> None:
    for n in range(12):
        await tracker.record_processing_attempt("e", "h", "error", f"try {n}")
    await tracker.record_processing_attempt("e", "h", "error", "try 0")

    errors = [attempt["error"] for attempt in await tracker.get_processing_history("e")]

    assert errors == [*(f"try {n}" for n in range(12)), "try 0"]


async def test_an_error_text_may_hold_any_character(tracker: EventProcessingTracker) -> None:
    text = 'nul \0, surrogate \ud800, quote ", 👩‍🚒, ' + "long " * 2000

    await tracker.record_processing_attempt("e", "h", "error", text)

    assert [attempt["error"] for attempt in await tracker.get_processing_history("e")] == [text]


async def test_an_unknown_event_has_no_history(tracker: EventProcessingTracker) -> None:
    await tracker.claim_event("e", "h", "me")
    await tracker.mark_event_processed("e", "h", "me")

    assert await tracker.get_processing_history("e") == []
    assert await tracker.get_processing_history("nobody") == []


# Forgetting ---------------------------------------------------------------------------------------------------------


async def test_cleanup_forgets_what_is_older_and_counts_the_events(
    tracker: EventProcessingTracker, clock: ManualClock
) -> None:
    await tracker.mark_event_processed("old", "h")
    await tracker.mark_event_processed("old", "g")
    await tracker.record_processing_attempt("old", "h", "success")
    await tracker.record_processing_attempt("older history", "h", "error", "boom")
    clock.advance(100)
    await tracker.mark_event_processed("new", "h")
    await tracker.record_processing_attempt("new", "h", "success")

    assert await tracker.cleanup_old_records(99) == 2

    assert await tracker.is_event_processed("old", "h") is False
    assert await tracker.claim_event("old", "g", "me") is True
    assert await tracker.get_processing_history("old") == []
    assert await tracker.is_event_processed("new", "h") is True
    assert len(await tracker.get_processing_history("new")) == 1
    assert await tracker.cleanup_old_records(99) == 0


async def test_cleanup_keeps_what_is_exactly_that_old(tracker: EventProcessingTracker, clock: ManualClock) -> None:
    await tracker.mark_event_processed("e", "h")
    await tracker.record_processing_attempt("e", "h", "success")
    clock.advance(50)

    assert await tracker.cleanup_old_records(50) == 0

    assert await tracker.is_event_processed("e", "h") is True
    assert len(await tracker.get_processing_history("e")) == 1


async def test_cleanup_looks_back_a_day_unless_told(tracker: EventProcessingTracker, clock: ManualClock) -> None:
    await tracker.mark_event_processed("e", "h")

    clock.advance(86400)
    assert await tracker.cleanup_old_records() == 0

    clock.advance(1)
    assert await tracker.cleanup_old_records() == 1


async def test_cleanup_leaves_claims_alone(tracker: EventProcessingTracker, clock: ManualClock) -> None:
    await tracker.claim_event("e", "h", "me")
    clock.advance(50)

    assert await tracker.cleanup_old_records(1) == 0

    assert await tracker.renew_claim("e", "h", "me") is True


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize("age", [-1, float("nan"), float("inf"), True, "1", None], ids=repr)
async def test_an_age_that_is_no_duration_is_refused(tracker: EventProcessingTracker, age: Any) -> None:
    with pytest.raises(ValueError, match=r"^max_age_seconds "):
        await tracker.cleanup_old_records(age)


# Names --------------------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("CORE-35")
@pytest.mark.parametrize("value", NO_NAMES, ids=short)
async def test_nobody_can_ask_about_what_is_no_name(tracker: EventProcessingTracker, value: Any) -> None:
    with pytest.raises(ValueError, match=r"^event_id "):
        await tracker.is_event_processed(value, "h")
    with pytest.raises(ValueError, match=r"^event_id "):
        await tracker.get_processing_history(value)
    await tracker.mark_event_processed("e", "h")
    with pytest.raises(ValueError, match=r"^handler_id "):
        await tracker.is_event_processed("e", value)


async def test_closing_forgets_nothing_and_may_be_repeated(backend: Backend, clock: ManualClock) -> None:
    tracker = backend.tracker(clock)
    await tracker.mark_event_processed("e", "h")

    await tracker.aclose()
    await tracker.aclose()

    assert await backend.tracker(clock).is_event_processed("e", "h") is True
