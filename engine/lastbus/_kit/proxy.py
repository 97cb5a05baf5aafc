"""A link to a server on this machine that a test can make slow, silent or broken, and mend again.

    async with FaultProxy(server.port) as link:
        bus = RedisEventBus(link.through(server.url))
        link.hold(DOWN)  # Questions arrive, answers do not: half-open.
        link.cut()  # Every connection is reset.

It lives on the loop that entered it, listens on loopback only, and stops by itself, at the latest after its lifetime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit, urlunsplit

from lastbus._kit.ports import LOOPBACK

if TYPE_CHECKING:
    from typing_extensions import Self

Direction = Literal["up", "down"]
UP: Final = "up"
"""From the client to the server."""
DOWN: Final = "down"
"""From the server to the client."""

CONNECTIONS_MAX: Final = 100
LIFETIME_SECONDS: Final = 60.0
CHUNK_BYTES: Final = 65_536


class FaultProxy:
    """Passes bytes between its clients and the server on `target_port`, as the test would have it.

    `delay_seconds` passes before each portion of at most `portion_bytes`, in either direction: with 1, bytes dribble.
    More than `CONNECTIONS_MAX` connections at once are refused.
    """

    def __init__(self, target_port: int, *, lifetime_seconds: float = LIFETIME_SECONDS) -> None:
        self.delay_seconds = 0.0
        self.portion_bytes = CHUNK_BYTES
        self.is_refusing = False
        """Whether new connections are reset at once."""
        self._target_port: Final = target_port
        self._lifetime_seconds: Final = lifetime_seconds
        self._flows: Final[dict[Direction, asyncio.Event]] = {UP: asyncio.Event(), DOWN: asyncio.Event()}
        self._carriers: Final[set[asyncio.Task[None]]] = set()
        self._server: asyncio.Server | None = None
        self._end: asyncio.TimerHandle | None = None
        self.release()

    @property
    def port(self) -> int:
        """Where clients connect; `RuntimeError` unless the proxy is open."""
        if self._server is None or not self._server.sockets:
            raise RuntimeError("the proxy is not open: use it as `async with`")
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """How many connections there are now."""
        return len(self._carriers)

    def through(self, url: str) -> str:
        """`url` with this proxy as the place to connect to."""
        parts = urlsplit(url)
        credentials, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{credentials}{at}{LOOPBACK}:{self.port}"))

    def hold(self, *directions: Direction) -> None:
        """From now on bytes in these directions (none given: both) get no further; nobody is told."""
        for direction in directions or (UP, DOWN):
            self._flows[direction].clear()

    def release(self) -> None:
        """Everything that was held goes on its way, late."""
        for flow in self._flows.values():
            flow.set()

    def cut(self) -> None:
        """Reset every connection; new ones are accepted."""
        for carrier in self._carriers:
            carrier.cancel()

    def stop(self) -> None:
        """Reset every connection, and listen no more; harmless when called again."""
        self.cut()
        if self._end is not None:
            self._end.cancel()
        if self._server is not None:
            self._server.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self._end = asyncio.get_running_loop().call_later(self._lifetime_seconds, self.stop)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        await asyncio.gather(*self._carriers, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_refusing or len(self._carriers) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        carrier = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._carriers.add(carrier)
        carrier.add_done_callback(self._carriers.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes both ways until one side ends; then the other one is reset."""
        abort: list[Callable[[], object]] = [writer.transport.abort]
        pumps: list[asyncio.Task[None]] = []
        try:
            server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self._target_port)
            abort.append(server_writer.transport.abort)
            loop = asyncio.get_running_loop()
            pumps += [loop.create_task(self._pump(UP, reader, server_writer))]
            pumps += [loop.create_task(self._pump(DOWN, server_reader, writer))]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # Nobody serves: the client is reset, as it would be without a proxy.
        finally:
            for pump in pumps:
                pump.cancel()
            for each in abort:
                each()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, direction: Direction, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while chunk := await source.read(CHUNK_BYTES):
            while chunk:
                portion, chunk = chunk[: self.portion_bytes], chunk[self.portion_bytes :]
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                await self._flows[direction].wait()
                sink.write(portion)
                await sink.drain()
