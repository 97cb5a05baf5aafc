"""The public surface: a short list, resolved lazily, with nothing optional behind `import lastbus`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lastbus

OPTIONAL = ("redis", "sqlalchemy", "aiosqlite", "asyncpg", "typer", "rich", "pytest")


def loaded_after(statement: str) -> set[str]:
    """The top-level names in `sys.modules` of a fresh interpreter that has run `statement`."""
    program = f"import sys\n{statement}\nprint(*sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    return set(out.stdout.split())


def test_every_public_name_resolves_and_is_listed_once() -> None:
    names = [name for name in lastbus.__all__ if getattr(lastbus, name) is not None]

    assert names == sorted(set(lastbus.__all__), key=lastbus.__all__.index)
    assert set(names) <= set(dir(lastbus))


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = lastbus.no_such_thing


@pytest.mark.guarantee("CORE-32")
def test_the_memory_bus_loads_no_optional_dependency() -> None:
    loaded = loaded_after("import lastbus.memory; lastbus.memory.InMemoryEventBus()")

    assert {name.split(".")[0] for name in loaded}.isdisjoint(OPTIONAL)


def test_import_lastbus_loads_nothing_but_itself() -> None:
    assert {name for name in loaded_after("import lastbus") if name.startswith(("lastbus", "pydantic"))} == {"lastbus"}


def test_the_harness_loads_nothing_of_the_bus() -> None:
    loaded = {name for name in loaded_after("import lastbus.proof.ledger") if name.startswith("lastbus.")}

    assert {name for name in loaded if not name.startswith("lastbus.proof")} == set()
