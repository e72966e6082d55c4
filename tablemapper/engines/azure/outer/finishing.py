"""What is left of a write after its transaction, or instead of it: its intent is carried out, or taken back.

The writer does it, or who sweeps later, or both at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Literal

import attrs
import msgspec

from ....errors import InvalidEntity, StoreError
from ....schema.maintenance import AggregateMaintenance
from ..tables.drive import Now, Work, read, side_by_side
from ..tables.names import BELOW, VALUES, mark_key
from ..tables.rows import codec_of, hidden_members
from ..tables.service import ETAG, MAX_CHANGES, Change, Commit, Entity, Get, Lost, Refused
from .marks import number_of
from .outbox import Delta, Intent, Late, Outbox, Patience, put_works
from .reservations import Reservations

__all__ = [
    "Following",
    "Unknown",
    "add",
    "carry_out",
    "carry_out_together",
    "changed",
    "check_room",
    "deleted",
    "pack_values",
    "take_back",
    "values_of",
]

_TOGETHER = 48  # deltas of a group
_FULL = 8  # pieces of its values: a group is nearly full
_log = logging.getLogger("tablemapper.azure")
_VALUES = 600_000  # bytes of the values whose ends a group has
_MOST_VALUES = 800_000  # of a group in another partition: what was committed has to find room


class Unknown(Exception):
    """An intent names an aggregate whose class was not opened here."""


def carry_out(
    intent: Intent,
    aggregates: Mapping[str, AggregateMaintenance],
    patience: Patience,
    timeout: float,
    outbox: Outbox | None = None,
) -> Work[None]:
    """Do what a committed intent says; the outbox has markers that can be deleted on the way.

    Raises:
        Unknown: nothing was done.
        Late, Refused, StoreError: not all was done.
    """
    yield from _carry_out([intent], aggregates, patience, timeout, outbox)


def _carry_out(
    intents: Sequence[Intent],
    aggregates: Mapping[str, AggregateMaintenance],
    patience: Patience,
    timeout: float,
    outbox: Outbox | None,
) -> Work[None]:
    works: list[Work[Any]] = [*put_works(patience, [put for intent in intents for put in intent.puts])]
    numbers = dict(map(number_of, aggregates))
    groups: dict[tuple[str, str, str], list[tuple[Intent, Delta]]] = {}
    for intent in intents:
        for one in intent.deltas:
            of, number = number_of(one.label)
            if one.label not in aggregates and number >= numbers.get(of, -1):
                raise Unknown(
                    f"{intent.table} {(intent.partition, intent.row)}: {one.label} is maintained by another program"
                )
        reservations = Reservations(intent, patience, timeout)
        works += [patience.send(one.table, one.partition, Change("delete", one.row, {}, "*")) for one in intent.deletes]
        works += [reservations.release(one) for one in intent.releases]
        works += [reservations.end(one, done=True) for one in intent.takes if one.was is not None]
        for one in intent.deltas:
            if one.label in aggregates:  # (else it was built anew since, with the entity as it is)
                groups.setdefault((one.label, one.partition, one.row), []).append((intent, one))
    for (label, _, _), several in groups.items():
        works += [
            add(aggregates[label], several[at : at + _TOGETHER], patience, timeout, outbox)
            for at in range(0, len(several), _TOGETHER)
        ]
    yield from side_by_side(works)


@attrs.frozen(eq=False)
class Following:
    """What follows from a write that is committed."""

    intent: Intent
    patience: Patience
    """Of the write: until when it may go on, and whether an answer was lost."""
    what: str
    """The write, for messages."""


def carry_out_together(
    following: Sequence[Following], aggregates: Mapping[str, AggregateMaintenance], timeout: float, outbox: Outbox
) -> Work[bool]:
    """Do what follows from some writes of this process, together, and delete their intents; return whether all was done.

    What is not possible is logged, and left to who sweeps.
    """
    if not following:
        return True
    patience = Patience(min(one.patience.until for one in following))
    intents = [one.intent for one in following]
    try:
        yield from _carry_out(intents, aggregates, patience, timeout, outbox)
        # (Where an answer was lost, a request may still be executed later: the intent has to be there then.)
        sure = [] if patience.doubt else [one for one in following if not one.patience.doubt]
        yield from side_by_side(list(_delete_works(patience, [one.intent for one in sure])))
        now: float = yield Now()
        for one in sure if not patience.doubt else ():
            if now - (one.patience.until - timeout) <= outbox.times.lease:
                for delta in one.intent.deltas:  # (nobody else can have read the intent to finish it)
                    if delta.label in aggregates:
                        table = aggregates[delta.label].model.table
                        outbox.spend(table, delta.partition, [mark_key(one.intent.op, delta.row)])
    except (Late, Lost, Refused, StoreError, Unknown) as error:
        _log.warning(
            "%s is written; what follows from it in other partitions is left to sweep(): %s", following[0].what, error
        )
        return False
    return True


def _delete_works(patience: Patience, intents: Sequence[Intent]) -> Iterable[Work[Any]]:
    """Yield the works that delete intents, those of one partition together."""
    places: dict[tuple[str, str], list[Change]] = {}
    for one in intents:
        places.setdefault((one.table, one.partition), []).append(Change("delete", one.row, {}, "*"))
    for (table, partition), changes in places.items():
        yield deleted(patience, table, partition, changes)


def deleted(patience: Patience, table: str, partition: str, changes: Sequence[Change]) -> Work[None]:
    """Delete rows of a partition that others may delete, too."""
    for at in range(0, len(changes), MAX_CHANGES):
        some = changes[at : at + MAX_CHANGES]
        if not (yield from patience.send(table, partition, *some)) and some[1:]:  # (who sweeps was faster)
            for one in some:
                yield from patience.send(table, partition, one)


def take_back(intent: Intent, patience: Patience, timeout: float) -> Work[None]:
    """Take back what a fenced intent has taken."""
    reservations = Reservations(intent, patience, timeout)
    yield from side_by_side([reservations.end(one, done=False) for one in intent.takes])


# ---------------------------------------------------------------------------------------------- groups


def add(
    aggregate: AggregateMaintenance,
    several: Sequence[tuple[Intent, Delta]],
    patience: Patience,
    timeout: float,
    outbox: Outbox | None = None,
) -> Work[None]:
    """Add deltas to their group, each once: a marker for each in the same transaction says that it was added."""
    table, partition, row = aggregate.model.table, several[0][1].partition, several[0][1].row
    marks = {
        mark_key(intent.op, row): ({"t": intent.table, "p": intent.partition, "op": intent.op}, one)
        for intent, one in several
    }
    attempt = 0
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
            changes += [] if change is None else [change]
            changes += [Change("delete", spent_mark, {}, "*") for spent_mark in spent]
            yield Commit(table, partition, tuple(changes))
        except Lost as lost:
            yield from patience.again(attempt, lost)
        except Refused as refused:
            if refused.status not in (404, 409, 412) or refused.code == "TableNotFound":
                raise
            if refused.status == 404:
                spent = []  # (who sweeps was faster)
            held = yield from side_by_side([read(Get(table, partition, mark), timeout) for mark in marks])
            marks = {mark: of for (mark, of), there in zip(marks.items(), held, strict=True) if there is None}
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
