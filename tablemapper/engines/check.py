"""A check of a store: everything that is maintained, recomputed by the definition that maintains it, and compared.

Nothing here knows where a store is kept: an engine gives what is `CheckView`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias

import attrs
import msgspec

from ..errors import CorruptStore
from ..keys.canonical import is_key
from ..progress import Meter
from ..schema.aggregate_model import AggregateModel, Delta
from ..schema.maintenance import AggregateMaintenance, Groups, IndexMaintenance, IndexRow, Maintenance, written_test
from ..schema.model import Model
from ..schema.rows import DAMAGE, UNREADABLE, Row, same_rows
from ..schema.slots import State

_UNCOUNTED = (
    "another program wrote it, so no index and no aggregate has it; repair() adds it, and so does each write here"
)
RESTORE = "restore a backup"
ProblemKind: TypeAlias = Literal["missing", "dangling", "wrong", "damaged", "uncounted"]


@attrs.frozen
class Problem:
    """One difference that a check found."""

    kind: ProblemKind
    """``missing``: a row that should be there; ``dangling``: one that should not; ``wrong``: one that holds something
    else; ``damaged``: a row that cannot be read, or the file itself; ``uncounted``: an entity that another program wrote,
    which no index and no aggregate has."""
    where: str
    """The index, aggregate or class, as in ``Product.by_name``."""
    key: tuple[Any, ...]
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} {self.where} {self.key}: {self.detail}"


@attrs.frozen
class CheckReport:
    """The outcome of a check."""

    entities: int
    index_rows: int
    groups: int
    problems: tuple[Problem, ...]
    unchecked: tuple[str, ...] = ()
    """What nothing here says how it should be, and what to do for it to be compared."""
    foreign: tuple[str, ...] = ()
    """Of each table with rows that no class claims, how many, and the key of one: they are no problems."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        counts = f"{self.entities:,} entities, {self.index_rows:,} index rows, {self.groups:,} groups: "
        return "\n".join(
            [
                counts + (f"{len(self.problems)} problems" if self.problems else "ok"),
                *map(str, self.problems),
                *(f"foreign: {line}" for line in self.foreign),
                *(f"not compared: {line}" for line in self.unchecked),
            ]
        )


@attrs.frozen
class RepairReport:
    """The outcome of a repair."""

    repaired: tuple[Problem, ...]
    """What was wrong, and is not any more."""
    remaining: tuple[Problem, ...]
    """What cannot be repaired; each says what to do."""
    entities: int
    """How many were compared."""
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing is left."""
        return not self.remaining

    def __str__(self) -> str:
        counts = f"{self.entities:,} entities, {len(self.repaired):,} problems repaired, {len(self.remaining):,} left"
        return "\n".join([counts, *map(str, self.remaining)])


class CheckView(Protocol):
    """A view of a store, all of one state. A row that cannot be had at all is CorruptStore."""

    def with_stored_fields(self, model: Model) -> Model:
        """Return a class with all that is stored of it, which may be more than its code declares."""
        ...

    def unknown(self, model: Model) -> Callable[[Row], str | None] | None:
        """Return the function that says which value of a row only another version of its class knows; None if none does."""
        ...

    def count(self, model: Model) -> int:
        """Return the number of entities of a class."""
        ...

    def rows(self, model: Model) -> Iterable[Row]:
        """Return the entities of a class."""
        ...

    def row(self, model: Model, partition: str, row: str) -> Row | None:
        """Return one entity, or one group without its state."""
        ...

    def groups(self, model: Model) -> Iterable[tuple[Row, bytes]]:
        """Return the groups of an aggregate, each with its state."""
        ...

    def values(self, model: Model) -> Iterable[tuple[Any, ...]]:
        """Return the live values of an aggregate: partition key, row key, number of the slot, value, how often."""
        ...

    def index_rows(self, index: IndexMaintenance) -> Iterable[IndexRow]:
        """Return the rows of an index."""
        ...

    def index_row(self, index: IndexMaintenance, key: tuple[str, str, str, str]) -> IndexRow | None:
        """Return one row of an index."""
        ...

    def is_noted(self, index: IndexMaintenance, key: tuple[str, str, str, str]) -> bool:
        """Return whether an entity is noted as a further holder of a value, so that it has no row in the index."""
        ...

    def notes(self, index: IndexMaintenance) -> Iterable[IndexRow]:
        """Return the keys of the rows of all further holders."""
        ...

    def holder(self, index: IndexMaintenance, partition: str, row: str) -> tuple[Any, ...] | None:
        """Return the key of the entity that stands in a unique index with a value."""
        ...


@attrs.frozen(eq=False)
class CheckFinding:
    """A problem, and what has to be made right for it to go."""

    problem: Problem
    of: object = None
    """The index or the aggregate, or what else the engine keeps; None: nothing says what should be there."""
    remedy: str = RESTORE
    """What the user can do where that is None."""


@attrs.define
class _Digest:
    """The number of some index rows, and the sum of keyed hashes of 64 bits: the same in whatever order they come.

    Rows that differ in a value, or in the class of one, have the same sum once in 2**64 times.
    """

    count: int = 0
    total: int = 0

    def add(self, rows: Iterable[IndexRow]) -> None:
        hashes = map(_hash, rows)
        while block := list(islice(hashes, _BLOCK)):
            self.count += len(block)
            self.total += sum(block)


def _hash(row: IndexRow) -> int:
    try:
        return hash(_encode(row))
    except DAMAGE:  # a value that no write stores
        return hash(repr(row))


_encode = msgspec.msgpack.Encoder().encode
_BLOCK = 1_000  # rows that are looked at together

MaintenanceRule: TypeAlias = tuple[Maintenance, Callable[[Sequence[Any]], bool] | None]
"""What is maintained, and the entities that it is maintained from, by their rows; None: from all."""


class ConsistencyCheck:
    """Compares everything that is maintained with what the entities say that it should be.

    Args:
        maintained: from each class, for all of its entities or for those that satisfy a test.
        last: the highest timestamp that was given out; None if nobody knows.
        is_counted: whether an entity is in what is maintained from it; None: each is.
    """

    def __init__(
        self,
        maintained: Mapping[Model, Sequence[MaintenanceRule]],
        view: CheckView,
        last_timestamp: int | None,
        meter: Meter,
        is_counted: Callable[[Model, Row], bool] | None = None,
    ) -> None:
        self._is_counted = is_counted
        self._maintained = maintained
        self._view = view
        self._last_timestamp = last_timestamp
        self._meter = meter
        self._groups: dict[AggregateMaintenance, Groups] = {
            aggregate: {} for duties in maintained.values() for part, _ in duties for aggregate in part.aggregates
        }
        self._live: dict[AggregateMaintenance, dict[tuple[str, str], Delta]] = {}
        self.entity_count: int = 0
        self.index_count: int = 0
        self.group_count: int = 0

    def findings(self, engine_findings: Iterable[CheckFinding]) -> Iterator[CheckFinding]:
        """Yield what is wrong: entities and their index rows first, then the groups that they add up to.

        Args:
            engine_findings: what is wrong with what the engine keeps besides; it is read last.
        """
        models = [model for model in self._maintained if model.aggregate is None]
        try:
            self._meter.expect(lambda: sum(map(self._view.count, models)))
            for model in models:
                yield from self._entities(model)
            for aggregate, groups in self._groups.items():
                yield from self._aggregate(aggregate, groups)
            yield from engine_findings
        except CorruptStore as error:  # nothing more can be read
            yield CheckFinding(Problem("damaged", "file", (), str(error)))

    def report(self, findings: Iterable[CheckFinding], foreign: Iterable[str] = ()) -> CheckReport:
        """Return the outcome."""
        problems = tuple(dict.fromkeys(finding.problem for finding in findings))
        counts = self.entity_count, self.index_count, self.group_count
        return CheckReport(*counts, problems, foreign=tuple(foreign))

    def live(self, aggregate: AggregateMaintenance, key: tuple[Any, ...]) -> Delta:
        """Return what the entities of a group add up to; known once all was found."""
        return self._live[aggregate].get((key[0], key[1])) or aggregate.aggregate.zero()

    def _duties(self, model: Model, row: Row) -> Maintenance:
        """Return what is maintained from an entity or a group."""
        (of_class, _), *partial_rules = self._maintained[model]
        if not self._are_counted(model, (row,)):
            return of_class.where(lambda _: False)
        return (
            of_class.joined([part for part, applies in partial_rules if applies is None or applies(row)])
            if partial_rules
            else of_class
        )

    def _are_counted(self, model: Model, rows: Sequence[Row]) -> bool:
        test = self._is_counted
        return test is None or all(test(model, row) for row in rows)

    # ------------------------------------------------------------------------------------------ entities

    def _entities(self, model: Model) -> Iterator[CheckFinding]:
        whole_model, digests = self._view.with_stored_fields(model), self._digests(model)
        (maintenance, _), *parts = self._maintained[model]
        is_written, stream = written_test(whole_model), iter(self._view.rows(model))
        unknown = self._view.unknown(model)
        while rows := list(islice(stream, _BLOCK)):
            self.entity_count += len(rows)
            self._meter.advance(len(rows))
            if unknown is not None:
                yield from _unknown(model, unknown, rows)
            singly = parts or not self._are_counted(model, rows)
            if singly or not (is_written(rows, self._last_timestamp) and self._adds(maintenance, rows, digests)):
                for row in rows:
                    yield from self._entity(whole_model, row, self._duties(model, row), digests)
        yield from self._indexes(model, digests)

    def _entity(
        self, model: Model, row: Row, maintenance: Maintenance, digests: dict[IndexMaintenance, _Digest]
    ) -> Iterator[CheckFinding]:
        if not self._are_counted(model, (row,)):
            yield CheckFinding(Problem("uncounted", model.name, row[:2], _UNCOUNTED), model)
        try:
            yield from self._faults(model, row)
            self._add(maintenance, (row,), digests)
        except UNREADABLE as error:
            remedy = _remedy(model, row)
            detail = str(error) if remedy == RESTORE else f"a foreign key: no fields make it ({error})"
            yield CheckFinding(Problem("damaged", model.name, row[:2], detail), remedy=remedy)
            self._add(maintenance.counting(row), (row,), digests)

    def _adds(self, maintenance: Maintenance, rows: Sequence[Row], digests: dict[IndexMaintenance, _Digest]) -> bool:
        """Add what entities are in indexes and groups, and return True; or add nothing if one of them cannot be."""
        try:
            self._add(maintenance, rows, digests)
        except UNREADABLE:
            return False
        return True

    def _add(self, maintenance: Maintenance, rows: Sequence[Row], digests: dict[IndexMaintenance, _Digest]) -> None:
        """Add what entities are in indexes and groups; if one of them cannot be, raise before anything is added."""
        entries = [(index, index.rows(rows)) for index in maintenance.indexes]
        for aggregate in maintenance.aggregates:
            aggregate.collect(rows, {}, 1)
        for aggregate in maintenance.aggregates:
            aggregate.collect(rows, self._groups[aggregate], 1)
        for index, index_rows in entries:
            digests[index].add(index_rows)

    def _faults(self, model: Model, row: Row) -> Iterator[CheckFinding]:
        """Check what a row says of itself; raises if it cannot be read."""
        if (fault := model.fault_of(row)) is not None:
            raise ValueError(fault)
        entity = model.build_one(row)
        key = model.cls.key(*(getattr(entity, name) for name in model.declaration.arguments))
        if key[1:] != row[:2]:
            subject = "its" if is_key(model.declaration.templates, row[:2]) else "a foreign key: its"
            detail = f"{subject} fields make the key {key[1:]}"
            yield CheckFinding(Problem("wrong", model.name, row[:2], detail), remedy=_remedy(model, row))
        if self._last_timestamp is not None and not 0 < row[2] <= self._last_timestamp:
            detail = f"its timestamp {row[2]} was never issued"
            yield CheckFinding(Problem("wrong", model.name, row[:2], detail), remedy="write the entity again")

    # ------------------------------------------------------------------------------------------ indexes

    def _digests(self, model: Model) -> dict[IndexMaintenance, _Digest]:
        return {index: _Digest() for part, _ in self._maintained[model] for index in part.indexes}

    def _indexes(self, model: Model, expected: dict[IndexMaintenance, _Digest]) -> Iterator[CheckFinding]:
        """Check the indexes of a class, each whole, and row by row if that differs from what was expected."""
        for index, digest in expected.items():
            stored_digest = _Digest()
            stored_digest.add(self._view.index_rows(index))
            self.index_count += stored_digest.count
            if digest != stored_digest:
                yield from self._index(model, index, stored_digest.count)
            yield from self._notes(model, index)

    def _index(self, model: Model, index: IndexMaintenance, stored_count: int) -> Iterator[CheckFinding]:
        """Check that the rows of an index are there, and that it has no others."""
        of_groups = model.aggregate is not None
        rows = (row for row, _ in self._view.groups(model)) if of_groups else self._view.rows(model)
        count = 0
        for row in rows:
            for entry in self._expected_of(model, index, row):
                key, where = entry[:4], index.label
                stored_row = self._view.index_row(index, key)
                if stored_row is None and self._view.is_noted(index, key):
                    continue
                if stored_row is None:
                    detail = f"the {index.owner.name} has no such row in the index"
                    yield CheckFinding(Problem("missing", where, key, detail), index)
                    continue
                count += 1
                if not same_rows(stored_row, entry):
                    detail = f"expected {entry[4:]}, found {stored_row[4:]}"
                    yield CheckFinding(Problem("wrong", where, key, detail), index)
        if count != stored_count:
            yield from self._dangling(model, index)
            self.index_count -= stored_count - count

    def _notes(self, model: Model, index: IndexMaintenance) -> Iterator[CheckFinding]:
        """Check those that are noted as further holders of a value in a unique index."""
        for key in self._view.notes(index):
            expected = self._expected(model, index, key)
            holder = self._view.holder(index, key[0], key[1])
            if not any(expected_row[:4] == key for expected_row in expected):
                detail = f"the {model.name} is noted for a value that it does not have"
                yield CheckFinding(Problem("dangling", index.label, key, detail), index)
            elif holder is None:
                detail = f"the {model.name} is noted as a duplicate of a value that is not in the index"
                yield CheckFinding(Problem("missing", index.label, key, detail), index)
            elif holder == key[2:]:
                detail = f"the {model.name} is noted for a value that it stands in the index with"
                yield CheckFinding(Problem("wrong", index.label, key, detail), index)

    def _expected(self, model: Model, index: IndexMaintenance, key: IndexRow) -> list[IndexRow]:
        """Return the rows that the entity or the group of an index's row should have there."""
        return self._expected_of(model, index, self._view.row(model, key[2], key[3]))

    def _expected_of(self, model: Model, index: IndexMaintenance, row: Row | None) -> list[IndexRow]:
        if row is not None and index not in self._duties(model, row).indexes:
            return []
        return index.rows_of(row, self._view.with_stored_fields(model))

    def _dangling(self, model: Model, index: IndexMaintenance) -> Iterator[CheckFinding]:
        for entry in self._view.index_rows(index):
            expected = self._expected(model, index, entry)
            if not any(expected_row[:4] == entry[:4] for expected_row in expected):
                detail = f"no {model.name} has this row"
                yield CheckFinding(Problem("dangling", index.label, entry[:4], detail), index)

    # ------------------------------------------------------------------------------------------ groups

    def _aggregate(self, aggregate: AggregateMaintenance, groups: Groups) -> Iterator[CheckFinding]:
        """Check the groups of one aggregate, their index rows, and the live values that its extremes are found by."""
        model = aggregate.model
        deltas = self._live[aggregate] = {}
        for group, delta in groups.items():
            try:
                deltas[aggregate.key(group)] = delta
            except UNREADABLE as error:
                yield CheckFinding(Problem("damaged", model.name, (group,), str(error)))
        digests, unknown = self._digests(model), self._view.unknown(model)
        seen = set()
        for row, blob in self._view.groups(model):
            key = (row[0], row[1])
            seen.add(key)
            self.group_count += 1
            if unknown is not None:
                yield from _unknown(model, unknown, (row,))
            try:
                problem = _wrong_group(aggregate, row, blob, deltas.get(key))
                self._add(self._duties(model, row).of_indexes, (row,), digests)
            except UNREADABLE as error:
                yield CheckFinding(Problem("damaged", model.name, key, str(error)), aggregate)
                continue
            if problem is not None:
                yield CheckFinding(problem, aggregate)
        yield from self._indexes(model, digests)
        for key, delta in deltas.items():
            if key not in seen and delta[0]:
                yield CheckFinding(Problem("missing", model.name, key, f"the group has {delta[0]} entities"), aggregate)
        if aggregate.aggregate.counted_slots:
            yield from self._values(aggregate, deltas)

    def _values(self, aggregate: AggregateMaintenance, deltas: dict[tuple[str, str], Delta]) -> Iterator[CheckFinding]:
        where = f"{aggregate.model.name} values"
        expected = {
            (*key, number, value): count
            for key, delta in deltas.items()
            for number in aggregate.aggregate.counted_slots
            for value, count in delta[number + 1].items()
        }
        for *place, count in self._view.values(aggregate.model):
            if expected.pop(tuple(place), None) != count:
                yield CheckFinding(Problem("wrong", where, tuple(place), f"counted {count} times"), aggregate)
        for place_, count in expected.items():
            yield CheckFinding(Problem("missing", where, place_, f"should be counted {count} times"), aggregate)


def _remedy(model: Model, row: Row) -> str:
    """Return what to do with an entity that contradicts itself: one whose key is none has no fields to be written with."""
    if not all(isinstance(text, str) for text in row[:2]) or is_key(model.declaration.templates, row[:2]):
        return RESTORE
    return f"delete it: store.delete(tm.KeyOf({model.name}, {row[0]!r}, {row[1]!r}))"


def _unknown(model: Model, unknown: Callable[[Row], str | None], rows: Iterable[Row]) -> Iterator[CheckFinding]:
    """Yield values that only other versions of a class know; what is maintained counts them, as the catalogue knows them."""
    for row in rows:
        if (detail := unknown(row)) is not None:
            yield CheckFinding(Problem("damaged", model.name, row[:2], detail), remedy="write the entity again")


def _wrong_group(aggregate: AggregateMaintenance, row: Row, blob: bytes, delta: Delta | None) -> Problem | None:
    """Return what is wrong with a group, whose live entities add up to ``delta``; raise if it cannot be read."""
    name, key, groups = aggregate.model.name, row[:2], aggregate.aggregate
    state = groups.unpack(blob)
    expected = _expected_state(groups, groups.zero() if delta is None else delta, state)
    if expected is None:
        return Problem("dangling", name, key, "the group has no entity")
    if expected != state:
        return Problem("wrong", name, key, f"expected {groups.shown(expected)}, found {groups.shown(state)}")
    shown_row = aggregate.row(row[0], row[1], row[2], state)
    if not same_rows(shown_row, row[: len(shown_row)]):
        return Problem("wrong", name, key, f"its columns show {row[3:]}, but its state is {shown_row[3:]}")
    return None


def _expected_state(aggregate: AggregateModel, delta: Delta, stored_state: State | None) -> State | None:
    """Return the state of a group that ``delta`` adds up to.

    What ``_ever`` measures hold cannot be recomputed: it is taken from what is stored, if that is no less extreme than
    the live values.
    """

    def seek(slot: int, end: Literal["min", "max"]) -> Any:
        values = [value for value, count in delta[slot + 1].items() if count > 0]
        return (min if end == "min" else max)(values, default=None)

    state = aggregate.combine(None, delta, seek)
    if state is not None and stored_state is not None:
        for number, slot in enumerate(aggregate.slots, 1):
            state[number] = slot.expected(state[number], stored_state[number])
    return state
