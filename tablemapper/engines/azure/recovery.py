"""What writers left that ended before they were done: found by the partitions that they named, and finished or undone.

All ages are by the clock of the service: it writes when an entity was last changed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

import attrs

from ...entities.etag import Stamp
from ...errors import TableMapperError
from ..check import CheckFinding, Problem
from .catalogue.open_classes import CatalogueRefresher, OpenClasses
from .cross_partition.intent_execution import UnknownAggregate, carry_out, delete_finished, take_back
from .cross_partition.named_partitions import NAMES
from .cross_partition.outbox import (
    Deadline,
    DeadlineExceeded,
    Intent,
    Outbox,
    Timing,
    intent_of,
    restated,
)
from .cross_partition.reservations import Reservations
from .reading.scans import in_range
from .tables.driver import (
    Effects,
    ReadClock,
    Sleep,
    clock,
    found_with_date,
    read,
    server_time,
    side_by_side,
    time_of,
)
from .tables.entity_json import holds
from .tables.reserved_names import BASE_PARTITION, BASE_ROW, INTENTS, MARKS, intent_key, is_known
from .tables.service import (
    ETAG,
    PARTITION,
    ROW,
    AllOf,
    Comparison,
    Entity,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    QueryEntities,
    RowChange,
)

_NAMED = 7200.0  # seconds for which the name of a partition stays: its writer believes in it for an hour
_TOGETHER = 16
_WAIT = 1.0  # seconds
_log = logging.getLogger("tablemapper.azure")


def sweep(current: CatalogueRefresher, outbox: Outbox, timeout: float, *, full: bool = False) -> Effects[int]:
    """Finish or undo what writers left, and return how many writes that were.

    Args:
        current: the classes as the process knows them; what others have left of other classes stays.
        outbox: of the process.
        timeout: seconds after which to give up, if no answer comes.
        full: also look through the tables of classes for writes whose partitions nobody names, as after a catalogue was lost,
            and those of aggregates for markers that nobody needs any more.
    """
    patience = Deadline((yield from clock()) + timeout)
    yield from delete_finished(outbox, patience)
    recovery, done = OutboxRecovery(current, outbox, timeout), 0
    names = yield from recovery.names()
    for at in range(0, len(names), _TOGETHER):
        some = names[at : at + _TOGETHER]
        counts = yield from side_by_side([recovery.partition(one["t"], one["p"]) for one, _ in some])
        done += sum(count for count, _ in counts)
        for (one, age), (_, left) in zip(some, counts, strict=True):
            if not left and age > _NAMED:
                yield from _tried(
                    GroupTransaction(outbox.catalogue, one[PARTITION], (RowChange("delete", one[ROW], {}, one[ETAG]),))
                )
    yield from delete_finished(outbox, patience)  # (of groups that indexes have elsewhere)
    if full:
        named = {(one["t"], one["p"]) for one, _ in names}
        for table in {model.table for model in current.known.models if current.known.has_intent(model)}:
            done += yield from recovery.unnamed(table, named)
        for aggregate in current.known.outer_aggregates:
            yield from recovery.marks(aggregate.model.table)
    return done


def waited(catalogue: str, since: int, seconds: float, timeout: float) -> Effects[bool]:
    """Wait a second at most, unless so many have passed by the clock of the service; return whether they had not.

    Args:
        catalogue: its table.
        since: a time of that clock in µs.
        seconds: that are to pass.
        timeout: seconds after which to give up, if no answer comes.
    """
    left = since / 1e6 + seconds - (yield from server_time(catalogue, timeout)) / 1e6
    if left > 0:
        yield Sleep(min(left, _WAIT))
    return left > 0


def _tried(commit: GroupTransaction) -> Effects[bool]:
    """Send a change under an ETag; return whether it was certainly made."""
    try:
        yield commit
    except (NoResponse, ErrorResponse):
        return False
    return True


@attrs.frozen
class OutboxRecovery:
    """Sweeps partitions.

    Args:
        current: the classes as the process knows them.
        outbox: of the process.
        timeout: seconds after which to give up, if no answer comes.
    """

    current: CatalogueRefresher
    outbox: Outbox
    timeout: float

    def read(self, find: QueryEntities) -> Effects[list[tuple[Entity, float]]]:
        """Read entities, each with the seconds for which it has been as it is."""
        entities, date = yield from found_with_date(find, self.timeout)
        now = time_of(date) if entities else 0
        if now is None:
            now = yield from server_time(self.outbox.catalogue, self.timeout)
        return [(entity, self.age(entity, now)) for entity in entities]

    def age(self, entity: Entity, now: int) -> float:
        """Return for how many seconds an entity has been as it is, ``now`` being the clock of the service in µs."""
        return (now - int(Stamp(entity[ETAG]))) / 1_000_000

    def names(self) -> Effects[list[tuple[Entity, float]]]:
        """Return the names of partitions in which something may be to be done, each with its age.

        A name that is as young as a write, and one of this process with nothing left, leads to nothing.
        """
        where = AllOf((
            Comparison(PARTITION, "ge", "String", NAMES), Comparison(PARTITION, "lt", "String", f"{NAMES}~"),
        ))  # fmt: skip
        names = yield from self.read(QueryEntities(self.outbox.catalogue, where))
        places, lease = self.outbox.places, self.outbox.times.lease
        return [
            (one, age)
            for one, age in names
            if age > lease and not (one[PARTITION] == places.owner and places.is_clean((one["t"], one["p"])))
        ]

    def unnamed(self, table: str, named: Collection[tuple[str, str]]) -> Effects[int]:
        """Return how many intents were finished or undone in the partitions of a table that nobody names."""
        found = yield from self.read(in_range(table, INTENTS))
        partitions = [
            one for one in dict.fromkeys([entity[PARTITION] for entity, _ in found]) if (table, one) not in named
        ]
        done = 0
        for at in range(0, len(partitions), _TOGETHER):
            some = partitions[at : at + _TOGETHER]
            done += sum([count for count, _ in (yield from side_by_side([self.partition(table, one) for one in some]))])
        return done

    def partition(self, table: str, partition: str) -> Effects[tuple[int, int]]:
        """Return how many intents of a partition were finished or undone, and how many are left there."""
        began: float = yield ReadClock()
        classes = yield from self.current.classes()
        done = left = 0
        try:
            intents = yield from self.read(in_range(table, INTENTS, partition))
        except ErrorResponse as refused:
            if refused.code != "TableNotFound":  # (it was replaced, and is no more)
                raise
            return done, left
        for entity, age in intents:
            if not is_known(entity):
                continue
            left += 1
            if age <= self.outbox.times.lease:
                continue
            try:
                more, gone = yield from self._intent(
                    classes, table, entity, age, Deadline(began + self.outbox.times.deadline)
                )
            except (DeadlineExceeded, ErrorResponse, UnknownAggregate, TableMapperError) as error:
                _log.warning("%s %r: what a write left there stays: %s", table, partition, error)
            else:
                done += more
                left -= gone
        return done, left

    def _intent(
        self, classes: OpenClasses, table: str, entity: Entity, age: float, patience: Deadline
    ) -> Effects[tuple[bool, bool]]:
        """Return whether something was done, and whether the intent is gone."""
        intent, state = intent_of(entity)
        old = age > self.outbox.times.grace
        if state == "P":
            if (yield from _tried(restated(table, entity, "X"))):
                yield from take_back(intent, patience, self.timeout)
                return True, False
            return False, False
        if state == "C":
            yield from carry_out([intent], classes, patience, self.timeout, self.outbox)
            yield from self._bury(intent, patience)
            yield from _tried(restated(table, entity, "D"))  # (it stays: others may be carrying it out, too)
            return True, False
        if not old:
            return False, False
        if state == "X":
            yield from take_back(intent, patience, self.timeout)
        else:  # (what was under way for long, of its writer or of who swept, may have landed since)
            yield from self._bury(intent, patience)
            reservations = Reservations(intent, patience, self.timeout)
            yield from side_by_side([reservations.bury(one) for one in intent.takes])
        yield from _tried(
            GroupTransaction(table, entity[PARTITION], (RowChange("delete", intent.row, {}, entity[ETAG]),))
        )
        return False, True

    def _bury(self, intent: Intent, patience: Deadline) -> Effects[None]:
        """Delete the rows of indexes again whose entities were written since: others have deleted them before."""
        bases = list(dict.fromkeys([(one.members[BASE_PARTITION], one.members[BASE_ROW]) for one in intent.puts]))
        gets = [read(GetEntity(intent.table, str(partition), str(row)), self.timeout) for partition, row in bases]
        entities = dict(zip(bases, (yield from side_by_side(gets)), strict=True))
        for one in intent.puts:
            if not holds(entities[one.members[BASE_PARTITION], one.members[BASE_ROW]], one.index, intent.op):
                yield from patience.send(one.table, one.partition, RowChange("delete", one.row, {}, "*"))

    def marks(self, table: str) -> Effects[None]:
        """Delete the markers of writes whose intents are gone: since these were carried out, or by their own writers."""
        grace, found = self.outbox.times.grace, (yield from self.read(in_range(table, MARKS)))
        marks = [one for one, age in found if age > grace and is_known(one)]
        gets = [read(GetEntity(one["t"], one["p"], intent_key(one["op"])), self.timeout) for one in marks]
        intents: list[Entity | None] = []
        for at in range(0, len(gets), _TOGETHER):
            intents += yield from side_by_side(gets[at : at + _TOGETHER])
        gone = [one for one, intent in zip(marks, intents, strict=True) if intent is None]
        deletes = [
            GroupTransaction(table, one[PARTITION], (RowChange("delete", one[ROW], {}, one[ETAG]),)) for one in gone
        ]
        for at in range(0, len(deletes), _TOGETHER):
            yield from side_by_side([_tried(one) for one in deletes[at : at + _TOGETHER]])


def unfinished(intents: Sequence[tuple[str, Entity]], times: Timing, now: int | None) -> list[CheckFinding]:
    """Return what is wrong where no writer goes on with an intent, each with the table that it lies in.

    Args:
        intents: that were read.
        times: how long things last.
        now: the clock of the service, in µs; None: it is not known, and each intent counts.
    """
    return [
        CheckFinding(
            Problem("missing", table, (one[PARTITION], one[ROW]), "a write is not finished; call store.sweep()")
        )
        for table, one in intents
        if one["state"] in ("P", "C") and (now is None or (now - int(Stamp(one[ETAG]))) / 1e6 > times.lease)
    ]
