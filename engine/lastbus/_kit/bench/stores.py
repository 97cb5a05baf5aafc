"""Stores: what a question to Redis costs however much is stored, and how long a janitor keeps the server from others.

Commands, round trips and times of commands are the server's own counts. Each sample has a server of its own, so that
neither its size nor its counters are anybody else's.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, NamedTuple

from lastbus._clock import SYSTEM_CLOCK
from lastbus._kit.bench.cost import cpu_seconds
from lastbus._kit.bench.figures import Aim, Figure, Report
from lastbus._model.event import Event
from lastbus._model.subscription import EventSubscription

SECTIONS: Final = ("subscriptions", "janitor", "events")
UNAVAILABLE: Final = 3
SMALLER: Final = 100
"""How many times smaller the small store is."""
CANDIDATES: Final = 10
QUESTIONS: Final = 200
FEW_US: Final = 1_000.0
LONG_US: Final = 5_000
STEPS: Final = 9
"""How many steps that change nothing take about as long as one entry takes the janitor."""
INSIDE_SCRIPTS: Final = {"hkeys"}
"""Commands that only scripts run here: they cost no command of a client."""


class Sizes(NamedTuple):
    """How much is stored in each section."""

    subscriptions: int
    dead: int
    events: int


EVERYDAY: Final = Sizes(subscriptions=10_000, dead=20_000, events=10_000)
FULL: Final = Sizes(subscriptions=100_000, dead=1_000_000, events=100_000)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table (or JSON), and return the exit code."""
    asked = _parser().parse_args(argv)
    from lastbus._kit.servers import ServerUnavailable

    sizes = FULL if asked.full else Sizes(asked.subscriptions, asked.dead, asked.events)
    report = Report({**sizes._asdict(), "rounds": asked.rounds, "python": platform.python_version()})
    try:
        for section in asked.section or SECTIONS:
            report.add(asyncio.run(_MEASURES[section](sizes, asked.rounds)))
    except (ImportError, ServerUnavailable) as absence:
        print(absence)
        return UNAVAILABLE
    print(report.as_json() if asked.json else report.as_table())
    return 0


async def _subscriptions(sizes: Sizes, rounds: int) -> list[Figure]:
    """A list by correlation in a small and in a large store; the ratio is the large one's cost to the small one's."""
    counts = (max(CANDIDATES, sizes.subscriptions // SMALLER), sizes.subscriptions)
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(_filled_with_subscriptions(count)) for count in counts]
        await asyncio.gather(*(_ask(storage, 1) for storage, _ in stores))
        spent = [await _spent(raw, lambda storage=storage: _ask(storage, 1)) for storage, raw in stores]  # type: ignore[misc]
        turns = [await _costs(stores) for _ in range(rounds)]
    section = "list_subscriptions(correlation_id)"
    figures = []
    for place, count in enumerate(counts):
        commands, trips = spent[place].commands, spent[place].trips
        figures += [
            Figure(section, f"{count:,} stored", commands, "commands", commands, Aim(high=3)),
            Figure(section, f"{count:,} stored", trips, "round trips", trips, Aim(high=2)),
        ]
    for what, part in (("client", 0), ("server", 1)):
        small, large = (min(turn[place][part] for turn in turns) for place in range(2))
        figures += [
            Figure(section, f"{counts[0]:,} stored", small * 1e6, f"us of {what}", 1.0),
            Figure(section, f"{counts[1]:,} stored", large * 1e6, f"us of {what}", large / small, Aim(0.8, 1.2)),
        ]
    return figures


async def _janitor(sizes: Sizes, rounds: int) -> list[Figure]:
    """One index full of dead entries, swept to its end; the times are those of single calls at the server."""
    from lastbus._backends.redis.holes import EventHoles
    from lastbus._backends.redis.janitor import PORTION, Round
    from lastbus._backends.redis.keys import EventKeys
    from lastbus._backends.redis.lifetime import lifetime_ms

    keys = EventKeys("bench:event:")
    async with _server() as raw:
        for part in _parts(range(sizes.dead), 1000):
            await raw.command("ZADD", keys.type_index("t"), *(word for n in part for word in (n, f"dead-{n}")))
        await raw.command("CONFIG", "SET", "latency-tracking-info-percentiles", "50 100")
        await raw.command("CONFIG", "SET", "slowlog-log-slower-than", LONG_US)
        await raw.command("CONFIG", "RESETSTAT")
        await raw.command("SLOWLOG", "RESET")
        whole = Round(raw, EventHoles(keys, lifetime_ms(None), SYSTEM_CLOCK))
        pruned, longest_cpu, before = 0, 0.0, await _cpu(raw)
        while pruned < sizes.dead:
            pruned += (await whole.sweep(PORTION)).pruned
            after = await _cpu(raw)
            longest_cpu, before = max(longest_cpu, after - before), after
        times = await raw.command("INFO", "latencystats")
        slow = await raw.command("SLOWLOG", "LEN")
        idle = await _slow_calls_of_nothing(raw, sizes.dead)
    section = f"janitor, {pruned:,} dead entries"
    figures = []
    for command in ("zscan", "evalsha"):
        median, longest = (float(times[f"latency_percentiles_usec_{command}"][each]) for each in ("p50", "p100"))
        figures += [
            Figure(section, f"{command}, median", median, "us", median / FEW_US, Aim(high=1)),
            Figure(section, f"{command}, longest", longest, "us", longest / LONG_US, Aim(high=1)),
        ]
    pair = longest_cpu * 1e6
    figures.append(Figure(section, "CPU of a pair of calls, longest", pair, "us", pair / LONG_US, Aim(high=1)))
    note = f"{idle} of a script as long that changes nothing: the machine"
    return [*figures, Figure(section, "calls over 5 ms", slow, "calls", slow, Aim(high=0.5), note)]


async def _cpu(raw: Any) -> float:
    """The CPU seconds that the server has used: unlike the time of a call, no part of it is anybody else's."""
    used = await raw.command("INFO", "cpu")
    return float(used["used_cpu_user_main_thread"]) + float(used["used_cpu_sys_main_thread"])


async def _slow_calls_of_nothing(raw: Any, dead: int) -> int:
    """How many calls were too long on this machine without anything to do: what else runs on it makes them so.

    As many calls as the janitor has made, of a script that takes about as long and changes nothing.
    """
    from lastbus._backends.redis.janitor import PORTION

    steps = f"for i = 1, {STEPS * PORTION} do redis.call('EXISTS', KEYS[1]) end return 0"
    await raw.command("SLOWLOG", "RESET")
    for _ in range(dead // PORTION):
        await raw.command("EVAL", steps, 1, "bench:nothing")
    return int(await raw.command("SLOWLOG", "LEN"))


async def _events(sizes: Sizes, rounds: int) -> list[Figure]:
    """A list of 100 of many events."""
    from lastbus._backends.redis.storage import RedisEventStorage

    async with _server() as raw:
        storage = RedisEventStorage(key_prefix="bench:event:", connection=raw)
        for part in _parts(range(sizes.events), 1000):
            await storage.batch_store_events(Event("t", {"n": n}, event_id=f"e{n}", timestamp=n) for n in part)
        middle = sizes.events / 2

        async def ask() -> None:
            found = await storage.list_events("t", start_time=middle, limit=min(100, sizes.events // 2))
            assert len(found) == min(100, sizes.events // 2)

        spent = await _spent(raw, ask)
    section = f"list_events of 100 in {sizes.events:,}"
    return [
        Figure(section, "one list", spent.trips, "round trips", spent.trips, Aim(high=2)),
        Figure(section, "one list", spent.commands, "commands", spent.commands, Aim(high=2)),
    ]


_MEASURES: Final[dict[str, Callable[[Sizes, int], Coroutine[Any, Any, list[Figure]]]]] = {
    "subscriptions": _subscriptions,
    "janitor": _janitor,
    "events": _events,
}


@asynccontextmanager
async def _server() -> AsyncIterator[Any]:
    """A connection to a server that only this sample uses."""
    from lastbus._backends.redis.connection import RedisConnection
    from lastbus._kit.servers import RedisServer

    with RedisServer() as server:
        raw = RedisConnection(server.url)
        try:
            yield raw
        finally:
            await raw.aclose()


@asynccontextmanager
async def _filled_with_subscriptions(count: int) -> AsyncIterator[tuple[Any, Any]]:
    """A storage with `count` subscriptions, a few of which are for one correlation."""
    from lastbus._backends.redis.subscriptions import RedisEventSubscriptionStorage

    async with _server() as raw:
        storage = RedisEventSubscriptionStorage(key_prefix="bench:subscription:", connection=raw)
        for part in _parts(range(count), 50):
            await asyncio.gather(*(storage.store_subscription(_subscription(number)) for number in part))
        yield storage, raw


def _subscription(number: int) -> EventSubscription:
    correlation = "asked" if number < CANDIDATES else f"c{number}"
    return EventSubscription(event_type="t", subscription_id=f"s{number}", correlation_id=correlation)


async def _ask(storage: Any, times: int) -> None:
    for _ in range(times):
        found = await storage.list_subscriptions(correlation_id="asked")
        assert len(found) == CANDIDATES


async def _costs(stores: Iterable[tuple[Any, Any]]) -> list[tuple[float, float]]:
    return [await _cost(*store) for store in stores]


async def _cost(storage: Any, raw: Any) -> tuple[float, float]:
    """CPU seconds of one question: of this process, and of the server's commands."""
    await raw.command("CONFIG", "RESETSTAT")
    client = await cpu_seconds(lambda: _ask(storage, QUESTIONS))
    stats = await raw.command("INFO", "commandstats")
    server = sum(each["usec"] for name, each in stats.items() if _is_of_a_client(name)) / 1e6
    return client / QUESTIONS, server / QUESTIONS


class Spent(NamedTuple):
    """What the server has seen of a client."""

    commands: int
    trips: int


async def _spent(raw: Any, work: Callable[[], Awaitable[object]]) -> Spent:
    """How many commands `work` has sent, and on how many round trips."""
    await raw.command("CONFIG", "RESETSTAT")
    await work()
    info = {**await raw.command("INFO", "commandstats"), **await raw.command("INFO", "stats")}
    commands = sum(each["calls"] for name, each in info.items() if _is_of_a_client(name))
    # The two INFO are read as well; the first one counts commands before it counts itself.
    return Spent(commands, info["total_reads_processed"] - 2)


def _is_of_a_client(name: str) -> bool:
    kind, _, command = name.partition("_")
    return kind == "cmdstat" and command not in INSIDE_SCRIPTS and not command.startswith(("config", "info"))


def _parts(numbers: range, size: int) -> Iterator[Iterable[int]]:
    return (numbers[start : start + size] for start in range(0, len(numbers), size))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmark_stores.py",
        description="Measure what questions to the Redis stores cost, and what their janitor costs the server.",
        epilog="example:\n  python scripts/benchmark_stores.py --section janitor --dead 100000\n\n"
        "exit codes:\n  0  measured, whether or not an aim was met\n  2  usage\n  3  there is no server here",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, default in EVERYDAY._asdict().items():
        parser.add_argument(f"--{name}", type=_count, default=default, metavar="N", help=f"stored (default: {default})")
    parser.add_argument("--full", action="store_true", help=f"the sizes of the limits: {FULL._asdict()}")
    parser.add_argument("--rounds", type=_count, default=5, metavar="R", help="the best of R counts (default: 5)")
    parser.add_argument("--section", action="append", choices=SECTIONS, help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {count}")
    return count
