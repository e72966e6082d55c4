"""The check of a file: statements read what `engines.check` compares, and what SQLite and this engine keep besides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....catalogue.tables import Table
from ....evolution.newer_versions import unknown_value
from ....progress import Meter
from ....schema.maintenance import AggregateMaintenance, IndexMaintenance, IndexRow
from ....schema.model import Model
from ....schema.rows import Row
from ...check import CheckFinding, ConsistencyCheck, Problem
from ..sql.ddl import quoted
from ..sql.schema import SqliteSchema
from .duplicate_values import FIND_NOTE, NOTES
from .jobs import duties
from .mirrors import script_sides

Rows = Callable[..., Iterator[Row]]
"""Runs a statement and yields its rows."""


def examine(
    sqlite: SqliteSchema, rows: Rows, integrity: list[str], newest: int, meter: Meter
) -> tuple[ConsistencyCheck, list[CheckFinding]]:
    """Check every table of the opened models, within one state of the store; return the check and what it found.

    Args:
        integrity: what SQLite's own check found.
        newest: the highest timestamp that was given out.
    """

    def first(sql: str, args: Sequence[Any]) -> Row | None:
        return next(rows(sql, args), None)

    maintained = {model: duties(sqlite, first, model) for model in sqlite.maintenance}
    check = ConsistencyCheck(maintained, _Stored(sqlite, rows), newest, meter)
    aggregates = {
        aggregate.model.name: aggregate
        for parts in maintained.values()
        for part, _ in parts
        for aggregate in part.aggregates
    }
    spill_findings = (
        finding for table in sqlite.catalogue.tables.values() for finding in _check_spills(table, aggregates, rows)
    )
    damaged = [CheckFinding(Problem("damaged", "file", (), line)) for line in integrity]
    return check, [*damaged, *check.findings(spill_findings)]


def examine_twins(sqlite: SqliteSchema, rows: Rows, integrity: list[str]) -> tuple[list[CheckFinding], tuple[str, ...]]:
    """Compare twins with what scripts convert to them; return the findings, and the twins of unknown scripts."""
    if integrity:
        return [], ()
    switched = {entry.id: entry.switched or 0 for entry in sqlite.stored.history}
    findings = []
    for migration, side in script_sides(sqlite):
        where = f"{side.name} before {migration}"
        for kind, key, detail in side.differences(rows, switched[migration]):
            remedy = "let the old version end, with tm.migrate(…, contract=True)"
            findings.append(CheckFinding(Problem(kind, where, key, detail), None, remedy))
    unknown = [
        f"{link.old} before {twin.migration}: what it should hold is not known without migrations= that contain that"
        for twins in sqlite.stale_twins.values()
        for twin in twins
        for link in twin.links
        if link.steps
    ]
    return findings, tuple(dict.fromkeys(unknown))


class _Stored:
    """The tables of a file, as the check reads them."""

    def __init__(self, sqlite: SqliteSchema, rows: Rows) -> None:
        self._sqlite = sqlite
        self._run = rows

    def with_stored_fields(self, model: Model) -> Model:
        return self._sqlite.statements[model].model

    def unknown(self, model: Model) -> Callable[[Row], str | None] | None:
        return unknown_value(self._sqlite.extended.get(model))

    def count(self, model: Model) -> int:
        return int(next(self._run(self._sqlite.statements[model].count))[0])

    def rows(self, model: Model) -> Iterable[Row]:
        return self._run(self._sqlite.statements[model].scan)

    def row(self, model: Model, partition: str, row: str) -> Row | None:
        return next(self._run(self._sqlite.statements[model].get, (partition, row)), None)

    def groups(self, model: Model) -> Iterable[tuple[Row, bytes]]:
        return ((row[:-1], row[-1]) for row in self._run(self._sqlite.statements[model].scan_state))

    def values(self, model: Model) -> Iterable[tuple[Any, ...]]:
        return self._run(f"SELECT * FROM {quoted(self._sqlite.values_table(model))}")

    def index_rows(self, index: IndexMaintenance) -> Iterable[IndexRow]:
        return self._run(self._sqlite.indexes[index.model].scan)

    def index_row(self, index: IndexMaintenance, key: IndexRow) -> IndexRow | None:
        return next(self._run(self._sqlite.indexes[index.model].get, key), None)

    def is_noted(self, index: IndexMaintenance, key: IndexRow) -> bool:
        return index in self._sqlite.contested and next(self._run(FIND_NOTE, (index.label, *key)), None) is not None

    def notes(self, index: IndexMaintenance) -> Iterable[IndexRow]:
        return self._run(NOTES, (index.label,)) if index in self._sqlite.contested else ()

    def holder(self, index: IndexMaintenance, partition: str, row: str) -> Row | None:
        return next(self._run(self._sqlite.indexes[index.model].holder, (partition, row)), None)


def _check_spills(table: Table, aggregates: Mapping[str, AggregateMaintenance], rows: Rows) -> Iterator[CheckFinding]:
    """Check that each row with large values has them, and that there are no others."""
    if not table.spills:
        return
    name, big = quoted(table.name), quoted(table.big_name)
    kind = '"_type"' if "_type" in table.has else "NULL"
    missing_values = (
        f'SELECT "PartitionKey", "RowKey", {kind} FROM {name} '
        f'WHERE "_big" IS NOT NULL AND "_big" NOT IN (SELECT id FROM {big})'
    )
    for *key, number in rows(missing_values):
        problem = Problem("missing", table.name, tuple(key), "its large values are not there")
        names = [type_name for at, type_name in enumerate(table.types) if (at or None) == number]
        yield CheckFinding(
            problem, next((aggregates[type_name] for type_name in names if type_name in aggregates), None)
        )
    dangling_values = f'SELECT id FROM {big} WHERE id NOT IN (SELECT "_big" FROM {name} WHERE "_big" IS NOT NULL)'
    for (at,) in rows(dangling_values):
        yield CheckFinding(Problem("dangling", table.big_name, (at,), "large values of no entity"), table)
