"""Publishing over Redis: the client's CPU for one `publish`, beside sending the very same script call without a bus.

The bare call is not rebuilt here: it is what the bus itself has sent for such an event, sent again. Both sides make the
event that they send.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lastbus._bus import BaseBus
from lastbus._kit.bench.contenders import MakeBus
from lastbus._kit.bench.cost import Sample, Unusable, cpu_seconds, interleaved
from lastbus._kit.bench.figures import Aim, Figure, Skipped
from lastbus._kit.bench.load import make_event

AIM: Final = Aim(high=1.3)
SECTION: Final = "publish to Redis, no handlers"
BARE: Final = "bare script call"
PUBLISH: Final = "publish"
WARM_UP_EVENTS: Final = 20


def measure(make_bus: MakeBus, events: int, rounds: int) -> Iterator[Figure | Skipped]:
    """Both costs; the ratio is how many times the bare call's a publish costs."""
    seconds, reasons = interleaved(
        {BARE: _sample(make_bus, events, bare=True), PUBLISH: _sample(make_bus, events, bare=False)}, rounds
    )
    for name, cost in seconds.items():
        ratio = cost / seconds[BARE] if BARE in seconds else None
        yield Figure(SECTION, name, cost * 1e6, "us/event", ratio, AIM if name == PUBLISH else None)
    for name, reason in reasons.items():
        yield Skipped(SECTION, name, reason)


def _sample(make_bus: MakeBus, events: int, bare: bool) -> Sample:
    async def sample() -> float:
        async with make_bus() as bus:
            await _publish(bus, WARM_UP_EVENTS)
            client, words, options = await _sent_by_one_publish(bus)

            async def send() -> None:
                for number in range(events):
                    make_event(number)
                    await client.execute_command(*words, **options)

            return await cpu_seconds(send if bare else lambda: _publish(bus, events)) / events

    return sample


async def _publish(bus: BaseBus, events: int) -> None:
    for number in range(events):
        await bus.publish(make_event(number))


async def _sent_by_one_publish(bus: BaseBus) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The client, and the one command that a publish sends through it."""
    client: Any = getattr(bus.event_storage, "redis", None)
    if client is None:
        raise Unusable("this bus has no Redis client to listen at")
    sent: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    send = client.execute_command

    async def overhear(*words: Any, **options: Any) -> Any:
        sent.append((words, options))
        return await send(*words, **options)

    client.execute_command = overhear
    try:
        await bus.publish(make_event(0))
    finally:
        del client.execute_command
    if len(sent) != 1:
        raise Unusable(f"a publish sends {len(sent)} commands, there is no one call to compare it to")
    return client, *sent[0]
