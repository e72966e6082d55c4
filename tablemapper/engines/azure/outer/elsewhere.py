"""From what a write does to entities to what it does in other partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from ....schema.maintenance import ChangeSet, IndexMaintenance, IndexRow, Maintenance
from ....schema.model import Model
from ....schema.rows import Row
from ...decide import EntityChange, Key, violation
from ..tables.names import BASE_PARTITION, BASE_ROW, outer_key
from ..tables.rows import Hidden, included
from .outbox import Delete, Delta, Intent, Put, Release, Take

__all__ = ["Outer", "outer_of", "put_of"]


@attrs.define(eq=False)
class Outer:
    """What a write does in other partitions."""

    intent: Intent
    ops: list[dict[str, str]]
    """For each entity, the writes that its rows in indexes are of."""
    puts: dict[str, tuple[IndexMaintenance, list[IndexRow]]]
    """The rows that come into each unique index, by its name."""


def outer_of(
    outer: Mapping[Model, Maintenance], changes: Sequence[EntityChange], table: str, partition: str, op: str
) -> Outer:
    """Return what a write does in other partitions than that of its entities.

    A row of an index is of one write for ever: where it changes, one of this write comes, and the old one goes. So it
    does not matter in which order, and how often, they are put and deleted.

    Args:
        outer: what is maintained there from each class.
        changes: of the entities.
        table, partition: of the entities.
        op: the write.

    Raises:
        UniqueViolation: two of the entities would have the same value.
    """
    made = Outer(Intent(table, partition, op), [], {})
    wanted: dict[tuple[IndexMaintenance, str, str], IndexRow] = {}
    given: dict[tuple[IndexMaintenance, str, str], str | None] = {}
    deltas = ChangeSet()
    for change in changes:
        before = change.old[-1].ops if change.old is not None and isinstance(change.old[-1], Hidden) else {}
        after = dict(before) if change.new is not None else {}
        made.ops.append(after)
        owed = outer.get(change.operation.model)
        if owed is None or change.operation.verb == "require":
            continue
        for index in owed.indexes:
            name, unique = index.model.name, index.model.unique
            old, new = _rows(index, change.old, stored=True), _rows(index, change.new)
            if old == new or (unique and {row[:2] for row in old} == {row[:2] for row in new}):
                continue
            was = before.get(name)
            after.pop(name, None)
            if new:
                after[name] = op
            if unique:
                made.puts.setdefault(name, (index, []))[1].extend(new)
                for row in new:
                    if (first := wanted.setdefault((index, *row[:2]), row)) is not row:
                        raise violation(index, lambda *_, held=first[2:4]: held, [row])
                given |= {(index, *row[:2]): was for row in old}
            else:
                made.intent.puts += [put_of(index, row, op) for row in new]
                if was is not None:
                    made.intent.deletes += [_delete(index, row, was) for row in old]
        _collect(deltas, Maintenance((), owed.aggregates), change)
    for place, entry in wanted.items():
        index = place[0]
        was = given.pop(place, None)
        made.intent.takes.append(Take(index.model.table, place[1], place[2], entry[3], index.model.name, was))
    made.intent.releases += [
        Release(index.model.table, at, key, was) for (index, at, key), was in given.items() if was is not None
    ]
    made.intent.deltas += _deltas(deltas)
    return made


def _rows(index: IndexMaintenance, row: Row | None, *, stored: bool = False) -> list[IndexRow]:
    if row is None:
        return []
    changes, alone = ChangeSet(), Maintenance((index,), ())
    if stored:
        changes.removed(alone, [row])
        return changes.indexes[index].deletes
    changes.added(alone, [row])
    return changes.indexes[index].puts


def put_of(index: IndexMaintenance, row: IndexRow, op: str) -> Put:
    """Return the row of an index as it is put, of the write that makes it."""
    members = {BASE_PARTITION: row[2], BASE_ROW: row[3], **included(index, row)}
    return Put(index.model.table, row[0], outer_key(row[1], row[2], row[3], op), members, index.model.name)


def _delete(index: IndexMaintenance, row: IndexRow, op: str) -> Delete:
    return Delete(index.model.table, row[0], outer_key(row[1], row[2], row[3], op))


def _collect(deltas: ChangeSet, owed: Maintenance, change: EntityChange) -> None:
    if change.old is not None and change.new is not None:
        deltas.changed(owed, [(change.old, change.new)])
    elif change.new is not None:
        deltas.added(owed, [change.new])
    elif change.old is not None:
        deltas.removed(owed, [change.old])


def _deltas(changes: ChangeSet) -> Iterable[Delta]:
    for aggregate, groups in changes.groups.items():
        nothing = aggregate.aggregate.pack_delta(aggregate.aggregate.zero())
        for group, delta in groups.items():
            packed = aggregate.aggregate.pack_delta(delta)
            key: Key = aggregate.key(group)
            if packed != nothing:
                yield Delta(aggregate.model.name, *key, packed)
