"""The benchmark of the stores counts what the server has seen; what a time is worth is nobody's assertion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lastbus._kit.redis_server import find_redis
from lastbus._kit.servers import ServerUnavailable, missing
from scripts.benchmark_stores import main

TINY = ["--subscriptions", "200", "--dead", "300", "--events", "250", "--rounds", "1"]


@pytest.fixture(autouse=True)
def server_is_there() -> None:
    try:
        find_redis()
    except ServerUnavailable as absence:
        missing(absence)


def measured(capsys: pytest.CaptureFixture[str], section: str) -> list[dict[str, Any]]:
    """The figures that the program reports as JSON."""
    assert main([*TINY, "--section", section, "--json"]) == 0
    figures: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["figures"]
    return figures


@pytest.mark.slow
def test_a_list_by_correlation_is_three_commands_however_much_is_stored(capsys: pytest.CaptureFixture[str]) -> None:
    """Slow: two servers are filled and asked hundreds of times."""
    figures = measured(capsys, "subscriptions")

    assert [each["value"] for each in figures if each["unit"] == "commands"] == [3, 3]
    assert [each["value"] for each in figures if each["unit"] == "round trips"] == [2, 2]
    assert [each["name"] for each in figures if each["unit"] == "us of server"] == ["10 stored", "200 stored"]


@pytest.mark.slow
def test_a_list_of_events_of_one_type_is_two_round_trips(capsys: pytest.CaptureFixture[str]) -> None:
    """Slow: a server is started and filled."""
    figures = measured(capsys, "events")

    assert {each["unit"]: each["value"] for each in figures} == {"round trips": 2, "commands": 2}


@pytest.mark.slow
def test_the_janitor_is_measured_until_nothing_dead_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    """Slow: a server is started and filled."""
    figures = measured(capsys, "janitor")

    assert {each["section"] for each in figures} == {"janitor, 300 dead entries"}
    assert all(each["value"] > 0 for each in figures if each["unit"] == "us")
    assert [each["note"].partition(" of ")[0].isdigit() for each in figures if each["unit"] == "calls"] == [True]
