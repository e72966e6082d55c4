"""The rest of a write after its transaction, or instead of it: its intent is carried out, or taken back.

The writer does it, or who sweeps later, or both at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from ....schema.maintenance import AggregateMaintenance
from ..tables.driver import Effects, clock, delay, in_batches, read, side_by_side
from ..tables.entity_json import holds
from ..tables.reserved_names import BASE_PARTITION, BASE_ROW, OP_UNITS, intent_key, mark_key
from ..tables.service import MAX_CHANGES, ErrorResponse, GetEntity, GroupTransaction, NoResponse, RowChange
from .delta_batching import add_with_others
from .marks import number_of
from .named_partitions import Partition
from .outbox import (
    CommittedIntent,
    Deadline,
    DeadlineExceeded,
    DeleteRow,
    GroupDelta,
    Intent,
    Outbox,
    State,
    put_works,
    restated,
)
from .remote_groups import GroupMaintenance
from .reservations import Reservations

_WAITS = 5  # for another writer, 1.5 s in all
_log = logging.getLogger("tablemapper.azure")

T = TypeVar("T")


class AggregateRegistry(Protocol):
    """The maintained aggregates, as a process knows them."""

    @property
    def aggregates(self) -> Mapping[str, AggregateMaintenance]:
        """All aggregates, by what intents call them."""
        ...

    def upkeep(self, aggregate: AggregateMaintenance) -> GroupMaintenance:
        """Return an aggregate with what is maintained from its groups."""
        ...


class UnknownAggregate(Exception):
    """An intent names an aggregate whose class was not opened here."""


def carry_out(
    intents: Sequence[Intent], classes: AggregateRegistry, patience: Deadline, timeout: float, outbox: Outbox
) -> Effects[None]:
    """Do what committed intents say.

    Raises:
        Unknown: nothing was done.
        Late, Refused, StoreError: not all was done.
    """
    work = _carried_out(intents, classes, patience, timeout, outbox)
    yield from kept_behind(work, intents, "D", patience, timeout, outbox)


def _carried_out(
    intents: Sequence[Intent], classes: AggregateRegistry, patience: Deadline, timeout: float, outbox: Outbox
) -> Effects[None]:
    works: list[Effects[Any]] = [*put_works(patience, [row_put for intent in intents for row_put in intent.puts])]
    aggregates = classes.aggregates
    numbers = dict(map(number_of, aggregates))
    groups: dict[tuple[str, str, str], list[tuple[Intent, GroupDelta]]] = {}
    for intent in intents:
        for delta in intent.deltas:
            of, number = number_of(delta.label)
            if delta.label not in aggregates and number >= numbers.get(of, -1):
                raise UnknownAggregate(
                    f"{intent.table} {(intent.partition, intent.row)}: {delta.label} is maintained by another program"
                )
        reservations = Reservations(intent, patience, timeout)
        works += [_end(delete, intent, patience, timeout) for delete in intent.deletes]
        works += [reservations.release(release) for release in intent.releases]
        works += [reservations.end(take, is_done=True) for take in intent.takes if take.was is not None]
        for delta in intent.deltas:
            if delta.label in aggregates:  # (else it was built anew since, with the entity as it is)
                groups.setdefault((delta.label, delta.partition, delta.row), []).append((intent, delta))
    for (label, _, _), deltas in groups.items():
        upkeep = classes.upkeep(aggregates[label])
        for at in range(0, len(deltas), upkeep.most):
            works.append(add_with_others(upkeep, deltas[at : at + upkeep.most], patience, timeout, outbox))
    results = yield from side_by_side(works)
    if groups_elsewhere := [result for result in results if isinstance(result, CommittedIntent)]:
        yield from carry_out(
            [group_intent.intent for group_intent in groups_elsewhere], classes, patience, timeout, outbox
        )
        for committed in groups_elsewhere if not patience.doubt else ():
            outbox.finish(committed)


def _end(delete: DeleteRow, intent: Intent, patience: Deadline, timeout: float) -> Effects[None]:
    """Delete a row of an index; where it is not there yet, wait a moment for the write that puts it."""
    intent_of_put = GetEntity(intent.table, intent.partition, intent_key(delete.row[-OP_UNITS:]))
    for attempt in range(_WAITS):
        if (yield from patience.send(delete.table, delete.partition, RowChange("delete", delete.row, {}, "*"))):
            return
        entity = yield from read(intent_of_put, timeout)
        if entity is None or entity["state"] != "C":
            return
        yield from patience.again(attempt)
    patience.doubt = True  # (the intent stays for who sweeps, after whom nobody puts it)


def bury(intent: Intent, patience: Deadline, timeout: float) -> Effects[None]:
    """Delete the rows of indexes again, and give up the values, that entities do not have any more: they may have come late."""
    bases = list(
        dict.fromkeys([(row_put.members[BASE_PARTITION], row_put.members[BASE_ROW]) for row_put in intent.puts])
    )
    gets = [read(GetEntity(intent.table, str(partition), str(row)), timeout) for partition, row in bases]
    entities = dict(zip(bases, (yield from side_by_side(gets)), strict=True))
    for row_put in intent.puts:
        entity = entities[row_put.members[BASE_PARTITION], row_put.members[BASE_ROW]]
        if not holds(entity, row_put.index, row_put.row[-OP_UNITS:]):
            yield from patience.send(row_put.table, row_put.partition, RowChange("delete", row_put.row, {}, "*"))
    reservations = Reservations(intent, patience, timeout)
    yield from side_by_side([reservations.bury(take) for take in intent.takes])


def kept_behind(
    work: Effects[T], intents: Sequence[Intent], state: State, patience: Deadline, timeout: float, outbox: Outbox
) -> Effects[T]:
    """Do what intents say; have them kept then, if this process stood still meanwhile.

    What it did may have come behind the last look of those who sweep.

    Args:
        work: is done.
        intents: say it.
        state: in which an intent waits until no request for it is under way, and is looked at once more.
        patience: of the work.
        timeout: seconds after which to give up, if no answer comes.
        outbox: of the process.
    """

    def keep_intents() -> Effects[None]:
        late = yield from outbox.is_late(patience)
        for intent in intents if late else ():
            yield from _restate(intent, state, timeout, outbox)

    try:
        answer = yield from work
    except Exception:
        yield from keep_intents()
        raise
    yield from keep_intents()
    return answer


def _restate(intent: Intent, state: State, timeout: float, outbox: Outbox) -> Effects[None]:
    yield from outbox.name(Deadline((yield from clock()) + timeout), intent)
    for attempt in range(_WAITS):
        stored_intent = yield from read(GetEntity(intent.table, intent.partition, intent.row), timeout)
        if stored_intent is not None and stored_intent["state"] != state:
            return  # (it is still to be done)
        with suppress(NoResponse, ErrorResponse):  # (others do the same)
            if stored_intent is None:
                yield GroupTransaction(intent.table, intent.partition, (intent.change(state),))
            else:
                yield restated(intent.table, stored_intent, state)
            return
        yield delay(attempt)


def carry_out_together(
    following: Sequence[CommittedIntent], classes: AggregateRegistry, timeout: float, outbox: Outbox
) -> Effects[None]:
    """Do what follows from some writes of this process, together; their intents can then go.

    Raises:
        Exception: anything; what is not done is left to who sweeps.
    """
    if not following:
        return
    patience = Deadline(min(committed.until for committed in following))
    yield from carry_out([committed.intent for committed in following], classes, patience, timeout, outbox)
    for committed in following if not patience.doubt else ():
        markers = [
            (classes.aggregates[delta.label].model.table, delta.partition, mark_key(committed.intent.op, delta.row))
            for delta in committed.intent.deltas
            if delta.label in classes.aggregates
        ]
        outbox.finish(committed, markers)


def deleted(patience: Deadline, table: str, partition: str, changes: Sequence[RowChange]) -> Effects[set[str]]:
    """Delete rows of a partition that others may delete, too; return those of which it is sure that nobody else did."""
    deleted_rows = set[str]()
    for at in range(0, len(changes), MAX_CHANGES):
        batch = changes[at : at + MAX_CHANGES]
        if (yield from patience.send(table, partition, *batch)):
            deleted_rows |= {change.row for change in batch}
        for change in batch if batch[1:] and batch[0].row not in deleted_rows else ():  # (others were faster with some)
            if (yield from patience.send(table, partition, change)):
                deleted_rows.add(change.row)
    return deleted_rows


def delete_finished(outbox: Outbox, patience: Deadline) -> Effects[None]:
    """Delete the intents of this process that are carried out: those of a partition together.

    Where that is not possible they stay, which does no harm: who sweeps carries them out once more.
    """
    yield from in_batches([_deleted(outbox, place, patience) for place in outbox.places.to_delete()])


def _deleted(outbox: Outbox, place: Partition, patience: Deadline) -> Effects[None]:
    while finished := outbox.places.take(place, MAX_CHANGES):
        changes = [RowChange("delete", intent.row, {}, intent.etag) for intent in finished]
        try:
            deleted_rows = yield from deleted(patience, *place, changes)
        except (DeadlineExceeded, ErrorResponse) as error:
            if not isinstance(error, ErrorResponse) or error.code != "TableNotFound":
                _log.debug("%s %r: %d intents that are carried out stay: %s", *place, len(finished), error)
                return
            deleted_rows = {change.row for change in changes}
        outbox.deleted(place, [intent for intent in finished if intent.row in deleted_rows])


def take_back(intent: Intent, patience: Deadline, timeout: float) -> Effects[None]:
    """Take back what a fenced intent has taken."""
    reservations = Reservations(intent, patience, timeout)
    yield from side_by_side([reservations.end(take, is_done=False) for take in intent.takes])
