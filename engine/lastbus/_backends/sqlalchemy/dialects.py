"""Dialects: the two that this back end speaks. Both know `INSERT … ON CONFLICT`, on which every promise here rests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from sqlalchemy import ColumnElement, Table
from sqlalchemy.dialects import postgresql, sqlite

Insert: TypeAlias = postgresql.Insert | sqlite.Insert

_INSERT: Final[dict[str, Callable[[Table], Insert]]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
ASYNC_DRIVERS: Final = {
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
    "sqlite": "sqlite+aiosqlite",
}


def check_dialect(name: str) -> str:
    """Return `name` if this back end speaks it; `ValueError` naming those that it does.

    Keeps: SQL-11.
    """
    if name not in _INSERT:
        raise ValueError(f"the SQL back end speaks {' and '.join(_INSERT)}, not {name!r}")
    return name


def insert_into(dialect: str, table: Table) -> Insert:
    """An `INSERT` into `table` that can be given an `ON CONFLICT` clause."""
    return _INSERT[dialect](table)


def upsert(dialect: str, table: Table, where: ColumnElement[bool] | None = None) -> Insert:
    """Insert a row of `table`, or replace all of the one with the same primary key, but only if `where` holds for it.

    Parameters are named as the columns are. One row is affected if it was inserted or replaced, none otherwise.

    Keeps: SQL-07.
    """
    insert = insert_into(dialect, table)
    key = [column.name for column in table.primary_key]
    rest = {column.name: insert.excluded[column.name] for column in table.columns if column.name not in key}
    return insert.on_conflict_do_update(index_elements=key, set_=rest, where=where)
