"""The writer of maintained rows: those of indexes, and of aggregates' groups.

Everything is judged on the final state: all index rows that go are deleted before any that comes is put. So two
entities, or two groups, can swap a unique value in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Literal, TypeAlias

import apsw

from ....errors import CorruptStore, SchemaMismatch, TableMapperError
from ....schema.aggregate_model import Delta
from ....schema.maintenance import (
    AggregateMaintenance,
    ChangeSet,
    Groups,
    IndexChanges,
    IndexMaintenance,
    IndexRow,
    Maintenance,
)
from ....schema.model import Model
from ....schema.rows import DAMAGE, Row, unreadable
from ....schema.slots import Seek
from ...write_decision import violation
from ..file.writer import Writer, sorted_rows
from ..sql.index_tables import ValuesTable
from ..sql.schema import SqliteSchema
from ..sql.statements import Statements
from .duplicate_values import delete_contested, is_noted, put_contested
from .jobs import duties

Part: TypeAlias = Callable[[Maintenance], Maintenance]
"""A part of what is maintained: ``of_indexes`` or ``of_aggregates``."""


def collect(
    sqlite: SqliteSchema,
    writer: Writer,
    model: Model,
    changes: ChangeSet,
    deletes: Sequence[Row] = (),
    updates: Sequence[tuple[Row, Row]] = (),
    inserts: Sequence[Row] = (),
    part: Part | None = None,
) -> None:
    """Add to a set what entities of a class, or groups, change in what is maintained from them, or in a part of that."""
    for maintenance, concerns in duties(sqlite, writer.get, model):
        kept_part = maintenance if part is None else part(maintenance)
        if deletes:
            changes.removed(kept_part, deletes if concerns is None else list(filter(concerns, deletes)))
        if updates:
            changes.changed(kept_part, updates if concerns is None else [pair for pair in updates if concerns(pair[0])])
        if inserts:
            changes.added(kept_part, inserts if concerns is None else list(filter(concerns, inserts)))


def with_maintained(statements: Statements, writer: Writer, row: Row) -> Row:
    """Return a row with the maintained fields that its key has."""
    values = list(row)
    for at, value in zip(statements.maintained_places, writer.get(statements.maintained, row[:2]) or (), strict=True):
        values[at] = value
    return tuple(values)


def write_changes(sqlite: SqliteSchema, writer: Writer, changes: ChangeSet) -> None:
    """Write what a change set says about aggregates and indexes; it gets what groups change in their own indexes."""
    write_groups(sqlite, writer, changes)
    if changes.indexes:
        write_indexes(sqlite, writer, changes)


def write_indexes(sqlite: SqliteSchema, writer: Writer, changes: ChangeSet) -> None:
    """Write what a change set says about indexes."""
    for index, change in changes.indexes.items():
        if change.deletes:
            delete_rows(sqlite, index, writer, change.deletes)
    for index, change in changes.indexes.items():
        _put(sqlite, index, writer, change)


def write_groups(
    sqlite: SqliteSchema, writer: Writer, changes: ChangeSet, excluded: Collection[tuple[Model, tuple[str, str]]] = ()
) -> None:
    """Write what changes in the groups of aggregates, and add to the set what that changes in indexes.

    Those are on the groups, and on entities that have maintained fields in groups.

    Args:
        excluded: entities with maintained fields, by class and key, that change themselves: their rows are left out.
    """
    rows_before: dict[Model, dict[tuple[str, str], Row]] = {}
    for aggregate, groups in changes.groups.items():
        _write_groups(sqlite, writer, aggregate, groups, changes, rows_before)
    for owner, rows in rows_before.items():
        get = sqlite.statements[owner].get
        rows_after = {key: writer.get(get, key) for key in rows if (owner, key) not in excluded}
        pairs = [(rows[key], row) for key, row in rows_after.items() if row is not None]
        collect(sqlite, writer, owner, changes, updates=pairs, part=attrgetter("of_indexes"))


def _put(sqlite: SqliteSchema, index: IndexMaintenance, writer: Writer, change: IndexChanges) -> None:
    rewrites = change.rewrites
    if index in sqlite.contested:
        rewrites = [row for row in rewrites if not is_noted(index, writer, row)]
    if rewrites:
        writer.executemany(sqlite.indexes[index.model].put, rewrites)
    if change.puts:
        put_rows(sqlite, index, writer, sorted_rows(change.puts))


def delete_rows(sqlite: SqliteSchema, index: IndexMaintenance, writer: Writer, rows: list[IndexRow]) -> None:
    """Delete rows of an index."""
    if index in sqlite.contested:
        delete_contested(sqlite, index, writer, rows)
        return
    count_before = writer.total_changes()
    writer.run(sqlite.indexes[index.model].delete, [row[:4] for row in sorted_rows(rows)])
    if writer.total_changes() - count_before != len(rows):
        raise CorruptStore(f"{index.label}: index rows were missing; call store.repair()")


def put_rows(sqlite: SqliteSchema, index: IndexMaintenance, writer: Writer, rows: list[IndexRow]) -> None:
    """Insert rows of an index, sorted by key."""
    table = sqlite.indexes[index.model]
    if sqlite.contested and sqlite.contested.get(index):
        put_contested(index, table, writer, rows)
        return
    try:
        if len(rows) == 1:
            writer.execute(table.insert, rows[0])
        else:
            writer.executemany(table.insert, rows)
    except apsw.ConstraintError:
        if not index.model.unique:
            raise CorruptStore(f"{index.label}: dangling index rows; call store.repair()") from None
        raise violation(index, lambda *key: writer.get(table.holder, key), rows) from None


def _write_groups(
    sqlite: SqliteSchema,
    writer: Writer,
    aggregate: AggregateMaintenance,
    groups: Groups,
    changes: ChangeSet,
    rows_before: dict[Model, dict[tuple[str, str], Row]],
) -> None:
    model, timestamp = aggregate.model, writer.timestamp
    statements = sqlite.statements[model]
    puts: list[Row] = []
    new: list[Row] = []
    updates: list[tuple[Row, Row]] = []
    deletes: list[Row] = []
    dependents = model in sqlite.dependents
    for key, stored_row, row in changed_groups(sqlite, writer, aggregate, groups):
        if row is None:
            assert stored_row is not None
            deletes.append((*key, *stored_row[:-1]))
            continue
        puts.append(row)
        if not dependents:
            continue
        if stored_row is None:
            new.append(row[:-1])
        elif row[2] == timestamp:  # else what is shown did not change, so neither did its ETag
            updates.append(((*key, *stored_row[:-1]), row[:-1]))
    if (owner := sqlite.owners.get(model.name)) is not None:
        owner_rows = rows_before.setdefault(owner, {})
        for row in (*new, *deletes, *[row for _, row in updates]):
            entity = None if row[:2] in owner_rows else writer.get(sqlite.statements[owner].get, row[:2])
            if entity is not None:
                owner_rows[row[:2]] = entity
    if puts:
        writer.run(statements.put, puts)
    if deletes:
        writer.run(statements.delete, [row[:3] for row in deletes])
    if dependents:
        collect(sqlite, writer, model, changes, deletes, updates, new, attrgetter("of_indexes"))


def changed_groups(
    sqlite: SqliteSchema, writer: Writer, aggregate: AggregateMaintenance, groups: Groups
) -> list[tuple[tuple[str, str], Row | None, Row | None]]:
    """Return the groups that change, in order: the key of each, its stored row, and the row after the change.

    None stands for none. What is counted of their values is written.
    """
    model = aggregate.model
    if (reason := sqlite.blocked.get(model)) is not None:
        raise SchemaMismatch(aggregate.aggregate.source.__name__, [reason])
    sql, values = sqlite.statements[model].get_group, sqlite.values.get(model)
    try:
        keyed = sorted(zip(map(aggregate.key, groups), groups.values(), strict=True), key=itemgetter(0))
    except TableMapperError:
        raise
    except DAMAGE as error:
        source = aggregate.aggregate.source.__name__
        raise CorruptStore(f"{source}: {model.name} cannot group a row: {error}; run check()") from error
    changes = []
    key: tuple[str, str] | None = None
    seek: Seek = _no_seek
    execute, advance, timestamp = writer.execute, aggregate.advance, writer.timestamp
    try:
        for key, delta in keyed:
            if values is not None:
                _count_values(aggregate.aggregate.counted_slots, values, writer, key, delta)
                seek = partial(seek_value, writer, values, key)
            stored_row: Any = execute(sql, key).fetchone()
            row = advance(key[0], key[1], timestamp, stored_row, delta, seek)
            if row is not stored_row:
                changes.append((key, stored_row, row))
    except TableMapperError:
        raise
    except DAMAGE as error:  # what is stored of the group, or of its live values
        raise unreadable(model.name, key, error, "call store.repair()") from error
    return changes


def seek_value(writer: Writer, values: ValuesTable, key: tuple[Any, ...], slot: int, end: Literal["min", "max"]) -> Any:
    """Return the least or greatest live value of a group, None if there is none."""
    value_row = writer.get(values.least if end == "min" else values.greatest, (*key, slot))
    return None if value_row is None else value_row[0]


def _no_seek(slot: int, end: Literal["min", "max"]) -> Any:
    raise AssertionError("an aggregate without extremes looks for none")


def _count_values(
    slots: Iterable[int], values: ValuesTable, writer: Writer, key: tuple[str, str], delta: Delta
) -> None:
    for at in slots:
        for value, count in delta[at + 1].items():
            if not count:
                continue
            place = (*key, at, value)
            writer.execute(values.count, (*place, count))
            if count < 0:
                writer.execute(values.forget, place)
