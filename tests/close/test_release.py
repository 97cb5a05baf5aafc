"""Release: a component is let go of by whatever verb it has, and its failure is its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import ConnectionPool, Redis

from lastbus._close.release import release
from lastbus._kit.servers import BorrowedRedis, RedisServer
from lastbus.redis import RedisEventBus, RedisEventStorage, RedisEventSubscriptionStorage, RedisProcessingTracker
from tests._backends.eventually import eventually
from tests.close.rig import SLOTS, Outcome, Rig, State, closed

pytestmark = pytest.mark.usefixtures("hygiene")

RETURNED = Outcome("returned")
GOOD = State(True, "OK", False, 1)
ONCE = [1] * 5


class Noting:
    """The base of the components here: it notes by which verb it was released, and with what."""

    def __init__(self) -> None:
        self.released: list[str] = []


class Modern(Noting):
    async def aclose(self) -> None:
        self.released.append("aclose")

    async def close(self) -> None:
        self.released.append("close")

    async def disconnect(self) -> None:
        self.released.append("disconnect")


class Middle(Noting):
    async def close(self) -> None:
        self.released.append("close")

    async def disconnect(self) -> None:
        self.released.append("disconnect")


class Hollow(Middle):
    """The name of the verb is there, and nothing behind it."""

    aclose = None


class Old(Noting):
    async def disconnect(self) -> None:
        self.released.append("disconnect")


class Plain(Noting):
    """What it returns cannot be awaited."""

    def close(self) -> None:
        self.released.append("close")


class Deferred(Noting):
    """A plain function, but what it returns must be awaited."""

    def close(self) -> Any:
        async def later() -> None:
            self.released.append("close")

        return later()


class Pooled(Noting):
    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        self.released.append(f"aclose(close_connection_pool={close_connection_pool})")


class Strict(Noting):
    """As redis-py's PubSub: it takes no flag at all."""

    async def aclose(self) -> None:
        self.released.append("aclose()")


class Greedy(Noting):
    """It takes whatever it is given, and has not said that it knows the flag."""

    async def aclose(self, **options: Any) -> None:
        self.released.append(f"aclose({options})")


class Opaque(Noting):
    """A verb whose signature cannot be known."""

    class Verb:
        __signature__ = "nonsense"

        def __init__(self, released: list[str]) -> None:
            self.released = released

        def __call__(self, *args: Any, **options: Any) -> None:
            self.released.append(f"close({args}, {options})")

    @property
    def close(self) -> Any:
        return self.Verb(self.released)


async def released(component: Noting, caplog: pytest.LogCaptureFixture) -> tuple[list[str], list[str]]:
    """How `component` was released, in a bus whose other components are sound, and what the log says."""
    rig = Rig()
    rig.pubsub = component  # type: ignore[attr-defined]
    outcomes = [await closed(rig), await closed(rig)]
    assert (outcomes, rig.state, rig.calls) == ([RETURNED] * 2, GOOD, [0, 1, 1, 1, 1])
    return component.released, [each.getMessage() for each in caplog.records]


@pytest.mark.guarantee("CLOSE-17")
@pytest.mark.parametrize(
    ("kind", "verb"), [(Modern, "aclose"), (Middle, "close"), (Hollow, "close"), (Plain, "close"), (Old, "disconnect")]
)
async def test_a_component_is_released_by_the_first_verb_it_has(
    kind: type[Noting], verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await released(kind(), caplog) == ([verb], [])


@pytest.mark.guarantee("CLOSE-17")
async def test_a_component_without_any_verb_is_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    _, [message] = await released(Noting(), caplog)

    assert message == "close: the component pubsub could not be released"
    assert caplog.records[0].levelname == "WARNING"
    assert "AttributeError: Noting has none of aclose, close, disconnect\n" in caplog.text


class Explosive(Noting):
    """Raises already when it is looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"do not look at {name}")


class Mined(Noting):
    @property
    def aclose(self) -> Any:
        raise OSError("do not look")


@pytest.mark.guarantee("CLOSE-18")
@pytest.mark.parametrize("kind", [Explosive, Mined, Noting])
async def test_a_component_that_cannot_be_looked_at_costs_the_others_nothing(
    kind: type[Noting], caplog: pytest.LogCaptureFixture
) -> None:
    _, [message] = await released(kind(), caplog)

    assert "pubsub" in message


@pytest.mark.guarantee("CLOSE-19")
@pytest.mark.parametrize("name", SLOTS)
async def test_a_component_that_fails_is_named_and_costs_the_others_nothing(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    rig.components[name].error = OSError("stuck")

    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2

    assert (rig.state, rig.calls) == (GOOD, ONCE)
    [told] = caplog.records
    assert (told.levelname, told.getMessage()) == ("WARNING", f"close: the component {name} could not be released")
    assert caplog.text.endswith("OSError: stuck\n")


@pytest.mark.guarantee("CLOSE-20")
async def test_a_component_that_knows_the_pool_flag_is_told_to_close_its_pool(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await released(Pooled(), caplog) == (["aclose(close_connection_pool=True)"], [])


@pytest.mark.guarantee("CLOSE-21")
@pytest.mark.parametrize(("kind", "call"), [(Strict, "aclose()"), (Greedy, "aclose({})")])
async def test_a_component_that_does_not_know_the_pool_flag_is_not_given_it(
    kind: type[Noting], call: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await released(kind(), caplog) == ([call], [])


@pytest.mark.guarantee("CLOSE-22")
async def test_a_verb_whose_signature_cannot_be_known_is_called_bare(caplog: pytest.LogCaptureFixture) -> None:
    assert await released(Opaque(), caplog) == (["close((), {})"], [])


@pytest.mark.guarantee("CLOSE-23")
@pytest.mark.parametrize("kind", [Plain, Deferred, Middle])
async def test_what_a_verb_returns_is_awaited_if_it_can_be(
    kind: type[Noting], caplog: pytest.LogCaptureFixture
) -> None:
    assert await released(kind(), caplog) == (["close"], [])


@pytest.mark.guarantee("CLOSE-25")
async def test_stores_are_released_by_whatever_verb_they_have(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    stores: dict[str, Noting] = dict(zip(SLOTS[2:], (Plain(), Middle(), Old()), strict=True))
    for name, store in stores.items():
        setattr(rig, name, store)

    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2

    assert [store.released for store in stores.values()] == [["close"], ["close"], ["disconnect"]]
    assert caplog.records == []
    assert (rig.state, rig.calls) == (GOOD, [1, 1, 0, 0, 0])


@pytest.mark.guarantee("CLOSE-26")
async def test_connections_are_let_go_of_and_stores_stay_in_their_slots() -> None:
    rig = Rig()

    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2

    assert [getattr(rig, name) for name in SLOTS] == [None, None, *(rig.components[name] for name in SLOTS[2:])]


@pytest.mark.guarantee("CLOSE-26")
async def test_a_slot_is_emptied_only_when_its_release_has_ended() -> None:
    rig = Rig()
    rig.components["redis"].error = asyncio.CancelledError()

    assert await closed(rig) == Outcome("raised", "teardown-incomplete")

    assert (rig.pubsub, rig.redis) == (None, rig.components["redis"])  # type: ignore[attr-defined]
    rig.components["redis"].error = None
    assert await closed(rig) == RETURNED
    assert rig.redis is None  # type: ignore[attr-defined]


class Guests:
    """The connections that a server has from clients with one name of ours."""

    LOOKS_MAX = 50

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = f"lastbus-test-{uuid.uuid4().hex}"
        self.named_url = f"{url}{'&' if '?' in url else '?'}client_name={self.name}"
        self._host = Redis.from_url(url)
        self._ask: Any = self._host.execute_command  # Not typed by every version of redis-py.

    async def count(self) -> int:
        listed = await self._ask("CLIENT", "LIST")
        clients = listed if isinstance(listed, list) else listed.decode().splitlines()
        return sum(self.name in str(each) for each in clients)

    async def are_gone(self) -> bool:
        """Whether none is left, now or in a moment: a server notices a closed socket in its own time."""

        async def nobody_is_left() -> bool:
            return await self.count() == 0

        return await eventually(nobody_is_left, self.LOOKS_MAX)

    async def leave(self) -> None:
        await self._host.connection_pool.disconnect()


@pytest.fixture
async def guests(valkey_server: RedisServer | BorrowedRedis) -> AsyncIterator[Guests]:
    guests = Guests(valkey_server.url)
    yield guests
    await guests.leave()


@pytest.mark.guarantee("CLOSE-24")
@pytest.mark.parametrize("origin", ["from_url", "injected-pool"])
@pytest.mark.parametrize("decodes", [False, True], ids=["bytes", "text"])
async def test_no_connection_of_a_client_is_left_on_the_server(
    origin: str, decodes: bool, guests: Guests, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    if origin == "from_url":
        client = Redis.from_url(guests.named_url, decode_responses=decodes)
    else:
        client = Redis(connection_pool=ConnectionPool.from_url(guests.named_url, decode_responses=decodes))
    await client.ping()
    rig.redis = client  # type: ignore[attr-defined]
    before = await guests.count()

    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2

    assert before == 1
    assert await guests.are_gone()
    assert caplog.records == []


@pytest.mark.guarantee("CLOSE-24")
async def test_no_connection_of_a_subscriber_and_three_stores_is_left_on_the_server(
    guests: Guests, caplog: pytest.LogCaptureFixture
) -> None:
    rig: Any = Rig()
    rig.redis = Redis(connection_pool=ConnectionPool.from_url(guests.named_url))
    rig.pubsub = rig.redis.pubsub()
    await rig.pubsub.subscribe(guests.name)
    rig.event_storage = RedisEventStorage(guests.named_url)
    rig.subscription_storage = RedisEventSubscriptionStorage(guests.named_url)
    rig.processing_tracker = RedisProcessingTracker(guests.named_url)
    for store in (rig.event_storage, rig.subscription_storage, rig.processing_tracker):
        await store.initialize()
        await store.redis.ping()
    before = await guests.count()

    assert [await closed(rig), await closed(rig)] == [RETURNED] * 2

    assert before == 4
    assert await guests.are_gone()
    assert caplog.records == []


@pytest.mark.guarantee("CLOSE-24")
async def test_no_connection_of_a_whole_bus_is_left_on_the_server(
    guests: Guests, caplog: pytest.LogCaptureFixture
) -> None:
    bus = RedisEventBus(guests.named_url, f"{guests.name}:event:", processing_key_prefix=f"{guests.name}:done:", ttl=5)
    await bus.register_handler("job", print)
    before = await guests.count()

    await bus.close()
    await bus.close()

    assert before >= 2
    assert await guests.are_gone()
    assert caplog.records == []


async def test_release_alone_never_raises_for_what_a_component_does(caplog: pytest.LogCaptureFixture) -> None:
    await release("it", object())

    assert ["it" in each.getMessage() for each in caplog.records] == [True]
