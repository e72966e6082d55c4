"""The intent of a write: the changes in other partitions that follow from those of its entities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from ....schema.maintenance import ChangeSet, IndexMaintenance, IndexRow, Maintenance
from ....schema.model import Model
from ....schema.rows import Row
from ...write_decision import EntityChange, Key, violation
from ..tables.entity_json import included
from ..tables.reserved_names import BASE_PARTITION, BASE_ROW, outer_key
from .marks import DUPLICATE, BuildMarks, counted, of_writes
from .outbox import DeleteRow, GroupDelta, Intent, PutRow, ReleaseValue, ReserveValue


@attrs.define(eq=False)
class CrossPartitionWrite:
    """The changes that a write makes in other partitions."""

    intent: Intent
    ops: list[dict[str, str]] = attrs.field(factory=list)
    """For each entity, the writes that its rows in indexes are of, and its marks."""
    puts: dict[str, tuple[IndexMaintenance, list[IndexRow]]] = attrs.field(factory=dict)
    """The rows that come into each unique index, by its name."""
    groups: dict[tuple[Model, Key], dict[str, str]] = attrs.field(factory=dict)
    """For groups that change, the same as for entities."""


def outer_of(
    maintenance: Mapping[Model, Maintenance],
    marks: BuildMarks,
    changes: Sequence[EntityChange],
    groups: Iterable[tuple[Model, Key, Row | None, Row | None]],
    intent: Intent,
) -> CrossPartitionWrite:
    """Return what a write does in other partitions than that of its entities.

    A row of an index is of one write for ever: where it changes, one of this write comes, and the old one goes. So it
    does not matter in which order, and how often, they are put and deleted.

    Args:
        maintenance: what is maintained there from each class.
        marks: of all that is maintained.
        changes: of the entities.
        groups: those in their partition that change, each as it was and as it will be.
        intent: of the write; it gets what is to be done.

    Raises:
        UniqueViolation: two of the entities would have the same value.
    """
    write, values = CrossPartitionWrite(intent), _Values()
    deltas = ChangeSet()
    for change in changes:
        marks_after = marks.left(change.old) if change.new is not None else {}
        write.ops.append(marks_after)
        if change.operation.verb == "require":
            continue
        if change.new is not None:
            for mark in marks.built.get(change.operation.model, ()):
                mark.set_in(marks_after, change.old, change.new)
        duties = maintenance.get(change.operation.model)
        for part in () if duties is None else map(duties.alone, duties.parts):
            for index in part.indexes:
                old = change.old if marks.of[index].built else counted(change.old)
                _in_index(write, values, part, index, marks, old, change.new, marks_after)
            for aggregate in part.aggregates:
                _collect(deltas, part, *marks.affected_rows(aggregate, change.old, change.new))
    for model, key, old, new in groups:
        write.groups[model, key] = rows_elsewhere(maintenance.get(model), marks, old, new, write)
    for place, entry in values.claims.items():
        index = place[0]
        was = values.released.pop(place, None)
        write.intent.takes.append(
            ReserveValue(index.model.table, place[1], place[2], entry[3], marks.of[index].name, was)
        )
    write.intent.releases += [
        ReleaseValue(index.model.table, at, key, was)
        for (index, at, key), was in values.released.items()
        if was is not None
    ]
    write.intent.deltas += _deltas(deltas, marks)
    return write


def rows_elsewhere(
    duties: Maintenance | None, marks: BuildMarks, old: Row | None, new: Row | None, write: CrossPartitionWrite
) -> dict[str, str]:
    """Add what a change of a group does to its rows in indexes; return the marks that it has then.

    Args:
        duties: the indexes on the groups in other partitions, of which none is unique.
        marks: of all that is maintained.
        old: the group as it was read; None: it was not there.
        new: as it will be.
        write: gets what is to be done.
    """
    marks_after = {} if new is None else marks.left(old)
    if duties is not None:
        for index in duties.indexes:
            # (Where the group has no mark, the index is younger.)
            group = old if marks.of[index].name in of_writes(old) else None
            _in_index(write, _Values(), duties.alone(index), index, marks, group, new, marks_after)
    return marks_after


_Value = tuple[IndexMaintenance, str, str]


@attrs.define(eq=False)
class _Values:
    """The unique values that a write wants, and those that its entities have so far, with the write that took them."""

    claims: dict[_Value, IndexRow] = attrs.field(factory=dict)
    released: dict[_Value, str | None] = attrs.field(factory=dict)


def _in_index(
    write: CrossPartitionWrite,
    values: _Values,
    part: Maintenance,
    index: IndexMaintenance,
    marks: BuildMarks,
    old: Row | None,
    new: Row | None,
    after: dict[str, str],
) -> None:
    """Add what a change of an entity, or of a group, does to its rows in an index."""
    mark = marks.of[index]
    rows, unique = mark.affected_rows(old, new), index.model.unique
    rows_before, rows_after = _rows(part, index, rows[0], as_stored=True), _rows(part, index, rows[1])
    if rows_before == rows_after or (unique and {row[:2] for row in rows_before} == {row[:2] for row in rows_after}):
        return
    mark_before, op = of_writes(old).get(mark.name), write.intent.op
    was = None if mark_before in ("", DUPLICATE) else mark_before
    if rows_after:
        after[mark.name] = op
    elif mark.built and new is not None:
        after[mark.name] = ""
    else:
        after.pop(mark.name, None)
    if not unique:
        write.intent.puts += [put_of(index, marks, row, op) for row in rows_after]
        if was is not None:
            write.intent.deletes += [_delete(index, row, was) for row in rows_before]
        return
    write.puts.setdefault(mark.name, (index, []))[1].extend(rows_after)
    for row in rows_after:
        if (first := values.claims.setdefault((index, *row[:2]), row)) is not row:
            raise violation(index, lambda *_, held=first[2:4]: held, [row])
    values.released |= {(index, *row[:2]): was for row in rows_before}


def _rows(part: Maintenance, index: IndexMaintenance, row: Row | None, *, as_stored: bool = False) -> list[IndexRow]:
    if row is None:
        return []
    changes = ChangeSet()
    if as_stored:
        changes.removed(part, [row])
        return changes.indexes[index].deletes
    changes.built(part, [row])
    return changes.indexes[index].puts


def put_of(index: IndexMaintenance, marks: BuildMarks, row: IndexRow, op: str) -> PutRow:
    """Return the row of an index as it is put, of the write that makes it."""
    members = {BASE_PARTITION: row[2], BASE_ROW: row[3], **included(index, row, marks.stored.get(index.owner.name, ()))}
    return PutRow(index.model.table, row[0], outer_key(row[1], row[2], row[3], op), members, marks.of[index].name)


def _delete(index: IndexMaintenance, row: IndexRow, op: str) -> DeleteRow:
    return DeleteRow(index.model.table, row[0], outer_key(row[1], row[2], row[3], op))


def _collect(deltas: ChangeSet, duties: Maintenance, old: Row | None, new: Row | None) -> None:
    if old is not None and new is not None:
        deltas.changed(duties, [(old, new)])
    elif new is not None:
        deltas.built(duties, [new])
    elif old is not None:
        deltas.removed(duties, [old])


def _deltas(changes: ChangeSet, marks: BuildMarks) -> Iterable[GroupDelta]:
    for aggregate, groups in changes.groups.items():
        nothing = aggregate.aggregate.pack_delta(aggregate.aggregate.zero())
        for group, delta in groups.items():
            packed = aggregate.aggregate.pack_delta(delta)
            key: Key = aggregate.key(group)
            if packed != nothing:
                yield GroupDelta(marks.name_of(aggregate), *key, packed)
