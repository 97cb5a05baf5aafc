"""What a server knows of its clients: how many there are, what they asked, and how often."""

from __future__ import annotations

from typing import Final

from lastbus._backends.redis.connection import RedisConnection
from tests._backends.eventually import eventually

LOOKS_MAX: Final = 50
"""A server notices a closed socket in its own time; half a second is more than it ever needs."""


async def clients(connection: RedisConnection) -> int:
    """How many connections the server has, this one included."""
    listed: bytes = await connection.command("CLIENT", "LIST")
    return listed.count(b" addr=")


async def comes_down_to(count: int, connection: RedisConnection) -> bool:
    """Whether only `count` connections are left, now or in a moment."""

    async def is_alone() -> bool:
        return await clients(connection) == count

    return await eventually(is_alone, LOOKS_MAX)


async def calls(connection: RedisConnection) -> dict[str, int]:
    """How often the server has run each command, inside scripts too."""
    lines = (await connection.command("INFO", "commandstats")).items()
    return {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in lines}


async def requests(connection: RedisConnection) -> int:
    """How often the server has read from a client: once for each round trip of small commands."""
    return int((await connection.command("INFO", "stats"))["total_reads_processed"])
