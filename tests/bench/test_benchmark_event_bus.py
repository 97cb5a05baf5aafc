"""The benchmark measures what it promises and prints it; what a figure is worth is nobody's assertion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lastbus._kit.bench import contenders
from lastbus._kit.bench.cost import Unusable, interleaved
from lastbus._kit.bench.figures import Aim, Figure, Report, Skipped
from scripts.benchmark_event_bus import main

TINY = ["--events", "20", "--rounds", "1"]


def measured(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    """What the program reports as JSON."""
    assert main([*TINY, *argv, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


@pytest.mark.guarantee("CAP-23")
def test_both_modes_run_and_the_bounded_one_never_exceeds_its_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    report = measured(capsys, "--section", "capacity", "--capacity", "3")

    most = {each["name"]: each["value"] for each in report["figures"] if each["unit"] == "handlers at once"}
    assert most["unlimited"] == 20
    assert 1 <= most["bounded"] <= 3


def test_every_load_is_measured_beside_bare_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    report = measured(capsys, "--no-rivals", "--section", "throughput")

    for section in ("steady, 1 handler", "steady, 10 handlers", "burst, 1 handler", "burst, 10 handlers"):
        names = [each["name"] for each in report["figures"] if each["section"] == section]
        assert names == ["raw create_task", "lastbus"]


@pytest.mark.slow
def test_the_table_shows_each_aim_with_its_verdict_and_claims_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Slow: it runs every section, and traces every allocation for the one about memory."""
    assert main([*TINY, "--no-rivals"]) == 0

    table = capsys.readouterr().out
    aims = [line for line in table.splitlines() if ">=" in line or "<=" in line]
    assert len(aims) == 12
    assert all(line.endswith((" met", " missed")) for line in aims)
    assert "promise nothing about production" in table


def test_a_bus_that_is_not_installed_is_named_and_gets_no_figure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> contenders.Contender:
        raise Unusable("not installed here (pip install nobus)")

    monkeypatch.setattr(contenders, "RIVALS", {"nobus": absent})
    monkeypatch.setattr("lastbus._kit.bench.throughput.RIVALS", contenders.RIVALS)

    report = measured(capsys, "--section", "throughput")

    assert "nobus" not in {each["name"] for each in report["figures"]}
    assert {(each["name"], each["reason"]) for each in report["skipped"]} == {
        ("nobus", "not installed here (pip install nobus)")
    }


def test_a_module_that_is_missing_is_not_installed() -> None:
    with pytest.raises(Unusable, match="pip install nobus"):
        contenders._module("no_such_module", "nobus")


def test_samples_take_turns_and_the_lowest_of_each_counts() -> None:
    turns: list[str] = []
    results = {"a": iter([3.0, 1.0]), "b": iter([2.0, 4.0])}

    def sample(name: str) -> Any:
        async def run() -> float:
            turns.append(name)
            return next(results[name])

        return run

    best, reasons = interleaved({name: sample(name) for name in results}, rounds=2)

    assert turns == ["a", "b", "a", "b"]
    assert best == {"a": 1.0, "b": 2.0}
    assert reasons == {}


def test_a_sample_that_fails_later_loses_its_earlier_figure() -> None:
    results = iter([1.0])

    async def falters() -> float:
        for result in results:
            return result
        raise OverflowError("queue is full\nmore")

    best, reasons = interleaved({"falters": falters}, rounds=3)

    assert best == {}
    assert reasons == {"falters": "OverflowError: queue is full"}


def test_an_exceeded_capacity_is_an_exit_code_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def most_at_once(make_bus: object, events: int, capacity: int | None) -> int:
        return 4

    monkeypatch.setattr("lastbus._kit.bench.capacity.most_at_once", most_at_once)

    assert main([*TINY, "--section", "capacity", "--capacity", "3"]) == 1


@pytest.mark.parametrize("argv", [["--events", "0"], ["--capacity", "-1"], ["--events", "x"], ["--backend", "paper"]])
def test_what_cannot_be_measured_is_a_usage_error(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(argv)

    assert stopped.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_the_help_shows_an_example_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])

    shown = capsys.readouterr().out
    assert stopped.value.code == 0
    assert "python scripts/benchmark_event_bus.py --events 2000 --capacity 64" in shown
    assert "exit codes:" in shown


@pytest.mark.parametrize(
    ("aim", "ratio", "verdict"),
    [
        (Aim(low=0.5), 0.5, "met"),
        (Aim(low=0.5), 0.49, "missed"),
        (Aim(high=1.1), 1.1, "met"),
        (Aim(high=1.1), 1.11, "missed"),
        (Aim(0.8, 1.2), 0.7, "missed"),
        (None, 0.7, ""),
    ],
)
def test_an_aim_is_met_up_to_its_bounds(aim: Aim | None, ratio: float, verdict: str) -> None:
    assert Figure("section", "name", 1.0, "us", ratio, aim).verdict == verdict


def test_the_table_is_aligned_and_names_what_was_not_measured() -> None:
    report = Report({"events": 7, "capacity": None})
    report.add([Figure("s", "short", 1.0, "us"), Figure("s", "a longer name", 10.0, "us", 0.5, Aim(low=0.4))])
    report.add([Skipped("s", "other", "not here")])

    lines = report.as_table().splitlines()

    assert lines[0] == "events 7"
    assert lines[3].index("us") == lines[4].index("us")
    assert lines[4].split() == ["a", "longer", "name", "10", "us", "0.50", ">=", "0.4", "met"]
    assert "  s: other: not here" in lines


@pytest.mark.slow
@pytest.mark.usefixtures("valkey_server")
@pytest.mark.guarantee("CAP-23")
def test_a_publish_to_redis_is_measured_beside_the_call_that_it_makes(capsys: pytest.CaptureFixture[str]) -> None:
    """Slow: it starts a server of its own."""
    report = measured(
        capsys, "--backend", "redis", "--section", "publishing", "--section", "capacity", "--capacity", "3"
    )

    assert report["skipped"] == []
    publishing = [each["name"] for each in report["figures"] if each["section"].startswith("publish")]
    assert publishing == ["bare script call", "publish"]
    most = {each["name"]: each["value"] for each in report["figures"] if each["unit"] == "handlers at once"}
    assert most.keys() == {"unlimited", "bounded"}
    assert 1 <= most["bounded"] <= 3


def test_a_back_end_that_is_not_available_has_an_exit_code_and_a_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> Any:
        raise Unusable("no server here: install one")

    monkeypatch.setattr("lastbus._kit.bench.program.BACKENDS", {"memory": absent})

    assert main(TINY) == 3
    assert capsys.readouterr().out == "back end memory: no server here: install one\n"
