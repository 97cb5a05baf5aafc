"""Bites: delete at most so many rows, whatever the planner makes of the statement.

A subquery with a limit may be run once for each row that is compared with it, and then limits nothing: PostgreSQL does
so when it joins by nested loops. What is named in a WITH and locks its rows is run once. It stands inside the
condition, because SQLite's driver counts the rows only of a statement that begins with DELETE.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Delete, Table, delete, select, tuple_


def bite(table: Table, condition: ColumnElement[bool], rows_max: int, order_by: ColumnElement[object]) -> Delete:
    """Delete at most `rows_max` rows for which `condition` holds, the first by `order_by`.

    A row that somebody is writing right now is locked: it is passed over, and judged anew once it is let go.

    Keeps: SQL-09.
    """
    key = list(table.primary_key)
    rows = select(*key).where(condition).order_by(order_by).limit(rows_max).with_for_update(skip_locked=True)
    chosen = rows.cte("bite", nesting=True)
    return delete(table).where(tuple_(*key).in_(select(*chosen.c)), condition)
