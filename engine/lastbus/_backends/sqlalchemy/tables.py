"""Tables: what the SQL back end keeps, and the indexes that its questions run on.

Names are compared and sorted by code point, as Python does it, whatever the database's locale. Payloads and conditions
are JSON *text*: `jsonb` refuses characters that an event may carry, and forgets the order of keys. Every row has an
`expires_at` in seconds since the epoch; from that moment on no question finds it, and some later write deletes it.

Keeps: SQL-03.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, String, Table, Text

from lastbus._model.names import NAME_BYTES_MAX

metadata: Final = MetaData()


def _name() -> String:
    text = String(NAME_BYTES_MAX)
    return text.with_variant(String(NAME_BYTES_MAX, collation="C"), "postgresql")


events: Final = Table(
    "events",
    metadata,
    Column("event_id", _name(), primary_key=True),
    Column("event_type", _name(), nullable=False),
    Column("timestamp", Double, nullable=False),
    Column("payload", Text, nullable=False),
    Column("expires_at", Double, nullable=False),
    Index("ix_events_type_time", "event_type", "timestamp", "event_id"),
    Index("ix_events_time", "timestamp", "event_id"),
    Index("ix_events_expiry", "expires_at"),
)

subscriptions: Final = Table(
    "event_subscriptions",
    metadata,
    Column("subscription_id", _name(), primary_key=True),
    Column("event_type", _name(), nullable=False),
    Column("correlation_id", _name()),
    Column("flow_id", _name()),
    Column("node_id", _name()),
    Column("filter_condition", Text),
    Column("created_at", Double, nullable=False),
    Column("timeout", Double),
    Column("expires_at", Double, nullable=False),
    Index("ix_event_subscriptions_type", "event_type", "correlation_id"),
    Index("ix_event_subscriptions_correlation", "correlation_id"),
    Index("ix_event_subscriptions_flow", "flow_id"),
    Index("ix_event_subscriptions_node", "node_id"),
    Index("ix_event_subscriptions_expiry", "expires_at"),
)

subscription_marks: Final = Table(
    "processed_events",
    metadata,
    Column("subscription_id", _name(), primary_key=True),
    Column("event_id", _name(), primary_key=True),
    Column("expires_at", Double, nullable=False),
    Index("ix_processed_events_expiry", "expires_at"),
)

# A row is a claim (it has an owner, and expires when the claim lapses) or a mark (it has the time of processing).
claims: Final = Table(
    "event_claims",
    metadata,
    Column("event_id", _name(), primary_key=True),
    Column("handler_id", _name(), primary_key=True),
    Column("owner", _name()),
    Column("processed_at", Double),
    Column("expires_at", Double, nullable=False),
    Index("ix_event_claims_expiry", "expires_at"),
    Index("ix_event_claims_processed", "processed_at"),
)

history: Final = Table(
    "event_processing_history",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("event_id", _name(), nullable=False),
    Column("handler_id", _name(), nullable=False),
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("timestamp", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Index("ix_event_processing_history_event", "event_id", "id"),
    Index("ix_event_processing_history_time", "timestamp"),
    Index("ix_event_processing_history_expiry", "expires_at"),
)
