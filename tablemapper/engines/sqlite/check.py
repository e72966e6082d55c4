"""The check of a file: what `schema.check` compares, read by statements, and what SQLite and this engine keep besides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from ...progress import Meter
from ...schema.check import Problem, Report, compare
from ...schema.maintenance import IndexMaintenance, IndexRow
from ...schema.model import Model
from ...schema.rows import Row
from .statements import SqliteSchema
from .tables import EntityTable, quoted, values_table

__all__ = ["check"]

Rows = Callable[..., Iterator[Row]]
"""Runs a statement and yields its rows."""


def check(sqlite: SqliteSchema, rows: Rows, integrity: list[str], last: int, meter: Meter) -> Report:
    """Check every table of the opened models, within one state of the store.

    Args:
        sqlite: the models.
        rows: runs a statement.
        integrity: what SQLite's own check found.
        last: the highest timestamp that was given out.
        meter: counts each entity.
    """
    moved = (problem for table in sqlite.tables.values() for problem in _moved(table, rows))
    report = compare(sqlite.maintenance, _Stored(sqlite, rows), moved, last=last, meter=meter)
    damaged = [Problem("damaged", "file", (), line) for line in integrity]
    return attrs.evolve(report, problems=tuple(dict.fromkeys((*damaged, *report.problems))))


class _Stored:
    """The tables of a file, as the check reads them."""

    def __init__(self, sqlite: SqliteSchema, rows: Rows) -> None:
        self._sqlite = sqlite
        self._run = rows

    def rows(self, model: Model) -> Iterable[Row]:
        return self._run(self._sqlite.statements[model].scan)

    def row(self, model: Model, partition: str, row: str) -> Row | None:
        return next(self._run(self._sqlite.statements[model].get, (partition, row)), None)

    def groups(self, model: Model) -> Iterable[tuple[Row, bytes]]:
        return ((row[:-1], row[-1]) for row in self._run(self._sqlite.statements[model].scan_state))

    def values(self, model: Model) -> Iterable[tuple[Any, ...]]:
        return self._run(f"SELECT * FROM {quoted(values_table(model))}")

    def index_rows(self, index: IndexMaintenance) -> Iterable[IndexRow]:
        return self._run(self._sqlite.indexes[index.model].scan)

    def index_row(self, index: IndexMaintenance, key: IndexRow) -> IndexRow | None:
        return next(self._run(self._sqlite.indexes[index.model].get, key), None)

    def index_count(self, index: IndexMaintenance) -> int:
        return int(next(self._run(f"SELECT count(*) FROM {quoted(self._sqlite.indexes[index.model].name)}"))[0])


def _moved(table: EntityTable, rows: Rows) -> Iterator[Problem]:
    """Check that each row with large values has them, and that there are no others."""
    if not table.spills:
        return
    name, big = quoted(table.name), quoted(table.big_name)
    lost = (
        f'SELECT "PartitionKey", "RowKey" FROM {name} WHERE "_big" IS NOT NULL AND "_big" NOT IN (SELECT id FROM {big})'
    )
    for key in rows(lost):
        yield Problem("missing", table.name, key, "its large values are not there")
    others = f'SELECT id FROM {big} WHERE id NOT IN (SELECT "_big" FROM {name} WHERE "_big" IS NOT NULL)'
    for key in rows(others):
        yield Problem("dangling", table.big_name, key, "large values of no entity")
