"""The pytest side of the proof: the marker that ties a test to guarantees.

Enable it in a conftest: ``pytest_plugins = ["lastbus.proof.pytest_plugin"]``.
"""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, so that ``--strict-markers`` accepts it."""
    config.addinivalue_line(
        "markers",
        "guarantee(*ids): the test pins the documented guarantees with these ids; `lastbus ledger show ID` lists them",
    )
