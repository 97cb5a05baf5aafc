"""Layers: nothing imports to the right, and what may touch the loop, the clock and drivers is named here."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.source import PACKAGE, calls, imports, modules

ORDER = (
    ("_errors", "_clock", "_settings", "_tasks"),
    ("_model",),
    ("_ports",),
    ("_close", "_dispatch"),
    ("_bus", "_owners"),
    ("_backends",),
    ("_services",),
    ("memory", "redis", "sqlalchemy", "services", "owners"),
    ("_factory",),
    ("_kit",),
    ("testing",),
    ("_commands",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
PORTS_ONLY = {"_close", "_dispatch", "_bus", "_backends"}
"""What the services do without: they know a bus and its stores by their ports."""
BELOW_ALL = {"_errors", "_clock", "_settings", "_tasks"}
DRIVERS = {"redis": "redis", "sqlalchemy": "sqlalchemy", "aiosqlite": "sqlalchemy", "asyncpg": "sqlalchemy"}


def layer_violations(module: str, tree: ast.AST) -> Iterator[str]:
    """Imports of `module` that the layers forbid, as sentences."""
    own = module.removeprefix("lastbus").lstrip(".").split(".")
    for target, line in imports(module, tree, is_package=(PACKAGE / "/".join(own) / "__init__.py").exists()):
        parts = target.split(".")
        if parts[0] != "lastbus" or len(parts) < 2 or not own[0]:
            continue
        if own[0] == "proof" and parts[1] != "proof":
            yield f"{module}:{line} the harness imports {target}"
        elif parts[1] in RANK and own[0] in RANK and _is_forbidden(own, parts[1:]):
            yield f"{module}:{line} imports {target}, which lies to its right"


def _is_forbidden(own: list[str], target: list[str]) -> bool:
    if own[0] == "_services" and target[0] in PORTS_ONLY:
        return True
    if own[0] == target[0]:
        return own[0] == "_backends" and len(own) > 1 and len(target) > 1 and own[1] != target[1]
    if RANK[own[0]] == RANK[target[0]]:
        return own[0] not in BELOW_ALL
    if own[0] == "_settings" or own[0] == "_errors":
        return True
    return RANK[target[0]] > RANK[own[0]]


def driver_violations(module: str, tree: ast.AST) -> Iterator[str]:
    """Imports of a driver outside its own back end."""
    for target, line in imports(module, tree):
        home = DRIVERS.get(target.split(".")[0])
        if home is not None and not module.startswith((f"lastbus._backends.{home}", f"lastbus.{home}", "lastbus._kit")):
            yield f"{module}:{line} imports the driver {target}"


def stray_calls(name: str, allowed: tuple[str, ...]) -> list[str]:
    """Modules outside `allowed` that mention a call of `name`."""
    return [
        f"{module}:{line} mentions {name}"
        for module, tree in modules()
        for line in calls(tree, name)
        if not module.startswith(allowed)
    ]


def test_nothing_imports_to_the_right_and_siblings_do_not_know_each_other() -> None:
    assert [each for module, tree in modules() for each in layer_violations(module, tree)] == []


def test_drivers_are_imported_only_under_their_own_back_end() -> None:
    assert [each for module, tree in modules() for each in driver_violations(module, tree)] == []


def test_tasks_are_made_only_by_spawn_and_by_the_adoption_of_a_teardown() -> None:
    allowed = ("lastbus._tasks", "lastbus._close.adoption", "lastbus._kit", "lastbus.proof", "lastbus._commands")

    assert stray_calls("create_task", allowed) + stray_calls("ensure_future", allowed) == []


def test_time_is_read_only_by_the_clock() -> None:
    allowed = ("lastbus._clock", "lastbus.proof", "lastbus._kit", "lastbus._commands")
    readers = [
        f"{module}:{line} imports {target}"
        for module, tree in modules()
        for target, line in imports(module, tree)
        if target.split(".")[0] == "time" and not module.startswith(allowed)
    ]

    assert readers == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("lastbus._model.event", "from lastbus._bus import BaseBus"),
        ("lastbus._close.teardown", "from lastbus._dispatch.waiters import Waiters"),
        ("lastbus._backends.redis.bus", "from lastbus._backends.memory.bus import InMemoryEventBus"),
        ("lastbus._services.filter", "from lastbus._bus import BaseBus"),
        ("lastbus.proof.ledger", "from lastbus._errors import EventError"),
        ("lastbus._settings", "import lastbus._model.event"),
    ],
    ids=["to-the-right", "sibling-rooms", "sibling-back-ends", "ports-only", "harness", "below-all"],
)
def test_a_violation_of_the_layers_is_caught(module: str, source: str) -> None:
    assert len(list(layer_violations(module, ast.parse(source)))) == 1


def test_a_driver_in_the_wrong_place_is_caught() -> None:
    assert list(driver_violations("lastbus._bus", ast.parse("import redis.asyncio"))) == [
        "lastbus._bus:1 imports the driver redis.asyncio"
    ]
