"""Apply operations: entity rows, then index rows, then aggregates, table by table, inside one transaction.

Statement by statement would cost more: each table's rows are written together, sorted by key. Everything is judged on
the final state: all index rows that go are deleted before any that comes is put, so that two entities can swap a unique
value in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Literal

import apsw
import attrs

from ...errors import (
    CorruptStore,
    EntityExists,
    EntityNotFound,
    InvalidTransaction,
    PreconditionFailed,
    UniqueViolation,
)
from ...schema.groups import Delta
from ...schema.maintenance import (
    AggregateMaintenance,
    ChangeSet,
    Groups,
    IndexChanges,
    IndexMaintenance,
    IndexRow,
)
from ...schema.model import Model
from ...schema.rows import Row
from ..protocol import Batch, Operation
from .file.file import Writer
from .statements import IndexTable, SqliteSchema, Statements, Values

__all__ = [
    "Vanished", "apply", "delete_rows", "exists", "insert", "insert_rows", "missing", "put_rows", "stale",
    "write_changes", "write_groups", "write_indexes",
]  # fmt: skip

_first, _second = itemgetter(0), itemgetter(1)


_CHUNK = 2_000  # rows that a processor keeps at hand
_PAGES = 8_000  # that the connection's cache holds


@attrs.define(eq=False)
class _Batch:
    """The operations of a transaction on entities of one class, by what they turned out to do."""

    inserts: list[Operation] = attrs.field(factory=list)
    updates: list[Operation] = attrs.field(factory=list)
    deletes: list[Operation] = attrs.field(factory=list)


def apply(
    lowered: SqliteSchema, writer: Writer, operations: Sequence[Operation], maintained_limit: int | None = None
) -> None:
    """Apply operations on different entities; each gets the row that was stored as its ``new``.

    Raises:
        EntityExists, EntityNotFound, PreconditionFailed, UniqueViolation: the caller rolls back.
        InvalidTransaction: more rows than ``maintained_limit`` would be written.
    """
    batches: dict[Model, _Batch] = {}
    for operation in operations:
        batch = batches.get(operation.model)
        if batch is None:
            batch = batches[operation.model] = _Batch()
        if operation.verb == "insert":
            batch.inserts.append(operation)
            continue
        if operation.old is None:
            _read(lowered, writer, operation)
        if operation.verb == "delete":
            batch.deletes.append(operation)
        else:
            if operation.change is not None:
                operation.new = operation.change(operation.old)
            (batch.inserts if operation.old is None else batch.updates).append(operation)
    changes = ChangeSet()
    for model, batch in batches.items():
        kept = lowered.maintenance[model]
        if batch.deletes:
            changes.removed(kept, _olds(batch.deletes))
        if batch.updates:
            changes.changed(kept, list(zip(_olds(batch.updates), _news(batch.updates), strict=True)))
        if batch.inserts:
            changes.added(kept, _news(batch.inserts))
    for model, batch in batches.items():
        statements = lowered.statements[model]
        if batch.deletes:
            _delete(statements, writer, batch.deletes)
        if batch.updates:
            _update(statements, writer, batch.updates)
        if batch.inserts:
            rows = insert_rows(statements, writer, _news(batch.inserts))
            for operation, row in zip(batch.inserts, rows, strict=True):
                operation.new = row
    write_changes(lowered, writer, changes)
    if maintained_limit is not None and len(operations) + changes.rows > maintained_limit:
        raise InvalidTransaction(
            f"{len(operations)} operations write {changes.rows} rows of indexes and aggregates too, which makes more "
            f"than {maintained_limit} in one entity group transaction; split it"
        )


def insert(lowered: SqliteSchema, writer: Writer, batches: Iterable[Batch]) -> None:
    """Insert many entities; each batch gets its rows as they were stored.

    Raises:
        EntityExists, UniqueViolation: the caller rolls back.
    """
    groups: dict[AggregateMaintenance, Groups] = {}
    (pages,) = writer.get("PRAGMA page_count") or (0,)
    for batch in batches:
        statements, kept = lowered.statements[batch.model], lowered.maintenance[batch.model]
        # A file that is not in the cache is gone through once, in order; else that makes no difference.
        chunk = _CHUNK if pages < _PAGES else len(batch.rows)
        for at in range(0, len(batch.rows), chunk):
            rows = insert_rows(statements, writer, batch.rows[at : at + chunk])
            batch.rows[at : at + chunk] = rows
            # In the order of the keys, so that index rows that are equal in their own key have it too.
            changes = ChangeSet(groups=groups)
            changes.added(kept, _sorted(rows))
            write_indexes(lowered, writer, changes)
    write_changes(lowered, writer, ChangeSet(groups=groups))


def _olds(group: list[Operation]) -> list[Row]:
    """Return the rows as they are; every one of them was read."""
    return [operation.old for operation in group]  # type: ignore[misc]


def _news(group: list[Operation]) -> list[Row]:
    """Return the rows as they will be; none of them goes."""
    return [operation.new for operation in group]  # type: ignore[misc]


def _read(lowered: SqliteSchema, writer: Writer, operation: Operation) -> None:
    """Read what an operation is about to change, and judge its condition."""
    stored = writer.get(lowered.statements[operation.model].get, operation.key)
    if stored is None:
        if operation.verb == "upsert":
            return
        raise missing(operation)
    if operation.etag is not None and stored[2] != operation.etag:
        raise stale(operation)
    operation.old = stored


def missing(operation: Operation) -> EntityNotFound:
    """Return the error of an operation on an entity that is not there."""
    return EntityNotFound(f"{operation}: there is no such entity", entity=operation.model.name, key=operation.key)


class Vanished(Exception):
    """One of these deletes found nothing; which one is seen only once they are undone."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        super().__init__("a delete found nothing")
        self.operations = operations


def stale(operation: Operation) -> PreconditionFailed:
    """Return the error of an operation on an entity that was written since it was read."""
    return PreconditionFailed(
        f'{operation}: it was written since it was read; read it again, or say if_match="*" to overwrite',
        entity=operation.model.name,
        key=operation.key,
    )


def exists(model: Model, row: Row, holder: Row | None) -> EntityExists:
    """Return the error of the insert of a row whose key another one holds.

    What the key holds with a loss can differ between the two: then the values are told.
    """
    fault = "the entity exists already; replace, merge or upsert it"
    if holder is not None and (slots := model.declaration.lossy_slots):
        new, old = model.build_one(row), model.build_one(holder)
        pairs = [(slot, getattr(new, slot.field), getattr(old, slot.field)) for slot in slots]
        if told := [f"{slot} makes one key of {a!r} and the stored {b!r}" for slot, a, b in pairs if a != b]:
            fault = f"{' and '.join(told)}; replace, merge or upsert that entity, or choose another value"
    operation = Operation("insert", model, *row[:2])
    return EntityExists(f"{operation}: {fault}", entity=model.name, key=operation.key)


class Get:
    """How a row is got by its key: with what is moved aside or without, whichever was right for the last one."""

    __slots__ = ("_lean", "_sql", "_whole")

    def __init__(self, statements: Statements) -> None:
        self._lean = self._sql = statements.get_lean
        self._whole = statements.get if statements.has_big else None

    def row(self, read: Callable[[str, Sequence[Any]], Row | None], key: Sequence[str]) -> Row | None:
        """Return the row, read by a function that gives the first row of a statement."""
        sql = self._sql
        row = read(sql, key)
        if row is None or self._whole is None:
            return row
        if row[-1] is None:
            self._sql = self._lean
        elif sql is self._lean:
            self._sql = self._whole
            row = read(self._whole, key)
        return row


# ---------------------------------------------------------------------------------------------- entity rows


def insert_rows(statements: Statements, writer: Writer, rows: list[Row]) -> list[Row]:
    """Insert rows; return them as they are read."""
    stored, in_table = _stamped(statements, writer, rows)
    before = writer.total_changes()
    try:
        _write(writer, statements.insert, _sorted(in_table))
    except apsw.ConstraintError:
        row = _sorted(stored)[writer.total_changes() - before]  # those in front of it were inserted
        raise exists(statements.model, row, writer.get(statements.get, row[:2])) from None
    return stored


def _write(writer: Writer, sql: str, rows: Sequence[Row]) -> None:
    """Run a statement for each row."""
    if len(rows) == 1:
        writer.execute(sql, rows[0])
    else:
        writer.executemany(sql, rows)


def _sorted(rows: list[Row]) -> list[Row]:
    """Return rows in the order of their first two values; rows that are equal there stay in the order they have."""
    if len(rows) < 2:
        return rows
    rows = sorted(rows, key=_second)  # twice by one text takes half as long as once by two
    rows.sort(key=_first)
    return rows


def _stamped(statements: Statements, writer: Writer, rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return rows with this transaction's timestamp, as they are read and as the table holds them.

    Large values are moved aside, and the table's rows are without them.
    """
    stored, large = statements.stamp(rows, writer.timestamp)
    if not large:
        return stored, stored
    in_table = stored.copy()
    moved = _move_aside(statements, writer, [stored[at] for at in large])
    for at, (row, lean) in zip(large, moved, strict=True):
        stored[at], in_table[at] = row, lean
    return stored, in_table


def _move_aside(statements: Statements, writer: Writer, rows: list[Row]) -> Iterator[tuple[Row, Row]]:
    """Write large values where they go; yield each row as it is read, and as the table holds it."""
    (number,) = writer.get(statements.big_next, ()) or (1,)
    for row in rows:
        moved = statements.spills(row)
        if not moved:
            yield row, row
            continue
        writer.execute(
            statements.big_insert, (number, *[row[at] if at in moved else None for at in statements.spilled])
        )
        left = [None if at in moved else value for at, value in enumerate(row[:-1])]
        yield (*row[:-1], number), (*left, number)
        number += 1


def _update(statements: Statements, writer: Writer, group: list[Operation]) -> None:
    _drop_big(statements, writer, group)
    stored, in_table = _stamped(statements, writer, _news(group))
    changed = [(*row, old[2]) for row, old in zip(in_table, _olds(group), strict=True)]
    before = writer.total_changes()
    _write(writer, statements.update, _sorted(changed))
    if writer.total_changes() - before != len(group):
        raise _unproven(statements, writer, group, written=True)
    for operation, row in zip(group, stored, strict=True):
        operation.new = row


def _delete(statements: Statements, writer: Writer, group: list[Operation]) -> None:
    _drop_big(statements, writer, group)
    before = writer.total_changes()
    _write(writer, statements.delete, _sorted([old[:3] for old in _olds(group)]))
    if writer.total_changes() - before != len(group):
        raise _unproven(statements, writer, group, written=False)


def _drop_big(statements: Statements, writer: Writer, group: list[Operation]) -> None:
    if statements.has_big:
        old = [(operation.old[-1],) for operation in group if operation.old and operation.old[-1] is not None]
        if old:
            writer.executemany(statements.big_delete, old)


def _unproven(statements: Statements, writer: Writer, group: list[Operation], *, written: bool) -> Exception:
    """Return the error of the first operation whose entity was not as it was read."""
    for operation in group:
        stored = writer.get(statements.get, operation.key)
        if stored is None and written:
            return missing(operation)
        if stored is not None and (not written or stored[2] != writer.timestamp):
            return stale(operation)
    return Vanished(group)


# ---------------------------------------------------------------------------------------------- maintained rows


def write_changes(lowered: SqliteSchema, writer: Writer, changes: ChangeSet) -> None:
    """Write what a change set says about aggregates and indexes; it gets what groups change in their own indexes."""
    write_groups(lowered, writer, changes)
    write_indexes(lowered, writer, changes)


def write_indexes(lowered: SqliteSchema, writer: Writer, changes: ChangeSet) -> None:
    """Write what a change set says about indexes."""
    for index, change in changes.indexes.items():
        if change.deletes:
            delete_rows(lowered, index, writer, change.deletes)
    for index, change in changes.indexes.items():
        _put(lowered, index, writer, change)


def write_groups(lowered: SqliteSchema, writer: Writer, changes: ChangeSet) -> None:
    """Write what changes in the groups of aggregates, and add to the set what that changes in indexes on them."""
    for aggregate, groups in changes.groups.items():
        _aggregate(lowered, writer, aggregate, groups, changes)


def _put(lowered: SqliteSchema, index: IndexMaintenance, writer: Writer, change: IndexChanges) -> None:
    if change.rewrites:
        writer.executemany(lowered.indexes[index.model.table].put, change.rewrites)
    if change.puts:
        put_rows(lowered, index, writer, _sorted(change.puts))


def delete_rows(lowered: SqliteSchema, index: IndexMaintenance, writer: Writer, rows: list[IndexRow]) -> None:
    """Delete rows of an index."""
    before = writer.total_changes()
    _write(writer, lowered.indexes[index.model.table].delete, [row[:4] for row in _sorted(rows)])
    if writer.total_changes() - before != len(rows):
        raise CorruptStore(f"{index.owner.name}.{index.model.name}: index rows were missing; run check()")


def put_rows(lowered: SqliteSchema, index: IndexMaintenance, writer: Writer, rows: list[IndexRow]) -> None:
    """Insert rows of an index, sorted by key."""
    table = lowered.indexes[index.model.table]
    try:
        _write(writer, table.insert, rows)
    except apsw.ConstraintError:
        if not index.model.unique:
            raise CorruptStore(f"{index.owner.name}.{index.model.name}: dangling index rows; run check()") from None
        raise _violation(table, index, writer, rows) from None


def _violation(
    table: IndexTable, index: IndexMaintenance, writer: Writer, puts: list[tuple[Any, ...]]
) -> UniqueViolation:
    label = f"{index.owner.name}.{index.model.name}"
    for row in puts:
        held = writer.get(table.holder, row[:2])
        holders = [] if held is None else [held]
        holders += [other[2:4] for other in puts if other[:2] == row[:2]]
        for holder in holders:
            if tuple(holder) != row[2:4]:
                where = f"{row[0]!r} / {row[1]!r}" if row[1] else repr(row[0])
                return UniqueViolation(
                    f"{label}: {index.owner.name} {row[2:4]} can not have {where}, which {tuple(holder)} holds; "
                    "change one of them, or swap both in one transaction",
                    entity=index.owner.name, key=row[2:4], index=index.model.name, holder=tuple(holder),
                )  # fmt: skip
    return UniqueViolation(f"{label}: a value is held twice", entity=index.owner.name, index=index.model.name)


def _aggregate(
    lowered: SqliteSchema, writer: Writer, kept: AggregateMaintenance, groups: Groups, changes: ChangeSet
) -> None:
    aggregate = kept.aggregate
    statements = lowered.statements[kept.model]
    values = lowered.values.get(kept.model)
    execute, timestamp = writer.execute, writer.timestamp
    tail = (None,) if statements.has_big else ()
    puts: list[Row] = []
    new: list[Row] = []
    changed: list[tuple[Row, Row]] = []
    gone: list[Row] = []
    keyed = [(kept.key(group), delta) for group, delta in groups.items()]
    keyed.sort(key=_first)
    for key, delta in keyed:
        seek = _no_seek
        if values is not None:
            _count_values(aggregate.counted_slots, values, writer, key, delta)
            seek = partial(_seek, writer, values, key)
        stored = execute(statements.get_group, key).fetchone()
        if stored is None:
            state = aggregate.combine(None, delta, seek)
            if state is not None:
                new.append(row := kept.row(*key, timestamp, state))
                puts.append((*row, *tail, aggregate.pack(state)))
            continue
        written, *shown, blob = stored
        state = aggregate.combine(aggregate.unpack(blob), delta, seek)
        if state is None:
            gone.append((*key, written, *shown))
            continue
        packed = aggregate.pack(state)
        if packed == blob:
            continue
        row = kept.row(*key, timestamp, state)
        if [*row[3:]] == shown:  # what is shown did not change, so neither does its ETag
            row = (*key, written, *row[3:])
        else:
            changed.append(((*key, written, *shown), row))
        puts.append((*row, *tail, packed))
    if puts:
        _write(writer, statements.put, puts)
    if gone:
        _write(writer, statements.delete, [row[:3] for row in gone])
    indexes = lowered.maintenance[kept.model]
    if indexes.indexes:
        changes.removed(indexes, gone)
        changes.changed(indexes, changed)
        changes.added(indexes, new)


def _seek(writer: Writer, values: Values, key: tuple[str, str], slot: int, end: Literal["min", "max"]) -> Any:
    found = writer.get(values.least if end == "min" else values.greatest, (*key, slot))
    return None if found is None else found[0]


def _no_seek(slot: int, end: Literal["min", "max"]) -> Any:
    raise AssertionError("an aggregate without extremes looks for none")


def _count_values(slots: Iterable[int], values: Values, writer: Writer, key: tuple[str, str], delta: Delta) -> None:
    for at in slots:
        for value, count in delta[at + 1].items():
            if not count:
                continue
            place = (*key, at, value)
            writer.execute(values.count, (*place, count))
            if count < 0:
                writer.execute(values.forget, place)
