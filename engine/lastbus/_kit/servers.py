"""Real servers for tests: what this machine can start, or what the environment lends.

``redis_for_tests()`` and ``postgres_for_tests()`` choose; both are entered with ``with`` once per session::

    try:
        server = redis_for_tests()
    except ServerUnavailable as absence:
        missing(absence)  # CI: the test fails. Elsewhere: it is skipped, and says what to install.
    with server:
        ...

A parent process that starts the servers for many children gives them ``server.hand_down()`` as environment:
``LASTBUS_TEST_REDIS_URL`` and ``LASTBUS_TEST_POSTGRES_URL``. ``PLAITA_TEST_REDIS_URL`` names a server of
somebody else and wins over both. Importing this module loads the standard library only.
"""

from .availability import ServerFailed, ServerUnavailable, in_ci, missing
from .postgres_server import BorrowedPostgres, PostgresServer, postgres_for_tests
from .redis_server import BorrowedRedis, RedisServer, redis_for_tests

__all__ = [
    "BorrowedPostgres",
    "BorrowedRedis",
    "PostgresServer",
    "RedisServer",
    "ServerFailed",
    "ServerUnavailable",
    "in_ci",
    "missing",
    "postgres_for_tests",
    "redis_for_tests",
]
