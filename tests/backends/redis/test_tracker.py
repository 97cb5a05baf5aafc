"""Processing tracker in Redis: one owner at a time, lapsed claims, marks by call, and a bounded history."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lastbus._backends.redis import tracker as module
from lastbus._backends.redis.connection import RedisConnection
from lastbus.redis import RedisProcessingTracker
from lastbus.testing import ManualClock
from tests._backends.redis import RedisBackend

ODD_NAMES = ["last_updated", "h", "a b", "é:\n", "*", " "]


@pytest.mark.parametrize("handler_id", ODD_NAMES)
async def test_any_text_names_a_handler(redis: RedisBackend, handler_id: str) -> None:
    tracker = redis.tracker()

    assert await tracker.claim_event("e", handler_id, "me") is True
    assert await tracker.claim_event("e", f"{handler_id}x", "me") is True
    assert await tracker.mark_event_processed("e", handler_id, "me") is True
    assert await tracker.mark_event_processed("e", handler_id, "me") is False
    assert await tracker.release_claim("e", f"{handler_id}x", "me") is True
    assert await tracker.claim_event("e", handler_id, "me") is False


async def test_two_ids_never_share_a_key(redis: RedisBackend) -> None:
    tracker = redis.tracker()
    await tracker.mark_event_processed("a", "b:c")

    assert await tracker.claim_event("a:b", "c", "me") is True


async def test_a_claim_that_stands_is_nobody_elses_nor_taken_twice(redis: RedisBackend) -> None:
    tracker = redis.tracker()
    await tracker.claim_event("e", "h", "me")

    assert await tracker.claim_event("e", "h", "you") is False
    assert await tracker.claim_event("e", "h", "me") is False
    assert await tracker.renew_claim("e", "h", "you") is False
    assert await tracker.release_claim("e", "h", "you") is False
    assert await tracker.mark_event_processed("e", "h", "you") is False
    assert await tracker.is_event_processed("e", "h") is False


async def test_of_concurrent_claims_exactly_one_is_granted(redis: RedisBackend) -> None:
    trackers = [redis.tracker() for _ in range(5)]

    claims = await asyncio.gather(
        *(each.claim_event("e", "h", f"owner {number}") for number, each in enumerate(trackers * 4))
    )

    assert sorted(claims) == [False] * 19 + [True]


async def test_a_claim_lapses_unless_it_is_renewed(redis: RedisBackend, clock: ManualClock) -> None:
    tracker = redis.tracker(clock=clock)
    await tracker.claim_event("e", "h", "me")

    clock.advance(59)
    assert await tracker.renew_claim("e", "h", "me") is True
    clock.advance(59)
    assert await tracker.claim_event("e", "h", "you") is False
    clock.advance(1)
    assert await tracker.claim_event("e", "h", "you") is True
    assert await tracker.renew_claim("e", "h", "me") is False
    assert await tracker.release_claim("e", "h", "me") is False


async def test_an_owner_who_lost_its_claim_records_nothing(redis: RedisBackend, clock: ManualClock) -> None:
    tracker = redis.tracker(clock=clock)
    await tracker.claim_event("e", "h", "me")
    clock.advance(60)
    await tracker.claim_event("e", "h", "you")

    assert await tracker.mark_event_processed("e", "h", "me") is False
    assert await tracker.is_event_processed("e", "h") is False
    assert await tracker.mark_event_processed("e", "h", "you") is True


async def test_a_released_claim_can_be_taken(redis: RedisBackend) -> None:
    tracker = redis.tracker()
    await tracker.claim_event("e", "h", "owner with\nlines")

    assert await tracker.release_claim("e", "h", "owner with\nlines") is True
    assert await tracker.release_claim("e", "h", "owner with\nlines") is False
    assert await tracker.claim_event("e", "h", "you") is True


async def test_a_mark_ends_the_claim(redis: RedisBackend, raw: RedisConnection) -> None:
    tracker = redis.tracker()
    await tracker.claim_event("e", "h", "me")
    await tracker.mark_event_processed("e", "h", "me")

    assert await raw.command("EXISTS", f"{redis.prefix}processed:claims:e") == 0
    assert await raw.command("HKEYS", f"{redis.prefix}processed:events:e") == [b"h"]


@pytest.mark.guarantee("REDIS-10")
@pytest.mark.parametrize("verb", ["claim_event", "renew_claim", "mark_event_processed", "finish_event"])
async def test_what_the_driver_sends_twice_is_still_granted(
    redis: RedisBackend, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    tracker = redis.tracker()
    if verb != "claim_event":
        await tracker.claim_event("e", "h", "me")
    send = tracker._connection._send

    async def send_twice(words: tuple[Any, ...]) -> Any:
        await send(words)
        return await send(words)

    monkeypatch.setattr(tracker._connection, "_send", send_twice)

    assert await getattr(tracker, verb)("e", "h", "me") is True


@pytest.mark.guarantee("REDIS-10")
async def test_an_end_that_the_driver_sends_twice_is_one_line_of_history(
    redis: RedisBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = redis.tracker()
    await tracker.claim_event("e", "h", "me")
    send = tracker._connection._send

    async def send_twice(words: tuple[Any, ...]) -> Any:
        await send(words)
        return await send(words)

    monkeypatch.setattr(tracker._connection, "_send", send_twice)
    await tracker.finish_event("e", "h", "me")

    assert [line["status"] for line in await tracker.get_processing_history("e")] == ["success"]


@pytest.mark.guarantee("REDIS-16")
async def test_mark_and_history_are_written_in_one_call(redis: RedisBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = redis.tracker()
    await tracker.claim_event("e", "h", "me")
    calls: list[tuple[Any, ...]] = []
    run = tracker._connection.run

    async def counted(script: Any, keys: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return await run(script, keys, *arguments)

    monkeypatch.setattr(tracker._connection, "run", counted)

    assert await tracker.finish_event("e", "h", "me")

    assert len(calls) == 1
    assert await tracker.is_event_processed("e", "h")
    assert [line["status"] for line in await tracker.get_processing_history("e")] == ["success"]


async def test_marks_and_claims_live_as_long_as_events(redis: RedisBackend, raw: RedisConnection) -> None:
    tracker = redis.tracker()
    await tracker.claim_event("e", "h", "me")
    await tracker.mark_event_processed("e", "g")
    await tracker.record_processing_attempt("e", "h", "success")

    for kind in ("events", "claims", "attempts"):
        assert 604_000_000 < await raw.command("PTTL", f"{redis.prefix}processed:{kind}:e") <= 604_800_000


async def test_history_keeps_order_and_every_field(redis: RedisBackend, clock: ManualClock) -> None:
    tracker = redis.tracker(clock=clock)
    await tracker.record_processing_attempt("e", "h", "error", "no é \ud800 here")
    await tracker.record_processing_attempt("e", "h", "error", "no é \ud800 here")
    clock.advance(1)
    await tracker.record_processing_attempt("e", "last_updated", "success")

    history = await tracker.get_processing_history("e")

    assert [(each["status"], each["handler_id"], each["timestamp"] - clock.time()) for each in history] == [
        ("error", "h", -1),
        ("error", "h", -1),
        ("success", "last_updated", 0),
    ]
    assert history[0] == {
        "event_id": "e",
        "handler_id": "h",
        "status": "error",
        "error": "no é \ud800 here",
        "timestamp": clock.time() - 1,
    }
    assert await tracker.get_processing_history("unknown") == []


async def test_history_is_bounded(redis: RedisBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPTS_MAX", 3)
    tracker = redis.tracker()
    for number in range(5):
        await tracker.record_processing_attempt("e", "h", f"try {number}")

    assert [each["status"] for each in await tracker.get_processing_history("e")] == ["try 2", "try 3", "try 4"]


async def test_cleanup_forgets_what_is_older_and_keeps_the_rest(redis: RedisBackend, clock: ManualClock) -> None:
    tracker = redis.tracker(clock=clock)
    await tracker.mark_event_processed("old:1", "h")
    await tracker.record_processing_attempt("old:2", "h", "success")
    await tracker.mark_event_processed("both", "first")
    clock.advance(100)
    await tracker.mark_event_processed("both", "second")
    await tracker.record_processing_attempt("new", "old:1", "success")

    assert await tracker.cleanup_old_records(100) == 0
    clock.advance(1)
    assert await tracker.cleanup_old_records(100) == 3
    assert await tracker.cleanup_old_records(100) == 0

    assert await tracker.is_event_processed("old:1", "h") is False
    assert await tracker.get_processing_history("old:2") == []
    assert await tracker.is_event_processed("both", "second") is True
    assert len(await tracker.get_processing_history("new")) == 1


@pytest.mark.parametrize("claim_ttl", [0, -1, float("nan")])
def test_a_claim_that_lapses_at_once_is_refused(claim_ttl: float) -> None:
    with pytest.raises(ValueError, match="claim_ttl"):
        RedisProcessingTracker("redis://localhost", claim_ttl=claim_ttl)
