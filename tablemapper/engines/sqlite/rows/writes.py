"""Apply operations: the rows of entities, then what is maintained from them, inside one transaction.

Statement by statement would cost more: each table's rows are written together, sorted by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import apsw
import attrs

from ....errors import EntityExists, TableMapperError
from ....evolution.following import Followed
from ....limits import MAX_ENTITY
from ....schema.maintenance import AggregateMaintenance, ChangeSet, Groups, Maintenance
from ....schema.model import Model
from ....schema.rows import DAMAGE, Row, unreadable
from ...decide import check_limit, exists, missing, stale
from ...protocol import Batch, Operation, Part
from ..file.writer import Writer, sorted_rows
from ..sql.schema import SqliteSchema
from ..sql.statements import SPILL_ROW, Statements
from .building import settle
from .jobs import Passed, owed, queue
from .maintained import changed_groups, put_rows, write_changes, write_groups, write_indexes
from .twins import sides_of

__all__ = [
    "Get",
    "Vanished",
    "apply",
    "completed_rows",
    "insert",
    "insert_rows",
    "keep_in_step",
]

Insert: TypeAlias = Callable[[Writer, Operation], None]
"""Inserts the entity of an operation, which gets the row that was stored."""

_CHUNK = 2_000  # rows that stay in a processor's cache
_PAGES = 8_000  # that the connection's cache holds
_NO_WIDTH = -1
_FEW, _SOME = 8, 64  # keys that one statement has places for: to compile another for each number would cost more


@attrs.define(eq=False)
class _Batch:
    """The operations of a transaction on entities of one class, by what they turned out to do."""

    width: int
    """Of an entity's row. One that an operation brings with it is read again if it has another."""
    inserts: list[Operation] = attrs.field(factory=list)
    updates: list[Operation] = attrs.field(factory=list)
    deletes: list[Operation] = attrs.field(factory=list)

    @property
    def all(self) -> Sequence[Operation]:
        return (*self.deletes, *self.updates, *self.inserts)

    def only(self, passed: Passed) -> _Batch:
        """Return the operations on entities that a cursor has passed."""
        # (Each write beside a job comes here: most have one operation.)
        inserts, updates, deletes = self.inserts, self.updates, self.deletes
        return _Batch(
            self.width,
            [one for one in inserts if passed(one.key)] if inserts else inserts,
            [one for one in updates if passed(one.key)] if updates else updates,
            [one for one in deletes if passed(one.key)] if deletes else deletes,
        )


def apply(
    sqlite: SqliteSchema, writer: Writer, operations: Sequence[Operation], maintained_limit: int | None = None
) -> None:
    """Apply operations on different entities; each gets the row that was stored as its ``new``.

    Raises:
        EntityExists, EntityNotFound, PreconditionFailed, UniqueViolation: the caller rolls back.
        InvalidTransaction: more rows than ``maintained_limit`` would be written.
    """
    one = operations[0]
    if one.verb == "insert" and len(operations) == 1 and maintained_limit is None and sqlite.plain:
        (sqlite.inserts.get(one.model) or _first_insert(sqlite, one.model))(writer, one)
        return
    try:
        _apply(sqlite, writer, operations, maintained_limit)
    except TableMapperError:
        raise
    except DAMAGE:
        for operation in operations:
            stored = operation.old
            if stored is not None and (fault := operation.model.fault_of(stored)) is not None:
                raise unreadable(operation.model.name, stored, fault) from None
        raise


def _first_insert(sqlite: SqliteSchema, model: Model) -> Insert:
    """Return what inserts one entity of a class, and keep it for the next one."""
    insert = sqlite.inserts[model] = _insert_one(sqlite, model)
    return insert


def _insert_one(sqlite: SqliteSchema, model: Model) -> Insert:
    """Return what inserts one entity, as `_apply` would, but without what only several operations need.

    What the class has is looked up once, and few functions are called: that is a tenth of the time of an insert.
    """
    if model in sqlite.keepers:
        return lambda writer, operation: _apply(sqlite, writer, [operation], None)
    statements, kept = sqlite.statements[model], sqlite.maintenance[model]
    stamp, sql, there = statements.stamp, statements.insert, statements.there
    indexes = [(index, index.rows, sqlite.indexes[index.model].insert) for index in kept.indexes]
    simple = [one for one in kept.aggregates if one.model not in sqlite.dependents]
    sums = [(one, one.collect, sqlite.statements[one.model].put) for one in simple]
    others = [one for one in kept.aggregates if one not in simple]

    def insert(writer: Writer, operation: Operation) -> None:
        execute = writer.execute
        inserted, large = stamp((operation.new,), writer.timestamp)  # type: ignore[arg-type]
        in_table = _in_table(statements, writer, inserted, large) if large else inserted
        try:
            execute(sql, in_table[0])
        except apsw.ConstraintError:
            raise _taken(statements, writer, inserted[0]) from None
        operation.new = row = inserted[0]
        writer.proof = there, row[:3]
        for index, rows_of, put in indexes:
            rows = rows_of(inserted)
            if len(rows) == 1 and index not in sqlite.contested:
                try:
                    execute(put, rows[0])
                    continue
                except apsw.ConstraintError:
                    pass  # and again, to find out why
            if rows:
                put_rows(sqlite, index, writer, sorted_rows(rows))
        for aggregate, collect, put in sums:
            groups: Groups = {}
            collect(inserted, groups, 1)
            for _, _, group in changed_groups(sqlite, writer, aggregate, groups):
                execute(put, group)
        if others:
            changes = ChangeSet()
            for aggregate in others:
                aggregate.collect(inserted, changes.groups.setdefault(aggregate, {}), 1)
            write_changes(sqlite, writer, changes)

    return insert


def _apply(sqlite: SqliteSchema, writer: Writer, operations: Sequence[Operation], maintained_limit: int | None) -> None:
    batches: dict[Model, _Batch] = {}
    for operation in operations:
        verb, model, old = operation.verb, operation.model, operation.old
        if verb == "require":
            _read(sqlite, writer, operation)
            continue
        batch = batches.get(model)
        if batch is None:
            # (What was read before the file had more properties is too short; maintained fields change at any time.)
            width = _NO_WIDTH if model in sqlite.keepers else sqlite.statements[model].width
            batch = batches[model] = _Batch(width)
        if verb == "insert":
            batch.inserts.append(operation)
            continue
        if old is None or len(old) != batch.width:
            if old is not None and operation.etag is None and batch.width == _NO_WIDTH:
                operation.etag = old[2]
            _read(sqlite, writer, operation)
        if verb == "delete":
            batch.deletes.append(operation)
            continue
        if operation.change is not None:
            operation.new = operation.change(operation.old)
        (batch.inserts if operation.old is None else batch.updates).append(operation)
    for model, followed in sqlite.followed.items():
        if followed.checked and (found := batches.get(model)) is not None:
            _complete(followed, found)
    before = [
        (model, side, side.places(writer, [one.key for one in batch.all]))
        for model, batch in (batches.items() if sqlite.twins else ())
        for side in sides_of(sqlite, model)
    ]
    changes = ChangeSet()
    if dependents := sqlite.keepers.keys() & batches.keys():
        # Groups first: what entities are in indexes may depend on what they come to be.
        _collect(sqlite, writer, batches, changes, lambda kept: Maintenance((), kept.aggregates))
        own = {(model, one.key) for model in dependents for one in batches[model].all}
        write_groups(sqlite, writer, changes, own)
        for model in dependents:
            _maintain(sqlite.statements[model], writer, batches[model])
        _collect(sqlite, writer, batches, changes, lambda kept: Maintenance(kept.indexes, ()))
    else:
        _collect(sqlite, writer, batches, changes, None)
    for model, batch in batches.items():
        statements = sqlite.statements[model]
        if batch.deletes:
            _delete(statements, writer, batch.deletes)
        if batch.updates:
            _update(statements, writer, batch.updates)
        if batch.inserts:
            rows = insert_rows(statements, writer, [one.new for one in batch.inserts])  # type: ignore[misc]
            for operation, row in zip(batch.inserts, rows, strict=True):
                operation.new = row
    for model, batch in batches.items() if sqlite.copies else ():
        queue(sqlite, writer, model, [one.key for one in batch.all])
    if not dependents:
        write_groups(sqlite, writer, changes)
    if changes.indexes:
        write_indexes(sqlite, writer, changes)
    for model, side, places in before:
        moves = {one.key: one.moved.key for one in batches[model].inserts if one.moved is not None}
        side.write(writer, [one.key for one in batches[model].all], places, _apply_beside, moves)
    if maintained_limit is not None:
        check_limit(len(operations), changes, maintained_limit)


def _collect(
    sqlite: SqliteSchema,
    writer: Writer,
    batches: Mapping[Model, _Batch],
    changes: ChangeSet,
    part: Callable[[Maintenance], Maintenance] | None,
) -> None:
    """Add to a set what operations change in what is maintained, or in a part of that."""
    for model, batch in batches.items():
        for whole, passed in owed(sqlite, writer.get, model):
            kept = whole if part is None else part(whole)
            some = batch if passed is None else batch.only(passed)
            if some.deletes:
                changes.removed(kept, [one.old for one in some.deletes])  # type: ignore[misc]
            if some.updates:
                changes.changed(kept, [(one.old, one.new) for one in some.updates])  # type: ignore[misc]
            if some.inserts:
                changes.added(kept, [one.new for one in some.inserts])  # type: ignore[misc]


def _maintain(statements: Statements, writer: Writer, batch: _Batch) -> None:
    """Give rows that are written the maintained fields that their keys have."""
    for operation in (*batch.updates, *batch.inserts):
        assert operation.new is not None
        operation.new = _maintained(statements, writer, operation.new)


def _maintained(statements: Statements, writer: Writer, row: Row) -> Row:
    values = list(row)
    for at, value in zip(statements.maintained_places, writer.get(statements.maintained, row[:2]) or (), strict=True):
        values[at] = value
    return tuple(values)


def _complete(followed: Followed, batch: _Batch) -> None:
    """Add to rows what their class does not know of them."""
    for operation in (*batch.inserts, *batch.updates):
        assert operation.new is not None
        if operation.moved is None:
            operation.new = followed.completed(operation.new, operation.old)
        else:
            operation.new = followed.completed(operation.new, operation.moved.old, moved=True)
    if batch.deletes:
        followed.check_writable()


def completed_rows(sqlite: SqliteSchema, writer: Writer, model: Model, rows: list[Row]) -> list[Row]:
    """Return rows of new entities with what their class does not know of them, and what is maintained."""
    followed = sqlite.followed.get(model)
    if followed is not None and followed.checked:
        rows = [followed.completed(row) for row in rows]
    return rows if model not in sqlite.keepers else [_maintained(sqlite.statements[model], writer, row) for row in rows]


def insert(sqlite: SqliteSchema, writer: Writer, batches: Iterable[Batch]) -> None:
    """Insert many entities; each batch gets its rows as they were stored.

    Raises:
        EntityExists, UniqueViolation: the caller rolls back.
    """
    groups: dict[AggregateMaintenance, Groups] = {}
    (pages,) = writer.get("PRAGMA page_count") or (0,)
    for batch in batches:
        statements = sqlite.statements[batch.model]
        bare = batch.parts is not None and _is_bare(sqlite, batch.model)
        at = 0
        # A file that is not in the cache is gone through once, in order; else that makes no difference.
        for part, most in _parts(batch, whole=pages >= _PAGES):
            if writer.proof is None:
                writer.proof = statements.there, (*part[0][:2], writer.timestamp)
            if bare and most <= SPILL_ROW:
                part = sorted_rows(part)
                _insert_sorted(statements, writer, statements.insert_at(writer.timestamp), part, part)
                continue
            rows = insert_rows(statements, writer, completed_rows(sqlite, writer, batch.model, part))
            if batch.parts is None or sqlite.twins:
                batch.rows[at : at + len(rows)] = rows
                at += len(rows)
            # In the order of the keys, so that index rows that are equal in their own key have it too.
            changes = ChangeSet(groups=groups)
            for kept, passed in owed(sqlite, writer.get, batch.model):
                changes.added(kept, sorted_rows(rows if passed is None else list(filter(passed, rows))))
            write_indexes(sqlite, writer, changes)
            queue(sqlite, writer, batch.model, rows)
    write_changes(sqlite, writer, ChangeSet(groups=groups))
    for batch in batches if sqlite.twins else ():
        keep_in_step(sqlite, writer, batch.model, batch.rows)


def _is_bare(sqlite: SqliteSchema, model: Model) -> bool:
    """Return whether rows go into their table as their class makes them, and nothing else is written for them."""
    kept = sqlite.maintenance[model]
    own = model not in sqlite.keepers and sqlite.statements[model].own_values is None
    return sqlite.plain and own and bool(model.columns) and not (kept.indexes or kept.aggregates)


def _parts(batch: Batch, *, whole: bool) -> Iterator[Part]:
    """Yield the rows of a batch, all at once or in parts; of rows that are there it is not known how long they are."""
    if batch.parts is None:
        size = len(batch.rows) if whole else _CHUNK
        for at in range(0, len(batch.rows), size):
            yield batch.rows[at : at + size], MAX_ENTITY
    elif whole:
        parts, longest = zip(*batch.parts(), strict=True)
        yield list(chain.from_iterable(parts)), max(longest)
    else:
        yield from batch.parts()


def keep_in_step(sqlite: SqliteSchema, writer: Writer, model: Model, keys: Sequence[Sequence[Any]]) -> None:
    """Write what was inserted of a class on the other side of each of its twins, too; see `twins`."""
    for side in sides_of(sqlite, model):
        side.write(writer, keys, (), _apply_beside)


def _apply_beside(sqlite: SqliteSchema, writer: Writer, operations: Sequence[Operation]) -> None:
    apply(sqlite, writer, operations)
    if sqlite.contested:
        settle(sqlite, writer)


def _read(sqlite: SqliteSchema, writer: Writer, operation: Operation) -> None:
    """Read what an operation is about to change, and judge its condition."""
    operation.old = None
    stored = writer.get(sqlite.statements[operation.model].get, (operation.partition, operation.row))
    if stored is None:
        if operation.verb == "upsert":
            return
        raise missing(operation)
    if operation.etag is not None and stored[2] != operation.etag:
        raise stale(operation, stored)
    operation.old = stored


class Vanished(Exception):
    """One of these deletes found nothing; which one is seen only once they are undone."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        super().__init__("a delete found nothing")
        self.operations = operations


class Get:
    """How a row is got by its key: with what is moved aside or without, whichever was right for the last one.

    Attributes:
        sql: reads the row.
        lean: the one that reads nothing of what is moved aside: the row is whole if its last value is None.
    """

    __slots__ = ("_statements", "_whole", "lean", "sql")

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self.lean = self.sql = statements.get_lean
        self._whole = statements.get if statements.has_big else None

    def completed(
        self, row: Row, sql: str, read: Callable[[str, Sequence[Any]], Row | None], key: Sequence[str]
    ) -> Row | None:
        """Return a row with what is moved aside of it, and remember whether there is any.

        Args:
            row: as it was read.
            sql: what read it; another thread may have changed `sql` since.
            read: gives the first row of a statement.
            key: of the row.
        """
        if self._whole is None or (row[-1] is None) is (sql is self.lean):
            return row
        if row[-1] is None:
            self.sql = self.lean
            return row
        self.sql = self._whole
        return read(self._whole, key)

    def few(
        self, read: Callable[[str, Sequence[Any]], list[Row]], keys: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], Row] | None:
        """Return what `rows` does, by one statement; None if these are too many keys, or rows with large values."""
        places = _FEW if len(keys) <= _FEW else _SOME
        if len(keys) > places:
            return None
        values = [part for key in keys for part in key] + [None] * (2 * (places - len(keys)))  # (no key is NULL)
        rows = read(self._statements.get_several(places), values)
        if self._whole is not None and any(row[-1] is not None for row in rows):
            return None
        return {row[:2]: row for row in rows}

    def rows(
        self,
        read_each: Callable[[str, Sequence[Sequence[str]]], list[Row]],
        read: Callable[[str, Sequence[Any]], Row | None],
        keys: Sequence[tuple[str, str]],
    ) -> dict[tuple[str, str], Row]:
        """Return the rows that there are of several keys, by key; read by functions of a snapshot."""
        rows = {row[:2]: row for row in read_each(self.lean, keys)}
        if self._whole is not None:
            for key in [key for key, row in rows.items() if row[-1] is not None]:
                if (row := read(self._whole, key)) is not None:
                    rows[key] = row
        return rows


# ---------------------------------------------------------------------------------------------- entity rows


def insert_rows(statements: Statements, writer: Writer, rows: list[Row]) -> list[Row]:
    """Insert rows; return them as they are read."""
    stored, large = statements.stamp(rows, writer.timestamp)
    in_table = stored if not large and statements.own_values is None else _in_table(statements, writer, stored, large)
    _insert_sorted(statements, writer, statements.insert, sorted_rows(in_table), stored)
    return stored


def _insert_sorted(statements: Statements, writer: Writer, sql: str, in_table: list[Row], rows: list[Row]) -> None:
    before = writer.total_changes()
    try:
        writer.run(sql, in_table)
    except apsw.ConstraintError:
        row = sorted_rows(rows)[writer.total_changes() - before]  # those in front of it were inserted
        raise _taken(statements, writer, row) from None


def _taken(statements: Statements, writer: Writer, row: Row) -> EntityExists:
    return exists(statements.model, row, writer.get(statements.get, row[:2]))


def _in_table(statements: Statements, writer: Writer, stored: list[Row], large: list[int]) -> list[Row]:
    """Return rows as the table holds them: without maintained fields, and without large values, which are moved aside.

    Args:
        statements: of their class.
        writer: the transaction.
        stored: the rows as they are read. Those that are large come to know where their values are.
        large: the places of these.
    """
    in_table = stored
    if large:
        in_table = stored.copy()
        moved = _move_aside(statements, writer, [stored[at] for at in large])
        for at, (row, lean) in zip(large, moved, strict=True):
            stored[at], in_table[at] = row, lean
    if statements.own_values is not None:
        in_table = list(map(statements.own_values, in_table))
    return in_table


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
    olds: list[Row] = [one.old for one in group]  # type: ignore[misc]
    _drop_big(statements, writer, olds)
    stored, large = statements.stamp([one.new for one in group], writer.timestamp)  # type: ignore[misc]
    in_table = stored if not large and statements.own_values is None else _in_table(statements, writer, stored, large)
    changed = [(*row, old[2]) for row, old in zip(in_table, olds, strict=True)]
    before = writer.total_changes()
    writer.run(statements.update, sorted_rows(changed))
    if writer.total_changes() - before != len(group):
        raise _unproven(statements, writer, group, written=True)
    for operation, row in zip(group, stored, strict=True):
        operation.new = row


def _delete(statements: Statements, writer: Writer, group: list[Operation]) -> None:
    olds: list[Row] = [one.old for one in group]  # type: ignore[misc]
    _drop_big(statements, writer, olds)
    before = writer.total_changes()
    writer.run(statements.delete, sorted_rows([old[:3] for old in olds]))
    if writer.total_changes() - before != len(group):
        raise _unproven(statements, writer, group, written=False)


def _drop_big(statements: Statements, writer: Writer, olds: list[Row]) -> None:
    if statements.has_big and (moved := [old[-1:] for old in olds if old[-1] is not None]):
        writer.executemany(statements.big_delete, moved)


def _unproven(statements: Statements, writer: Writer, group: list[Operation], *, written: bool) -> Exception:
    """Return the error of the first operation on an entity that was not as it was read."""
    for operation in group:
        stored = writer.get(statements.get, operation.key)
        if stored is None and written:
            return missing(operation)
        if stored is not None and (not written or stored[2] != writer.timestamp):
            return stale(operation, stored)
    return Vanished(group)
