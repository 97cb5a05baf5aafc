"""Nobody sleeps to wait: tests synchronise with gates, futures and a manual clock."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

TESTS = ROOT / "tests"


def sleeps(tree: ast.AST) -> Iterator[int]:
    """The lines on which `time.sleep` or `asyncio.sleep` is called with anything but the constant 0.

    A sleep of 0 is one turn of the loop, not a wait. A module whose docstring says `Timing:` with a reason is exempt:
    there real time is what is tested.

    Keeps: CAP-24.
    """
    if "Timing:" in (ast.get_docstring(tree) or ""):  # type: ignore[arg-type]
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        is_clock = isinstance(owner, ast.Name | ast.Attribute) and "clock" in ast.unparse(owner)
        zero = len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        if name == "sleep" and not is_clock and not zero:
            yield node.lineno


@pytest.mark.guarantee("CAP-24")
def test_no_test_sleeps_to_synchronise() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in sleeps(ast.parse(Path(path).read_text(encoding="utf-8")))
    ]

    assert found == []


@pytest.mark.guarantee("CAP-24")
@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("await asyncio.sleep(0.01)", [1]),
        ("time.sleep(1)", [1]),
        ("sleep(x)", [1]),
        ("await asyncio.sleep(0)", []),
        ("await clock.sleep(3)", []),
        ('"""Timing: the real clock is the contract here."""\nasyncio.sleep(3)', []),
    ],
    ids=["asyncio", "time", "bare", "one-turn", "injected", "declared"],
)
def test_the_lint_sees_a_sleep_and_lets_a_loop_turn_pass(source: str, lines: list[int]) -> None:
    assert list(sleeps(ast.parse(source))) == lines
