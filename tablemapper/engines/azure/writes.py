"""One write: what is read for it, what goes into its transaction, what a refusal means, what is done in doubt.

At first as little is read as can be, and the rest is assumed: the row that an entity was read as, or that a new one is
not there. The service checks that by ETags. When it refuses, everything is read, and decided again, so that the error
is that of the first operation that failed.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs
import msgspec

from ...entities.etag import Stamp
from ...errors import CorruptStore, InvalidEntity, InvalidTransaction, OutcomeUnknown, StoreError, StoreLocked
from ...schema.maintenance import AggregateMaintenance, IndexMaintenance
from ...schema.model import Model
from ...schema.rows import FIRST, Row
from ..decide import Decision, EntityChange, Key, decide
from ..protocol import Operation
from .catalogue import Classes
from .drive import ATTEMPTS, Now, Work, delay, read, side_by_side
from .names import BASE_ROW, OP, index_key
from .rows import Hidden, members_of
from .service import ETAG, MAX_CHANGES, Change, Commit, Entity, Get, Lost, Refused

__all__ = ["TooLarge", "write"]

_BODY = 3_500_000  # bytes of a transaction
_VALUES = 600_000  # bytes of the values whose ends a group has
_UNKNOWN = Stamp("W/\"datetime'1601-01-01T00%3A00%3A00Z'\"")
"""Of an entity that somebody else has written since."""
_log = logging.getLogger("tablemapper.azure")

_Place = tuple[str, str]


class TooLarge(InvalidTransaction):
    """A transaction has more rows than an entity group transaction takes; fewer entities may do."""


def write(
    classes: Classes, operations: Sequence[Operation], *, maintained_limit: int | None = None, timeout: float = 30.0
) -> Work[None]:
    """Apply operations of one table and partition in one transaction, with all that is maintained from them.

    Args:
        classes: what is maintained.
        operations: they get what was stored.
        maintained_limit: as for `Engine.apply`.
        timeout: seconds after which the outcome is unknown, if no answer comes.

    Raises:
        EntityExists, EntityNotFound, PreconditionFailed, UniqueViolation, InvalidTransaction: nothing was written.
        OutcomeUnknown: nobody knows whether it was.
    """
    began: float = yield Now()
    known = _Known(classes, operations, timeout)
    yield from known.begin()
    for attempt in range(ATTEMPTS):
        decision = yield from known.decide(maintained_limit)
        op = f"{time.time_ns() // 1000:013x}{secrets.token_hex(6)}"
        made = _Transaction(classes, known, decision, op)
        etags = yield from _commit(made, known, began)
        if etags is not None:
            made.tell(etags, operations)
            return
        if attempt:
            yield delay(attempt // 4)
        yield from known.begin(afresh=True)
    raise StoreLocked(
        f"{operations[0]}: others wrote the same partition {ATTEMPTS} times meanwhile; nothing was written"
    )


# ---------------------------------------------------------------------------------------------- what is known


class _Known:
    """What is known of the store: `decide.Stored`. What a decision asks besides is noted, and read."""

    def __init__(self, classes: Classes, operations: Sequence[Operation], timeout: float) -> None:
        self.classes = classes
        self.timeout = timeout
        self.table, self.partition = operations[0].model.table, operations[0].partition
        self.operations = operations
        self.shadows = [self._shadow(one) for one in operations]
        self.rows: dict[tuple[Model, str], Row | None] = {}
        self.etags: dict[str, str | None] = {}
        """By row key: what the service is to find; None: nothing."""
        self.blind: set[str] = set()
        """The entities that are written whatever is there."""
        self.others: dict[str, Entity | None] = {}
        """Rows of indexes."""
        self._assumes = True
        self._lacking: dict[str, Model | None] = {}

    def _shadow(self, operation: Operation) -> Operation:
        """Return an operation whose new row has all that the store has of the class."""
        followed = self.classes.followed.get(operation.model)
        if followed is None or not followed.checked or operation.verb in ("delete", "require"):
            return operation
        moved = operation.moved

        def complete(old: Row | None) -> Row:
            new = operation.new if operation.change is None else operation.change(old)
            assert new is not None
            if moved is not None:
                return followed.completed(new, self.row(operation.model, moved.key), moved=True)
            return followed.completed(new, old)

        return attrs.evolve(operation, change=complete)

    def begin(self, *, afresh: bool = False) -> Work[None]:
        """Assume what need not be read, and read the rest; afresh everything is read."""
        self.rows.clear()
        self.etags.clear()
        self.blind.clear()
        self.others.clear()
        self._assumes = not afresh
        wanted = {one.row: one.model for one in self.operations if afresh or not self._assumed(one)}
        yield from self._read(wanted)

    def _assumed(self, operation: Operation) -> bool:
        """Assume the row of an operation, if that is possible."""
        model, place = operation.model, (operation.model, operation.row)
        etag, old = operation.etag, operation.old
        if operation.verb == "insert":
            self.rows[place], self.etags[operation.row] = None, None
            return True
        if old is not None and self._is_whole(model, old) and etag is not None and etag == old[2]:
            self.rows[place], self.etags[operation.row] = old, old[2].etag
            return True
        if operation.change is not None or self.classes.needs_row(model) or model.aggregate is not None:
            return False
        if operation.verb == "upsert":
            self.rows[place], self.etags[operation.row] = None, None
            self.blind.add(operation.row)
            return True
        if etag is None or isinstance(etag, Stamp):
            columns = len(self.classes.stored(model).columns)
            self.rows[place] = (*operation.key, 0 if etag is None else etag, *([None] * columns), Hidden())
            self.etags[operation.row] = "*" if etag is None else etag.etag
            return True
        return False

    def _is_whole(self, model: Model, row: Row) -> bool:
        hidden = len(row) == self.classes.codec(model).width and isinstance(row[-1], Hidden)
        return hidden and isinstance(row[2], Stamp)

    def _read(self, wanted: Mapping[str, Model | None]) -> Work[None]:
        """Read rows of the partition: entities and groups of a model, or others."""
        works = [read(Get(self.table, self.partition, row), self.timeout) for row in wanted]
        found = yield from side_by_side(works)
        carried = {one.row: one.old for one in self.operations if one.old is not None}
        for (row, model), entity in zip(wanted.items(), found, strict=True):
            if model is None:
                self.others[row] = entity
                continue
            self.etags[row] = None if entity is None else entity[ETAG]
            claimed = entity is not None and self.classes.claims(model, self.partition, row)
            held = self.classes.codec(model).row(entity) if claimed and entity is not None else None
            if held is not None and (old := carried.get(row)) is not None and _same_write(old, held):
                held = (*held[:2], old[2], *held[FIRST:])  # (what moved its ETag changed nothing)
            self.rows[model, row] = held

    def decide(self, maintained_limit: int | None) -> Work[Decision]:
        """Return what the operations change, once all is known that this depends on."""
        while True:
            self._lacking.clear()
            try:
                decision = decide(self.classes, self.shadows, self, 0, maintained_limit)
                if not self._assumes:
                    for index, rows in decision.changes.indexes.items():
                        for one in rows.deletes:
                            self._other(_index_key(index, one))
            except Exception:
                if not self._lacking:
                    raise
            else:
                if not self._lacking:
                    return decision
            yield from self._read(dict(self._lacking))

    # -- `decide.Stored`

    def row(self, model: Model, key: Key) -> Row | None:
        if key[0] != self.partition:
            raise AssertionError(f"{model.name} {key} is in another partition")
        place = model, key[1]
        if place not in self.rows:
            self._lacking[key[1]] = model
            return None
        return self.rows[place]

    def group(self, aggregate: AggregateMaintenance, key: Key) -> Row | None:
        row = self.row(aggregate.model, key)
        if row is None:
            return None
        hidden: Hidden = row[-1]
        if hidden.state is None:
            raise CorruptStore(f"{aggregate.model.name} {key}: the group has no state")
        return (*row[2:-1], hidden.state)

    def values(self, aggregate: AggregateMaintenance, key: Key) -> dict[int, dict[Any, int]]:
        """Return how often each live value of a group is there, by slot."""
        row = self.row(aggregate.model, key)
        if row is None or not row[-1].values:
            return {}
        held: dict[int, dict[Any, int]] = {}
        for slot, value, count in msgspec.msgpack.decode(row[-1].values):
            held.setdefault(slot, {})[value] = count
        return held

    def extreme(
        self,
        aggregate: AggregateMaintenance,
        key: Key,
        slot: int,
        end: Literal["min", "max"],
        change: Mapping[Any, int],
    ) -> Any:
        counts = self.values(aggregate, key).get(slot, {})
        live = [value for value in {**counts, **change} if counts.get(value, 0) + change.get(value, 0) > 0]
        return (min if end == "min" else max)(live, default=None)

    def holder(self, index: IndexMaintenance, partition: str, row: str) -> Key | None:
        if self._assumes:
            return None
        found = self._other(_index_key(index, (partition, row, partition, "")))
        return None if found is None else (partition, found[BASE_ROW])

    def _other(self, row: str) -> Entity | None:
        if row not in self.others:
            self._lacking[row] = None
            return None
        return self.others[row]


def _same_write(one: Row, other: Row) -> bool:
    """Return whether two rows of an entity are of the same write."""
    ours, theirs = one[-1], other[-1]
    return isinstance(ours, Hidden) and isinstance(theirs, Hidden) and bool(ours.op) and ours.op == theirs.op


def _index_key(index: IndexMaintenance, row: Sequence[Any]) -> str:
    return index_key(index.label, row[1], row[3], unique=index.model.unique)


# ---------------------------------------------------------------------------------------------- what is sent


class _Transaction:
    """The changes of one attempt."""

    def __init__(self, classes: Classes, known: _Known, decision: Decision, op: str) -> None:
        self._classes = classes
        self._known = known
        self.decision = decision
        self.op = op
        self.changes: list[Change] = [self._entity(one) for one in decision.entities if not self._is_in_group(one)]
        self.changes += self._groups()
        for index, rows in decision.changes.indexes.items():
            self.changes += self._index(index, rows.deletes, rows.puts, rows.rewrites)
        self._check()

    def _is_in_group(self, change: EntityChange) -> bool:
        """Return whether an operation requires a group that the transaction changes, under its ETag."""
        return change.operation.verb == "require" and (change.operation.model, change.operation.key) in self._changed

    @property
    def _changed(self) -> set[tuple[Model, Key]]:
        return {*self.decision.groups, *[(one.model, key) for one, key, _, _ in self.decision.values]}

    def _entity(self, change: EntityChange) -> Change:
        operation, row = change.operation, change.operation.row
        etag = self._known.etags[row]
        if operation.verb == "require":
            return Change("merge", row, {}, etag)
        if change.new is None:
            return Change("delete", row, {}, etag)
        codec = self._classes.codec(operation.model)
        undeclared = {} if change.old is None else change.old[-1].undeclared
        if undeclared and operation.verb in ("replace", "upsert") and self._original(change).change is None:
            names = ", ".join([name for name in undeclared if "@" not in name])
            raise InvalidEntity(
                f"{operation.model.name} {operation.key}",
                [
                    f"{names}: this would erase properties that it does not declare; use merge, or declare a tm.Extra field"
                ],
            )
        members = {**codec.members(change.new), **undeclared, OP: self.op}
        if etag is not None:
            return Change("replace", row, members, etag)
        return Change("upsert" if row in self._known.blind else "insert", row, members)

    def _original(self, change: EntityChange) -> Operation:
        return self._known.operations[self.decision.entities.index(change)]

    def _groups(self) -> Iterable[Change]:
        counted: dict[tuple[Model, Key], tuple[AggregateMaintenance, dict[int, dict[Any, int]]]] = {}
        for aggregate, key, slot, more_of in self.decision.values:
            if (aggregate.model, key) not in counted:
                counted[aggregate.model, key] = aggregate, self._known.values(aggregate, key)
            counts = counted[aggregate.model, key][1].setdefault(slot, {})
            for value, more in more_of.items():
                counts[value] = counts.get(value, 0) + more
        for place in {**self.decision.groups, **counted}:
            model, key = place
            change = self.decision.groups.get(place)
            held = self._known.rows[model, key[1]]
            etag = self._known.etags[key[1]]
            if change is not None and change.new is None:
                yield Change("delete", key[1], {}, etag)
                continue
            if change is not None:
                assert change.new is not None
                *row, state = change.new
            else:
                if held is None:
                    continue
                row, state = list(held[:-1]), held[-1].state
            values = [
                (slot, value, count)
                for slot, counts in sorted(counted[place][1].items() if place in counted else ())
                for value, count in counts.items()
                if count
            ]
            packed = msgspec.msgpack.encode(values) if values else b""
            if len(packed) > _VALUES:
                raise InvalidEntity(
                    f"{model.name} {key}",
                    [f"{len(values):,} different values in one group, whose least and greatest are asked for: use min_ever or "
                     "max_ever, or group by a shard, too"],
                )  # fmt: skip
            members = {**self._classes.codec(model).group(tuple(row), state, packed), OP: self.op}
            yield Change("insert", key[1], members) if etag is None else Change("replace", key[1], members, etag)

    def _index(
        self, index: IndexMaintenance, deletes: Sequence[Row], puts: Sequence[Row], rewrites: Sequence[Row]
    ) -> Iterable[Change]:
        columns = [field for field in index.model.include if field.name in index.owner.position]
        gone = {_index_key(index, row): row for row in deletes}

        def members(row: Row) -> Entity:
            held: Entity = {BASE_ROW: row[3]}
            for field, value in zip(columns, row[4:], strict=True):
                held |= members_of(field, value)
            return held

        for row in puts:
            key = _index_key(index, row)
            passed = gone.pop(key, None) is not None  # (from one entity of the transaction to another)
            yield Change("insert" if index.model.unique and not passed else "upsert", key, members(row))
        for row in rewrites:
            yield Change("upsert", _index_key(index, row), members(row))
        for key in gone:
            if self._known.others.get(key, self) is None:
                _log.warning("%s: the row %r was missing", index.label, key)
            else:
                yield Change("delete", key, {}, "*")

    def _check(self) -> None:
        operations = self._known.operations
        more = len(self.changes) - len(self.decision.entities)
        if len(self.changes) > MAX_CHANGES:
            raise TooLarge(
                f"{len(operations)} operations write {more} rows of indexes and aggregates in their partition, too: more "
                f"than {MAX_CHANGES} in one entity group transaction; split it"
            )
        size = sum(len(msgspec.json.encode(one.members)) for one in self.changes) if len(self.changes) > 3 else 0
        if size > _BODY:
            raise TooLarge(
                f"{len(operations)} operations make {size:,} bytes, of which a transaction takes {_BODY:,}; split it"
            )

    def tell(self, etags: Sequence[str | None], operations: Sequence[Operation]) -> None:
        """Give the operations what was stored."""
        by_row = dict(zip([change.row for change in self.changes], etags, strict=True))
        for operation, change in zip(operations, self.decision.entities, strict=True):
            operation.old = change.old
            if change.new is None or operation.verb == "require":
                continue
            etag = by_row[operation.row]
            undeclared = {} if change.old is None else change.old[-1].undeclared
            stamp = _UNKNOWN if etag is None else Stamp(etag)
            operation.new = (*change.new[:2], stamp, *change.new[FIRST:], Hidden(self.op, undeclared))

    @property
    def commit(self) -> Commit:
        return Commit(self._known.table, self._known.partition, tuple(self.changes))


def _commit(made: _Transaction, known: _Known, began: float) -> Work[list[str | None] | None]:
    """Send a transaction until it is known what came of it; None: it was refused, and nothing was written."""
    doubt = False
    attempt = 0
    what = known.operations[0]
    if not made.changes:
        return []
    while True:
        try:
            etags: list[str | None] = yield made.commit
            return etags
        except Lost as lost:
            doubt = True
            now = yield Now()
            if now - began > known.timeout:
                raise OutcomeUnknown(
                    f"{what}: {lost}; it may have been written, or not: read it before you write it again"
                ) from None
            yield delay(attempt, lost)
            attempt += 1
        except Refused as refused:
            if doubt and (yield from _was_done(made, known, refused)):
                return (yield from _etags(made, known))
            _judge(refused, what)
            return None


def _judge(refused: Refused, what: Operation) -> None:
    """Raise for a refusal that no reading explains."""
    if refused.code == "TableNotFound":
        raise CorruptStore(f"{what}: its table is not there any more")
    if refused.status in (401, 403):
        raise StoreError(f"{what}: the account refuses the key ({refused.code})")
    if refused.status not in (404, 409, 412):
        raise InvalidEntity(str(what), [f"the service refuses it: {refused}"])


def _was_done(made: _Transaction, known: _Known, refused: Refused) -> Work[bool]:
    """Return whether a transaction was executed by a send of which the answer was lost.

    Raises:
        OutcomeUnknown: the entity was written since, so nobody knows.
    """
    written = [one for one in made.changes if OP in one.members] or [
        one for one in made.changes if one.kind == "delete"
    ]
    if not written:  # (conditions alone change nothing)
        return False
    one = written[0]
    found = yield from read(Get(known.table, known.partition, one.row), known.timeout)
    if one.kind == "delete":
        if found is None:
            return True
    elif found is not None and found.get(OP) == made.op:
        return True
    if refused.status == 412 and found is not None and one.if_match == found[ETAG]:  # (no ETag comes back)
        return False
    raise OutcomeUnknown(
        f"{known.operations[0]}: an answer was lost, and the entity was written since; read it before you write it again"
    )


def _etags(made: _Transaction, known: _Known) -> Work[list[str | None]]:
    """Return the ETags of what was written, None of what others wrote since."""
    works = [read(Get(known.table, known.partition, one.row), known.timeout) for one in made.changes]
    found = yield from side_by_side(works)
    return [None if one is None or one.get(OP) != made.op else one[ETAG] for one in found]
