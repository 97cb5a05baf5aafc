"""lastbus: an asyncio event bus that proves what it promises."""
