"""The Redis back end: events, subscriptions and marks in one server, announced over its pub/sub."""
