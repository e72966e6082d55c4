"""What is left of a write after its transaction, or instead of it: its intent is carried out, or taken back.

The writer does it, or who sweeps later, or both at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from ....schema.maintenance import AggregateMaintenance
from ..tables.driver import Effects, ReadClock, read, side_by_side
from ..tables.reserved_names import OP_UNITS, intent_key, mark_key
from ..tables.service import MAX_CHANGES, ErrorResponse, GetEntity, RowChange
from .delta_batching import add_with_others
from .marks import number_of
from .named_partitions import Partition
from .outbox import DONE, Deadline, DeadlineExceeded, DeleteRow, GroupDelta, Intent, Outbox, put_works
from .remote_groups import GroupMaintenance
from .reservations import Reservations

_PLACES = 16  # partitions in which intents are deleted side by side
_WAITS = 5  # for another writer, 1.5 s in all
_log = logging.getLogger("tablemapper.azure")


class AggregateRegistry(Protocol):
    """What is maintained, as a process knows it."""

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
    works: list[Effects[Any]] = [*put_works(patience, [put for intent in intents for put in intent.puts])]
    aggregates = classes.aggregates
    numbers = dict(map(number_of, aggregates))
    groups: dict[tuple[str, str, str], list[tuple[Intent, GroupDelta]]] = {}
    for intent in intents:
        for one in intent.deltas:
            of, number = number_of(one.label)
            if one.label not in aggregates and number >= numbers.get(of, -1):
                raise UnknownAggregate(
                    f"{intent.table} {(intent.partition, intent.row)}: {one.label} is maintained by another program"
                )
        reservations = Reservations(intent, patience, timeout)
        works += [_end(one, intent, patience, timeout) for one in intent.deletes]
        works += [reservations.release(one) for one in intent.releases]
        works += [reservations.end(one, done=True) for one in intent.takes if one.was is not None]
        for one in intent.deltas:
            if one.label in aggregates:  # (else it was built anew since, with the entity as it is)
                groups.setdefault((one.label, one.partition, one.row), []).append((intent, one))
    for (label, _, _), several in groups.items():
        upkeep = classes.upkeep(aggregates[label])
        for at in range(0, len(several), upkeep.most):
            works.append(add_with_others(upkeep, several[at : at + upkeep.most], patience, timeout, outbox))
    began: float = yield ReadClock()
    made = yield from side_by_side(works)
    if following := [one for one in made if isinstance(one, Intent)]:  # (of groups that indexes have elsewhere)
        yield from carry_out(following, classes, patience, timeout, outbox)
        for group_intent in following if not patience.doubt else ():
            outbox.finish(group_intent, began)


def _end(gone: DeleteRow, intent: Intent, patience: Deadline, timeout: float) -> Effects[None]:
    """Delete a row of an index; where it is not there yet, wait a moment for the write that puts it."""
    before = GetEntity(intent.table, intent.partition, intent_key(gone.row[-OP_UNITS:]))
    for attempt in range(_WAITS):
        if (yield from patience.send(gone.table, gone.partition, RowChange("delete", gone.row, {}, "*"))):
            return
        found = yield from read(before, timeout)
        if found is None or found["state"] != "C":
            return
        yield from patience.again(attempt)
    patience.doubt = True  # (the intent stays for who sweeps, after whom nobody puts it)


@attrs.frozen(eq=False)
class CommittedIntent:
    """What follows from a write that is committed."""

    intent: Intent
    patience: Deadline
    """Of the write: until when it may go on, and whether an answer was lost."""


def carry_out_together(
    following: Sequence[CommittedIntent], classes: AggregateRegistry, timeout: float, outbox: Outbox
) -> Effects[None]:
    """Do what follows from some writes of this process, together; their intents can then go.

    Raises:
        Exception: anything; what is not done is left to who sweeps.
    """
    patience = Deadline(min(one.patience.until for one in following))
    yield from carry_out([one.intent for one in following], classes, patience, timeout, outbox)
    # (Where an answer was lost, a request may still be executed later: the intent has to be there then.)
    for one in following if not patience.doubt else ():
        if not one.patience.doubt:
            markers = [
                (classes.aggregates[delta.label].model.table, delta.partition, mark_key(one.intent.op, delta.row))
                for delta in one.intent.deltas
                if delta.label in classes.aggregates
            ]
            outbox.finish(one.intent, one.patience.until - timeout, markers)


def deleted(patience: Deadline, table: str, partition: str, changes: Sequence[RowChange]) -> Effects[None]:
    """Delete rows of a partition that others may delete, too."""
    for at in range(0, len(changes), MAX_CHANGES):
        some = changes[at : at + MAX_CHANGES]
        if not (yield from patience.send(table, partition, *some)) and some[1:]:  # (others were faster with some)
            for one in some:
                yield from patience.send(table, partition, one)


def delete_finished(outbox: Outbox, patience: Deadline) -> Effects[None]:
    """Delete the intents of this process that are carried out: those of a partition together.

    Where that is not possible they stay, which does no harm: who sweeps carries them out once more.
    """
    places = outbox.places.to_delete()
    for at in range(0, len(places), _PLACES):
        yield from side_by_side([_deleted(outbox, place, patience) for place in places[at : at + _PLACES]])


def _deleted(outbox: Outbox, place: Partition, patience: Deadline) -> Effects[None]:
    while finished := outbox.places.take(place, MAX_CHANGES):
        # A sweep may have the intent of an older write in its hands, and its requests may come late. Such an intent is
        # marked as done, and a sweep buries what they leave before it deletes the intent.
        since = yield from outbox.left_alone_since()
        recent = [intent for intent in finished if intent.began >= since]
        changes = [
            RowChange("delete", intent.row, {}, "*")
            if intent.began >= since
            else RowChange("merge", intent.row, DONE, "*")
            for intent in finished
        ]
        try:
            yield from deleted(patience, *place, changes)
        except (DeadlineExceeded, ErrorResponse) as error:
            if not isinstance(error, ErrorResponse) or error.code != "TableNotFound":
                _log.debug("%s %r: %d intents that are carried out stay: %s", *place, len(finished), error)
                return
        outbox.deleted(place, recent, (yield ReadClock()))


def take_back(intent: Intent, patience: Deadline, timeout: float) -> Effects[None]:
    """Take back what a fenced intent has taken."""
    reservations = Reservations(intent, patience, timeout)
    yield from side_by_side([reservations.end(one, done=False) for one in intent.takes])
