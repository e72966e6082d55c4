"""Contested indexes: unique indexes with duplicates.

The first holder of a value is in the index, the further ones are noted. Programs that do not know the index may have
written them. So while it is being built, a further holder is noted and not refused; once it is built, each new one is
refused. When the holder of a value is deleted, the first noted one moves up.
"""

from __future__ import annotations

from collections.abc import Callable

import apsw

from ....errors import CorruptStore
from ....schema.maintenance import IndexMaintenance, IndexRow
from ..file.writer import Writer, sorted_rows
from ..sql.index_tables import IndexTable
from ..sql.schema import SqliteSchema

VIOLATIONS = "tablemapper_violations"
_PLACE = '"index", "PartitionKey", "RowKey", "_pk", "_rk"'
CREATE_VIOLATIONS = f"CREATE TABLE {VIOLATIONS}({_PLACE}, PRIMARY KEY({_PLACE})) WITHOUT ROWID"
_OF_VALUE = '"index" = ? AND "PartitionKey" = ? AND "RowKey" = ?'
_NOTE = f"INSERT INTO {VIOLATIONS} VALUES(?, ?, ?, ?, ?)"
FIND_NOTE = f'SELECT 1 FROM {VIOLATIONS} WHERE {_OF_VALUE} AND "_pk" = ? AND "_rk" = ?'
NOTES = f'SELECT "PartitionKey", "RowKey", "_pk", "_rk" FROM {VIOLATIONS} WHERE "index" = ?'
FORGET = f'DELETE FROM {VIOLATIONS} WHERE {_OF_VALUE} AND "_pk" = ? AND "_rk" = ?'
FORGET_INDEX = f'DELETE FROM {VIOLATIONS} WHERE "index" = ?'
_OTHER_HOLDERS = f'SELECT "_pk", "_rk" FROM {VIOLATIONS} WHERE {_OF_VALUE} ORDER BY "_pk", "_rk"'
_NEXT = f"{_OTHER_HOLDERS} LIMIT 1"
_VALUES = f'SELECT DISTINCT "PartitionKey", "RowKey" FROM {VIOLATIONS} WHERE "index" = ? LIMIT ?'
COUNT_VALUES = (
    f'SELECT "index", count(*) FROM (SELECT DISTINCT "index", "PartitionKey", "RowKey" FROM {VIOLATIONS}) GROUP BY 1'
)
_FIND_ANY = f'SELECT 1 FROM {VIOLATIONS} WHERE "index" = ? LIMIT 1'


def violated(writer: Writer, label: str) -> bool:
    """Return whether an index has duplicates."""
    return writer.get(_FIND_ANY, (label,)) is not None


def holders(
    sqlite: SqliteSchema, index: IndexMaintenance, query: Callable[..., list[tuple[str, ...]]], most: int
) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the duplicate values of an index, at most ``most``, each with its holders' keys, the first one first."""
    duplicates: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for pk, rk in query(_VALUES, (index.label, max(most, 0))):
        first = query(sqlite.indexes[index.model].holder, (pk, rk))
        other_holders = query(_OTHER_HOLDERS, (index.label, pk, rk))
        duplicates[pk, rk] = [(key[0], key[1]) for key in (*first, *other_holders)]
    return duplicates


def delete_contested(sqlite: SqliteSchema, index: IndexMaintenance, writer: Writer, rows: list[IndexRow]) -> None:
    """Delete rows from the index or the notes; the next holder of each value that becomes free moves up.

    The entities are written before, so the row that moves up is computed from the entity as it is now.
    """
    table = sqlite.indexes[index.model]
    free_values = []
    for row in sorted_rows(rows):
        if _deletes(writer, table.delete, row[:4]):
            free_values.append(row[:2])
        elif not _deletes(writer, FORGET, (index.label, *row[:4])):
            raise CorruptStore(f"{index.label}: index rows were missing; call store.repair()")
    for value in free_values:
        if (holder := writer.get(_NEXT, (index.label, *value))) is not None:
            writer.execute(FORGET, (index.label, *value, *holder))
            writer.execute(table.insert, _row(sqlite, index, writer, (*value, *holder)))


def is_noted(index: IndexMaintenance, writer: Writer, row: IndexRow) -> bool:
    """Return whether a row is noted."""
    return writer.get(FIND_NOTE, (index.label, *row[:4])) is not None


def put_contested(index: IndexMaintenance, table: IndexTable, writer: Writer, rows: list[IndexRow]) -> None:
    """Put rows into an index that is being built; note those whose value has a holder already."""
    for row in rows:
        try:
            writer.execute(table.insert, row)
        except apsw.ConstraintError:
            writer.execute(_NOTE, (index.label, *row[:4]))


def _deletes(writer: Writer, sql: str, values: tuple[str, ...]) -> bool:
    count_before = writer.total_changes()
    writer.execute(sql, values)
    return writer.total_changes() != count_before


def _row(sqlite: SqliteSchema, index: IndexMaintenance, writer: Writer, key: IndexRow) -> IndexRow:
    """Return the index row of a noted holder."""
    entity_row = writer.get(sqlite.statements_of(index).get, key[2:4])
    for row in index.rows_of(entity_row, sqlite.statements_of(index).model):
        if row[:4] == key:
            return row
    raise CorruptStore(f"{index.label}: {key[2:4]} is noted for a value that it does not have; run check()")
