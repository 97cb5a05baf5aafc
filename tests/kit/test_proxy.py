"""A link that a test can make slow, silent or broken.

Timing: what the link does with bytes is a matter of real time here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import pytest

from lastbus._kit.ports import LOOPBACK
from lastbus.testing import DOWN, UP, FaultProxy

ANSWER_SECONDS = 3.0
"""A link that swallows an answer fails its test instead of holding it up."""


class Line(NamedTuple):
    """One client's connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, text: bytes) -> bytes:
        self.writer.write(text)
        return await asyncio.wait_for(self.reader.readexactly(len(text)), ANSWER_SECONDS)


@pytest.fixture
async def heard() -> list[bytes]:
    """What has arrived at the server, portion by portion."""
    return []


@pytest.fixture
async def echo_port(heard: list[bytes]) -> AsyncIterator[int]:
    """A server that repeats what it hears."""

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(100):
                heard.append(chunk)
                writer.write(chunk)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(repeat, LOOPBACK, 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture
async def link(echo_port: int) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(echo_port) as link:
        yield link


Dial = Callable[[FaultProxy], Awaitable[Line]]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Connects through a link; what is left open is closed with the test."""
    lines: list[Line] = []

    async def connect(link: FaultProxy) -> Line:
        lines.append(Line(*await asyncio.open_connection(LOOPBACK, link.port)))
        return lines[-1]

    yield connect
    for line in lines:
        line.writer.transport.abort()
    await asyncio.gather(*(line.writer.wait_closed() for line in lines), return_exceptions=True)


async def test_a_sound_link_passes_bytes_both_ways(link: FaultProxy, dial: Dial) -> None:
    line = await dial(link)

    assert await line.ask(b"hello") == b"hello"
    assert link.connections == 1


async def test_a_slow_link_takes_its_time_in_both_directions(link: FaultProxy, dial: Dial) -> None:
    line = await dial(link)
    link.delay_seconds = 0.05
    begin = time.monotonic()

    assert await line.ask(b"hello") == b"hello"
    assert time.monotonic() - begin >= 0.1


async def test_bytes_dribble(link: FaultProxy, heard: list[bytes], dial: Dial) -> None:
    line = await dial(link)
    link.delay_seconds, link.portion_bytes = 0.01, 1

    assert await line.ask(b"abc") == b"abc"
    assert heard == [b"a", b"b", b"c"]


@pytest.mark.parametrize("direction", [UP, DOWN])
async def test_a_half_open_link_says_nothing_until_it_is_released(
    link: FaultProxy, heard: list[bytes], direction: str, dial: Dial
) -> None:
    line = await dial(link)
    link.hold(direction)
    answering = asyncio.ensure_future(line.ask(b"x"))

    done, _ = await asyncio.wait({answering}, timeout=0.2)
    assert not done
    assert heard == ([] if direction == UP else [b"x"])
    link.release()
    assert await answering == b"x"


async def test_a_cut_resets_everybody_and_the_next_one_gets_through(link: FaultProxy, dial: Dial) -> None:
    lines = [await dial(link), await dial(link)]
    for line in lines:
        await line.ask(b"x")

    link.cut()

    for line in lines:
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await line.ask(b"y")
    assert await (await dial(link)).ask(b"z") == b"z"


async def test_a_link_can_refuse_new_connections_and_keep_old_ones(link: FaultProxy, dial: Dial) -> None:
    line = await dial(link)
    await line.ask(b"x")
    link.is_refusing = True

    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await (await dial(link)).ask(b"y")
    assert await line.ask(b"x") == b"x"


async def test_nobody_serves_behind_the_link(echo_port: int, dial: Dial) -> None:
    async with FaultProxy(1) as link:
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await (await dial(link)).ask(b"y")


async def test_a_link_ends_with_its_lifetime(echo_port: int, dial: Dial) -> None:
    async with FaultProxy(echo_port, lifetime_seconds=0.1) as link:
        line = await dial(link)
        await line.ask(b"x")
        port = link.port

        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await line.reader.readexactly(1)
        with pytest.raises(OSError):
            await asyncio.open_connection(LOOPBACK, port)


async def test_a_url_leads_through_the_link(link: FaultProxy) -> None:
    assert link.through("redis://u:p%40@somewhere:1/2?a=b") == f"redis://u:p%40@{LOOPBACK}:{link.port}/2?a=b"
    assert link.through("redis://localhost:6379/0") == f"redis://{LOOPBACK}:{link.port}/0"


async def test_a_closed_link_has_no_port(echo_port: int) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        _ = FaultProxy(echo_port).port
