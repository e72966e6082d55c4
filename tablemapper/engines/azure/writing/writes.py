"""One write: what is read for it, what goes into its transaction, what a refusal means, what is done in doubt.

At first as little is read as can be, and the rest is assumed: the row that an entity was read as, or that a new one is
not there. The service checks that by ETags. When it refuses, everything is read, and decided again, so that the error
is that of the first operation that failed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import msgspec

from ....entities.etag import Stamp
from ....errors import (
    InvalidEntity,
    InvalidTransaction,
    StoreError,
    StoreLocked,
    UniqueViolation,
)
from ....schema.maintenance import AggregateMaintenance, IndexMaintenance
from ....schema.model import Model
from ....schema.rows import FIRST, Row
from ...protocol import Operation
from ...write_decision import Decision, EntityChange, Key, violation
from ..catalogue.open_classes import OpenClasses
from ..cross_partition.intent_builder import outer_of
from ..cross_partition.intent_execution import kept_behind, take_back
from ..cross_partition.marks import counted, of_writes
from ..cross_partition.named_partitions import FinishedIntent
from ..cross_partition.outbox import (
    CommittedIntent,
    Deadline,
    DeadlineExceeded,
    Intent,
    IntentTooLarge,
    Outbox,
    ReserveValue,
)
from ..cross_partition.remote_groups import check_room, checked
from ..cross_partition.reservations import Reservations
from ..cross_partition.value_counts import StalePages
from ..tables.driver import ATTEMPTS, Effects, ReadClock, delay, read, side_by_side
from ..tables.entity_json import HiddenProperties, as_stored, hidden_of, included, local_key, members_of, ops_member
from ..tables.reserved_names import BASE_ROW, OP, OURS
from ..tables.service import (
    ETAG,
    MAX_CHANGES,
    Entity,
    ErrorResponse,
    GetEntity,
    GroupTransaction,
    NoResponse,
    RowChange,
)
from .outcomes import afterwards, judge, outcome, unknown
from .partition_view import PartitionView, same_write

_BODY = 3_500_000  # bytes of a transaction
_EXTRAS = 2  # an intent, and a note
_UNKNOWN = Stamp("W/\"datetime'1601-01-01T00%3A00%3A00Z'\"")
"""Of an entity that somebody else has written since."""
_log = logging.getLogger("tablemapper.azure")

T = TypeVar("T")


class TransactionTooLarge(InvalidTransaction):
    """A transaction has more rows than an entity group transaction takes; fewer entities may do."""


def write(
    classes: OpenClasses,
    operations: Sequence[Operation],
    outbox: Outbox,
    *,
    maintained_limit: int | None = None,
    timeout: float = 30.0,
    beside: Sequence[Callable[[], Effects[RowChange]]] = (),
) -> Effects[list[CommittedIntent]]:
    """Apply operations of one table and partition in one transaction; return what is still to be done in other partitions.

    Args:
        classes: what is maintained.
        operations: they get what was stored.
        outbox: of the process.
        maintained_limit: as for `Engine.apply`.
        timeout: seconds after which the outcome is unknown, if no answer comes.
        beside: give further changes of the partition, as they are just then, for the same transaction.

    Raises:
        EntityExists, EntityNotFound, PreconditionFailed, UniqueViolation, InvalidTransaction: nothing was written.
        StoreLocked: nothing was written, as others wrote the same partition all the time, or the store is frozen.
        OutcomeUnknown: nobody knows whether it was.
    """
    classes.check_writable(operations)
    began: float = yield ReadClock()
    timeout = min(timeout, outbox.times.deadline)
    if (
        len(operations) == 1
        and not beside
        and (yield from _assign(classes, operations[0], outbox, Deadline(began + timeout)))
    ):
        return []
    view = PartitionView(classes, operations, timeout)
    yield from view.begin()
    for attempt in range(ATTEMPTS):
        try:
            decision = yield from view.decide(maintained_limit)
        except (UniqueViolation, StalePages) as error:
            if (isinstance(error, UniqueViolation) and error.holder is not None) or attempt == ATTEMPTS - 1:
                raise
            # (An entity has its value itself, or a group its pages: somebody wrote between two readings.)
            yield delay(attempt // 4)
            yield from view.begin(afresh=True)
            continue
        tx = _Transaction(classes, view, decision, outbox.new_op())
        for change in beside:
            tx.put_first((yield from change()))
        patience = Deadline(began + view.timeout)
        etags = yield from _Attempt(tx, view, outbox, patience).run()
        if etags is not None:
            tx.tell(etags, operations)
            etag = None if patience.doubt else etags.get(tx.intent.row)
            return [CommittedIntent(tx.intent, patience.until, etag)] if tx.intent else []
        if attempt:
            yield delay(attempt // 4)
        yield from view.begin(afresh=True)
    raise StoreLocked(
        f"{operations[0]}: others wrote the same partition {ATTEMPTS} times meanwhile; nothing was written"
    )


def _assign(classes: OpenClasses, what: Operation, outbox: Outbox, patience: Deadline) -> Effects[bool]:
    """Write constants without reading the entity, where nothing depends on what it has; return whether that was possible.

    If it was not, the entity is not there, or has another ETag, and it is to be read which.
    """
    model = what.model
    if what.assigned is None or classes.needs_row(model) or not (what.etag is None or isinstance(what.etag, Stamp)):
        return False
    if what.has_ended is not None or not classes.claims(model, *what.key):
        return False
    if (assigned := what.assigned()) is None:
        return False
    members: Entity = {OP: outbox.new_op()}
    codec_types = classes.codec(model).stored
    for name, value in assigned.items():
        members |= members_of(as_stored(model.declaration.field(name), codec_types), value)
    etag = "*" if what.etag is None else what.etag.etag
    merge = GroupTransaction(model.table, what.partition, (RowChange("merge", what.row, members, etag),))

    def was_done(_: ErrorResponse) -> Effects[bool]:
        entity = yield from read(GetEntity(model.table, what.partition, what.row), outbox.times.deadline)
        if entity is not None and entity.get(OP) == members[OP]:
            return True
        raise unknown(what, "an answer was lost, and the entity was written since")

    return (yield from outcome(merge, what, patience, was_done)) is not None


# ---------------------------------------------------------------------------------------------- what is sent


class _Transaction:
    """The changes of one attempt."""

    def __init__(self, classes: OpenClasses, view: PartitionView, decision: Decision, op: str) -> None:
        self._classes = classes
        self._view = view
        self.decision = decision
        self.op = op
        intent = Intent(view.table, view.partition, op)
        self.outer = outer_of(classes.outer, classes.marks, decision.entities, self._changed_groups(), intent)
        self.changes: list[RowChange] = [self._entity(one) for one in decision.entities if not self._is_in_group(one)]
        indexes = [
            change
            for index, rows in decision.changes.indexes.items()
            for change in self._index(index, rows.deletes, rows.puts, rows.rewrites)
        ]
        self.changes += list(self._groups(MAX_CHANGES - len(self.changes) - len(indexes) - _EXTRAS))
        self.changes += indexes
        self.intent = self.outer.intent
        if self.intent:
            try:
                self.changes.append(self.intent.change("C"))
            except IntentTooLarge:
                raise TransactionTooLarge(
                    f"{len(view.operations)} operations have too much in indexes of other partitions for one entity group "
                    "transaction; split it, or let an index include less"
                ) from None
        self._check()

    def _changed_groups(self) -> Iterable[tuple[Model, Key, Row | None, Row | None]]:
        for (model, key), change in self.decision.groups.items():
            yield model, key, self._view.rows[model, key[1]], None if change.new is None else change.new[:-1]

    def put_first(self, change: RowChange) -> None:
        """Add a change of a row that nobody else writes: in doubt it says what came of the transaction."""
        self.changes.insert(0, attrs.evolve(change, members={**change.members, OP: self.op}))
        self._check()

    def _is_in_group(self, change: EntityChange) -> bool:
        """Return whether an operation requires a group that the transaction changes, under its ETag."""
        return change.operation.verb == "require" and (change.operation.model, change.operation.key) in self._touched

    @property
    def _touched(self) -> set[tuple[Model, Key]]:
        return {*self.decision.groups, *[(aggregate.model, key) for aggregate, key, _, _ in self.decision.values]}

    def _entity(self, change: EntityChange) -> RowChange:
        operation, row = change.operation, change.operation.row
        etag = self._view.etags[row]
        if operation.verb == "require":
            return RowChange("merge", row, {}, etag)
        if change.new is None:
            return RowChange("delete", row, {}, etag)
        if operation.verb == "build":  # (its write stays what it was: who has read the entity can write it)
            ops = ops_member(self.outer.ops[self.decision.entities.index(change)])
            return RowChange("merge", row, ops if counted(change.old) is not None else {**ops, OP: self.op}, etag)
        codec = self._classes.codec(operation.model)
        hidden = hidden_of(None if operation.fresh else change.old)
        undeclared, at = hidden.undeclared, self.decision.entities.index(change)
        if undeclared and operation.verb in ("replace", "upsert") and self._view.operations[at].change is None:
            names = ", ".join([name for name in undeclared if "@" not in name and not name.startswith(OURS)])
            raise InvalidEntity(
                f"{operation.model.name} {operation.key}",
                [
                    f"{names}: this would erase properties that it does not declare; use merge, or declare a tm.Extra field"
                ],
            )
        ops = self.outer.ops[at]
        members = codec.members(change.new)
        members |= {**hidden.unchanged(members), **undeclared, **ops_member(ops), OP: self.op}
        if etag is not None:
            return RowChange("replace", row, members, etag)
        return RowChange("upsert" if row in self._view.blind else "insert", row, members)

    def _groups(self, room: int) -> Iterable[RowChange]:
        """Yield the changes of groups, and of as many pages of their values as there is room for beside these."""
        counts: dict[tuple[Model, Key], tuple[AggregateMaintenance, dict[int, Mapping[Any, int]]]] = {}
        for aggregate, key, slot, value_changes in self.decision.values:
            counts.setdefault((aggregate.model, key), (aggregate, {}))[1][slot] = value_changes
        places = {**self.decision.groups, **counts}
        room -= len(places)
        for place in places:
            model, key = place
            change = self.decision.groups.get(place)
            group_row = self._view.rows[model, key[1]]
            etag = self._view.etags[key[1]]
            if change is None and group_row is None:
                continue
            packed = b""
            if place in counts:
                values = self._view.values(counts[place][0], key, counts[place][1])
                values.add(counts[place][1])
                values.settle(max(room, 0))
                packed = checked(values, model.name, key)
                pages = values.changes()
                room -= len(pages)
                yield from pages
            if change is None:
                assert group_row is not None
                *row, state = *group_row[:-1], group_row[-1].state
            elif change.new is not None:
                *row, state = change.new
            else:
                yield RowChange("delete", key[1], {}, etag)
                continue
            ops = self.outer.groups.get(place, of_writes(group_row))
            members = {**self._classes.codec(model).group(tuple(row), state, packed), **ops_member(ops), OP: self.op}
            yield RowChange("insert", key[1], members) if etag is None else RowChange("replace", key[1], members, etag)

    def _index(
        self, index: IndexMaintenance, deletes: Sequence[Row], puts: Sequence[Row], rewrites: Sequence[Row]
    ) -> Iterable[RowChange]:
        deleted = {local_key(index, row): row for row in deletes}

        stored = self._classes.codec(index.owner).stored

        def members(row: Row) -> Entity:
            return {BASE_ROW: row[3], **included(index, row, stored)}

        for row in puts:
            key = local_key(index, row)
            is_passed_on = deleted.pop(key, None) is not None  # (from one entity of the transaction to another)
            yield RowChange("insert" if index.model.unique and not is_passed_on else "upsert", key, members(row))
        for row in rewrites:
            yield RowChange("upsert", local_key(index, row), members(row))
        for key in deleted:
            if self._view.index_rows.get(key, self) is None:
                _log.warning("%s: the row %r was missing", index.label, key)
            else:
                yield RowChange("delete", key, {}, "*")

    def _check(self) -> None:
        operations = self._view.operations
        row_count = len(self.changes) - len(self.decision.entities)
        if len(self.changes) > MAX_CHANGES:
            raise TransactionTooLarge(
                f"{len(operations)} operations write {row_count} rows of indexes and aggregates in their partition, too: more "
                f"than {MAX_CHANGES} in one entity group transaction; split it"
            )
        size = sum(len(msgspec.json.encode(change.members)) for change in self.changes) if len(self.changes) > 3 else 0
        if size > _BODY:
            raise TransactionTooLarge(
                f"{len(operations)} operations make {size:,} bytes, of which a transaction takes {_BODY:,}; split it"
            )

    def tell(self, etags: Mapping[str, str | None], operations: Sequence[Operation]) -> None:
        """Give the operations what was stored, with the ETags by row key; what has none has one that nobody knows."""
        rows = self.rows_written()
        for operation, change in zip(operations, self.decision.entities, strict=True):
            operation.old = change.old
            if (row := rows.get(operation.row)) is not None:
                etag = etags.get(operation.row)
                operation.new = (*row[:2], _UNKNOWN if etag is None else Stamp(etag), *row[FIRST:])

    def rows_written(self) -> dict[str, Row]:
        """Return the entities that the transaction leaves, as they are read, by row key."""
        rows: dict[str, Row] = {}
        for change, ops in zip(self.decision.entities, self.outer.ops, strict=True):
            if change.new is not None and change.operation.verb != "require":
                hidden = hidden_of(None if change.operation.fresh else change.old)
                members = self._classes.codec(change.operation.model).members(change.new) if hidden.ticks else {}
                state = HiddenProperties(self.op, hidden.undeclared, ops, ticks=hidden.unchanged(members))
                rows[change.operation.row] = (*change.new, state)
        return rows

    def commit(self, pending: str | None, finished: Sequence[FinishedIntent] = ()) -> GroupTransaction:
        """Return the request: ``pending`` is the ETag of the intent that is there, and what is finished goes with it."""
        changes = list(self.changes)
        if pending is not None:
            changes[-1] = self.intent.change("C", pending)
        changes += [RowChange("delete", intent.row, {}, intent.etag) for intent in finished]
        return GroupTransaction(self._view.table, self._view.partition, tuple(changes))

    def keeps(self, holder: Key, take: ReserveValue) -> bool:
        """Return whether an entity that is written, too, has a value before and after, which another one is to take."""
        index, puts = self.outer.puts[take.index]
        value = take.partition, take.row
        if any(row[:2] == value and row[2:4] == holder for row in puts):
            return False
        final = [change.new for change in self.decision.entities if change.new is not None and change.new[:2] == holder]
        return any(row[:2] == value for row in index.rows(final))

    def taken_by(self, holder: Key, take: ReserveValue) -> UniqueViolation:
        """Return the error of a value that another entity has."""
        index, puts = self.outer.puts[take.index]
        return violation(index, lambda *_: holder, [row for row in puts if row[:2] == (take.partition, take.row)])


@attrs.define(eq=False)
class _Attempt:
    """One attempt to write: what is sent before the transaction, the transaction, and what follows it."""

    tx: _Transaction
    known: PartitionView
    outbox: Outbox
    patience: Deadline
    pending: str | None = None
    """The ETag of the intent, while values are taken."""
    finished: Sequence[FinishedIntent] = ()
    """Intents of earlier writes that the transaction deletes."""

    @property
    def intent(self) -> Intent:
        return self.tx.intent

    def run(self) -> Effects[Mapping[str, str | None] | None]:
        """Return the ETags of what was written, by row key; None: nothing was written, as others were faster."""
        intent, view = self.intent, self.known
        try:
            yield from self.patience.check()
            if not intent:
                return (yield from self._commit())
            yield from check_room(intent, view.classes.aggregates, self.outbox, view.timeout)
            yield from self.outbox.name(self.patience, intent)
            take = kept_behind(self._take(), [intent], "X", self.patience, view.timeout, self.outbox)
            if intent.takes and not (yield from take):
                return None
            yield from self.patience.check()
        except DeadlineExceeded:
            raise StoreError(f"{view.operations[0]}: the service does not answer; nothing was written") from None
        etags = yield from self._commit_with_finished()
        if etags is None:
            if self.pending is not None:
                yield from self._give_up()
            elif not self.patience.doubt:
                self.outbox.places.forget(self.intent.place, [intent.row])
        return etags

    # -- before the transaction

    def _take(self) -> Effects[bool]:
        """Take unique values; return whether all were free.

        Raises:
            UniqueViolation: another entity has one.
        """
        intent, view = self.intent, self.known
        try:
            (self.pending,) = yield GroupTransaction(intent.table, intent.partition, (intent.change("P"),))
        except NoResponse:  # (the next attempt is another write; who sweeps finds this one, if it is there)
            return False
        except ErrorResponse as refusal:
            judge(refusal, view.operations[0])
            return False
        reservations = Reservations(intent, self.patience, view.timeout)
        results = yield from side_by_side([reservations.take(take) for take in intent.takes])
        if all(result == "taken" for result in results):
            return True
        yield from self._give_up()
        if view.afresh:  # (else the error may be another one: that of the entity itself comes first)
            written_keys = {(view.partition, operation.row) for operation in view.operations}
            for take, holder in zip(intent.takes, results, strict=True):
                if isinstance(holder, tuple) and (holder not in written_keys or self.tx.keeps(holder, take)):
                    raise self.tx.taken_by(holder, take)
        return False

    def _give_up(self) -> Effects[None]:
        """Fence the intent, and take back what was taken."""
        says = f"{self.known.operations[0]}: nothing was written; what is left of it is for sweep()"
        yield from afterwards(says, self._taken_back(), None)

    def _taken_back(self) -> Effects[None]:
        intent = self.intent
        assert self.pending is not None
        yield from self._fence(self.pending)
        yield from take_back(intent, self.patience, self.known.timeout)
        if not self.patience.doubt:
            yield from self.patience.send(intent.table, intent.partition, RowChange("delete", intent.row, {}, "*"))
            self.outbox.places.forget(self.intent.place, [intent.row])

    def _fence(self, etag: str) -> Effects[None]:
        attempt = 0
        while True:
            try:
                yield GroupTransaction(self.intent.table, self.intent.partition, (self.intent.change("X", etag),))
            except NoResponse as no_response:
                yield from self.patience.again(attempt, no_response)
                attempt += 1
            except ErrorResponse:  # (it was fenced by others)
                return
            else:
                return

    # -- the transaction

    def _commit_with_finished(self) -> Effects[Mapping[str, str | None] | None]:
        """Commit, and delete what earlier writes have left in the partition that is finished, if that is there."""
        places, room = self.outbox.places, MAX_CHANGES - len(self.tx.changes)
        if not self.known.afresh:  # (a first attempt may have been refused for them: who sweeps was faster)
            self.finished = places.take(self.intent.place, room)
        are_gone = False
        try:
            etags = yield from self._commit()
            are_gone = etags is not None
        finally:
            if not are_gone:
                places.finish(self.intent.place, *self.finished)
        if self.finished and are_gone:
            self.outbox.deleted(self.intent.place, self.finished)
        return etags

    def _commit(self) -> Effects[Mapping[str, str | None] | None]:
        """Send the transaction until it is known what came of it; None: it was refused, and nothing was written."""
        tx, first = self.tx, self.known.operations[0]
        if not tx.changes:
            return {}
        etags = yield from outcome(tx.commit(self.pending, self.finished), first, self.patience, self._was_done)
        if etags is None:
            return None
        if etags:
            return dict(zip([change.row for change in tx.changes], etags[: len(tx.changes)], strict=True))
        return (yield from afterwards(f"{first} is written; its ETag is not known", _etags(tx, self.known), {}))

    def _was_done(self, refusal: ErrorResponse) -> Effects[bool]:
        """Return whether the transaction was executed by a send of which the answer was lost.

        Raises:
            OutcomeUnknown: nobody knows.
        """
        if not self.intent:
            return (yield from _was_done(self.tx, self.known, refusal))
        intent, attempt = self.intent, 0
        while True:
            entity = yield from read(GetEntity(intent.table, intent.partition, intent.row), self.known.timeout)
            if entity is not None and entity["state"] != "P":
                return entity["state"] in ("C", "D")
            late = entity is None and (yield from self.outbox.is_late(self.patience))
            if late and (yield from _was_done(self.tx, self.known, refusal)):  # (it was carried out, and is gone)
                return True
            try:  # (from then on it never can be)
                yield GroupTransaction(
                    intent.table, intent.partition, (intent.change("X", None if entity is None else entity[ETAG]),)
                )
                self.pending = None if self.pending is None else "*"
                return False
            except (NoResponse, ErrorResponse) as error:
                try:
                    yield from self.patience.again(attempt, error if isinstance(error, NoResponse) else None)
                except DeadlineExceeded:
                    raise unknown(self.known.operations[0], str(error)) from None
                attempt += 1


def _was_done(tx: _Transaction, view: PartitionView, refusal: ErrorResponse) -> Effects[bool]:
    """Return whether a transaction was executed by a send of which the answer was lost.

    Raises:
        OutcomeUnknown: the entity was written since, so nobody knows.
    """
    changes = [change for change in tx.changes if OP in change.members] or [
        change for change in tx.changes if change.kind == "delete"
    ]
    if not changes:  # (conditions alone change nothing)
        return False
    first = changes[0]
    if first.kind == "delete":  # (others may have deleted some of them)
        works = [read(GetEntity(view.table, view.partition, item.row), view.timeout) for item in changes]
        live = [(item, e) for item, e in zip(changes, (yield from side_by_side(works)), strict=True) if e is not None]
        if not live or all(item.if_match == e[ETAG] for item, e in live):
            return not live
        raise unknown(view.operations[0], "an answer was lost, and an entity was written since")
    entity = yield from read(GetEntity(view.table, view.partition, first.row), view.timeout)
    if entity is not None and entity.get(OP) == tx.op:
        return True
    if refusal.status == 412 and entity is not None and first.if_match == entity[ETAG]:  # (no ETag comes back)
        return False
    raise unknown(view.operations[0], "an answer was lost, and the entity was written since")


def _etags(tx: _Transaction, view: PartitionView) -> Effects[dict[str, str | None]]:
    """Return the ETags of entities that were written, by row key, without those that others have changed since."""
    rows, models = tx.rows_written(), {operation.row: operation.model for operation in view.operations}
    works = [read(GetEntity(view.table, view.partition, row), view.timeout) for row in rows]
    etags: dict[str, str | None] = {}
    for (key, row), entity in zip(rows.items(), (yield from side_by_side(works)), strict=True):
        if entity is not None and same_write(models[key], row, view.classes.codec(models[key]).row(entity)):
            etags[key] = entity[ETAG]
    return etags
