"""Connection: the one place that touches redis-py, so that its defaults, versions and errors are settled here.

Every client made here waits in bounds: for a socket, for a reply, for a free connection; it retries a lost connection
a few times, and so does whatever is built on it. A client that was handed in keeps the settings that it came with.

A driver's error may carry what nobody should read in a log. What leaves this module is an `EventStorageError` that
names the server without its credentials, and its cause only where that shows none of them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, quote_plus

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import AbstractBackoff, ExponentialBackoff, NoBackoff
from redis.client import NEVER_DECODE
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from lastbus._backends.redis.cancellation import heed
from lastbus._backends.redis.keys import glob_escape
from lastbus._backends.redis.scripts import Script
from lastbus._errors import EventStorageError

SOCKET_SECONDS: Final = 5.0
POOL_WAIT_SECONDS: Final = 20
POOL_CONNECTIONS_MAX: Final = 50
HEALTH_CHECK_SECONDS: Final = 30
RETRIES: Final = 3
RETRY_FIRST_SECONDS: Final = 0.05
RETRY_SECONDS_MAX: Final = 0.5
SCAN_COUNT: Final = 1000

DRIVER_ERRORS: Final = (RedisError, OSError)

Result = TypeVar("Result")


class RedisConnection:
    """One server, reached from any event loop: each loop gets a client of its own, made when it first asks.

    With `client`, the loop that asks first uses exactly that client, and other loops use a copy of it. Closing closes
    the running loop's client with all its connections, handed in or not; asking again connects again. What nobody has
    closed is closed when `asyncio.run` ends the loop.
    """

    def __init__(self, redis_url: str | None = None, client: Redis | None = None) -> None:
        if client is None and redis_url is None:
            raise ValueError("redis_url or client is needed")
        self._url: Final = redis_url
        self._given: Final = client
        self._held: dict[asyncio.AbstractEventLoop, Held] = {}
        settings = _settings_of_url(redis_url) if client is None else _settings_of_client(client)
        self.address: Final = _address(settings)
        self._secrets: Final = _spellings(settings.get("password"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address})"

    @property
    def current(self) -> Redis | None:
        """The running loop's client, if it has asked for one since the last close."""
        try:
            held = self._held.get(asyncio.get_running_loop())
        except RuntimeError:
            return None
        return None if held is None else held.client

    async def client(self) -> Redis:
        """The running loop's client. Nothing is sent before the first command.

        Keeps: REDIS-08.
        """
        loop = asyncio.get_running_loop()
        known = self._held.get(loop)
        if known is None:
            self._forget_dead_loops()
            known = self._held[loop] = await hold(self._make())
        return known.client

    async def listening_client(self) -> Held:
        """A client for a subscriber alone, to be closed by it: texts are bytes, and a lost connection is an error.

        A subscriber has to know when it was cut off, so that nothing reconnects behind its back.

        Keeps: REDIS-08.
        """
        return await hold(
            _copy(
                await self.client(),
                decode_responses=False,
                retry=Retry(NoBackoff(), 0),
                retry_on_error=[],
                retry_on_timeout=False,
                health_check_interval=0,
            )
        )

    async def aclose(self) -> None:
        """Close the running loop's client and its pool; harmless if there is none.

        Keeps: REDIS-11.
        """
        held = self._held.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await self.guard(held.aclose())

    async def command(self, *words: str | bytes | float) -> Any:
        """The reply to one command; texts in it are bytes, whether or not the client decodes by itself.

        Keeps: STORE-02, SUBS-17.
        """
        return await self.guard(self._send(words))

    async def commands(self, batch: Iterable[tuple[str | bytes | float, ...]]) -> list[Any]:
        """The replies to several commands, sent in one round trip; texts in them are bytes.

        Keeps: SUBS-17.
        """
        return await self.guard(self._pipe(batch))

    async def outcomes(self, batch: Iterable[tuple[str | bytes | float, ...]]) -> list[Any]:
        """Like `commands`, but a command that the server refuses is an `EventStorageError` in its place.

        Keeps: FAULT-08.
        """
        pipeline = (await self.client()).pipeline(transaction=False)
        for words in batch:
            pipeline.execute_command(*words, **{NEVER_DECODE: True})
        replies = await self.guard(pipeline.execute(raise_on_error=False))
        return [self.failure(each) if isinstance(each, RedisError) else each for each in replies]

    async def run(self, script: Script, keys: Iterable[str | bytes], *arguments: str | bytes | float) -> Any:
        """The reply to a script, in one round trip from its second use on.

        Keeps: REDIS-01, FAULT-06.
        """
        keys = tuple(keys)
        return await self.guard(self._run(script, (len(keys), *keys, *arguments)))

    async def run_all(self, script: Script, calls: Iterable[tuple[str | bytes | float, ...]]) -> list[Any]:
        """The replies to several calls of a script (number of keys, keys, arguments), in one round trip.

        Keeps: FAULT-06.
        """
        words = [("EVALSHA", script.digest, *call) for call in calls]
        _, *replies = await self.commands([("SCRIPT", "LOAD", script.text), *words])
        return replies

    async def run_beside(self, script: Script, batch: Iterable[tuple[str | bytes | float, ...]]) -> list[Any]:
        """Like `commands`, for commands some of which call `script` by its digest.

        Keeps: SUBS-05.
        """
        return await self.guard(self._run_beside(script, list(batch)))

    async def scan(self, prefix: str) -> set[bytes]:
        """The rest of every key that begins with `prefix`; the prefix is cut off, whatever it holds.

        Keeps: STORE-01, SUBS-09.
        """
        cut = len(prefix.encode())
        found: set[bytes] = set()
        cursor = 0
        while True:
            cursor, keys = await self.command("SCAN", cursor, "MATCH", f"{glob_escape(prefix)}*", "COUNT", SCAN_COUNT)
            found.update(key[cut:] for key in keys)
            if cursor == 0:
                return found

    async def guard(self, work: Awaitable[Result]) -> Result:
        """Await `work` of the driver: its errors come out as `EventStorageError` without any secret.

        A cancellation comes out as one, even where the driver loses it.

        Keeps: REDIS-09, REDIS-12.
        """
        try:
            return await heed(work)
        except DRIVER_ERRORS as error:
            failure = self.failure(error)
        # Raised outside the except block, so that not even `__context__` holds what was left out.
        raise failure

    def failure(self, error: BaseException) -> EventStorageError:
        """What to raise instead of a driver's `error`.

        Keeps: REDIS-09.
        """
        is_clean = self._is_clean(error)
        reason = f"{type(error).__name__}: {error}" if is_clean else type(error).__name__
        failure = EventStorageError(f"Redis at {self.address}: {reason}")
        failure.__cause__ = error if is_clean else None
        return failure

    def _is_clean(self, error: BaseException | None) -> bool:
        """Whether neither the error nor what led to it shows a secret."""
        while error is not None:
            shown = f"{error} {error!r}"
            if any(secret in shown for secret in self._secrets):
                return False
            error = error.__cause__ or error.__context__
        return True

    async def _send(self, words: tuple[Any, ...]) -> Any:
        execute: Any = (await self.client()).execute_command  # Not typed by every version of redis-py.
        return await execute(*words, **{NEVER_DECODE: True})

    async def _run(self, script: Script, arguments: tuple[Any, ...]) -> Any:
        try:
            return await self._send(("EVALSHA", script.digest, *arguments))
        except NoScriptError:
            return await self._send(("EVAL", script.text, *arguments))

    async def _run_beside(self, script: Script, batch: list[tuple[str | bytes | float, ...]]) -> list[Any]:
        try:
            return await self._pipe(batch)
        except NoScriptError:
            _, *replies = await self._pipe([("SCRIPT", "LOAD", script.text), *batch])
            return replies

    async def _pipe(self, batch: Iterable[tuple[str | bytes | float, ...]]) -> list[Any]:
        """Keeps: SUBS-17."""
        pipeline = (await self.client()).pipeline(transaction=False)
        for words in batch:
            pipeline.execute_command(*words, **{NEVER_DECODE: True})
        return await pipeline.execute()

    def _forget_dead_loops(self) -> None:
        """All but the one that used the client that was handed in: what it may have left open cannot be used again."""
        for loop, held in list(self._held.items()):
            if loop.is_closed() and held.client is not self._given:
                del self._held[loop]

    def _make(self) -> Redis:
        if self._given is None:
            assert self._url is not None
            return make_client(self._url)
        is_in_use = any(held.client is self._given for held in self._held.values())
        return _copy(self._given) if is_in_use else self._given


class Held(NamedTuple):
    """A client, and what closes it: by `aclose`, or by itself when the loop comes to its end."""

    client: Redis
    keeper: AsyncGenerator[None, None]

    async def aclose(self) -> None:
        """Close the client with every connection of its pool; harmless when called again."""
        await self.keeper.aclose()


async def hold(client: Redis) -> Held:
    """Make sure that `client` is closed by the end of the running loop.

    Keeps: REDIS-11.
    """

    async def keep() -> AsyncGenerator[None, None]:
        # A loop that ends properly (`asyncio.run`) finishes the generators that have begun on it and are left over.
        try:
            yield
        finally:
            # `aclose` is there since redis-py 5.0.1, which deprecates the older name.
            verb: Any = getattr(client, "aclose", None) or client.close
            await verb(close_connection_pool=True)

    keeper = keep()
    await keeper.__anext__()
    return Held(client, keeper)


def make_client(redis_url: str) -> Redis:
    """A client whose every wait is bounded; options in the URL win over the settings of this module.

    Keeps: REDIS-07.
    """
    return Redis(connection_pool=BlockingConnectionPool.from_url(redis_url, **bounds(Retry)))


def bounds(retry: Callable[[AbstractBackoff, int], object]) -> dict[str, Any]:
    """The settings of a pool that bound every wait; `retry` is the class that retries in its kind of client.

    Keeps: REDIS-07, FAULT-02, FAULT-03, FAULT-04.
    """
    known = inspect.signature(Redis.__init__).parameters
    options: dict[str, Any] = {"protocol": 2} if "protocol" in known else {}
    if "driver_info" in known:
        from redis.driver_info import DriverInfo

        # Otherwise each connection reads its own version from the metadata of the package, while the loop waits.
        options["driver_info"] = DriverInfo()
    return {
        "max_connections": POOL_CONNECTIONS_MAX,
        "timeout": POOL_WAIT_SECONDS,
        "socket_timeout": SOCKET_SECONDS,
        "socket_connect_timeout": SOCKET_SECONDS,
        "health_check_interval": HEALTH_CHECK_SECONDS,
        "retry": retry(ExponentialBackoff(cap=RETRY_SECONDS_MAX, base=RETRY_FIRST_SECONDS), RETRIES),
        "retry_on_error": [RedisConnectionError, RedisTimeoutError],
        **options,
    }


def _copy(client: Redis, **changes: Any) -> Redis:
    """A client of the same kind and settings, but for `changes`, with connections of its own."""
    pool = client.connection_pool
    fresh = type(pool)(
        connection_class=pool.connection_class,
        max_connections=pool.max_connections,
        **{**pool.connection_kwargs, **changes},
    )
    return type(client)(connection_pool=fresh)


def _settings_of_url(redis_url: str | None) -> dict[str, Any]:
    """What a URL says; `ValueError` without any part of it if it cannot be used.

    Keeps: REDIS-09.
    """
    try:
        return dict(parse_url(redis_url or ""))
    except ValueError:
        pass  # The text of this error may hold a part of a password that was not percent-encoded.
    raise ValueError(
        "redis_url is no usable URL (redis://, rediss:// or unix://; user and password must be percent-encoded)"
    )


def _settings_of_client(client: Redis) -> dict[str, Any]:
    settings = getattr(getattr(client, "connection_pool", None), "connection_kwargs", None)
    return dict(settings) if isinstance(settings, dict) else {}


def _address(settings: dict[str, Any]) -> str:
    """Where the server is, and nothing about who asks."""
    place = settings.get("path") or f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"
    return f"{place}/{settings.get('db') or 0}"


def _spellings(password: str | None) -> tuple[str, ...]:
    """A password as it may turn up in a text: plain, or as a part of a URL.

    Keeps: REDIS-09.
    """
    return tuple({password, quote(password, safe=""), quote_plus(password)}) if password else ()


class RedisBacked:
    """A store on one server: reached by a URL, by a client of yours, or by a connection that it shares with others."""

    def __init__(self, redis_url: str | None, client: Redis | None, connection: RedisConnection | None) -> None:
        self._connection: Final = RedisConnection(redis_url, client) if connection is None else connection

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection.address})"

    @property
    def redis(self) -> Redis | None:
        """The running loop's client, or None before its first use and after `aclose`."""
        return self._connection.current

    async def initialize(self) -> None:
        """Make the running loop's client, if there is none; nothing is sent yet."""
        await self._connection.client()

    async def aclose(self) -> None:
        """Close the running loop's client with its connections; the next use connects again."""
        await self._connection.aclose()
