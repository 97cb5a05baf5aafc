"""Loopback ports that nothing listens on right now and that no outgoing connection will take."""

from __future__ import annotations

import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# Below the ephemeral ranges of Linux (32768…), macOS and Windows (49152…): a client socket never lands
# here between our choice and the server's bind. A second server still may, so callers try again.
PORTS: Final = range(20_000, 32_000)
ATTEMPTS_MAX: Final = 200

# Not the module's generator: a seeded test run would make every worker choose the same port.
_dice = random.SystemRandom()


def free_port() -> int:
    """Choose a port of ``PORTS`` that could be bound a moment ago.

    Raises ``OSError`` when ``ATTEMPTS_MAX`` random ones were all taken.
    """
    for _ in range(ATTEMPTS_MAX):
        port = _dice.choice(PORTS)
        if _is_free(port):
            return port
    raise OSError(f"no free port on {LOOPBACK} in {PORTS.start}-{PORTS.stop - 1}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As a server binds: connections that linger after closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
