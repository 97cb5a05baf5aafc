"""A TLS door in front of a server that speaks no TLS itself, with a certificate for this session only."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from pathlib import Path
from typing import Final

from .ports import LOOPBACK, free_port

CHUNK_BYTES: Final = 65_536
OPEN_SECONDS: Final = 10.0
HANDSHAKE_SECONDS: Final = 10.0


class TlsDoor:
    """Accepts TLS on ``port`` and forwards the plain bytes to ``target_port``, both on loopback.

    It is open when the constructor returns. While nothing listens on the target, the door closes each
    connection after the handshake. It lives in a thread with a loop of its own, so that tests with and
    without a loop can use it..
    """

    def __init__(self, target_port: int, scratch: Path) -> None:
        self._target_port = target_port
        self._context, self.ca_file = certify(scratch)
        self.port: Final = free_port()
        self._opened = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="lastbus-tls-door", daemon=True)
        self._thread.start()
        if not self._opened.wait(OPEN_SECONDS) or self._error is not None:
            raise OSError(f"the TLS door on port {self.port} did not open") from self._error

    def close(self) -> None:
        """Drop every connection and stop listening. Harmless when repeated."""
        with contextlib.suppress(RuntimeError):  # The loop is closed already.
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(OPEN_SECONDS)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        try:
            server = await asyncio.start_server(
                self._forward,
                LOOPBACK,
                self.port,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
        except OSError as error:
            self._error = error
            return
        finally:
            self._opened.set()
        await self._closing.wait()
        server.close()  # Open connections are cancelled when the loop ends.

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_target, to_target = await asyncio.open_connection(LOOPBACK, self._target_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, to_target), pump(from_target, writer))


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy bytes until either side is gone, then close ``sink``."""
    try:
        # A peer that vanishes is what a server killed by a test looks like.
        with contextlib.suppress(OSError):
            while chunk := await source.read(CHUNK_BYTES):
                sink.write(chunk)
                await sink.drain()
    finally:
        sink.close()


def certify(scratch: Path) -> tuple[ssl.SSLContext, Path]:
    """Make an authority and a certificate for loopback; return the server's context and the CA's file."""
    import trustme

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(LOOPBACK, "localhost").configure_cert(context)
    ca_file = scratch / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    return context, ca_file
