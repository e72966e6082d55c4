"""The SQL of entity tables: what makes them, and where a property is.

Columns have no declared type, so that every value keeps its class.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import apsw

from ....catalogue.tables import FIXED, Column, Table


@lru_cache(maxsize=4096)
def quoted(name: str) -> str:
    """Return an identifier as SQL."""
    return '"' + name.replace('"', '""') + '"'


def short(name: str) -> str:
    """Return an identifier as SQL, without quotes where it needs none.

    For statements that run once an operation: finding a prepared one again takes a time that grows with its text.
    """
    return name if _PLAIN.fullmatch(name) and name.upper() not in _WORDS else quoted(name)


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = frozenset({"TRUE", "FALSE", *apsw.keywords})


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return repr(value) if abs(value) != float("inf") else ("9e999" if value > 0 else "-9e999")


def column_sql(column: Column) -> str:
    """Return a column of an entity table, as it is created or added."""
    default = "" if column.default is None else f" DEFAULT {literal(column.default)}"
    return f"{quoted(column.name)}{default}"


def ddl(table: Table) -> dict[str, str]:
    """Return the statements that make an entity table, and the one beside it, by the name of what they make."""
    columns = ", ".join([*map(quoted, FIXED), *map(column_sql, table.columns)])
    create = f'CREATE TABLE {quoted(table.name)}({columns}, PRIMARY KEY("PartitionKey", "RowKey")) WITHOUT ROWID'
    if not table.spills:
        return {table.name: create}
    big_columns = ", ".join(["id INTEGER PRIMARY KEY", *map(quoted, table.spills)])
    return {table.name: create, table.big_name: f"CREATE TABLE {quoted(table.big_name)}({big_columns})"}


def value_sql(table: Table, property: str, alias: str, *, spillable: bool = True) -> str:
    """Return the SQL of a property, from wherever it is; ``spillable``: whether it can have been moved aside."""
    name = table.column(property)
    column = f"{alias}.{quoted(name)}"
    if not spillable or name not in table.spills:
        return column
    big_value = f'(SELECT b.{quoted(name)} FROM {quoted(table.big_name)} b WHERE b.id = {alias}."_big")'
    # A value that is in place is read once, and nothing else is read.
    return f'coalesce({column}, CASE WHEN {alias}."_big" IS NOT NULL THEN {big_value} END)'


def type_filter(table: Table, name: str) -> str:
    """Return the condition that a row of a table, called ``t``, is of a class; empty if the table holds no other."""
    if "_type" not in table.has:
        return ""
    number = table.type_number(name)
    return f't."_type" IS {"NULL" if number is None else number}'


def rows_of(table: Table, name: str) -> str:
    """Return the rows of a class as a source, called ``t``, which takes further conditions."""
    return f"{quoted(table.name)} t WHERE {type_filter(table, name) or 'TRUE'}"


def values_ddl(name: str) -> str:
    """Return the statement for the table that holds the live values of an aggregate's extremes, ordered."""
    return (
        f'CREATE TABLE {quoted(name)}("PartitionKey", "RowKey", slot, value, n, '
        'PRIMARY KEY("PartitionKey", "RowKey", slot, value)) WITHOUT ROWID'
    )
