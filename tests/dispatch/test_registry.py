"""Registry: what a registration is made of, what is refused and how that is said, and a cache that does not grow."""

from __future__ import annotations

import asyncio
import functools
from typing import Any
from uuid import UUID

import pytest

from lastbus import Event, RetryPolicy
from lastbus._dispatch.registry import CACHED_TYPES_MAX, HandlerRegistry, Registration
from lastbus.memory import InMemoryEventBus
from lastbus.testing import everyone_blocked

pytestmark = pytest.mark.usefixtures("hygiene")


async def handle(event: Event) -> None:
    return None


def added(registry: HandlerRegistry, **options: Any) -> Registration:
    """A registration of `handle` for type "t", but for what `options` say."""
    arguments = {"pattern": "t", "handler": handle, "filter_condition": None, "retry_policy": None, "handler_id": None}
    return registry.add(**{**arguments, **options})


@pytest.mark.guarantee("CORE-39")
@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"handler": "text"}, TypeError, "handler must be callable, got 'text'"),
        ({"filter_condition": [1]}, TypeError, "filter_condition must be a mapping or None, got [1]"),
        ({"retry_policy": {"n": 1}}, TypeError, "retry_policy must be a RetryPolicy or None, got {'n': 1}"),
        ({"handler_id": "taken"}, ValueError, "handler_id 'taken' is registered already; ids are unique on a bus"),
        ({"pattern": ""}, ValueError, "event_type must "),
        ({"handler_id": ""}, ValueError, "handler_id must "),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_cannot_be_registered_is_named_with_what_was_given(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    registry = HandlerRegistry()
    added(registry, handler_id="taken")

    with pytest.raises(error) as caught:
        added(registry, **options)

    assert str(caught.value).startswith(text)
    assert [each.handler_id for each in registry] == ["taken"]
    assert len(registry) == 1


@pytest.mark.guarantee("CORE-48")
def test_an_id_that_was_left_out_is_a_uuid() -> None:
    assert UUID(added(HandlerRegistry()).handler_id).version == 4


@pytest.mark.guarantee("CORE-48")
def test_a_handler_is_found_under_its_id_until_it_is_removed() -> None:
    registry, policy = HandlerRegistry(), RetryPolicy()
    registration = added(registry, handler_id="h", filter_condition={"n": 1}, retry_policy=policy)

    found = registry.get("h"), registry.get("other"), registry.remove("h"), registry.get("h"), registry.remove("h")

    assert found == (registration, None, registration, None, None)
    assert (registration.filter_condition, registration.retry_policy) == ({"n": 1}, policy)
    assert (len(registry), list(registry)) == (0, [])


@pytest.mark.guarantee("CORE-11")
def test_whether_a_handler_is_async_is_seen_through_partials_and_objects() -> None:
    class Called:
        async def __call__(self, event: Event) -> None:
            return None

    class Plain:
        def __call__(self, event: Event) -> None:
            return None

    called, plain = Called(), Plain()
    handlers = [handle, called, called.__call__, functools.partial(functools.partial(called))]
    others = [print, plain, plain.__call__, functools.partial(functools.partial(plain))]

    assert [added(HandlerRegistry(), handler=each).is_async for each in handlers] == [True] * 4
    assert [added(HandlerRegistry(), handler=each).is_async for each in others] == [False] * 4


@pytest.mark.guarantee("CORE-08")
def test_a_pattern_that_can_match_other_types_is_a_wildcard() -> None:
    patterns = [None, "*", "user.*", "user.?", "user.[ab]", "user.created"]

    wild = [added(HandlerRegistry(), pattern=pattern).is_wildcard for pattern in patterns]

    assert wild == [True, True, True, True, True, False]


@pytest.mark.guarantee("CORE-08", "CORE-47")
def test_types_that_come_once_do_not_fill_the_memory() -> None:
    registry = HandlerRegistry()
    registration = added(registry, pattern="*")

    found = {registry.matching(Event(f"type-{number}")) for number in range(CACHED_TYPES_MAX)}
    full = len(registry._matching)
    found.add(registry.matching(Event("one too many")))

    assert (found, full) == ({(registration,)}, CACHED_TYPES_MAX)
    assert list(registry._matching) == ["one too many"]


@pytest.mark.guarantee("CORE-08")
def test_the_handlers_of_a_type_are_looked_for_once_until_one_comes_or_goes() -> None:
    registry, event = HandlerRegistry(), Event("t")
    added(registry, handler_id="first")

    first, again, other = registry.matching(event), registry.matching(event), registry.matching(Event("u"))
    added(registry, handler_id="second")
    more = registry.matching(event)
    registry.remove("second")

    assert first is again
    assert other == ()
    assert [len(more), len(registry.matching(event))] == [2, 1]


@pytest.mark.guarantee("DISP-01")
async def test_a_delivery_goes_by_the_name_of_its_handler() -> None:
    bus, names = InMemoryEventBus(), list[str]()

    async def note(event: Event) -> None:
        task = asyncio.current_task()
        assert task is not None
        names.append(task.get_name())

    await bus.register_handler("t", note, handler_id="h")
    await bus.publish("t")
    await everyone_blocked()

    assert names == ["lastbus handler h"]
    await bus.close()
