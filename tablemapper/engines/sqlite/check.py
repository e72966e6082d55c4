"""The check of a file: all that is maintained, recomputed from the entities by the definition that maintains it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...errors import CorruptStore, TableMapperError
from ...progress import Meter
from ...schema.check import Problem, Report, expected_state
from ...schema.maintenance import AggregateMaintenance, Groups, IndexMaintenance, IndexRow, Maintenance
from ...schema.model import Model
from ...schema.rows import Row
from .statements import SqliteSchema
from .tables import quoted, values_table

__all__ = ["scrub"]

Rows = Callable[..., Iterator[Row]]
"""Runs a statement and yields its rows."""


def scrub(lowered: SqliteSchema, rows: Rows, integrity: list[str], last: int, meter: Meter) -> Report:
    """Check every table of the opened models, within one state of the store.

    Args:
        lowered: the models.
        rows: runs a statement.
        integrity: what SQLite's own check found.
        last: the highest timestamp that was given out.
        meter: counts each entity.
    """
    checking = _Check(lowered, rows, last)
    problems = [Problem("damaged", "file", (), line) for line in integrity]
    try:
        for model in lowered.schema.models:
            if model.aggregate is None:
                problems += checking.entities(model, meter)
        for aggregate in checking.aggregates():
            problems += checking.groups(aggregate)
        for table in lowered.tables:
            problems += checking.moved(table)
    except CorruptStore as error:
        problems.append(Problem("damaged", "file", (), str(error)))
    return Report(checking.entity_count, checking.index_count, checking.group_count, tuple(problems))


_UNREADABLE = (TableMapperError, ValueError, TypeError, AttributeError, ArithmeticError)


class _Check:
    def __init__(self, lowered: SqliteSchema, rows: Rows, last: int) -> None:
        self.lowered = lowered
        self.rows = rows
        self.last = last
        self.groups_of: dict[AggregateMaintenance, Groups] = {aggregate: {} for aggregate in self.aggregates()}
        self.entity_count = self.index_count = self.group_count = 0

    def entities(self, model: Model, meter: Meter) -> Iterator[Problem]:
        """Check the rows of a class, and its index rows against them."""
        kept = self.lowered.maintenance[model]
        counts = dict.fromkeys(kept.indexes, 0)
        for row in self.rows(self.lowered.statements[model].scan):
            self.entity_count += 1
            meter.advance(1)
            try:
                yield from self._wrong(model, row)
                entries = _entries(kept, row)
                for aggregate in kept.aggregates:
                    aggregate.collect((row,), self.groups_of[aggregate], 1)
            except _UNREADABLE as error:
                yield Problem("damaged", model.name, row[:2], str(error))
                continue
            yield from self._present(entries, counts)
        yield from self._no_others(counts)

    def _wrong(self, model: Model, row: Row) -> Iterator[Problem]:
        """Check what a row says of itself; raises if it cannot be read."""
        for at, field in enumerate(model.columns, 3):
            if row[at] is not None:
                field.type.load(row[at])  # strictly: a read from our own store trusts it
        entity = model.build_one(row)
        made = model.cls.key(*(getattr(entity, name) for name in model.declaration.arguments))
        if (made.partition, made.row) != row[:2]:
            yield Problem("wrong", model.name, row[:2], f"its fields make the key {made[1:]}")
        if not 0 < row[2] <= self.last:
            yield Problem("wrong", model.name, row[:2], f"its timestamp {row[2]} was never given out")

    def _present(
        self, entries: list[tuple[IndexMaintenance, IndexRow]], counts: dict[IndexMaintenance, int]
    ) -> Iterator[Problem]:
        """Check that the index rows of an entity or a group are there, and count those that are."""
        columns = " AND ".join(f"{quoted(c)} = ?" for c in ("PartitionKey", "RowKey", "_pk", "_rk"))
        for index, entry in entries:
            where = f"{index.owner.name}.{index.model.name}"
            found = next(self.rows(f"SELECT * FROM {quoted(index.model.table)} WHERE {columns}", entry[:4]), None)
            if found is None:
                yield Problem("missing", where, entry[:4], f"the {index.owner.name} has no such row in the index")
                continue
            counts[index] += 1
            if not _same(found, entry):
                yield Problem("wrong", where, entry[:4], f"expected {entry[4:]}, found {found[4:]}")

    def _no_others(self, counts: dict[IndexMaintenance, int]) -> Iterator[Problem]:
        """Check that indexes have no rows but those that were counted."""
        for index, count in counts.items():
            self.index_count += count
            found = next(self.rows(f"SELECT count(*) FROM {quoted(index.model.table)}"))[0]
            if found != count:
                yield from self._dangling(index)

    def _dangling(self, index: IndexMaintenance) -> Iterator[Problem]:
        where = f"{index.owner.name}.{index.model.name}"
        get = self.lowered.statements[index.owner].get
        for entry in self.rows(self.lowered.indexes[index.model.table].scan):
            row = next(self.rows(get, entry[2:4]), None)
            try:
                stands = row is not None and any(wanted[:4] == entry[:4] for wanted in index.rows((row,)))
            except _UNREADABLE:
                continue  # reported with its entity
            if not stands:
                yield Problem("dangling", where, entry[:4], f"no {index.owner.name} says that this row should be there")

    def aggregates(self) -> Iterator[AggregateMaintenance]:
        """Yield every aggregate that is maintained from an opened class."""
        for kept in self.lowered.maintenance.values():
            yield from kept.aggregates

    def groups(self, kept: AggregateMaintenance) -> Iterator[Problem]:
        """Check the groups of one aggregate, their index rows, and the live values that its extremes are found by."""
        model, aggregate = kept.model, kept.aggregate
        deltas = {}
        for group, delta in self.groups_of[kept].items():
            try:
                deltas[kept.key(group)] = delta
            except _UNREADABLE as error:
                yield Problem("damaged", model.name, (group,), str(error))
        seen = set()
        indexed = self.lowered.maintenance[model]
        counts = dict.fromkeys(indexed.indexes, 0)
        for *stored, blob in self.rows(self.lowered.statements[model].scan_state):
            key = (stored[0], stored[1])
            seen.add(key)
            self.group_count += 1
            state = aggregate.unpack(blob)
            expected = expected_state(aggregate, deltas.get(key, aggregate.zero()), state)
            if expected is None:
                yield Problem("dangling", model.name, key, "the group has no entity")
            elif expected != state:
                yield Problem(
                    "wrong", model.name, key, f"expected {aggregate.shown(expected)}, found {aggregate.shown(state)}"
                )
            elif not _same(shown := kept.row(*key, stored[2], state), stored[: len(shown)]):
                yield Problem(
                    "wrong", model.name, key, f"its columns show {tuple(stored[3:])}, but its state is {shown[3:]}"
                )
            try:
                entries = _entries(indexed, tuple(stored))
            except _UNREADABLE as error:
                yield Problem("damaged", model.name, key, str(error))
                continue
            yield from self._present(entries, counts)
        yield from self._no_others(counts)
        for key in deltas.keys() - seen:
            if deltas[key][0]:
                yield Problem("missing", model.name, key, f"the group has {deltas[key][0]} entities")
        yield from self._values(model, deltas)

    def _values(self, model: Model, deltas: dict[tuple[str, str], Any]) -> Iterator[Problem]:
        assert model.aggregate is not None
        counted = model.aggregate.counted_slots
        if not counted:
            return
        expected = {
            (*key, at, value): count
            for key, delta in deltas.items()
            for at in counted
            for value, count in delta[at + 1].items()
        }
        for *place, count in self.rows(f"SELECT * FROM {quoted(values_table(model))}"):
            if expected.pop(tuple(place), None) != count:
                yield Problem("wrong", f"{model.name} values", tuple(place), f"counted {count} times")
        for place_, count in expected.items():
            yield Problem("missing", f"{model.name} values", place_, f"should be counted {count} times")

    def moved(self, name: str) -> Iterator[Problem]:
        """Check that each row with large values has them, and that there are no others."""
        table = self.lowered.tables[name]
        if not table.spills:
            return
        big = quoted(table.big_name)
        lost = (
            f'SELECT "PartitionKey", "RowKey" FROM {quoted(name)} '
            f'WHERE "_big" IS NOT NULL AND "_big" NOT IN (SELECT id FROM {big})'
        )
        for key in self.rows(lost):
            yield Problem("missing", name, key, "its large values are not there")
        for key in self.rows(
            f'SELECT id FROM {big} WHERE id NOT IN (SELECT "_big" FROM {quoted(name)} WHERE "_big" IS NOT NULL)'
        ):
            yield Problem("dangling", table.big_name, key, "large values of no entity")


def _entries(kept: Maintenance, row: Row) -> list[tuple[IndexMaintenance, IndexRow]]:
    """Return the rows that an entity or a group should have in the indexes on its class."""
    return [(index, entry) for index in kept.indexes for entry in index.rows((row,))]


def _same(a: Any, b: Any) -> bool:
    """Compare rows by value and class: 1, 1.0 and True are three values."""
    return len(a) == len(b) and all(x == y and x.__class__ is y.__class__ for x, y in zip(a, b, strict=True))
