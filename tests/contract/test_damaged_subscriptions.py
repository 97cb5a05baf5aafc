"""A subscription that was made past its own validation: no store keeps it, so that none has rows to be afraid of."""

from __future__ import annotations

from typing import Any

import pytest

from lastbus import EventSubscription
from tests._backends import Backend

DAMAGES = {
    "no-type": {"event_type": ""},
    "number": {"correlation_id": 7},
    "blank": {"flow_id": " "},
    "surrogate": {"node_id": "\ud800"},
    "negative": {"timeout": -1.0},
    "nan": {"created_at": float("nan")},
    "list": {"filter_condition": ["x"]},
    "object": {"filter_condition": {"x": object()}},
}


@pytest.mark.guarantee("SUBS-12")
@pytest.mark.parametrize("damage", list(DAMAGES))
async def test_a_damaged_subscription_is_refused_and_is_in_no_list(
    backend: Backend, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    storage = backend.subscription_storage()
    fields: dict[str, Any] = {"event_type": "job", "subscription_id": "s", "correlation_id": "CID"}
    damaged = EventSubscription(**fields).model_copy(update=DAMAGES[damage])

    with pytest.raises(ValueError):
        await storage.store_subscription(damaged)

    assert await storage.list_subscriptions() == []
    assert await storage.list_subscriptions(correlation_id="CID") == []
    assert await storage.list_subscriptions(event_type="job") == []
    assert caplog.records == []


@pytest.mark.guarantee("SUBS-12")
async def test_a_refusal_leaves_what_is_stored_under_the_id(backend: Backend) -> None:
    storage = backend.subscription_storage()
    stored = EventSubscription(event_type="job", subscription_id="s")
    await storage.store_subscription(stored)

    with pytest.raises(ValueError):
        await storage.store_subscription(stored.model_copy(update={"node_id": ""}))

    assert await storage.list_subscriptions() == [stored]
