"""The connection to Redis: clients of either kind, one per loop, closed for good, and no secret in any text."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import inspect
import logging
import traceback

import pytest
from redis import __version__ as redis_version
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import ResponseError

from lastbus import Event, EventStorageError, EventSubscription
from lastbus._backends.redis.cancellation import heed, heed_in_a_task
from lastbus._backends.redis.connection import RedisConnection, make_client
from lastbus._kit.ports import free_port
from lastbus._kit.servers import RedisServer, ServerUnavailable, missing
from lastbus.redis import RedisEventStorage, RedisEventSubscriptionStorage, RedisProcessingTracker
from tests._backends.redis import RedisBackend
from tests.backends.redis.server import clients, comes_down_to

SECRET = "pa55:w/rd@é"
HAS_DRIVER_INFO = "driver_info" in inspect.signature(Redis.__init__).parameters
SECRET_IN_URL = "pa55%3Aw%2Frd%40%C3%A9"


@pytest.mark.guarantee("STORE-02", "SUBS-17")
@pytest.mark.parametrize("decode", [False, True], ids=["bytes", "str"])
async def test_clients_of_bytes_and_of_str_give_the_same(redis: RedisBackend, decode: bool) -> None:
    shared = redis.connection(decode_responses=decode)
    events = RedisEventStorage(key_prefix=f"{redis.prefix}event:", connection=shared)
    subscriptions = RedisEventSubscriptionStorage(key_prefix=f"{redis.prefix}subscription:", connection=shared)
    tracker = RedisProcessingTracker(key_prefix=f"{redis.prefix}processed:", connection=shared)
    event = Event("é:ü", {"msg": "日本"}, event_id="é:1")
    subscription = EventSubscription(event_type="é:ü", subscription_id="s:é")

    await events.store_event(event)
    await subscriptions.store_subscription(subscription)
    await tracker.mark_event_processed("é:1", "h")
    await tracker.record_processing_attempt("é:1", "h", "success")

    assert await events.get_event("é:1") == event
    assert await events.list_events() == await events.list_events("é:ü") == [event]
    assert await subscriptions.list_subscriptions() == await subscriptions.list_subscriptions("é:ü") == [subscription]
    assert await subscriptions.mark_event_processed("s:é", "é:1") is True
    assert (await subscriptions.list_subscriptions("é:ü"))[0].processed_events == {"é:1"}
    assert await tracker.is_event_processed("é:1", "h") is True
    assert [each["status"] for each in await tracker.get_processing_history("é:1")] == ["success"]


async def test_bytes_that_are_no_text_do_not_break_a_client_of_str(redis: RedisBackend) -> None:
    events = RedisEventStorage(key_prefix=f"{redis.prefix}event:", connection=redis.connection(decode_responses=True))
    await events.store_event(Event("t", event_id="good"))
    await events.store_event(Event("t", event_id="bad"))
    await events._connection.command("SET", f"{redis.prefix}event:events:bad", b"\xff{not json")

    assert [event.event_id for event in await events.list_events("t")] == ["good"]


@pytest.mark.guarantee("REDIS-07")
async def test_a_client_made_here_waits_in_bounds() -> None:
    client = make_client("redis://127.0.0.1:1/0")
    pool = client.connection_pool

    assert isinstance(pool, BlockingConnectionPool)
    assert pool.max_connections == 50
    assert pool.timeout == 20
    assert pool.connection_kwargs["socket_timeout"] == pool.connection_kwargs["socket_connect_timeout"] == 5
    assert pool.connection_kwargs["health_check_interval"] == 30
    assert pool.connection_kwargs["retry"] is not None


@pytest.mark.skipif(not HAS_DRIVER_INFO, reason="this redis-py cannot be told who it is")
def test_a_connection_reads_no_file_to_know_which_client_it_belongs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    pool = make_client("redis://127.0.0.1:1/0").connection_pool
    monkeypatch.setattr(importlib.metadata, "version", read.append)

    made = [pool.make_connection() for _ in range(2)]

    assert [connection.driver_info.lib_version for connection in made] == [redis_version] * 2
    assert read == []


@pytest.mark.guarantee("REDIS-07")
async def test_options_of_the_url_win() -> None:
    client = make_client("redis://127.0.0.1:1/3?socket_timeout=0.5&max_connections=7")

    assert client.connection_pool.connection_kwargs["socket_timeout"] == 0.5
    assert client.connection_pool.max_connections == 7
    assert client.connection_pool.connection_kwargs["db"] == 3


@pytest.mark.guarantee("REDIS-11")
@pytest.mark.parametrize("is_given", [False, True], ids=["own client", "given client"])
async def test_closing_leaves_no_connection_at_the_server(own_server: RedisServer, is_given: bool) -> None:
    watch = RedisConnection(own_server.url)
    given = Redis(connection_pool=BlockingConnectionPool.from_url(own_server.url)) if is_given else None
    storage = RedisEventStorage(own_server.url, client=given)
    before = await clients(watch)

    await asyncio.gather(*(storage.store_event(Event("t")) for _ in range(5)))
    assert await clients(watch) > before
    await storage.aclose()
    await storage.aclose()

    assert storage.redis is None
    assert await comes_down_to(before, watch)
    await watch.aclose()


async def test_a_closed_store_connects_again_when_it_is_used(redis: RedisBackend) -> None:
    storage = redis.event_storage()
    await storage.store_event(Event("t", event_id="e"))
    await storage.aclose()

    assert await storage.get_event("e") is not None
    assert storage.redis is not None


@pytest.mark.guarantee("REDIS-08")
async def test_a_given_client_is_used_as_it_is(redis: RedisBackend) -> None:
    client = redis.client()
    storage = RedisEventStorage(key_prefix=f"{redis.prefix}event:", client=client)

    await storage.initialize()

    assert storage.redis is client
    await storage.aclose()


@pytest.mark.guarantee("REDIS-11")
def test_each_loop_has_connections_of_its_own(own_server: RedisServer) -> None:
    storage = RedisEventStorage(own_server.url)
    found = []

    async def use() -> None:
        await storage.store_event(Event("t"))
        found.append(storage.redis)
        await storage.aclose()

    asyncio.run(use())
    asyncio.run(use())

    assert storage.redis is None
    assert found[0] is not found[1]


@pytest.mark.guarantee("REDIS-08")
def test_loops_that_are_gone_are_not_remembered_but_for_the_one_of_a_given_client() -> None:
    given = Redis.from_url("redis://127.0.0.1:1/0")
    own, others = RedisConnection("redis://127.0.0.1:1/0"), RedisConnection(client=given)

    for connection in (own, others):
        for _ in range(3):
            asyncio.run(_asked_for(connection))

    assert len(own._held) == 1
    assert len(others._held) == 2
    assert given in [held.client for held in others._held.values()]


async def _asked_for(connection: RedisConnection) -> None:
    await connection.client()


@pytest.mark.guarantee("REDIS-08")
def test_a_given_client_serves_one_loop_and_is_copied_for_others(own_server: RedisServer) -> None:
    async def with_another_loop() -> None:
        given = Redis(connection_pool=BlockingConnectionPool.from_url(own_server.url, db=1, max_connections=9))
        storage = RedisEventStorage(client=given)
        await storage.store_event(Event("t", event_id="e"))
        await asyncio.to_thread(asyncio.run, elsewhere(storage, given))
        assert storage.redis is given
        assert await storage.get_event("e") is not None
        await storage.aclose()

    async def elsewhere(storage: RedisEventStorage, given: Redis) -> None:
        assert await storage.get_event("e") is not None
        assert storage.redis is not None
        assert storage.redis is not given
        assert storage.redis.connection_pool.max_connections == 9
        await storage.aclose()

    asyncio.run(with_another_loop())


async def test_a_connection_needs_to_know_where_to() -> None:
    with pytest.raises(ValueError, match="redis_url"):
        RedisConnection()


@pytest.mark.guarantee("REDIS-09")
@pytest.mark.parametrize(
    "url",
    [f"http://u:{SECRET_IN_URL}@h", "redis://u:pa55/word@host", f"redis://u:{SECRET_IN_URL}@h:port", ""],
    ids=["scheme", "unquoted", "port", "empty"],
)
def test_a_url_that_cannot_be_used_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="redis_url") as caught:
        RedisEventStorage(url)

    shown = "".join(traceback.format_exception(caught.value))
    assert "pa55" not in str(caught.value)
    assert "Port could not" not in shown


@pytest.fixture
def locked_server() -> RedisServer:
    try:
        return RedisServer(password=SECRET)
    except ServerUnavailable as absence:
        missing(absence)


async def test_user_and_password_of_the_url_open_the_server(locked_server: RedisServer) -> None:
    with locked_server:
        storage = RedisEventStorage(locked_server.url)

        await storage.store_event(Event("t", event_id="e"))

        assert await storage.get_event("e") is not None
        await storage.aclose()


async def test_the_unix_socket_of_the_url_is_used(own_server: RedisServer) -> None:
    storage = RedisEventStorage(own_server.unix_url)

    await storage.store_event(Event("t", event_id="e"))

    assert "redis.sock" in repr(storage)
    await storage.aclose()


async def test_tls_is_spoken_where_the_url_says_so() -> None:
    try:
        server = RedisServer(tls=True, password=SECRET)
        server.__enter__()
    except ServerUnavailable as absence:
        missing(absence)
    try:
        storage = RedisEventStorage(server.url)
        await storage.store_event(Event("t", event_id="e"))
        assert await storage.get_event("e") is not None
        await storage.aclose()
    finally:
        server.close()


@pytest.mark.guarantee("REDIS-09")
async def test_a_wrong_password_shows_neither_itself_nor_the_url(
    locked_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with locked_server:
        url = f"redis://default:wrong{SECRET_IN_URL}@127.0.0.1:{locked_server.port}/0"
        storage = RedisEventStorage(url)

        with pytest.raises(EventStorageError, match=f"127.0.0.1:{locked_server.port}") as caught:
            await storage.store_event(Event("t"))
        await storage.aclose()

    shown = "".join(traceback.format_exception(caught.value)) + repr(storage) + repr(storage._connection) + caplog.text
    assert "pa55" not in shown


@pytest.mark.guarantee("REDIS-09")
async def test_a_server_that_is_not_there_is_a_storage_error_that_names_it() -> None:
    port = free_port()
    storage = RedisEventStorage(f"redis://u:{SECRET_IN_URL}@127.0.0.1:{port}/2")

    with pytest.raises(EventStorageError, match=f"127.0.0.1:{port}/2") as caught:
        await storage.get_event("e")

    assert caught.value.__cause__ is not None
    assert "pa55" not in "".join(traceback.format_exception(caught.value))
    await storage.aclose()


@pytest.mark.guarantee("REDIS-09")
async def test_a_driver_error_that_shows_the_password_is_left_out(redis: RedisBackend) -> None:
    connection = RedisConnection(f"redis://u:{SECRET_IN_URL}@host/0")

    async def fail(text: str) -> None:
        raise ResponseError(f"unknown command 'AUTH', with args beginning with: {text}")

    for text in (SECRET, SECRET_IN_URL):
        with pytest.raises(EventStorageError, match="ResponseError") as caught:
            await connection.guard(fail(text))
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert "pa55" not in str(caught.value)


async def test_a_key_of_another_kind_is_a_storage_error(redis: RedisBackend, raw: RedisConnection) -> None:
    await raw.command("SET", f"{redis.prefix}event:types:t", "not a sorted set")

    with pytest.raises(EventStorageError, match="WRONGTYPE"):
        await redis.event_storage().list_events("t")


async def test_a_server_that_forgot_the_scripts_gets_them_again(redis: RedisBackend, raw: RedisConnection) -> None:
    storage = redis.event_storage()
    await storage.store_event(Event("t"))
    await raw.command("SCRIPT", "FLUSH")

    await storage.store_event(Event("t", event_id="e"))

    assert await storage.get_event("e") is not None


@pytest.mark.guarantee("REDIS-12")
@pytest.mark.parametrize("turns", range(6))
async def test_a_cancelled_call_leaves_nothing_for_the_next_one(redis: RedisBackend, turns: int) -> None:
    storage = redis.event_storage()
    await storage.store_event(Event("t", {"n": 0}, event_id="first"))
    task = asyncio.ensure_future(storage.get_event("first"))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    await storage.store_event(Event("t", {"n": 99}, event_id="second"))

    found = await storage.get_event("second")
    assert found is not None
    assert found.data == {"n": 99}


@pytest.mark.guarantee("REDIS-12")
async def test_a_cancellation_that_the_driver_drops_still_arrives() -> None:
    async def drop_it() -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return "sent"
        raise AssertionError

    working = asyncio.ensure_future(heed(drop_it()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait({working})

    assert working.cancelled()


@pytest.mark.guarantee("REDIS-12")
async def test_a_task_of_its_own_brings_the_result_the_error_and_the_cancellation_of_a_call() -> None:
    async def reply() -> str:
        return "reply"

    async def fail() -> None:
        raise ConnectionError("gone")

    async def drop_it() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()

    assert await heed_in_a_task(reply()) == "reply"
    with pytest.raises(ConnectionError, match="gone"):
        await heed_in_a_task(fail())

    working = asyncio.ensure_future(heed_in_a_task(drop_it()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait({working})
    assert working.cancelled()
