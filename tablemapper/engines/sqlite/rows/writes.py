"""Apply operations: the rows of entities, then what is maintained from them, inside one transaction.

Statement by statement would cost more: each table's rows are written together, sorted by key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

import apsw

from ....errors import EntityExists, TableMapperError
from ....evolution.newer_versions import ExtendedModel
from ....limits import MAX_ENTITY
from ....schema.maintenance import ChangeSet, Groups
from ....schema.model import Model
from ....schema.rows import DAMAGE, Row, unreadable
from ...protocol import Batch, Note, Operation, Part, RowsBefore, restore_rows
from ...write_decision import check_limit, exists, missing, stale
from ..file.writer import Writer, sorted_rows
from ..sql.catalogue_table import write_note
from ..sql.schema import SqliteSchema
from ..sql.statements import SPILL_ROW, Statements
from .maintenance_writer import changed_groups, put_rows, with_maintained, write_changes
from .write_hooks import MaintenanceHook, WrittenRows, hooks_of

WriteOne: TypeAlias = Callable[[Writer, Operation], None]
"""Writes the entity of an operation, which gets the row that was stored."""

_CHUNK = 2_000  # rows that stay in a processor's cache
_PAGES = 8_000  # that the connection's cache holds
_NO_WIDTH = -1
_CHANGES = frozenset({"replace", "merge", "delete"})


def apply(
    sqlite: SqliteSchema, writer: Writer, operations: Sequence[Operation], maintained_limit: int | None = None
) -> None:
    """Apply operations on different entities; each gets the row that was stored as its ``new``.

    Raises:
        EntityExists, EntityNotFound, PreconditionFailed, UniqueViolation: the caller rolls back.
        InvalidTransaction: more rows than ``maintained_limit`` would be written.
    """
    only = operations[0] if len(operations) == 1 and maintained_limit is None else None
    if only is not None and only.verb == "insert" and not only.looks:
        insert = sqlite.inserts.get(only.model)
        (insert or sqlite.inserts.setdefault(only.model, _insert_one(sqlite, only.model)))(writer, only)
        return
    try:
        if only is not None and only.verb in _CHANGES:
            update = sqlite.updates.get(only.model)
            (update or sqlite.updates.setdefault(only.model, _update_one(sqlite, only.model)))(writer, only)
        else:
            _apply(sqlite, writer, operations, maintained_limit)
    except TableMapperError:
        raise
    except DAMAGE:
        for operation in operations:
            old_row = operation.old
            if old_row is not None and (fault := operation.model.fault_of(old_row)) is not None:
                raise unreadable(operation.model.name, old_row, fault) from None
        raise


def transact(
    operations: Sequence[Operation],
    initial_rows: RowsBefore,
    notes: Sequence[Note],
    maintained_limit: int | None,
    sqlite: SqliteSchema,
    writer: Writer,
) -> None:
    """Apply operations and notes in a transaction, and say how to prove that it was committed.

    Args:
        initial_rows: the rows of each, as they were before a first run, which may have been undone because of others.
        maintained_limit: as `Engine.apply`.
    """
    if initial_rows:
        restore_rows(operations, initial_rows)
    for note in notes:
        writer.proof = write_note(writer, note)
    if operations:
        apply(sqlite, writer, operations, maintained_limit)
        if writer.proof is None:
            writer.proof = _proof(sqlite, operations)


def _proof(sqlite: SqliteSchema, operations: Sequence[Operation]) -> tuple[str, tuple[Any, ...]]:
    """Return a query that finds a row only if a transaction is in the file that writes none: `apply` proves by rows.

    A row that is there proves more than one that is not, as others may delete too; but a condition least of all.
    """
    least = next((operation for operation in reversed(operations) if operation.verb == "delete"), operations[0])
    assert least.old is not None
    statements = sqlite.statements[least.model]
    return (statements.row_exists if least.verb == "require" else statements.row_is_absent), least.old[:3]


def _only_maintained(sqlite: SqliteSchema, model: Model) -> bool:
    """Return whether nothing but indexes and aggregates that are ready follows from writes of whole rows."""
    hooks = hooks_of(sqlite, (model,), apply)
    return (
        _is_whole(sqlite, model) and model not in sqlite.jobs and all(type(hook) is MaintenanceHook for hook in hooks)
    )


def _insert_one(sqlite: SqliteSchema, model: Model) -> WriteOne:
    """Return a function that inserts one entity, as `_apply` would, but without what only several operations need.

    What the class has is looked up once, and few functions are called: without it an insert takes 1.36 times as long.
    """
    if not _only_maintained(sqlite, model):
        return lambda writer, operation: _apply(sqlite, writer, [operation], None)
    statements, maintenance = sqlite.statements[model], sqlite.maintenance[model]
    stamp, sql, row_exists = statements.stamp, statements.insert, statements.row_exists
    indexes = [(index, index.rows, sqlite.indexes[index.model].insert) for index in maintenance.indexes]
    simple = [aggregate for aggregate in maintenance.aggregates if aggregate.model not in sqlite.dependents]
    sums = [(aggregate, aggregate.collect, sqlite.statements[aggregate.model].put) for aggregate in simple]
    with_dependents = [aggregate for aggregate in maintenance.aggregates if aggregate not in simple]

    def insert(writer: Writer, operation: Operation) -> None:
        execute = writer.execute
        inserted, large = stamp((operation.new,), writer.timestamp)  # type: ignore[arg-type]
        in_table = _in_table(statements, writer, inserted, large) if large else inserted
        try:
            execute(sql, in_table[0])
        except apsw.ConstraintError:
            raise _exists_error(statements, writer, inserted[0]) from None
        operation.new = row = inserted[0]
        writer.proof = row_exists, row[:3]
        for index, rows_of, put_sql in indexes:
            rows = rows_of(inserted)
            if len(rows) == 1 and index not in sqlite.contested:
                try:
                    execute(put_sql, rows[0])
                    continue
                except apsw.ConstraintError:
                    pass  # and again, to find out why
            if rows:
                put_rows(sqlite, index, writer, sorted_rows(rows))
        for aggregate, collect, put_sql in sums:
            groups: Groups = {}
            collect(inserted, groups, 1)
            for _, _, group in changed_groups(sqlite, writer, aggregate, groups):
                execute(put_sql, group)
        if with_dependents:
            changes = ChangeSet()
            for aggregate in with_dependents:
                aggregate.collect(inserted, changes.groups.setdefault(aggregate, {}), 1)
            write_changes(sqlite, writer, changes)

    return insert


def _update_one(sqlite: SqliteSchema, model: Model) -> WriteOne:
    """Return a function that replaces one entity, merges into it, or deletes it, as `_apply` would; see `_insert_one`.

    A row with large values goes the way of several operations.
    """
    statements, maintenance = sqlite.statements[model], sqlite.maintenance[model]

    def update_as_several(writer: Writer, operation: Operation) -> None:
        _apply(sqlite, writer, [operation], None)

    if not _only_maintained(sqlite, model) or statements.own_values is not None:
        return update_as_several
    stamp, sql, row_exists, width = statements.stamp, statements.update, statements.row_exists, statements.width
    has_large = statements.has_big

    def update(writer: Writer, operation: Operation) -> None:
        old = operation.old
        if old is None or len(old) != width:
            _read(sqlite, writer, operation)
            old = operation.old
        elif operation.has_ended is not None:
            _check_unended(operation, old)
        assert old is not None
        if has_large and old[-1] is not None:
            update_as_several(writer, operation)
            return
        changes, count_before = ChangeSet(), writer.total_changes()
        if operation.verb == "delete":
            changes.removed(maintenance, (old,))
            writer.execute(statements.delete, old[:3])
            if writer.total_changes() - count_before != 1:
                raise _unproven(statements, writer, [operation], is_update=False)
            write_changes(sqlite, writer, changes)
            return
        if operation.change is not None:
            operation.new = operation.change(old)
        stamped, large = stamp((operation.new,), writer.timestamp)  # type: ignore[arg-type]
        if large:
            update_as_several(writer, operation)
            return
        row = stamped[0]
        changes.changed(maintenance, ((old, row),))
        writer.execute(sql, (*row, old[2]))
        if writer.total_changes() - count_before != 1:
            raise _unproven(statements, writer, [operation], is_update=True)
        operation.new = row
        if writer.proof is None:
            writer.proof = row_exists, row[:3]
        write_changes(sqlite, writer, changes)

    return update


def _apply(sqlite: SqliteSchema, writer: Writer, operations: Sequence[Operation], maintained_limit: int | None) -> None:
    written_rows, changes = _judged(sqlite, writer, operations), ChangeSet()
    followers = hooks_of(sqlite, written_rows, apply)
    preparations: list[Any] = []
    for follower in followers:
        preparations.append(follower.prepare(writer, written_rows, changes))
    for model, of_model in written_rows.items():
        statements = sqlite.statements[model]
        if of_model.deletes:
            _delete(statements, writer, of_model.deletes)
        if of_model.updates:
            _update(statements, writer, of_model.updates)
        if of_model.inserts:
            _insert(statements, writer, of_model.inserts)
    for follower, prepared in zip(followers, preparations, strict=True):
        follower.finish(writer, written_rows, changes, prepared)
    if maintained_limit is not None:
        check_limit(len(operations), changes, maintained_limit)


def _judged(sqlite: SqliteSchema, writer: Writer, operations: Sequence[Operation]) -> dict[Model, WrittenRows]:
    """Return what operations do if their conditions hold, by class; each gets the row that it changes and its new row."""
    judged: dict[Model, WrittenRows] = {}
    for operation in operations:
        verb, model, old = operation.verb, operation.model, operation.old
        if verb == "require":
            _read(sqlite, writer, operation)
            continue
        class_rows = judged.get(model)
        if class_rows is None:
            # (What was read before the file had more properties is too short; maintained fields change at any time.)
            width = _NO_WIDTH if model in sqlite.keepers else sqlite.statements[model].width
            class_rows = judged[model] = WrittenRows(width, [], [], [])
        if verb == "insert" and not operation.looks:
            class_rows.inserts.append(operation)
            continue
        if old is None or len(old) != class_rows.width:
            if old is not None and operation.etag is None and class_rows.width == _NO_WIDTH:
                operation.etag = old[2]
            _read(sqlite, writer, operation)
        elif operation.has_ended is not None:
            _check_unended(operation, old)
        if verb == "delete":
            class_rows.deletes.append(operation)
            continue
        if operation.fresh:  # (as a new row, so that nothing goes over, whatever the table holds of it)
            class_rows.deletes.append(Operation("delete", model, *operation.key, old=operation.old))
            operation.old = None
        if operation.change is not None:
            operation.new = operation.change(operation.old)
        (class_rows.inserts if operation.old is None else class_rows.updates).append(operation)
    for model, extended in sqlite.extended.items():
        if extended.checked and (checked_rows := judged.get(model)) is not None:
            _complete(extended, checked_rows)
    return judged


def _complete(extended: ExtendedModel, class_rows: WrittenRows) -> None:
    """Add to rows what their class does not know of them."""
    for operation in (*class_rows.inserts, *class_rows.updates):
        assert operation.new is not None
        if operation.moved_from is None:
            operation.new = extended.completed(operation.new, operation.old)
        else:
            operation.new = extended.completed(operation.new, operation.moved_from.old, moved=True)
    if class_rows.deletes:
        extended.check_writable()


def _is_whole(sqlite: SqliteSchema, model: Model) -> bool:
    """Return whether rows of new entities hold all that the table does, as their class makes them."""
    extended = sqlite.extended.get(model)
    return model not in sqlite.keepers and (extended is None or not extended.checked)


def completed_rows(sqlite: SqliteSchema, writer: Writer, model: Model, rows: list[Row]) -> list[Row]:
    """Return rows of new entities with what their class does not know of them, and what is maintained."""
    extended = sqlite.extended.get(model)
    if extended is not None and extended.checked:
        rows = [extended.completed(row) for row in rows]
    if model not in sqlite.keepers:
        return rows
    return [with_maintained(sqlite.statements[model], writer, row) for row in rows]


def insert(sqlite: SqliteSchema, writer: Writer, batches: Collection[Batch]) -> None:
    """Insert many entities; each batch gets its rows as they were stored.

    Raises:
        EntityExists, UniqueViolation: the caller rolls back.
    """
    followers, changes = hooks_of(sqlite, dict.fromkeys(batch.model for batch in batches), apply), ChangeSet()
    (pages,) = writer.get("PRAGMA page_count") or (0,)
    for batch in batches:
        statements = sqlite.statements[batch.model]
        bare = batch.parts is not None and _is_bare(sqlite, batch.model)
        at = 0
        # A file that is not in the cache is gone through once, in order; else that makes no difference.
        for part, most in _parts(batch, at_once=pages >= _PAGES):
            if writer.proof is None:
                writer.proof = statements.row_exists, (*part[0][:2], writer.timestamp)
            if bare and most <= SPILL_ROW:
                part = sorted_rows(part)
                _insert_sorted(statements, writer, statements.insert_at(writer.timestamp), part, part)
                continue
            rows = insert_rows(statements, writer, completed_rows(sqlite, writer, batch.model, part))
            if batch.parts is None:
                batch.rows[at : at + len(rows)] = rows
                at += len(rows)
            for follower in followers:
                follower.collect_added(writer, batch.model, rows, changes)
    for follower in followers:
        follower.flush(writer, changes)


def _is_bare(sqlite: SqliteSchema, model: Model) -> bool:
    """Return whether rows go into their table as their class makes them, and nothing else is written for them."""
    is_plain = _is_whole(sqlite, model) and sqlite.statements[model].own_values is None
    return is_plain and bool(model.columns) and not hooks_of(sqlite, (model,), apply)


def _parts(batch: Batch, *, at_once: bool) -> Iterator[Part]:
    """Yield the rows of a batch, all at once or in parts; of rows that are there it is not known how long they are."""
    if batch.parts is None:
        size = len(batch.rows) if at_once else _CHUNK
        for at in range(0, len(batch.rows), size):
            yield batch.rows[at : at + size], MAX_ENTITY
    elif at_once:
        parts, longest = zip(*batch.parts(), strict=True)
        yield list(chain.from_iterable(parts)), max(longest)
    else:
        yield from batch.parts()


def _read(sqlite: SqliteSchema, writer: Writer, operation: Operation) -> None:
    """Read what an operation is about to change, and judge its condition."""
    operation.old = None
    row = writer.get(sqlite.statements[operation.model].get, (operation.partition, operation.row))
    operation.fresh = row is not None and operation.has_ended is not None and operation.has_ended(row)
    if row is None or operation.fresh:
        if operation.verb not in ("insert", "upsert"):
            raise missing(operation)
        operation.old = row
        return
    if operation.verb == "insert":
        raise exists(operation.model, operation.new, row)  # type: ignore[arg-type]  # it has a row
    if operation.etag is not None and row[2] != operation.etag:
        raise stale(operation, row)
    operation.old = row


def _check_unended(operation: Operation, old: Row) -> None:
    """Refuse to change an entity that has ended since it was read."""
    operation.fresh = operation.has_ended is not None and operation.has_ended(old)
    if operation.fresh:
        raise missing(operation)


class DeleteFoundNothing(Exception):
    """One of these deletes found nothing; which one is seen only once they are undone."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        super().__init__("a delete found nothing")
        self.operations = operations


# ---------------------------------------------------------------------------------------------- entity rows


def insert_rows(statements: Statements, writer: Writer, rows: list[Row]) -> list[Row]:
    """Insert rows; return them as they are read."""
    stamped, large = statements.stamp(rows, writer.timestamp)
    in_table = stamped if not large and statements.own_values is None else _in_table(statements, writer, stamped, large)
    _insert_sorted(statements, writer, statements.insert, sorted_rows(in_table), stamped)
    return stamped


def _insert_sorted(statements: Statements, writer: Writer, sql: str, in_table: list[Row], rows: list[Row]) -> None:
    count_before = writer.total_changes()
    try:
        writer.run(sql, in_table)
    except apsw.ConstraintError:
        row = sorted_rows(rows)[writer.total_changes() - count_before]  # those in front of it were inserted
        raise _exists_error(statements, writer, row) from None


def _exists_error(statements: Statements, writer: Writer, row: Row) -> EntityExists:
    return exists(statements.model, row, writer.get(statements.get, row[:2]))


def _in_table(statements: Statements, writer: Writer, rows: list[Row], large: list[int]) -> list[Row]:
    """Return rows as the table holds them: without maintained fields, and without large values, which are moved aside.

    Args:
        rows: the rows as they are read. Those that are large come to know where their values are.
        large: the places of these.
    """
    in_table = rows
    if large:
        in_table = rows.copy()
        spilled_rows = _move_aside(statements, writer, [rows[at] for at in large])
        for at, (row, lean) in zip(large, spilled_rows, strict=True):
            rows[at], in_table[at] = row, lean
    if statements.own_values is not None:
        in_table = list(map(statements.own_values, in_table))
    return in_table


def _move_aside(statements: Statements, writer: Writer, rows: list[Row]) -> Iterator[tuple[Row, Row]]:
    """Write large values where they go; yield each row as it is read, and as the table holds it."""
    (number,) = writer.get(statements.big_next, ()) or (1,)
    for row in rows:
        spilled = statements.spills(row)
        if not spilled:
            yield row, row
            continue
        writer.execute(
            statements.big_insert, (number, *[row[at] if at in spilled else None for at in statements.spilled])
        )
        in_place = [None if at in spilled else value for at, value in enumerate(row[:-1])]
        yield (*row[:-1], number), (*in_place, number)
        number += 1


def _insert(statements: Statements, writer: Writer, group: list[Operation]) -> None:
    rows = insert_rows(statements, writer, [operation.new for operation in group])  # type: ignore[misc]
    if writer.proof is None:
        writer.proof = statements.row_exists, rows[0][:3]
    for operation, row in zip(group, rows, strict=True):
        operation.new = row


def _update(statements: Statements, writer: Writer, group: list[Operation]) -> None:
    olds: list[Row] = [operation.old for operation in group]  # type: ignore[misc]
    if statements.has_big:
        _drop_big(statements, writer, olds)
    stamped, large = statements.stamp([operation.new for operation in group], writer.timestamp)  # type: ignore[misc]
    in_table = stamped if not large and statements.own_values is None else _in_table(statements, writer, stamped, large)
    updates = [(*row, old[2]) for row, old in zip(in_table, olds, strict=True)]
    count_before = writer.total_changes()
    writer.run(statements.update, sorted_rows(updates))
    if writer.total_changes() - count_before != len(group):
        raise _unproven(statements, writer, group, is_update=True)
    if writer.proof is None:
        writer.proof = statements.row_exists, stamped[0][:3]
    for operation, row in zip(group, stamped, strict=True):
        operation.new = row


def _delete(statements: Statements, writer: Writer, group: list[Operation]) -> None:
    olds: list[Row] = [operation.old for operation in group]  # type: ignore[misc]
    if statements.has_big:
        _drop_big(statements, writer, olds)
    count_before = writer.total_changes()
    writer.run(statements.delete, sorted_rows([old[:3] for old in olds]))
    if writer.total_changes() - count_before != len(group):
        raise _unproven(statements, writer, group, is_update=False)


def _drop_big(statements: Statements, writer: Writer, olds: list[Row]) -> None:
    if spill_ids := [old[-1:] for old in olds if old[-1] is not None]:
        writer.executemany(statements.big_delete, spill_ids)


def _unproven(statements: Statements, writer: Writer, group: list[Operation], *, is_update: bool) -> Exception:
    """Return the error of the first operation on an entity that was not as it was read."""
    for operation in group:
        row = writer.get(statements.get, operation.key)
        if row is None and is_update:
            return missing(operation)
        if row is not None and (not is_update or row[2] != writer.timestamp):
            return stale(operation, row)
    return DeleteFoundNothing(group)
