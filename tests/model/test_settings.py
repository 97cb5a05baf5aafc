"""Settings: what the environment may say, and what counts instead of what it may not."""

from __future__ import annotations

import pytest

from lastbus._settings import EXPERIMENTAL_DB, SETTINGS, SWEEP_BUDGET, SWEEP_INTERVAL, SWITCHES, Setting, Switch


def words(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert {record.levelname for record in caplog.records} <= {"WARNING"}
    return [record.getMessage() for record in caplog.records]


@pytest.mark.guarantee("IDX-19")
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf", "0", "-1", "abc", "-0.0"])
def test_an_interval_that_is_no_positive_number_of_seconds_counts_as_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, bad: str
) -> None:
    monkeypatch.setenv(SWEEP_INTERVAL.name, bad)

    assert SWEEP_INTERVAL.read() == 60
    [word] = words(caplog)
    assert SWEEP_INTERVAL.name in word
    assert repr(bad) in word


@pytest.mark.guarantee("IDX-19")
@pytest.mark.parametrize(("text", "seconds"), [("2.5", 2.5), ("1", 1), (" 90 ", 90), ("0.1", 0.1), ("", 60), (" ", 60)])
def test_a_positive_number_of_seconds_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str, seconds: float
) -> None:
    monkeypatch.setenv(SWEEP_INTERVAL.name, text)

    assert SWEEP_INTERVAL.read() == seconds
    assert words(caplog) == []


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
def test_nothing_said_is_the_default(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, setting: Setting
) -> None:
    monkeypatch.delenv(setting.name, raising=False)

    assert setting.read() == setting.default
    assert words(caplog) == []


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
def test_zero_is_a_bad_value_and_so_is_what_is_too_little(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, setting: Setting
) -> None:
    monkeypatch.setenv(setting.name, "0")

    assert setting.read() == setting.default
    assert len(words(caplog)) == 1


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda each: each.name)
def test_too_much_counts_as_the_most_and_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, setting: Setting
) -> None:
    monkeypatch.setenv(setting.name, "1e300")

    assert setting.read() == setting.clamp[1]
    [word] = words(caplog)
    assert "'1e300'" in word


def test_a_moment_too_short_to_work_in_counts_as_the_shortest_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SWEEP_INTERVAL.name, "1e-9")

    assert SWEEP_INTERVAL.read() == 0.1
    assert len(words(caplog)) == 1


def test_a_part_of_an_entry_is_no_budget(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(SWEEP_BUDGET.name, "2.5")

    assert SWEEP_BUDGET.read() == 500
    assert len(words(caplog)) == 1


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda each: each.name)
@pytest.mark.parametrize(("text", "is_on"), [("1", True), ("0", False), ("", False)])
def test_exactly_one_turns_a_switch_on(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    switch: Switch,
    text: str,
    is_on: bool,
) -> None:
    monkeypatch.setenv(switch.name, text)

    assert switch.is_on() is is_on
    assert words(caplog) == []


@pytest.mark.parametrize("text", ["true", "yes", "01", " 1", "2"])
def test_a_switch_that_somebody_meant_to_turn_on_stays_off_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    monkeypatch.setenv(EXPERIMENTAL_DB.name, text)

    assert EXPERIMENTAL_DB.is_on() is False
    [word] = words(caplog)
    assert repr(text) in word
