"""Pure values: events, subscriptions, policies and the rules that compare them. Nothing here awaits or keeps state."""
