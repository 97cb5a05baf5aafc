"""What a server knows of its clients: how many there are, what they asked, and how often."""

from __future__ import annotations

from lastbus._backends.redis.connection import RedisConnection

LOOKS_MAX = 3000
"""A server notices a closed socket in its own time, and each look is a round trip: about half a second."""


async def clients(connection: RedisConnection) -> int:
    """How many connections the server has, this one included."""
    listed: bytes = await connection.command("CLIENT", "LIST")
    return listed.count(b" addr=")


async def comes_down_to(count: int, connection: RedisConnection) -> bool:
    """Whether only `count` connections are left, now or in a moment."""
    for _ in range(LOOKS_MAX):
        if await clients(connection) == count:
            return True
    return False


async def calls(connection: RedisConnection) -> dict[str, int]:
    """How often the server has run each command, inside scripts too."""
    lines = (await connection.command("INFO", "commandstats")).items()
    return {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in lines}


async def requests(connection: RedisConnection) -> int:
    """How often the server has read from a client: once for each round trip of small commands."""
    return int((await connection.command("INFO", "stats"))["total_reads_processed"])
