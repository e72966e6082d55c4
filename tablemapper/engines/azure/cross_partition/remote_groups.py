"""The row of a group in another partition than its entities: what a delta changes of it, and of the rows that indexes have of it.

It changes in one transaction with the rows of indexes in its partition, and a marker that says that the delta was added.
For those in other partitions there is an intent in it, as in that of an entity.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import attrs

from ....errors import CorruptStore, InvalidEntity
from ....schema.aggregate_model import Delta as Changes
from ....schema.maintenance import AggregateMaintenance, ChangeSet, Maintenance
from ....schema.rows import DAMAGE, Row
from ....schema.slots import State
from ..tables.driver import Effects, delay, read
from ..tables.entity_json import HiddenProperties, codec_of, hidden_members, included, local_key, ops_member
from ..tables.reserved_names import BASE_ROW, HIDDEN_PREFIX, OURS, STATE, VALUES, intent_key, mark_key
from ..tables.service import (
    ETAG,
    MAX_CHANGES,
    PARTITION,
    ROW,
    Entity,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    RowChange,
)
from .intent_builder import CrossPartitionWrite, rows_elsewhere
from .marks import BuildMarks
from .outbox import CommittedIntent, Deadline, GroupDelta, Intent, Outbox, intent_of
from .value_counts import Counts, StalePages, ValueCounts

_MOST_DELTAS = 48  # in one write of a group
_ATTEMPTS = 5  # to read a group with its pages
_FULL = 8  # pieces of what the row has of its values: a group is nearly full
_VALUES = 600_000  # bytes of that: a list of the pages of some ten million values
_MOST_VALUES = 800_000  # of a group in another partition: what was committed has to find room
_log = logging.getLogger("tablemapper.azure")


@attrs.frozen(eq=False)
class GroupMaintenance:
    """An aggregate, and what is maintained from its groups."""

    aggregate: AggregateMaintenance
    inner: Maintenance
    """The indexes in the partitions of the groups."""
    outer: Maintenance
    """Those in other partitions."""
    marks: BuildMarks

    @property
    def most(self) -> int:
        """The number of deltas of a group that one transaction takes, beside the rows that indexes have of it."""
        return min(_MOST_DELTAS, MAX_CHANGES - 2 - 2 * len(self.inner.indexes))

    def change(
        self,
        key: tuple[str, str],
        group_row: Entity | None,
        change: RowChange,
        intent: Intent,
        timeout: float,
        *,
        may_lack_rows: bool = False,
    ) -> Effects[list[RowChange]]:
        """Return a change of a group with those of the rows that indexes have of it.

        Args:
            key: of the group.
            group_row: the group as it was read.
            change: of it.
            intent: of the transaction; it gets what is to be done in other partitions.
            timeout: seconds after which to give up, if no answer comes.
            may_lack_rows: whether rows of indexes may be missing: those to be deleted are looked for, and the others put anyhow.
        """
        codec = codec_of(self.aggregate.model)
        new = None if change.kind == "delete" else {ETAG: "", PARTITION: key[0], ROW: key[1], **change.members}
        row_before, row_after = [
            None if entity is None or HIDDEN_PREFIX in entity else codec.row(entity) for entity in (group_row, new)
        ]
        try:
            rows = _index_changes(self.inner, row_before, row_after, with_unchanged=may_lack_rows)
            ops = rows_elsewhere(self.outer, self.marks, row_before, row_after, CrossPartitionWrite(intent))
        except InvalidEntity as error:  # (its entities are written: a key of an index is too long)
            _log.warning("%s; the group is not shown", error)
            hidden = {name: value for name, value in change.members.items() if name.startswith(OURS)}
            change = attrs.evolve(change, members={**hidden, HIDDEN_PREFIX: True})
            rows = _index_changes(self.inner, row_before, None, with_unchanged=may_lack_rows)
            intent.puts, intent.deletes = [], []
            ops = rows_elsewhere(self.outer, self.marks, row_before, None, CrossPartitionWrite(intent))
        changes = [attrs.evolve(change, members={**change.members, **ops_member(ops)})]
        for row_change in rows:
            get = GetEntity(self.aggregate.model.table, key[0], row_change.row)
            if not may_lack_rows or row_change.kind != "delete" or (yield from read(get, timeout)) is not None:
                changes.append(row_change)
        return [*changes, intent.change("C")] if intent else changes


def add(
    upkeep: GroupMaintenance,
    deltas_with_intents: Sequence[tuple[Intent, GroupDelta]],
    patience: Deadline,
    timeout: float,
    outbox: Outbox,
) -> Effects[CommittedIntent | None]:
    """Add deltas to their group, each once: a marker for each in the same transaction says that it was added.

    Args:
        upkeep: of the group.
        deltas_with_intents: at most `GroupMaintenance.most` deltas of one group, each with the intent that has it.
        patience: of who adds them.
        timeout: seconds after which to give up, if no answer comes.
        outbox: of the process; it has markers that can be deleted on the way.

    Returns:
        What is then to be done in other partitions, where that is known.
    """
    aggregate = upkeep.aggregate
    table, partition, row = aggregate.model.table, deltas_with_intents[0][1].partition, deltas_with_intents[0][1].row
    marks = {
        mark_key(intent.op, row): ({"t": intent.table, "p": intent.partition, "op": intent.op}, delta)
        for intent, delta in deltas_with_intents
    }
    attempt, damaged, op = 0, False, outbox.new_op()
    spent = outbox.spent(table, partition)
    while marks:
        deltas = [aggregate.aggregate.unpack_delta(delta.packed) for _, delta in marks.values()]
        entity = yield from read(GetEntity(table, partition, row), timeout)
        group = yield from read_group(aggregate, (partition, row), entity, deltas, timeout)
        intent = Intent(table, partition, op)
        try:
            change = changed(group, deltas, MAX_CHANGES - len(marks) - 2 - 2 * len(upkeep.inner.indexes))
            if change is not None and f"{VALUES}{_FULL}" in change.members:
                outbox.full.add((table, partition, row))
            if change is None and len(deltas) == 1:
                return None
            changes = [RowChange("insert", mark, of) for mark, (of, _) in marks.items()]
            if change is not None:
                changes += yield from upkeep.change(
                    (partition, row), group.row_read, change, intent, timeout, may_lack_rows=damaged
                )
                changes += group.values.changes()
            changes += [RowChange("delete", mark, {}, "*") for mark in spent[: MAX_CHANGES - len(changes)]]
            if intent:
                yield from outbox.name(patience, intent)
            yield from outbox.check(
                patience
            )  # (else the markers may be gone that say what the group had when it was read)
            etags = yield GroupTransaction(table, partition, tuple(changes))
        except NoResponse as no_response:
            yield from patience.again(attempt, no_response)
        except ErrorResponse as refusal:
            if refusal.status not in (404, 409, 412) or refusal.code == "TableNotFound":
                raise
            if refusal.status == 404:
                spent, damaged = [], True  # (who sweeps was faster, or somebody has lost rows of indexes)
            if refusal.status == 409:
                yield from _drop_added(table, partition, marks, timeout)
            if marks:
                yield from patience.again(min(attempt, 3))
        else:
            return CommittedIntent.of(intent, patience, changes, etags) if intent else None
        attempt += 1
    if not upkeep.outer.indexes or not patience.doubt:
        return None
    # (Of a send of which the answer was lost.)
    left_intent = yield from read(GetEntity(table, partition, intent_key(op)), timeout)
    return None if left_intent is None else CommittedIntent.of(intent_of(left_intent)[0], patience, (), ())


def _drop_added(table: str, partition: str, marks: dict[str, Any], timeout: float) -> Effects[None]:
    """Take out of some markers those that are there."""
    # (One by one: threads that wait for this one may have all those that run things side by side.)
    for mark in list(marks):
        if (yield from read(GetEntity(table, partition, mark), timeout)) is not None:
            del marks[mark]


@attrs.frozen(eq=False)
class LoadedGroup:
    """A group as it was read."""

    aggregate: AggregateMaintenance
    key: tuple[str, str]
    row_read: Entity | None
    hidden: HiddenProperties
    values: ValueCounts

    @property
    def state(self) -> State | None:
        """The state of the group; None if it is not there.

        Raises:
            CorruptStore: it cannot be read.
        """
        return None if self.hidden.state is None else self.aggregate.aggregate.unpack_signed(self.hidden.state)


def _hidden(aggregate: AggregateMaintenance, entity: Entity | None) -> HiddenProperties:
    if entity is None:
        return HiddenProperties()
    key = entity[PARTITION], entity[ROW]
    try:
        hidden: HiddenProperties = codec_of(aggregate.model).row(entity)[-1]
    except DAMAGE as error:
        raise CorruptStore(f"{aggregate.model.name} {key}: the group cannot be read: {error}") from error
    if hidden.state is None:
        raise CorruptStore(
            f"{aggregate.model.name} {key}: a row of another program has the key of the group; delete it"
        )
    return hidden


def unread_group(aggregate: AggregateMaintenance, key: tuple[str, str], entity: Entity | None) -> LoadedGroup:
    """Return a group as if it had no values: it gets all anew; and as if it had no state, if that cannot be read."""
    try:
        hidden = _hidden(aggregate, entity)
    except CorruptStore:
        if entity is None or STATE not in entity:
            raise
        hidden = HiddenProperties()
    return LoadedGroup(aggregate, key, entity, hidden, ValueCounts(key, b""))


def read_group(
    aggregate: AggregateMaintenance,
    key: tuple[str, str],
    entity: Entity | None,
    deltas: Sequence[Changes] | None,
    timeout: float,
) -> Effects[LoadedGroup]:
    """Return a group with those pages of its values that deltas need, or with all.

    Args:
        aggregate: of the group.
        key: of it.
        entity: its row, as it was read; if pages are not there, it is read again.
        deltas: that are to be added; None: anything.
        timeout: seconds after which to give up, if no answer comes.

    Raises:
        CorruptStore: it cannot be read, or pages are lost.
    """
    attempt = 0
    while True:
        hidden = _hidden(aggregate, entity)
        try:
            values = ValueCounts(key, hidden.values)
            pages = values.pages if deltas is None else values.pages_of(_value_changes(aggregate, deltas))
            # (One by one: threads that wait for this one may have all those that run things side by side.)
            for page, number in pages.items():
                values.take(number, (yield from read(GetEntity(aggregate.model.table, key[0], page), timeout)))
        except StalePages:  # (others have changed the group since its row was read, unless it stays so)
            if attempt >= _ATTEMPTS:
                raise
            yield delay(attempt)
            attempt += 1
            entity = yield from read(GetEntity(aggregate.model.table, *key), timeout)
        else:
            return LoadedGroup(aggregate, key, entity, hidden, values)


def changed(group: LoadedGroup, deltas: Sequence[Changes], room: int, *, anyway: bool = False) -> RowChange | None:
    """Return the change of the row of a group; None if deltas change nothing, unless it is to be written anyway.

    Args:
        group: with the pages that the deltas need; its values have then those of pages.
        deltas: what changes.
        room: how many pages the transaction can take.
        anyway: whether the row is to be written even if nothing changes.

    Raises:
        InvalidEntity: it would have too many values.
    """
    aggregate, key, entity, hidden = group.aggregate, group.key, group.row_read, group.hidden
    groups, state = aggregate.aggregate, group.state
    group.values.add(_value_changes(aggregate, deltas))
    group.values.settle(room)
    for delta in deltas:
        state = groups.merge(state, delta, group.values.end)
    new_state = groups.empty() if state is None else state
    values = checked(group.values, aggregate.model.name, key, _MOST_VALUES)
    packed, etag = groups.pack(new_state), None if entity is None else entity[ETAG]
    if entity is not None and packed == hidden.state and values == hidden.values and not anyway:
        return None
    if new_state == groups.empty() and not values and (etag is None or not groups.keeps_empty):
        return None if etag is None else RowChange("delete", key[1], {}, etag)
    members, codec = hidden_members(packed, values), codec_of(aggregate.model)
    try:
        is_shown = new_state[0] > 0 or (new_state[0] == 0 and groups.keeps_empty)
        members |= codec.members(aggregate.row(*key, 0, new_state)) if is_shown else {HIDDEN_PREFIX: True}
    except InvalidEntity as error:  # (its entities are written: it is kept, and shown again when it can be)
        _log.warning("%s; the group is not shown", error)
        members[HIDDEN_PREFIX] = True
    return RowChange("insert", key[1], members) if etag is None else RowChange("replace", key[1], members, etag)


def _value_changes(aggregate: AggregateMaintenance, deltas: Iterable[Changes]) -> Counts:
    """Return how much more often deltas have each value, by slot."""
    counts: dict[int, dict[Any, int]] = {}
    for slot, delta in product(aggregate.aggregate.counted_slots, deltas):
        of_slot = counts.setdefault(slot, {})
        for value, count in delta[slot + 1].items():
            of_slot[value] = of_slot.get(value, 0) + count
    return counts


def checked(values: ValueCounts, name: str, key: tuple[str, str], most: int | None = None) -> bytes:
    """Return what the row of a group has of its values.

    Raises:
        InvalidEntity: there are too many.
    """
    packed = values.packed()
    if len(packed) > (_VALUES if most is None else most):
        raise _too_many(name, key)
    return packed


def _too_many(name: str, key: tuple[str, str]) -> InvalidEntity:
    fault = "a group has too many different values, whose least and greatest are asked for"
    return InvalidEntity(f"{name} {key}", [f"{fault}: use min_ever or max_ever, or group by a shard, too"])


def check_room(
    intent: Intent, aggregates: Mapping[str, AggregateMaintenance], outbox: Outbox, timeout: float
) -> Effects[None]:
    """Look whether groups that were nearly full have room for what a write adds to them.

    Raises:
        InvalidEntity: one has none.
    """
    for delta_of_intent in intent.deltas:
        aggregate = aggregates.get(delta_of_intent.label)
        if (
            aggregate is None
            or (aggregate.model.table, delta_of_intent.partition, delta_of_intent.row) not in outbox.full
        ):
            continue
        delta = aggregate.aggregate.unpack_delta(delta_of_intent.packed)
        if not any(count > 0 for slot in aggregate.aggregate.counted_slots for count in delta[slot + 1].values()):
            continue
        entity = yield from read(
            GetEntity(aggregate.model.table, delta_of_intent.partition, delta_of_intent.row), timeout
        )
        if entity is None or len(codec_of(aggregate.model).row(entity)[-1].values) <= _VALUES:
            outbox.full.discard((aggregate.model.table, delta_of_intent.partition, delta_of_intent.row))
        else:
            raise _too_many(aggregate.model.name, (delta_of_intent.partition, delta_of_intent.row))


def _index_changes(
    duties: Maintenance, before: Row | None, after: Row | None, *, with_unchanged: bool
) -> list[RowChange]:
    """Return the changes of the rows that indexes have of a group in its partition; whole: also of those that stay."""
    changes = ChangeSet()
    if before is not None and after is not None and not with_unchanged:
        changes.changed(duties, [(before[:-1], after[:-1])])
    else:
        changes.removed(duties, [] if before is None else [before[:-1]])
        changes.added(duties, [] if after is None else [after[:-1]])
    row_changes: dict[str, RowChange] = {}
    for index, rows in changes.indexes.items():
        deleted_keys = [local_key(index, row) for row in rows.deletes]
        row_changes |= {key: RowChange("delete", key, {}, "*") for key in deleted_keys}
        for row in (*rows.puts, *rows.rewrites):
            key = local_key(index, row)
            row_changes[key] = RowChange("upsert", key, {BASE_ROW: row[3], **included(index, row)})
    return list(row_changes.values())


def correction(group: LoadedGroup, live: Changes) -> Changes:
    """Return the delta that leads from a group, which was read with all pages, to what live entities add up to.

    Raises:
        CorruptStore: what the group holds cannot be read.
    """
    aggregate = group.aggregate.aggregate
    delta, counts = aggregate.correction(live, group.state), group.values.counts()
    for slot in aggregate.counted_slots:
        live_counts, stored_counts = live[slot + 1], counts.get(slot, {})
        delta[slot + 1] = {
            value: live_counts.get(value, 0) - stored_counts.get(value, 0)
            for value in dict.fromkeys([*live_counts, *stored_counts])
        }
    return delta
