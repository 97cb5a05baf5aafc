"""A slot and its processes: which are asked for what, and that all of them end with it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lastbus.proof.errors import RunnerError
from lastbus.proof.notes import Limits, Notes
from lastbus.proof.runner import Slot
from lastbus.proof.verdict import How, Run
from tests.proof.sample import ADD, Sample

LIMITS = Limits(startup=20.0, of={})


class Played:
    """A process that only notes what becomes of it."""

    alive = True
    version = ""

    def __init__(self, unfit: str = "") -> None:
        self.notes: list[Any] = []
        self.unfit = unfit

    def send(self, command: Mapping[str, Any]) -> None:
        self.notes.append(command)

    def until(self, event: str, seconds: float) -> Mapping[str, Any]:
        return {"event": event, "unfit": self.unfit, "modules": ["json"]}

    def ready(self) -> str:
        self.version = "3.99"
        return self.version

    def run(self, command: Mapping[str, Any], *_: object) -> tuple[Run, Notes]:
        self.notes.append("run")
        return Run(), Notes()

    def stop(self) -> None:
        self.notes.append("stopped")

    def end(self) -> None:
        self.notes.append("ended")


def slot_of(sample: Sample, tmp_path: Path, isolated: bool = False, **processes: Played) -> Slot:
    (tmp_path / "work").mkdir()
    slot = Slot(sample.project, tmp_path / "work", 0, sys.executable, isolated)
    slot._processes.update(processes)  # type: ignore[arg-type]
    slot.cold = ""
    return slot


@pytest.mark.guarantee("MUT-15")
def test_all_processes_of_a_slot_are_stopped_with_it_and_none_is_started_after_that(sample, tmp_path):
    warm, fresh = Played(), Played()
    slot = slot_of(sample, tmp_path, warm=warm, fresh=fresh)

    slot.stop()

    assert (warm.notes, fresh.notes) == (["stopped"], ["stopped"])
    warm.alive = False
    with pytest.raises(RunnerError, match="stopped"):
        slot.start()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Played]:
    """The processes that a slot has launched."""
    made: list[Played] = []

    def launch(slot: Slot, how: How) -> Played:
        slot._drop(how)
        made.append(Played())
        slot._processes[how] = made[-1]  # type: ignore[assignment]
        return made[-1]

    monkeypatch.setattr(Slot, "_launch", launch)
    return made


@pytest.mark.guarantee("MUT-22")
def test_modules_are_imported_by_the_warm_process_and_by_the_fresh_one(sample, tmp_path, launched):
    warm, fresh = Played(), Played()
    slot = slot_of(sample, tmp_path, warm=warm, fresh=fresh)

    slot.preload(["json", "shop"])

    assert warm.notes == [{"do": "preload", "modules": ["json", "shop"]}]
    assert fresh.notes == [{"do": "preload", "modules": ["json", "shop"]}]
    assert launched == []
    assert (slot._modules, slot.cold) == (["json"], "")


@pytest.mark.guarantee("MUT-17")
def test_no_fresh_process_is_started_while_a_mutation_is_in_which_later_runs_would_inherit(sample, tmp_path, launched):
    slot = slot_of(sample, tmp_path)
    slot.cold = "not asked to collect"

    with slot.mutated({"src/shop.py": "x = 1\n"}):
        during = slot.run([ADD], LIMITS, how="fresh")[0].how
    after = slot.run([ADD], LIMITS, how="fresh")[0].how

    assert (during, after) == ("isolated", "fresh")


@pytest.mark.guarantee("MUT-22")
@pytest.mark.parametrize(("unfit", "how"), [("", "fresh"), ("a thread runs: till", "isolated")], ids=["fit", "unfit"])
def test_a_fresh_process_that_its_imports_made_unfit_is_done_without(sample, tmp_path, launched, unfit, how):
    fresh = Played(unfit)
    slot = slot_of(sample, tmp_path, fresh=fresh)

    runs = [slot.run([ADD], LIMITS, how="fresh")[0].how for _ in range(2)]

    assert runs == [how, how]
    assert fresh.notes == (["ended"] if unfit else ["run", "run"])
    slot.cold = "not asked to collect"
    slot.preload(["json"])
    assert ("fresh" in slot._processes) is not bool(unfit)


@pytest.mark.guarantee("MUT-22")
def test_a_warm_process_that_its_imports_made_unfit_is_done_without(sample, tmp_path, launched):
    warm = Played("a thread runs: till")
    slot = slot_of(sample, tmp_path, warm=warm)

    slot.preload(["till"])

    assert (slot.cold, warm.notes[-1], list(slot._processes)) == ("a thread runs: till", "ended", ["fresh"])


@pytest.mark.guarantee("MUT-22")
def test_where_every_run_is_isolated_nothing_is_imported_ahead(sample, tmp_path):
    fresh = Played()
    slot = slot_of(sample, tmp_path, isolated=True, fresh=fresh)

    slot.preload(["json"])

    assert (fresh.notes, slot._modules) == ([], [])
