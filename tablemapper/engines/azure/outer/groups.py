"""The row of a group in another partition than its entities: what a delta changes of it, and of the rows that indexes have of it.

It changes in one transaction with the rows of indexes in its partition, and a marker that says that the delta was added.
For those in other partitions there is an intent in it, as in that of an entity.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Literal

import attrs
import msgspec

from ....errors import InvalidEntity
from ....schema.groups import Delta as Changes
from ....schema.maintenance import AggregateMaintenance, ChangeSet, Maintenance
from ....schema.rows import Row
from ..tables.drive import Work, read
from ..tables.names import BASE_ROW, BELOW, OURS, VALUES, intent_key, mark_key
from ..tables.rows import Hidden, codec_of, hidden_members, included, local_key, ops_member
from ..tables.service import ETAG, MAX_CHANGES, PARTITION, ROW, Change, Commit, Entity, Get, Lost, Refused
from .elsewhere import Outer, rows_elsewhere
from .marks import Marks
from .outbox import Delta, Intent, Outbox, Patience, intent_of

_TOGETHER = 48  # deltas
_FULL = 8  # pieces of its values: a group is nearly full
_VALUES = 600_000  # bytes of the values whose ends a group has
_MOST_VALUES = 800_000  # of a group in another partition: what was committed has to find room
_log = logging.getLogger("tablemapper.azure")


@attrs.frozen(eq=False)
class Upkeep:
    """An aggregate, and what is maintained from its groups."""

    aggregate: AggregateMaintenance
    inner: Maintenance
    """The indexes in the partitions of the groups."""
    outer: Maintenance
    """Those in other partitions."""
    marks: Marks

    @property
    def most(self) -> int:
        """How many deltas of a group one transaction takes, beside the rows that indexes have of it."""
        return min(_TOGETHER, MAX_CHANGES - 2 - 2 * len(self.inner.indexes))

    def change(
        self,
        key: tuple[str, str],
        found: Entity | None,
        change: Change,
        intent: Intent,
        timeout: float,
        *,
        lost: bool = False,
    ) -> Work[list[Change]]:
        """Return a change of a group with those of the rows that indexes have of it.

        Args:
            key: of the group.
            found: the group as it was read.
            change: of it.
            intent: of the transaction; it gets what is to be done in other partitions.
            timeout: seconds after which to give up, if no answer comes.
            lost: whether rows of indexes may be missing: those to be deleted are looked for, and the others put anyhow.
        """
        codec = codec_of(self.aggregate.model)
        new = None if change.kind == "delete" else {ETAG: "", PARTITION: key[0], ROW: key[1], **change.members}
        before, after = [None if one is None or BELOW in one else codec.row(one) for one in (found, new)]
        try:
            rows = _index_changes(self.inner, before, after, whole=lost)
            ops = rows_elsewhere(self.outer, self.marks, before, after, Outer(intent))
        except InvalidEntity as error:  # (its entities are written: a key of an index is too long)
            _log.warning("%s; the group is not shown", error)
            hidden = {name: value for name, value in change.members.items() if name.startswith(OURS)}
            change = attrs.evolve(change, members={**hidden, BELOW: True})
            rows = _index_changes(self.inner, before, None, whole=lost)
            intent.puts, intent.deletes = [], []
            ops = rows_elsewhere(self.outer, self.marks, before, None, Outer(intent))
        changes = [attrs.evolve(change, members={**change.members, **ops_member(ops)})]
        for one in rows:
            get = Get(self.aggregate.model.table, key[0], one.row)
            if not lost or one.kind != "delete" or (yield from read(get, timeout)) is not None:
                changes.append(one)
        return [*changes, intent.change("C")] if intent else changes


def add(
    upkeep: Upkeep,
    several: Sequence[tuple[Intent, Delta]],
    patience: Patience,
    timeout: float,
    outbox: Outbox,
) -> Work[Intent | None]:
    """Add deltas to their group, each once: a marker for each in the same transaction says that it was added.

    Args:
        upkeep: of the group.
        several: at most `Upkeep.most` deltas of one group, each with the intent that has it.
        patience: of who adds them.
        timeout: seconds after which to give up, if no answer comes.
        outbox: of the process; it has markers that can be deleted on the way.

    Returns:
        What is then to be done in other partitions, where that is known.
    """
    aggregate = upkeep.aggregate
    table, partition, row = aggregate.model.table, several[0][1].partition, several[0][1].row
    marks = {
        mark_key(intent.op, row): ({"t": intent.table, "p": intent.partition, "op": intent.op}, one)
        for intent, one in several
    }
    attempt, damaged, op = 0, False, outbox.new_op()
    spent = outbox.spent(table, partition)
    while marks:
        deltas = [aggregate.aggregate.unpack_delta(one.packed) for _, one in marks.values()]
        found = yield from read(Get(table, partition, row), timeout)
        change = changed(aggregate, (partition, row), found, deltas)
        if change is not None and f"{VALUES}{_FULL}" in change.members:
            outbox.full.add((table, partition, row))
        if change is None and len(deltas) == 1:
            return None
        intent = Intent(table, partition, op)
        try:
            changes = [Change("insert", mark, of) for mark, (of, _) in marks.items()]
            if change is not None:
                changes += yield from upkeep.change((partition, row), found, change, intent, timeout, lost=damaged)
            changes += [Change("delete", mark, {}, "*") for mark in spent[: MAX_CHANGES - len(changes)]]
            if intent:
                yield from outbox.name(patience, table, partition)
            yield Commit(table, partition, tuple(changes))
        except Lost as lost:
            yield from patience.again(attempt, lost)
        except Refused as refused:
            if refused.status not in (404, 409, 412) or refused.code == "TableNotFound":
                raise
            if refused.status == 404:
                spent, damaged = [], True  # (who sweeps was faster, or somebody has lost rows of indexes)
            if refused.status == 409:
                yield from _drop_added(table, partition, marks, timeout)
            if marks:
                yield from patience.again(min(attempt, 3))
        else:
            return intent or None
        attempt += 1
    if not upkeep.outer.indexes or not patience.doubt:
        return None
    left = yield from read(Get(table, partition, intent_key(op)), timeout)  # (of a send of which the answer was lost)
    return None if left is None else intent_of(left)[0]


def _drop_added(table: str, partition: str, marks: dict[str, Any], timeout: float) -> Work[None]:
    """Take out of some markers those that are there."""
    # (One by one: threads that wait for this one may have all those that run things side by side.)
    for mark in list(marks):
        if (yield from read(Get(table, partition, mark), timeout)) is not None:
            del marks[mark]


def changed(
    aggregate: AggregateMaintenance,
    key: tuple[str, str],
    found: Entity | None,
    deltas: Sequence[list[Any]],
    *,
    anyway: bool = False,
) -> Change | None:
    """Return the change of the row of a group; None if deltas change nothing, unless it is to be written anyway."""
    groups, codec = aggregate.aggregate, codec_of(aggregate.model)
    held = None if found is None else codec.row(found)[-1]
    state = None if held is None or held.state is None else groups.unpack_signed(held.state)
    counts = _counted({} if held is None else values_of(held.values), groups.counted_slots, deltas)

    def seek(slot: int, end: Literal["min", "max"]) -> Any:
        live = [value for value, count in counts[slot].items() if count > 0]
        return (min if end == "min" else max)(live, default=None)

    for delta in deltas:
        state = groups.merge(state, delta, seek)
    after = groups.empty() if state is None else state
    values = pack_values(counts, aggregate.model.name, key, _MOST_VALUES)
    packed, etag = groups.pack(after), None if found is None else found[ETAG]
    if held is not None and packed == held.state and values == held.values and not anyway:
        return None
    if after == groups.empty() and not values and (etag is None or not groups.keeps_empty):
        return None if etag is None else Change("delete", key[1], {}, etag)
    members = hidden_members(packed, values)
    try:
        there = after[0] > 0 or (after[0] == 0 and groups.keeps_empty)
        members |= codec.members(aggregate.row(*key, 0, after)) if there else {BELOW: True}
    except InvalidEntity as error:  # (its entities are written: it is kept, and shown again when it can be)
        _log.warning("%s; the group is not shown", error)
        members[BELOW] = True
    return Change("insert", key[1], members) if etag is None else Change("replace", key[1], members, etag)


def _counted(
    counts: dict[int, dict[Any, int]], slots: Iterable[int], deltas: Iterable[list[Any]]
) -> dict[int, dict[Any, int]]:
    """Add to how often each value is there, by slot, what deltas change of it; return it."""
    for slot, delta in product(slots, deltas):
        of_slot = counts.setdefault(slot, {})
        for value, more in delta[slot + 1].items():
            of_slot[value] = of_slot.get(value, 0) + more
    return counts


def values_of(packed: bytes) -> dict[int, dict[Any, int]]:
    """Return how often each value of a group is there, by slot."""
    counts: dict[int, dict[Any, int]] = {}
    for slot, value, count in msgspec.msgpack.decode(packed) if packed else ():
        counts.setdefault(slot, {})[value] = count
    return counts


def pack_values(
    counts: Mapping[int, Mapping[Any, int]], name: str, key: tuple[str, str], most: int | None = None
) -> bytes:
    """Return what `values_of` reads.

    Raises:
        InvalidEntity: there are too many.
    """
    values = [(slot, *one) for slot, of_slot in sorted(counts.items()) for one in of_slot.items() if one[1]]
    packed = msgspec.msgpack.encode(values) if values else b""
    if len(packed) > (_VALUES if most is None else most):
        raise _too_many(name, key)
    return packed


def _too_many(name: str, key: tuple[str, str]) -> InvalidEntity:
    return InvalidEntity(
        f"{name} {key}",
        [f"{_VALUES // 1000} KB of different values in one group, whose least and greatest are asked for, are too many: use "
         "min_ever or max_ever, or group by a shard, too"],
    )  # fmt: skip


def check_room(
    intent: Intent, aggregates: Mapping[str, AggregateMaintenance], outbox: Outbox, timeout: float
) -> Work[None]:
    """Look whether groups that were nearly full have room for what a write adds to them.

    Raises:
        InvalidEntity: one has none.
    """
    for one in intent.deltas:
        aggregate = aggregates.get(one.label)
        if aggregate is None or (aggregate.model.table, one.partition, one.row) not in outbox.full:
            continue
        delta = aggregate.aggregate.unpack_delta(one.packed)
        if not any(more > 0 for slot in aggregate.aggregate.counted_slots for more in delta[slot + 1].values()):
            continue
        found = yield from read(Get(aggregate.model.table, one.partition, one.row), timeout)
        if found is None or len(codec_of(aggregate.model).row(found)[-1].values) <= _VALUES:
            outbox.full.discard((aggregate.model.table, one.partition, one.row))
        else:
            raise _too_many(aggregate.model.name, (one.partition, one.row))


def _index_changes(duties: Maintenance, before: Row | None, after: Row | None, *, whole: bool) -> list[Change]:
    """Return the changes of the rows that indexes have of a group in its partition; whole: also of those that stay."""
    changes = ChangeSet()
    if before is not None and after is not None and not whole:
        changes.changed(duties, [(before[:-1], after[:-1])])
    else:
        changes.removed(duties, [] if before is None else [before[:-1]])
        changes.added(duties, [] if after is None else [after[:-1]])
    made: dict[str, Change] = {}
    for index, rows in changes.indexes.items():
        gone = [local_key(index, row) for row in rows.deletes]
        made |= {key: Change("delete", key, {}, "*") for key in gone}
        for row in (*rows.puts, *rows.rewrites):
            key = local_key(index, row)
            made[key] = Change("upsert", key, {BASE_ROW: row[3], **included(index, row)})
    return list(made.values())


def correction(aggregate: AggregateMaintenance, live: Changes, found: Entity | None) -> Changes:
    """Return the delta that leads from a group, as it was read, to what live entities add up to.

    Raises:
        CorruptStore: what the group holds cannot be read.
    """
    hidden = Hidden() if found is None else codec_of(aggregate.model).row(found)[-1]
    state = None if hidden.state is None else aggregate.aggregate.unpack_signed(hidden.state)
    delta = aggregate.aggregate.correction(live, state)
    counts = values_of(hidden.values)
    for slot in aggregate.aggregate.counted_slots:
        wanted, stored = live[slot + 1], counts.get(slot, {})
        delta[slot + 1] = {
            value: wanted.get(value, 0) - stored.get(value, 0) for value in dict.fromkeys([*wanted, *stored])
        }
    return delta
