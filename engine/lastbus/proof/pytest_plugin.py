"""The pytest side of the proof: the marker that ties a test to guarantees, and the loop that notices a hang.

Enable it in a conftest: ``pytest_plugins = ["lastbus.proof.pytest_plugin"]``.

``@pytest.mark.quiescence_loop`` (or ``pytestmark`` in a module) runs a pytest-asyncio test, with its async fixtures, on
a `QuiescenceLoop`, so that it can await `lastbus.proof.watchdog.hangs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from lastbus.proof.watchdog import QuiescenceLoop


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, so that ``--strict-markers`` accepts them."""
    config.addinivalue_line(
        "markers",
        "guarantee(*ids): the test pins the documented guarantees with these ids; `lastbus ledger show ID` lists them",
    )
    config.addinivalue_line(
        "markers",
        "quiescence_loop: the test runs on a loop that knows when nothing can wake it, for `hangs` of the watchdog",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Loops that are made while a marked test is set up can tell a hang; all others stay what they are.

    The event loop policy is asked for every new loop, whichever version of pytest-asyncio makes it.

    Keeps: WATCH-10.
    """
    if item.get_closest_marker("quiescence_loop") is None:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.get_event_loop_policy(), "new_event_loop", QuiescenceLoop)
        return (yield)
