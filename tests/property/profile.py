"""How the properties are run: the same examples every time, and a failure that can be repeated."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings

deterministic: Final = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
"""Derandomised, so that a green run is green again; no deadline, because other tests share the machine."""
