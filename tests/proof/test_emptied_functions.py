"""The rooms of the package, in which every function is emptied in turn: each file is in one, with tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import extreme_mutants
from scripts.extreme_mutants import ROOMS, ROOT, is_beside_the_point, of_room

REDIS = "engine/lastbus/_backends/redis/bus.py"


def test_every_file_of_the_package_is_in_exactly_one_room():
    files = [path.relative_to(ROOT).as_posix() for path in Path(extreme_mutants.ROOT, "engine").rglob("*.py")]

    rooms = {file: [room for room in ROOMS if file == room or file.startswith(f"{room}/")] for file in files}

    assert {file: found for file, found in rooms.items() if len(found) != 1} == {}
    assert {room for (room,) in rooms.values()} == set(ROOMS)


def test_every_room_asks_tests_that_exist():
    assert [test for tests in ROOMS.values() for test in tests if not (ROOT / test).exists()] == []
    assert of_room(REDIS)[0] == "tests/backends/redis"
    assert of_room("engine/lastbus/nothing.py") == ()


@pytest.mark.parametrize(
    ("file", "test", "is_beside"),
    [
        (REDIS, "tests/contract/test_bus.py::t[valkey]", False),
        (REDIS, "tests/contract/test_bus.py::t[memory]", True),
        (REDIS, "tests/contract/test_bus.py::t[sqlite]", True),
        ("engine/lastbus/_close/closer.py", "tests/contract/test_bus.py::t[memory]", False),
        ("engine/lastbus/_close/closer.py", "tests/contract/test_bus.py::t[fakeredis]", True),
        ("engine/lastbus/_services/queue.py", "tests/services/test_queue.py::t[valkey]", False),
    ],
)
def test_tests_of_another_back_end_are_beside_the_point(file, test, is_beside):
    assert is_beside_the_point(file, test) is is_beside
