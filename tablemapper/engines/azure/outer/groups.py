"""The row of a group in another partition than its entities: what a delta changes of it, and of the rows that indexes have of it.

They lie in one partition, and change in one transaction, in which a marker says that the delta was added.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Literal

import msgspec

from ....errors import InvalidEntity
from ....schema.groups import Delta as Changes
from ....schema.maintenance import AggregateMaintenance, ChangeSet, Maintenance
from ..tables.drive import Work, read
from ..tables.names import BASE_ROW, BELOW, VALUES, mark_key
from ..tables.rows import Hidden, codec_of, hidden_members, included, local_key
from ..tables.service import ETAG, MAX_CHANGES, PARTITION, ROW, Change, Commit, Entity, Get, Lost, Refused
from .outbox import Delta, Intent, Outbox, Patience

__all__ = [
    "add",
    "changed",
    "check_room",
    "correction",
    "index_changes",
    "pack_values",
    "there",
    "together",
    "values_of",
]

_TOGETHER = 48  # deltas
_FULL = 8  # pieces of its values: a group is nearly full
_VALUES = 600_000  # bytes of the values whose ends a group has
_MOST_VALUES = 800_000  # of a group in another partition: what was committed has to find room
_log = logging.getLogger("tablemapper.azure")


def together(duties: Maintenance) -> int:
    """Return how many deltas of a group one transaction takes, beside the rows that indexes have of it."""
    return min(_TOGETHER, MAX_CHANGES - 1 - 2 * len(duties.indexes))


def add(
    aggregate: AggregateMaintenance,
    duties: Maintenance,
    several: Sequence[tuple[Intent, Delta]],
    patience: Patience,
    timeout: float,
    outbox: Outbox | None = None,
) -> Work[None]:
    """Add deltas to their group, each once: a marker for each in the same transaction says that it was added.

    Args:
        aggregate: of the group.
        duties: the indexes on its groups, which lie in their partitions.
        several: at most `together` deltas of one group, each with the intent that has it.
        patience: of who adds them.
        timeout: seconds after which to give up, if no answer comes.
        outbox: has markers that can be deleted on the way.
    """
    table, partition, row = aggregate.model.table, several[0][1].partition, several[0][1].row
    marks = {
        mark_key(intent.op, row): ({"t": intent.table, "p": intent.partition, "op": intent.op}, one)
        for intent, one in several
    }
    attempt, lost_rows = 0, False
    spent = [] if outbox is None else outbox.spent(table, partition)
    while marks:
        deltas = [aggregate.aggregate.unpack_delta(one.packed) for _, one in marks.values()]
        found = yield from read(Get(table, partition, row), timeout)
        change = changed(aggregate, (partition, row), found, deltas)
        if outbox is not None and change is not None and f"{VALUES}{_FULL}" in change.members:
            outbox.full.add((table, partition, row))
        if change is None and len(deltas) == 1:
            return
        try:
            changes = [Change("insert", mark, of) for mark, (of, _) in marks.items()]
            if change is not None:
                rows = index_changes(aggregate, duties, (partition, row), found, change)
                changes += [change, *((yield from there(table, partition, rows, timeout)) if lost_rows else rows)]
            changes += [Change("delete", mark, {}, "*") for mark in spent[: MAX_CHANGES - len(changes)]]
            yield Commit(table, partition, tuple(changes))
        except Lost as lost:
            yield from patience.again(attempt, lost)
        except Refused as refused:
            if refused.status not in (404, 409, 412) or refused.code == "TableNotFound":
                raise
            if refused.status == 404:
                spent, lost_rows = [], True  # (who sweeps was faster, or somebody has lost rows of indexes)
            for mark in list(marks) if refused.status == 409 else ():
                # (One by one: threads that wait for this one may have all those that run things side by side.)
                if (yield from read(Get(table, partition, mark), timeout)) is not None:
                    del marks[mark]
            if marks:
                yield from patience.again(min(attempt, 3))
        else:
            return
        attempt += 1


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


def index_changes(
    aggregate: AggregateMaintenance, duties: Maintenance, key: tuple[str, str], found: Entity | None, change: Change
) -> list[Change]:
    """Return the changes of the rows that indexes on the groups have of one."""
    if not duties.indexes:
        return []
    codec = codec_of(aggregate.model)
    old, new = found, None
    if change.kind != "delete":
        new = {ETAG: "", PARTITION: key[0], ROW: key[1], **change.members}
    before, after = [None if one is None or BELOW in one else codec.row(one)[:-1] for one in (old, new)]
    changes = ChangeSet()
    if before is not None and after is not None:
        changes.changed(duties, [(before, after)])
    elif after is not None:
        changes.added(duties, [after])
    elif before is not None:
        changes.removed(duties, [before])
    made = []
    for index, rows in changes.indexes.items():
        made += [Change("delete", local_key(index, row), {}, "*") for row in rows.deletes]
        made += [
            Change("upsert", local_key(index, row), {BASE_ROW: row[3], **included(index, row)})
            for row in (*rows.puts, *rows.rewrites)
        ]
    return made


def there(table: str, partition: str, changes: Iterable[Change], timeout: float) -> Work[list[Change]]:
    """Return changes without the deletions of rows of indexes that are not there, as somebody else has lost them."""
    found: list[Change] = []
    for one in changes:
        if one.kind != "delete" or (yield from read(Get(table, partition, one.row), timeout)) is not None:
            found.append(one)
    return found


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
