"""The decision of a write: the outcomes of operations, and everything that follows from them, in its order.

This is the one definition of a write. It reads what is stored through `WriteView`, writes nothing, and knows no engine. An
engine either writes what a `Decision` says, or has a faster path of its own, which must come to the same.

The order matters. Groups come before indexes: the fields of an entity that are maintained in groups can be in indexes,
too. What is unique is judged on the final state, so that two entities can swap their values in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

import attrs

from ..entities.etag import ETAG_FORM, NO_ETAG, etag_text
from ..entities.fields import FieldModel
from ..errors import EntityExists, EntityNotFound, InvalidTransaction, PreconditionFailed, UniqueViolation
from ..keys.composite_times import shown_key, shown_values
from ..schema.maintenance import AggregateMaintenance, ChangeSet, IndexMaintenance, IndexRow, Maintenance
from ..schema.model import Model
from ..schema.rows import FIRST, Row
from .check import MaintenanceRule
from .protocol import Operation

Key: TypeAlias = tuple[str, str]
"""A partition key and a row key."""


class WriteView(Protocol):
    """The view of a store that a decision reads, all of one state."""

    def row(self, model: Model, key: Key) -> Row | None:
        """Return an entity, with the maintained fields that it has now."""
        ...

    def group(self, aggregate: AggregateMaintenance, key: Key) -> Row | None:
        """Return a group: its timestamp, its properties, and its packed state."""
        ...

    def extreme(
        self,
        aggregate: AggregateMaintenance,
        key: Key,
        slot: int,
        end: Literal["min", "max"],
        change: Mapping[Any, int],
    ) -> Any:
        """Return the least or greatest live value of a group after a change of how often each is there; None if none is."""
        ...

    def holder(self, index: IndexMaintenance, partition: str, row: str) -> Key | None:
        """Return the key of the entity that has a value in a unique index."""
        ...


class MaintenanceRules(Protocol):
    """The maintenance rules of each class."""

    def duties(self, model: Model) -> Sequence[MaintenanceRule]:
        """Return the maintenance of a class: for each part, which entities it concerns; None: all."""
        ...

    def affected_rows(self, part: Maintenance, old: Row | None, new: Row | None) -> tuple[Row | None, Row | None]:
        """Return an entity before and after a write as a part of its maintenance is to see both: all of it, or nothing."""
        ...

    def owner(self, aggregate: Model) -> Model | None:
        """Return the class with an index over the maintained field that an aggregate keeps, if it keeps one."""
        ...

    def keeper(self, model: Model, field: FieldModel) -> Model | None:
        """Return the aggregate that keeps a maintained field of a class; None if it lies elsewhere, and is read later."""
        ...


@attrs.define(eq=False)
class EntityChange:
    """One entity as it was, and as it will be; None: it is not there."""

    operation: Operation
    old: Row | None
    new: Row | None


@attrs.define(eq=False)
class GroupChange:
    """One group as it was, and as it will be."""

    aggregate: AggregateMaintenance
    key: Key
    old: Row | None
    """As `WriteView.group` gave it."""
    new: Row | None
    """The whole row, its packed state last."""


@attrs.define(eq=False)
class Decision:
    """Everything that operations change."""

    entities: list[EntityChange] = attrs.field(factory=list)
    groups: dict[tuple[Model, Key], GroupChange] = attrs.field(factory=dict)
    values: list[tuple[AggregateMaintenance, Key, int, Mapping[Any, int]]] = attrs.field(factory=list)
    """How often more each live value of a slot is there, for the aggregates that count them."""
    changes: ChangeSet = attrs.field(factory=ChangeSet)
    """What changes in indexes; of its groups only the number counts."""


def decide(
    maintained: MaintenanceRules,
    operations: Sequence[Operation],
    view: WriteView,
    timestamp: int,
    maintained_limit: int | None = None,
) -> Decision:
    """Return what operations on different entities change; two inserts of one are refused.

    Args:
        operations: in the order of the caller. Their rows are not changed.
        timestamp: what is written gets it.
        maintained_limit: how many rows the transaction may write, with those that are maintained.

    Raises:
        EntityExists, EntityNotFound, PreconditionFailed: of the first operation that fails.
        UniqueViolation: of the state after all of them.
        InvalidTransaction: more rows than the limit would be written.
    """
    decision, inserted = Decision(), dict[tuple[str, str, str], Row]()
    for operation in operations:
        change = _judged(operation, view, timestamp)
        decision.entities.append(change)
        if operation.verb == "insert" and change.new is not None:
            place = (operation.model.table, *operation.key)
            if (first := inserted.setdefault(place, change.new)) is not change.new:
                raise exists(operation.model, change.new, first)
    entity_changes = [change for change in decision.entities if change.operation.verb != "require"]
    _decide_groups(decision, maintained, entity_changes, view, timestamp)
    for change in entity_changes:
        if change.new is not None:
            change.new = _with_maintained(maintained, change.operation.model, change.new, decision, view)
    for change in entity_changes:
        for maintenance, applies in maintained.duties(change.operation.model):
            if applies is None or applies(change.operation.key):
                rows = maintained.affected_rows(maintenance, change.old, change.new)
                _add(decision.changes, maintenance.of_indexes, *rows)
    _check_unique(decision.changes, view)
    if maintained_limit is not None:
        check_limit(len(operations), decision.changes, maintained_limit)
    return decision


def check_limit(operations: int, changes: ChangeSet, most: int) -> None:
    """Refuse a transaction that would write more rows than it may, with those that are maintained."""
    if operations + changes.rows > most:
        raise InvalidTransaction(
            f"{operations} operations write {changes.rows} rows of indexes and aggregates too, which makes more "
            f"than {most} in one entity group transaction; split it"
        )


def _judged(operation: Operation, view: WriteView, timestamp: int) -> EntityChange:
    """Return what an operation does to its entity, if its condition holds."""
    old = view.row(operation.model, operation.key)
    operation.fresh = old is not None and operation.has_ended is not None and operation.has_ended(old)
    if operation.verb == "insert" and old is not None and not operation.fresh:
        assert operation.new is not None
        raise exists(operation.model, operation.new, old)
    if operation.verb not in ("insert", "upsert") and (old is None or operation.fresh):
        raise missing(operation)
    if old is not None and (condition := _condition(operation)) is not None and old[2] != condition:
        raise stale(operation, old)
    if operation.verb in ("delete", "require"):
        return EntityChange(operation, old, old if operation.verb == "require" else None)
    new = operation.new if operation.change is None else operation.change(None if operation.fresh else old)
    assert new is not None
    return EntityChange(operation, old, (*new[:2], timestamp, *new[FIRST:]))


def _condition(operation: Operation) -> int | None:
    """Return the timestamp that the stored row must have: the row that an entity was read as says it, too."""
    return operation.etag if operation.old is None or operation.etag is not None else operation.old[2]


def _add(changes: ChangeSet, maintenance: Maintenance, old: Row | None, new: Row | None) -> None:
    """Add one entity, or one group, to what changes."""
    if old is not None and new is not None:
        changes.changed(maintenance, [(old, new)])
    elif new is not None:
        changes.built(maintenance, [new])
    elif old is not None:
        changes.removed(maintenance, [old])


# ---------------------------------------------------------------------------------------------- groups


def _decide_groups(
    decision: Decision,
    maintained: MaintenanceRules,
    entity_changes: Sequence[EntityChange],
    view: WriteView,
    timestamp: int,
) -> None:
    """Decide what becomes of groups, of the indexes on them, and of indexes over the fields that they maintain."""
    changes = decision.changes
    for change in entity_changes:
        for maintenance, applies in maintained.duties(change.operation.model):
            if applies is None or applies(change.operation.key):
                rows = maintained.affected_rows(maintenance, change.old, change.new)
                _add(changes, maintenance.of_aggregates, *rows)
    written_keys = {(change.operation.model, change.operation.key) for change in entity_changes}
    dependents: dict[tuple[Model, Key], Row] = {}
    for aggregate, deltas in changes.groups.items():
        for group, delta in deltas.items():
            group_change = _decide_group(decision, aggregate, aggregate.key(group), delta, view, timestamp)
            if group_change is None:
                continue
            decision.groups[aggregate.model, group_change.key] = group_change
            owner = maintained.owner(aggregate.model)
            if owner is not None and (owner, group_change.key) not in written_keys:
                entity = view.row(owner, group_change.key)
                dependents |= {} if entity is None else {(owner, group_change.key): entity}
            old = None if group_change.old is None else (*group_change.key, *group_change.old[:-1])
            new = None if group_change.new is None else group_change.new[:-1]
            if old is not None and new is not None and old[2] == new[2]:
                continue  # what is shown did not change
            for maintenance, applies in maintained.duties(aggregate.model):
                if applies is None or applies(group_change.key):
                    _add(changes, maintenance.of_indexes, old, new)
    for (owner, key), entity in dependents.items():
        new_row = _with_maintained(maintained, owner, entity, decision, view)
        for maintenance, applies in maintained.duties(owner):
            if applies is None or applies(key):
                changes.changed(maintenance.of_indexes, [(entity, new_row)])


def _decide_group(
    decision: Decision, aggregate: AggregateMaintenance, key: Key, delta: Any, view: WriteView, timestamp: int
) -> GroupChange | None:
    """Return what becomes of a group; None if nothing does."""
    for slot in aggregate.aggregate.counted_slots:
        decision.values.append((aggregate, key, slot, delta[slot + 1]))

    def extreme(slot: int, end: Literal["min", "max"]) -> Any:
        return view.extreme(aggregate, key, slot, end, delta[slot + 1])

    old = view.group(aggregate, key)
    new = aggregate.advance(*key, timestamp, old, delta, extreme)
    return None if new is old else GroupChange(aggregate, key, old, new)


def _with_maintained(maintained: MaintenanceRules, model: Model, row: Row, decision: Decision, view: WriteView) -> Row:
    """Return a row with the maintained fields that its key has after what was decided."""

    def group(aggregate: Model, key: Key) -> Row | None:
        change = decision.groups.get((aggregate, key))
        return view.row(aggregate, key) if change is None else change.new

    return with_maintained(maintained, model, row, group)


def with_maintained(
    maintained: MaintenanceRules, model: Model, row: Row, group: Callable[[Model, Key], Row | None]
) -> Row:
    """Return a row with the maintained fields of its key, by a function that gives the row of a group."""
    if not model.maintained:
        return row
    values = list(row)
    for field in model.maintained:
        keeper, value = maintained.keeper(model, field), model.defaults[field.property]
        if keeper is None:
            continue
        group_row = group(keeper, row[:2])
        if group_row is not None:
            at = next(at for at, column in enumerate(keeper.columns, FIRST) if column.property == field.property)
            value = group_row[at] if group_row[at] is not None or field.nullable else value
        values[model.position[field.name]] = value
    return tuple(values)


# ---------------------------------------------------------------------------------------------- unique values


def _check_unique(changes: ChangeSet, view: WriteView) -> None:
    for index, change in changes.indexes.items():
        if not index.model.unique:
            continue
        deleted = {row[:4] for row in change.deletes}

        def holder(partition: str, row: str, index: IndexMaintenance = index, deleted: Any = deleted) -> Key | None:
            owner_key = view.holder(index, partition, row)
            return None if owner_key is None or (partition, row, *owner_key) in deleted else owner_key

        places = [row[:2] for row in change.puts]
        if len(set(places)) < len(places) or any(holder(*place) is not None for place in places):
            raise violation(index, holder, change.puts)


def violation(
    index: IndexMaintenance, holder: Callable[[str, str], Sequence[Any] | None], puts: Sequence[IndexRow]
) -> UniqueViolation:
    """Return the error of rows that cannot all come into a unique index.

    Args:
        holder: gives the key of the entity that has a value, once all rows that go are gone.
    """
    label, shown_entity = index.label, partial(shown_key, index.owner.name, index.owner.declaration.templates)
    for row in puts:
        holder_key = holder(*row[:2])
        holders = [] if holder_key is None else [holder_key]
        holders += [entry[2:4] for entry in puts if entry[:2] == row[:2]]
        for other_holder in holders:
            if tuple(other_holder) != row[2:4]:
                value = shown_values((index.model.partition, index.model.row), row)
                if value is None:
                    value = f"{row[0]!r} / {row[1]!r}" if row[1] else repr(row[0])
                return UniqueViolation(
                    f"{label}: {shown_entity(row[2:4])} cannot have {value}, which {shown_entity(other_holder)} holds; "
                    "change one of them, or swap both in one transaction",
                    entity=index.owner.name, key=row[2:4], index=index.model.name, holder=tuple(other_holder),
                )  # fmt: skip
    return UniqueViolation(f"{label}: a value is held twice", entity=index.owner.name, index=index.model.name)


# ---------------------------------------------------------------------------------------------- errors of operations


_IF_MISSING = {
    "merge": "if it may be missing, .upsert(entity, merge=True) inserts it then",
    "replace": "if it may be missing, .upsert(entity) inserts it then",
    "delete": "if it may be missing, ask .exists(key) before, or catch EntityNotFound",
}


def missing(operation: Operation) -> EntityNotFound:
    """Return the error of an operation on an entity that is not there."""
    fault = "there is no such entity" if _condition(operation) is None else "it was deleted since it was read"
    fault = "it has ended" if operation.fresh else fault
    fault += f"; {_IF_MISSING[operation.verb]}" if operation.verb in _IF_MISSING else ""
    return EntityNotFound(f"{operation}: {fault}", entity=operation.model.name, key=operation.key)


def stale(operation: Operation, stored_row: Row) -> PreconditionFailed:
    """Return the error of an operation on an entity that was written since it was read."""
    mend = "" if operation.verb == "require" else ', or pass if_match="*" to overwrite'
    fault = f"it was written since it was read; read it again{mend}"
    if (operation.etag or 0) > stored_row[2]:  # (no store goes back)
        fault = f"its ETag is newer than the stored one, as if it came from another store; read it here{mend}"
    if operation.etag == NO_ETAG:
        fault = f'if_match= is no ETag: pass tm.info(entity).etag, which looks like {ETAG_FORM}, or "*" for any'
    return PreconditionFailed(
        f"{operation}: {fault}",
        entity=operation.model.name,
        key=operation.key,
        etag=etag_text(stored_row[2]),
    )


def exists(model: Model, row: Row, holder: Row | None) -> EntityExists:
    """Return the error of the insert of a row if another one has its key.

    What the key holds with a loss can differ between the two: then the values are told.
    """
    fault = "the entity exists already; replace, merge or upsert it"
    if holder is not None and (slots := model.declaration.lossy_slots):
        new, old = model.build_one(row), model.build_one(holder)
        pairs = [(slot, getattr(new, slot.field), getattr(old, slot.field)) for slot in slots]
        if differences := [f"{slot} makes one key of {a!r} and the stored {b!r}" for slot, a, b in pairs if a != b]:
            fault = f"{' and '.join(differences)}; replace, merge or upsert that entity, or choose another value"
    operation = Operation("insert", model, *row[:2])
    return EntityExists(f"{operation}: {fault}", entity=model.name, key=operation.key)
