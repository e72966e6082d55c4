"""Recovery of writes that ended too early: found by the partitions that their writers named, and finished or undone.

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
from .cross_partition.intent_execution import UnknownAggregate, bury, carry_out, delete_finished, take_back
from .cross_partition.named_partitions import NAMES
from .cross_partition.outbox import (
    CLAIMED,
    Deadline,
    DeadlineExceeded,
    Outbox,
    Timing,
    intent_of,
    restated,
)
from .reading.scans import in_range
from .tables.driver import (
    PARALLEL,
    Effects,
    ReadClock,
    Sleep,
    clock,
    found_with_date,
    in_batches,
    read,
    server_time,
    side_by_side,
    time_of,
)
from .tables.reserved_names import INTENTS, MARKS, intent_key, is_known
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

_NAME_LIFETIME = 7200.0  # seconds for which the name of a partition stays: its writer believes in it for an hour
_KEPT = 7200.0  # seconds for which a marker stays: who stood still may add once more what was added when it read
_WAIT = 1.0  # seconds
_log = logging.getLogger("tablemapper.azure")


def sweep(current: CatalogueRefresher, outbox: Outbox, timeout: float, *, full: bool = False) -> Effects[int]:
    """Finish or undo what writers left, and return how many writes that were.

    Args:
        current: the classes as the process knows them; what others have left of other classes stays.
        outbox: of the process.
        timeout: seconds after which to give up, if no answer comes.
        full: also look through the tables of classes for writes whose partitions nobody names, as after a catalogue was lost.
            Those of aggregates are searched for markers that nobody needs any more.
    """
    patience = Deadline((yield from clock()) + timeout)
    yield from delete_finished(outbox, patience)
    recovery, count_of_writes = OutboxRecovery(current, outbox, timeout), 0
    names = yield from recovery.names()
    for at in range(0, len(names), PARALLEL):
        batch = names[at : at + PARALLEL]
        counts = yield from side_by_side([recovery.partition(entity["t"], entity["p"]) for entity, _ in batch])
        count_of_writes += sum(count for count, _ in counts)
        for (entity, age), (_, unfinished_count) in zip(batch, counts, strict=True):
            if not unfinished_count and age > _NAME_LIFETIME:
                yield from _tried(
                    GroupTransaction(
                        outbox.catalogue, entity[PARTITION], (RowChange("delete", entity[ROW], {}, entity[ETAG]),)
                    )
                )
    yield from delete_finished(outbox, patience)  # (of groups that indexes have elsewhere)
    if full:
        named_partitions = {(entity["t"], entity["p"]) for entity, _ in names}
        for table in {model.table for model in current.known.models if current.known.has_intent(model)}:
            count_of_writes += yield from recovery.unnamed(table, named_partitions)
        for aggregate in current.known.outer_aggregates:
            yield from recovery.marks(aggregate.model.table)
    return count_of_writes


def waited(catalogue: str, since: int, seconds: float, timeout: float) -> Effects[bool]:
    """Wait a second at most, unless so many have passed by the clock of the service; return whether they had not.

    Args:
        catalogue: its table.
        since: a time of that clock in µs.
        seconds: that are to pass.
        timeout: seconds after which to give up, if no answer comes.
    """
    seconds_left = since / 1e6 + seconds - (yield from server_time(catalogue, timeout)) / 1e6
    if seconds_left > 0:
        yield Sleep(min(seconds_left, _WAIT))
    return seconds_left > 0


def _tried(commit: GroupTransaction) -> Effects[Sequence[str | None]]:
    """Send a change under an ETag; return the one that it gives; nothing unless it was certainly made."""
    try:
        etags: Sequence[str | None] = yield commit
    except (NoResponse, ErrorResponse):
        return ()
    return etags


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
        server_now = time_of(date) if entities else 0
        if server_now is None:
            server_now = yield from server_time(self.outbox.catalogue, self.timeout)
        return [(entity, self.age(entity, server_now)) for entity in entities]

    def age(self, entity: Entity, server_now: int) -> float:
        """Return for how many seconds an entity has been as it is, ``now`` being the clock of the service in µs."""
        return (server_now - int(Stamp(entity[ETAG]))) / 1_000_000

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
            (entity, age)
            for entity, age in names
            if age > lease and not (entity[PARTITION] == places.owner and places.is_clean((entity["t"], entity["p"])))
        ]

    def unnamed(self, table: str, named_partitions: Collection[tuple[str, str]]) -> Effects[int]:
        """Return how many intents were finished or undone in the partitions of a table that nobody names."""
        entities = yield from self.read(in_range(table, INTENTS))
        partitions = [
            candidate
            for candidate in dict.fromkeys([entity[PARTITION] for entity, _ in entities])
            if (table, candidate) not in named_partitions
        ]
        intent_count = 0
        for at in range(0, len(partitions), PARALLEL):
            batch = partitions[at : at + PARALLEL]
            intent_count += sum(
                [
                    count
                    for count, _ in (yield from side_by_side([self.partition(table, partition) for partition in batch]))
                ]
            )
        return intent_count

    def partition(self, table: str, partition: str) -> Effects[tuple[int, int]]:
        """Return how many intents of a partition were finished or undone, and how many are left there."""
        began: float = yield ReadClock()
        classes = yield from self.current.classes()
        if table in classes.cleared_tables:
            return 0, 1
        done_count = left_count = 0
        try:
            intents = yield from self.read(in_range(table, INTENTS, partition))
        except ErrorResponse as refusal:
            if refusal.code != "TableNotFound":  # (it was replaced, and is no more)
                raise
            return done_count, left_count
        for entity, age in intents:
            if not is_known(entity):
                continue
            left_count += 1
            if age <= self.outbox.times.lease and CLAIMED not in entity:
                continue
            try:
                is_done, is_deleted = yield from self._intent(
                    classes, table, entity, age, Deadline(began + self.outbox.times.deadline)
                )
            except (DeadlineExceeded, ErrorResponse, UnknownAggregate, TableMapperError) as error:
                _log.warning("%s %r: what a write left there stays: %s", table, partition, error)
            else:
                done_count += is_done
                left_count -= is_deleted
        return done_count, left_count

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
            if (claimed_intent := (yield from self._claimed(table, entity))) is None:
                return False, False
            yield from carry_out([intent], classes, patience, self.timeout, self.outbox)
            yield from bury(intent, patience, self.timeout)
            yield from _tried(restated(table, claimed_intent, "D"))  # (it stays: others may be carrying it out, too)
            return True, False
        if not old:
            return False, False
        if state == "X":
            yield from take_back(intent, patience, self.timeout)
        else:  # (what was under way for long, of its writer or of who swept, may have landed since)
            yield from bury(intent, patience, self.timeout)
        yield from _tried(
            GroupTransaction(table, entity[PARTITION], (RowChange("delete", intent.row, {}, entity[ETAG]),))
        )
        return False, True

    def _claimed(self, table: str, entity: Entity) -> Effects[Entity | None]:
        """Return an intent that its writer cannot delete any more; None if that may have happened meanwhile.

        So it is there as long as requests of those who sweep may come late.
        """
        if CLAIMED in entity:
            return entity
        claimed_intent = {**entity, CLAIMED: True}
        etags = yield from _tried(restated(table, claimed_intent, "C"))
        return {**claimed_intent, ETAG: etags[0]} if etags else None

    def marks(self, table: str) -> Effects[None]:
        """Delete the markers of writes whose intents are gone: since these were carried out, or by their own writers."""
        entities = yield from self.read(in_range(table, MARKS))
        marks = [entity for entity, age in entities if age > _KEPT and is_known(entity)]
        gets = [read(GetEntity(mark["t"], mark["p"], intent_key(mark["op"])), self.timeout) for mark in marks]
        intents: list[Entity | None] = yield from in_batches(gets)
        spent = [mark for mark, intent in zip(marks, intents, strict=True) if intent is None]
        deletes = [
            GroupTransaction(table, mark[PARTITION], (RowChange("delete", mark[ROW], {}, mark[ETAG]),))
            for mark in spent
        ]
        yield from in_batches([_tried(delete) for delete in deletes])


def unfinished(intents: Sequence[tuple[str, Entity]], times: Timing, server_now: int | None) -> list[CheckFinding]:
    """Return what is wrong where no writer goes on with an intent, each with the table that it lies in.

    Args:
        intents: that were read.
        times: how long things last.
        server_now: the clock of the service, in µs; None: it is not known, and each intent counts.
    """
    return [
        CheckFinding(
            Problem("missing", table, (entity[PARTITION], entity[ROW]), "a write is not finished; call store.sweep()")
        )
        for table, entity in intents
        if entity["state"] in ("P", "C")
        if server_now is None or CLAIMED in entity or (server_now - int(Stamp(entity[ETAG]))) / 1e6 > times.lease
    ]
