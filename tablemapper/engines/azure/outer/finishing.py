"""What is left of a write after its transaction, or instead of it: its intent is carried out, or taken back.

The writer does it, or who sweeps later, or both at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ....errors import InvalidEntity
from ....schema.maintenance import AggregateMaintenance
from ..tables.drive import Work, read, side_by_side
from ..tables.names import BELOW, mark_key
from ..tables.rows import codec_of, hidden_members
from ..tables.service import ETAG, Change, Commit, Entity, Get, Lost, Refused
from .outbox import Delta, Intent, Outbox, Patience, put_works
from .reservations import Reservations

__all__ = ["Unknown", "add", "carry_out", "changed", "pack_values", "take_back", "values_of"]

_VALUES = 600_000  # bytes of the values whose ends a group has


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
    if unknown := [one.label for one in intent.deltas if one.label not in aggregates]:
        raise Unknown(f"{intent.table} {(intent.partition, intent.row)}: {unknown[0]} is maintained by another program")
    reservations = Reservations(intent, patience, timeout)
    works: list[Work[Any]] = [*put_works(patience, intent.puts)]
    works += [patience.send(one.table, one.partition, Change("delete", one.row, {}, "*")) for one in intent.deletes]
    works += [reservations.release(one) for one in intent.releases]
    works += [reservations.end(one, done=True) for one in intent.takes if one.was is not None]
    works += [add(aggregates[one.label], one, intent, patience, timeout, outbox) for one in intent.deltas]
    yield from side_by_side(works)


def take_back(intent: Intent, patience: Patience, timeout: float) -> Work[None]:
    """Take back what a fenced intent has taken."""
    reservations = Reservations(intent, patience, timeout)
    yield from side_by_side([reservations.end(one, done=False) for one in intent.takes])


# ---------------------------------------------------------------------------------------------- groups


def add(
    aggregate: AggregateMaintenance,
    one: Delta,
    intent: Intent,
    patience: Patience,
    timeout: float,
    outbox: Outbox | None = None,
) -> Work[None]:
    """Add a delta to its group, once: a marker in the same transaction says that it was added."""
    delta = aggregate.aggregate.unpack_delta(one.packed)
    table, partition = aggregate.model.table, one.partition
    mark = mark_key(intent.op, one.row)
    of = {"t": intent.table, "p": intent.partition, "op": intent.op}
    attempt = 0
    spent = [] if outbox is None else outbox.spent(table, partition)
    while True:
        found = yield from read(Get(table, partition, one.row), timeout)
        change = changed(aggregate, (partition, one.row), found, delta)
        if change is None:
            return
        try:
            deletes = [Change("delete", row, {}, "*") for row in spent]
            yield Commit(table, partition, (Change("insert", mark, of), change, *deletes))
        except Lost as lost:
            yield from patience.again(attempt, lost)
        except Refused as refused:
            if refused.status not in (404, 409, 412) or refused.code == "TableNotFound":
                raise
            if refused.status == 404:
                spent = []  # (who sweeps was faster)
            if (yield from read(Get(table, partition, mark), timeout)) is not None:
                return
            yield from patience.again(min(attempt, 3))
        else:
            return
        attempt += 1


def changed(
    aggregate: AggregateMaintenance,
    key: tuple[str, str],
    found: Entity | None,
    delta: list[Any],
    *,
    anyway: bool = False,
) -> Change | None:
    """Return the change of the row of a group; None if the delta changes nothing, unless it is to be written anyway."""
    groups, codec = aggregate.aggregate, codec_of(aggregate.model)
    held = None if found is None else codec.row(found)[-1]
    state = None if held is None or held.state is None else groups.unpack_signed(held.state)
    counts = {} if held is None else values_of(held.values)
    for slot in groups.counted_slots:
        of_slot = counts.setdefault(slot, {})
        for value, more in delta[slot + 1].items():
            of_slot[value] = of_slot.get(value, 0) + more

    def seek(slot: int, end: Literal["min", "max"]) -> Any:
        live = [value for value, count in counts[slot].items() if count > 0]
        return (min if end == "min" else max)(live, default=None)

    after = groups.merge(state, delta, seek)
    values = pack_values(counts, aggregate.model.name, key)
    packed, etag = groups.pack(after), None if found is None else found[ETAG]
    if held is not None and packed == held.state and values == held.values and not anyway:
        return None
    if after == groups.empty() and not values:
        return None if etag is None else Change("delete", key[1], {}, etag)
    members = hidden_members(packed, values)
    if after[0] > 0 or (after[0] == 0 and groups.keeps_empty):
        members |= codec.members(aggregate.row(*key, 0, after))
    else:
        members[BELOW] = True
    return Change("insert", key[1], members) if etag is None else Change("replace", key[1], members, etag)


def values_of(packed: bytes) -> dict[int, dict[Any, int]]:
    """Return how often each value of a group is there, by slot."""
    counts: dict[int, dict[Any, int]] = {}
    for slot, value, count in msgspec.msgpack.decode(packed) if packed else ():
        counts.setdefault(slot, {})[value] = count
    return counts


def pack_values(counts: Mapping[int, Mapping[Any, int]], name: str, key: tuple[str, str]) -> bytes:
    """Return what `values_of` reads.

    Raises:
        InvalidEntity: there are too many.
    """
    values = [(slot, *one) for slot, of_slot in sorted(counts.items()) for one in of_slot.items() if one[1]]
    packed = msgspec.msgpack.encode(values) if values else b""
    if len(packed) > _VALUES:
        raise InvalidEntity(
            f"{name} {key}",
            [f"{len(values):,} different values in one group, whose least and greatest are asked for: use min_ever or "
             "max_ever, or group by a shard, too"],
        )  # fmt: skip
    return packed
