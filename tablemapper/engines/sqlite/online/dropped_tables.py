"""The tables of what was dropped are cleared in short transactions."""

from __future__ import annotations

from typing import Any

from ....catalogue.catalogue import Catalogue
from ....catalogue.dropping import cleared
from ...protocol import BuildStep
from ..file.writer import Writer
from ..sql.ddl import quoted, type_filter
from .transition_runner import change


def delete_class_rows(
    writer: Writer, catalogue: Catalogue, name: str, after: tuple[str, str], most: int
) -> tuple[str, str] | None:
    """Delete the next rows, at most ``most``, of a class that is about to be dropped, if it shares its table.

    Its indexes and aggregates stay as they are: they are dropped with the class.

    Args:
        after: the last key of the batch before.

    Returns:
        The last key; None if no row is left, or the class has its table alone.
    """
    form = catalogue.models.get(name)
    table = None if form is None else catalogue.tables[form.table]
    if table is None or not (of_type := type_filter(table, name)):
        return None
    big = '"_big"' if table.spills else "NULL"
    rows: list[Any] = writer.execute(
        f'SELECT "PartitionKey", "RowKey", {big} FROM {quoted(table.name)} t WHERE {of_type} '
        'AND ("PartitionKey", "RowKey") >= (?, ?) ORDER BY 1, 2 LIMIT ?',
        (*after, most),
    ).fetchall()
    if table.spills:
        big_ids = [(row[2],) for row in rows if row[2] is not None]
        writer.executemany(f"DELETE FROM {quoted(table.big_name)} WHERE id = ?", big_ids)
    writer.executemany(
        f'DELETE FROM {quoted(table.name)} WHERE "PartitionKey" = ? AND "RowKey" = ?', [row[:2] for row in rows]
    )
    return rows[-1][:2] if rows else None


def clear_batch(writer: Writer, catalogue: Catalogue, most: int) -> BuildStep | None:
    """Delete the next rows, at most ``most``, of a table that a drop left, or the table; None if there is none."""
    tombstone = next((entry for entry in catalogue.tombstones if entry.tables), None)
    if tombstone is None:
        return None
    name = tombstone.tables[0]
    rows = delete_rows(writer, name, most)
    ended_labels: tuple[str, ...] = ()
    if rows < most:
        change(writer, cleared, name)
        ended_labels = () if tombstone.tables[1:] else (tombstone.label,)
    return BuildStep(tombstone.label, rows, rows, 0, ended_labels, clearing=True)


def delete_rows(writer: Writer, table: str, most: int) -> int:
    """Delete rows of a table, at most ``most``; return how many."""
    columns = writer.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    key = ", ".join(
        [quoted(name) for _, name in sorted((column[5], str(column[1])) for column in columns if column[5])]
    )
    count_before = writer.total_changes()
    writer.execute(f"DELETE FROM {quoted(table)} WHERE ({key}) IN (SELECT {key} FROM {quoted(table)} LIMIT ?)", (most,))
    return writer.total_changes() - count_before
