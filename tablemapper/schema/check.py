"""A check of a store: everything that is maintained, recomputed by the definition that maintains it, and compared.

Nothing here knows where a store is kept: an engine gives what is `Stored`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, Protocol, TypeAlias

import attrs

from ..errors import CorruptStore, TableMapperError
from ..progress import Meter
from .groups import AggregateModel, Delta, State
from .maintenance import AggregateMaintenance, Groups, IndexMaintenance, IndexRow, Maintenance
from .model import Model
from .rows import DAMAGE, Row

__all__ = ["Problem", "ProblemKind", "Report", "Stored", "compare", "expected_state"]

ProblemKind: TypeAlias = Literal["missing", "dangling", "wrong", "damaged"]


@attrs.frozen
class Problem:
    """One thing that is not as it should be."""

    kind: ProblemKind
    """``missing``: a row that should be there; ``dangling``: one that should not; ``wrong``: one that holds something
    else; ``damaged``: a row that cannot be read, or the file itself."""
    where: str
    """The index, aggregate or class, as in ``Product.by_name``."""
    key: tuple[Any, ...]
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} {self.where} {self.key}: {self.detail}"


@attrs.frozen
class Report:
    """The outcome of a check."""

    entities: int
    index_rows: int
    groups: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        found = f"{self.entities:,} entities, {self.index_rows:,} index rows, {self.groups:,} groups: "
        return "\n".join(
            [found + (f"{len(self.problems)} problems" if self.problems else "ok"), *map(str, self.problems)]
        )


class Stored(Protocol):
    """What a store holds, all of one state. A row that cannot be had at all is CorruptStore."""

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

    def index_count(self, index: IndexMaintenance) -> int:
        """Return the number of the rows of an index."""
        ...


def compare(
    maintained: Mapping[Model, Maintenance], stored: Stored, own: Iterable[Problem], *, last: int, meter: Meter
) -> Report:
    """Check everything that is maintained.

    Args:
        maintained: from each class.
        stored: what the store holds.
        own: what is wrong with what the engine keeps besides; it is read last.
        last: the highest timestamp that was given out.
        meter: counts each entity.
    """
    checks = _Check(maintained, stored, last, meter)
    problems: dict[Problem, None] = {}
    try:
        for problem in chain(checks.problems(), own):
            problems[problem] = None
    except CorruptStore as error:  # nothing more can be read
        problems[Problem("damaged", "file", (), str(error))] = None
    return Report(checks.entity_count, checks.index_count, checks.group_count, tuple(problems))


_UNREADABLE: tuple[type[Exception], ...] = (TableMapperError, *DAMAGE)


class _Check:
    def __init__(self, maintained: Mapping[Model, Maintenance], stored: Stored, last: int, meter: Meter) -> None:
        self._maintained = maintained
        self._stored = stored
        self._last = last
        self._meter = meter
        self._groups: dict[AggregateMaintenance, Groups] = {
            aggregate: {} for maintenance in maintained.values() for aggregate in maintenance.aggregates
        }
        self.entity_count = self.index_count = self.group_count = 0

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong: entities and their index rows first, then the groups that they add up to."""
        for model in self._maintained:
            if model.aggregate is None:
                yield from self._entities(model)
        for aggregate, groups in self._groups.items():
            yield from self._aggregate(aggregate, groups)

    # ------------------------------------------------------------------------------------------ entities

    def _entities(self, model: Model) -> Iterator[Problem]:
        maintenance = self._maintained[model]
        counts = dict.fromkeys(maintenance.indexes, 0)
        for row in self._stored.rows(model):
            self.entity_count += 1
            self._meter.advance(1)
            try:
                yield from self._entity(model, row)
                entries = _entries(maintenance, row)
                for aggregate in maintenance.aggregates:
                    aggregate.collect((row,), self._groups[aggregate], 1)
            except _UNREADABLE as error:
                yield Problem("damaged", model.name, row[:2], str(error))
                continue
            yield from self._present(entries, counts)
        yield from self._no_others(counts)

    def _entity(self, model: Model, row: Row) -> Iterator[Problem]:
        """Check what a row says of itself; raises if it cannot be read."""
        if (fault := model.fault_of(row)) is not None:
            raise ValueError(fault)
        entity = model.build_one(row)
        key = model.cls.key(*(getattr(entity, name) for name in model.declaration.arguments))
        if key[1:] != row[:2]:
            yield Problem("wrong", model.name, row[:2], f"its fields make the key {key[1:]}")
        if not 0 < row[2] <= self._last:
            yield Problem("wrong", model.name, row[:2], f"its timestamp {row[2]} was never given out")

    # ------------------------------------------------------------------------------------------ indexes

    def _present(
        self, entries: list[tuple[IndexMaintenance, IndexRow]], counts: dict[IndexMaintenance, int]
    ) -> Iterator[Problem]:
        """Check that the index rows of an entity or a group are there, and count those that are."""
        for index, entry in entries:
            key, where = entry[:4], _name(index)
            row = self._stored.index_row(index, key)
            if row is None:
                yield Problem("missing", where, key, f"the {index.owner.name} has no such row in the index")
                continue
            counts[index] += 1
            if not _same(row, entry):
                yield Problem("wrong", where, key, f"expected {entry[4:]}, found {row[4:]}")

    def _no_others(self, counts: dict[IndexMaintenance, int]) -> Iterator[Problem]:
        """Check that indexes have no rows but those that were counted."""
        for index, count in counts.items():
            self.index_count += count
            if self._stored.index_count(index) != count:
                yield from self._dangling(index)

    def _dangling(self, index: IndexMaintenance) -> Iterator[Problem]:
        for entry in self._stored.index_rows(index):
            row = self._stored.row(index.owner, entry[2], entry[3])
            try:
                stands = row is not None and any(expected[:4] == entry[:4] for expected in index.rows((row,)))
            except _UNREADABLE:
                continue  # reported with its entity
            if not stands:
                detail = f"no {index.owner.name} says that this row should be there"
                yield Problem("dangling", _name(index), entry[:4], detail)

    # ------------------------------------------------------------------------------------------ groups

    def _aggregate(self, aggregate: AggregateMaintenance, groups: Groups) -> Iterator[Problem]:
        """Check the groups of one aggregate, their index rows, and the live values that its extremes are found by."""
        model = aggregate.model
        deltas: dict[tuple[str, str], Delta] = {}
        for group, delta in groups.items():
            try:
                deltas[aggregate.key(group)] = delta
            except _UNREADABLE as error:
                yield Problem("damaged", model.name, (group,), str(error))
        maintenance = self._maintained[model]
        counts = dict.fromkeys(maintenance.indexes, 0)
        seen = set()
        for row, blob in self._stored.groups(model):
            key = (row[0], row[1])
            seen.add(key)
            self.group_count += 1
            try:
                problem = _wrong_group(aggregate, row, blob, deltas.get(key))
                entries = _entries(maintenance, row)
            except _UNREADABLE as error:
                yield Problem("damaged", model.name, key, str(error))
                continue
            if problem is not None:
                yield problem
            yield from self._present(entries, counts)
        yield from self._no_others(counts)
        for key, delta in deltas.items():
            if key not in seen and delta[0]:
                yield Problem("missing", model.name, key, f"the group has {delta[0]} entities")
        if aggregate.aggregate.counted_slots:
            yield from self._values(aggregate, deltas)

    def _values(self, aggregate: AggregateMaintenance, deltas: dict[tuple[str, str], Delta]) -> Iterator[Problem]:
        where = f"{aggregate.model.name} values"
        expected = {
            (*key, number, value): count
            for key, delta in deltas.items()
            for number in aggregate.aggregate.counted_slots
            for value, count in delta[number + 1].items()
        }
        for *place, count in self._stored.values(aggregate.model):
            if expected.pop(tuple(place), None) != count:
                yield Problem("wrong", where, tuple(place), f"counted {count} times")
        for place_, count in expected.items():
            yield Problem("missing", where, place_, f"should be counted {count} times")


def _wrong_group(aggregate: AggregateMaintenance, row: Row, blob: bytes, delta: Delta | None) -> Problem | None:
    """Return what is wrong with a group, the live entities of which add up to ``delta``; raises if it cannot be read."""
    name, key, groups = aggregate.model.name, row[:2], aggregate.aggregate
    state = groups.unpack(blob)
    expected = expected_state(groups, groups.zero() if delta is None else delta, state)
    if expected is None:
        return Problem("dangling", name, key, "the group has no entity")
    if expected != state:
        return Problem("wrong", name, key, f"expected {groups.shown(expected)}, found {groups.shown(state)}")
    shown = aggregate.row(row[0], row[1], row[2], state)
    if not _same(shown, row[: len(shown)]):
        return Problem("wrong", name, key, f"its columns show {row[3:]}, but its state is {shown[3:]}")
    return None


def expected_state(aggregate: AggregateModel, delta: Delta, stored: State | None) -> State | None:
    """Return the state of a group that ``delta`` adds up to.

    What ``_ever`` measures hold cannot be recomputed: it is taken from what is stored, if that is no less extreme than
    the live values.
    """

    def seek(slot: int, end: Literal["min", "max"]) -> Any:
        values = [value for value, count in delta[slot + 1].items() if count > 0]
        return (min if end == "min" else max)(values, default=None)

    state = aggregate.combine(None, delta, seek)
    if state is not None and stored is not None:
        for number, slot in enumerate(aggregate.slots, 1):
            state[number] = slot.expected(state[number], stored[number])
    return state


def _name(index: IndexMaintenance) -> str:
    return f"{index.owner.name}.{index.model.name}"


def _entries(maintenance: Maintenance, row: Row) -> list[tuple[IndexMaintenance, IndexRow]]:
    """Return the rows that an entity or a group should have in the indexes on its class."""
    return [(index, entry) for index in maintenance.indexes for entry in index.rows((row,))]


def _same(a: Any, b: Any) -> bool:
    """Compare rows by value and class: 1, 1.0 and True are three values."""
    return len(a) == len(b) and all(x == y and x.__class__ is y.__class__ for x, y in zip(a, b, strict=True))
