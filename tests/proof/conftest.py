"""Fixtures of the harness's own tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastbus.proof import record
from lastbus.proof.config import Project
from lastbus.proof.surroundings import Surroundings
from tests.proof.inside import Inside
from tests.proof.sample import Sample, shop


@pytest.fixture(autouse=True, scope="session")
def _bare_pytest() -> Iterator[None]:
    """Samples need no third-party plugins, and start four times faster without them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        yield


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    """The shop in a folder of its own."""
    return shop(tmp_path / "shop")


@pytest.fixture
def inside() -> Iterator[None]:
    """Replays run their tests inside this process, in no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lastbus.proof.replay.Slot", Inside)
        yield


@pytest.fixture(params=["inside", "processes"])
def runs(request: pytest.FixtureRequest) -> str:
    """Where the runs of a replay take place: inside this process, and then in processes of their own."""
    if request.param == "inside":
        request.getfixturevalue("inside")
    return str(request.param)


@pytest.fixture
def real_surroundings() -> None:
    """Interpreters are asked what is around them, for tests that are about that."""


@pytest.fixture(autouse=True)
def _still_surroundings(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is around the interpreter stays as it is; to ask costs more than most of these tests."""

    def look(_: Project, python: str) -> Surroundings:
        return Surroundings(sys.version.split()[0], python, "as ever")

    with pytest.MonkeyPatch.context() as patch:
        if "real_surroundings" not in request.fixturenames:
            patch.setattr(record, "look", look)
        yield
