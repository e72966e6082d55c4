"""An engine of dicts: what `tablemapper.engines.write_decision` says, kept in memory, and nothing clever.

It is the second engine behind the protocol, and the judge of the first one: it shares with the file the declarations,
the plans and the one definition of a write, and no line of SQL. Its state is one immutable value, which each write
replaces: a reader that holds it reads one state. It knows no catalogue, so a class does not change while it has
entities, and nothing is built.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property, cmp_to_key
from itertools import islice
from typing import Any, Literal, TypeVar

import attrs

from tablemapper.catalogue.catalogue import Catalogue
from tablemapper.catalogue.freeze import check_thawed
from tablemapper.engines.check import CheckReport, ConsistencyCheck, MaintenanceRule, RepairReport
from tablemapper.engines.ended import insert_over_ended, make_way
from tablemapper.engines.protocol import (
    Batch,
    BuildStep,
    DatabasePlan,
    DuplicateValue,
    Note,
    NoteConflict,
    Operation,
    PendingBuild,
    Position,
)
from tablemapper.engines.status import ObjectStatus, Status
from tablemapper.engines.write_decision import Decision, GroupChange, Key, decide, with_maintained
from tablemapper.entities.aggregates import keeper_name, kept_field
from tablemapper.entities.fields import FieldModel
from tablemapper.errors import CorruptStore, SchemaMismatch, StoreClosed
from tablemapper.expressions.sortable import store_sortable
from tablemapper.expressions.tree import Attr, Order
from tablemapper.planning.budget import BudgetMeter
from tablemapper.planning.capabilities import Capabilities
from tablemapper.planning.conditions import AnyPredicate
from tablemapper.planning.plan import Plan
from tablemapper.planning.projection import RowLayout, layout_of, tuples
from tablemapper.planning.query_parts import KeyPosition
from tablemapper.planning.ranges import BoundPlan, KeyRange
from tablemapper.planning.skip_scan import Descending, SkipScan
from tablemapper.progress import Meter
from tablemapper.schema.aggregate_model import Delta
from tablemapper.schema.maintenance import (
    AggregateMaintenance,
    IndexMaintenance,
    IndexRow,
    Maintenance,
    aggregate_maintenance,
    index_columns,
    maintenance,
)
from tablemapper.schema.model import Model, Schema
from tablemapper.schema.rows import FIRST, Row
from tablemapper.values.scalars import SCALARS

T = TypeVar("T")
_CHUNK = 100


@attrs.frozen(eq=False, slots=False)
class Table:
    """Values by key, in the order of the keys."""

    items: dict[tuple[str, ...], Any]

    @cached_property
    def keys(self) -> list[tuple[str, ...]]:
        return sorted(self.items)

    def between(self, one: KeyRange) -> Iterator[tuple[str, ...]]:
        """Yield the keys of a range, in order."""
        for at in range(bisect_left(self.keys, one.start), len(self.keys)):
            key = self.keys[at]
            if not one.partition.holds(key[0]):
                return
            if one.row.holds(key[1]) and _is_among(one, key):
                yield key

    def changed(self, puts: Mapping[tuple[str, ...], Any], deletes: Iterable[tuple[str, ...]]) -> Table:
        """Return the table after a write."""
        items = self.items.copy()
        for key in deletes:
            del items[key]
        items |= puts
        return Table(items)


def _is_among(one: KeyRange, key: tuple[str, ...]) -> bool:
    low, high = one.entities or (None, None)
    return (low is None or key[2:] >= low) and (high is None or key[2:] < high)


NOTHING = Table({})


@attrs.frozen(eq=False)
class State:
    """Everything that a store holds."""

    models: Mapping[str, Model] = attrs.field(factory=dict)
    """All that ever opened it, by name."""
    entities: Mapping[str, Table] = attrs.field(factory=dict)
    """By table: the name of the class, and the row; of a group, its packed state is the last value."""
    indexes: Mapping[str, Table] = attrs.field(factory=dict)
    """By label: the rows."""
    values: Mapping[tuple[str, Key, int], Mapping[Any, int]] = attrs.field(factory=dict)
    """By aggregate, group and slot: how often each live value is there."""
    notes: Mapping[str, str] = attrs.field(factory=dict)
    last: int = 0
    """The highest timestamp."""
    frozen: int | None = None

    def table(self, name: str) -> Table:
        return self.entities.get(name, NOTHING)

    def index(self, index: IndexMaintenance) -> Table:
        return self.indexes.get(index.label, NOTHING)

    # -- what is maintained: `write_decision.MaintenanceRules`

    def duties(self, model: Model) -> Sequence[MaintenanceRule]:
        schema = Schema(tuple(self.models.values()))
        known = self.models[model.name]
        sources = [other for other in self.models.values() if _source(other) == model.name]
        indexes = maintenance(schema, known).indexes
        return [(Maintenance(indexes, tuple([aggregate_maintenance(known, one) for one in sources]), known), None)]

    def affected_rows(self, part: Maintenance, old: Row | None, new: Row | None) -> tuple[Row | None, Row | None]:
        return old, new

    def owner(self, aggregate: Model) -> Model | None:
        if (kept := kept_field(aggregate.name)) is None:
            return None
        owner = self.models[kept[0]]
        at = next(at for at, field in enumerate(owner.columns, FIRST) if field.property == kept[1])
        indexes = self.duties(owner)[0][0].indexes
        return owner if any(at in index.places for index in indexes) else None

    def keeper(self, model: Model, field: FieldModel) -> Model:
        return self.models[keeper_name(model.name, field.property)]

    # -- what is stored: `write_decision.WriteView`

    def row(self, model: Model, key: Key) -> Row | None:
        name, row = self.table(model.table).items.get(key, (None, None))
        return None if name != model.name else self.whole_row(self.models[name], row)

    def whole_row(self, model: Model, row: Row) -> Row:
        if model.aggregate is not None:
            return row[:-1]
        return with_maintained(self, model, row, self.row)

    def group(self, aggregate: AggregateMaintenance, key: Key) -> Row | None:
        name, row = self.table(aggregate.model.table).items.get(key, (None, None))
        return None if name != aggregate.model.name else row[2:]

    def extreme(
        self,
        aggregate: AggregateMaintenance,
        key: Key,
        slot: int,
        end: Literal["min", "max"],
        change: Mapping[Any, int],
    ) -> Any:
        counts = self.values.get((aggregate.model.name, key, slot), {})
        live = [value for value in {**counts, **change} if counts.get(value, 0) + change.get(value, 0) > 0]
        return (min if end == "min" else max)(live, default=None)

    def holder(self, index: IndexMaintenance, partition: str, row: str) -> Key | None:
        table = self.index(index)
        at = bisect_left(table.keys, (partition, row))
        found = table.keys[at] if at < len(table.keys) else ()
        return (found[2], found[3]) if found[:2] == (partition, row) else None

    # -- writing

    def after(self, decision: Decision, timestamp: int) -> State:
        """Return the state after what was decided."""
        puts: dict[str, dict[tuple[str, ...], Any]] = {}
        deletes: dict[str, list[tuple[str, ...]]] = {}
        for change in decision.entities:
            model, key = change.operation.model, change.operation.key
            if change.new is not None:
                puts.setdefault(model.table, {})[key] = model.name, change.new
            elif change.old is not None:
                deletes.setdefault(model.table, []).append(key)
        for group in decision.groups.values():
            model = group.aggregate.model
            if group.new is not None:
                puts.setdefault(model.table, {})[group.key] = model.name, group.new
            elif group.old is not None:
                deletes.setdefault(model.table, []).append(group.key)
        entities = dict(self.entities)
        for name in puts.keys() | deletes.keys():
            entities[name] = self.table(name).changed(puts.get(name, {}), deletes.get(name, ()))
        indexes = dict(self.indexes)
        for index, rows in decision.changes.indexes.items():
            table = self.index(index)
            if missing := [row for row in rows.deletes if row[:4] not in table.items]:
                raise CorruptStore(f"{index.label}: index rows were missing: {missing}")
            come = {row[:4]: row for row in (*rows.rewrites, *rows.puts)}
            indexes[index.label] = table.changed(come, [row[:4] for row in rows.deletes])
        values = dict(self.values)
        for aggregate, key, slot, more_of in decision.values:
            counts = dict(values.get((aggregate.model.name, key, slot), {}))
            for value, more in more_of.items():
                counts[value] = counts.get(value, 0) + more
            values[aggregate.model.name, key, slot] = {value: count for value, count in counts.items() if count}
        return attrs.evolve(self, entities=entities, indexes=indexes, values=values, last=timestamp)


def _source(model: Model) -> str | None:
    return None if model.aggregate is None else model.aggregate.source.__name__


@attrs.define(eq=False)
class Shelf:
    """A place: what several engines can have open."""

    state: State = attrs.field(factory=State)
    store_id: str = attrs.field(factory=lambda: f"dicts {time.time_ns()}")
    lock: threading.RLock = attrs.field(factory=threading.RLock)


_SHELVES: dict[str, Shelf] = {}


ALL = Capabilities(engine="dicts", sorts="a list")


@attrs.frozen
class DictPlace:
    """A place by the name of a file: opened again, it is the same store. ``":memory:"`` is another one each time."""

    name: str = ":memory:"
    lacking: tuple[str, ...] = ()
    """The capabilities that it does without."""

    def open(
        self,
        schema: Schema,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
        now: Callable[[], int] | None = None,
        **_: Any,
    ) -> DictEngine:
        lacking: dict[str, Any] = dict.fromkeys(self.lacking, "")
        shelf = Shelf() if self.name == ":memory:" else _SHELVES.setdefault(self.name, Shelf())
        return DictEngine(schema, shelf, clock, now or clock, attrs.evolve(ALL, **lacking))


class DictEngine:
    """Keeps the rows of a schema in dicts."""

    def __init__(
        self,
        schema: Schema,
        shelf: Shelf,
        clock: Callable[[], int],
        now: Callable[[], int],
        capabilities: Capabilities,
    ) -> None:
        self.capabilities = capabilities
        self.schema = schema
        self._shelf = shelf
        self._clock = clock
        self._now = now
        self._closed = False
        self.store_id = self._shelf.store_id
        self.unready: Mapping[str, str] = {}
        self.reads = DictReads(self)
        with self._shelf.lock:
            self._shelf.state = _opened(self._shelf.state, schema)

    def __repr__(self) -> str:
        return "dicts"

    @property
    def state(self) -> State:
        if self._closed:
            raise StoreClosed("the store is closed; open it again")
        return self._shelf.state

    def _to_write(self) -> State:
        check_thawed(Catalogue(frozen=self.state.frozen))
        return self.state

    def now(self) -> int:
        """Return the time by the clock of the store, in µs since 1970."""
        return self._now()

    def close(self) -> None:
        self._closed = True

    # -- reading

    def get(self, model: Model, partition: str, row: str) -> Row | None:
        return self.state.row(model, (partition, row))

    def get_many(self, wanted: Sequence[tuple[Model, str, str]], *, within: Any = None) -> list[Row | None]:
        state = self.state if within is None else within
        return [state.row(model, (partition, row)) for model, partition, row in wanted]

    def partition(self, table: str, partition: str) -> Iterator[list[tuple[Model | None, Row]]]:
        state, opened = self.state, self.schema.by_name
        for key in state.table(table).keys:
            if key[0] == partition:
                name, row = state.table(table).items[key]
                model = state.models[name]
                whole = state.whole_row(model, row)
                if name in opened:
                    yield [(opened[name], whole)]
                else:
                    held = {f.property: v for f, v in zip(model.columns, whole[FIRST:], strict=True) if v is not None}
                    yield [(None, (*whole[:FIRST], held))]

    def partitions(self, model: Model) -> Iterator[str]:
        table = self.state.table(model.table)
        yield from dict.fromkeys(key[0] for key in table.keys if table.items[key][0] == model.name)

    # -- writing

    def note(self, name: str) -> str | None:
        return self.state.notes.get(name)

    def together(self, operations: Sequence[Operation]) -> int:
        if self.capabilities.across_partitions:
            return len(operations)
        places = [(one.model.table, one.partition) for one in operations]
        return min(next((at for at, place in enumerate(places) if place != places[0]), len(places)), 100)

    def apply(self, operations: Sequence[Operation], **options: Any) -> None:
        make_way(self, operations, lambda: self._apply(operations, **options))

    def _apply(
        self, operations: Sequence[Operation], *, maintained_limit: int | None = None, notes: Sequence[Note] = ()
    ) -> None:
        assert not operations or self.together(operations) == len(operations)
        with self._shelf.lock:
            before = self._to_write()
            noted = dict(before.notes)
            for note in notes:
                if noted.get(note.name) != note.old:
                    raise NoteConflict
                noted |= {note.name: note.new} if note.new is not None else {}
                if note.new is None:
                    noted.pop(note.name, None)
            state, decision = self._decided(before, operations, maintained_limit)
            self._shelf.state = attrs.evolve(state, notes=noted)
        _told(decision)

    def _insert(self, batches: Sequence[Batch]) -> None:
        with self._shelf.lock:
            self._shelf.state = self._inserted(self._to_write(), batches)

    def _decided(
        self, state: State, operations: Sequence[Operation], maintained_limit: int | None = None
    ) -> tuple[State, Decision]:
        timestamp = max(self._clock(), state.last + 1)
        decision = decide(state, operations, state, timestamp, maintained_limit)
        return state.after(decision, timestamp), decision

    def insert(self, batches: Sequence[Batch]) -> None:
        insert_over_ended(self, batches, lambda: self._insert(batches))

    def _inserted(self, state: State, batches: Sequence[Batch], *, keep: bool = True) -> State:
        operations, decided = [batch.operations() for batch in batches], []
        every = [one for some in operations for one in some]
        if every:
            state, decision = self._decided(state, every)
            decided = [change.new for change in decision.entities]
        for batch, some in zip(batches, operations, strict=True) if keep else ():
            if batch.parts is None:
                batch.rows[:] = [row for row in decided[: len(some)] if row is not None]
            del decided[: len(some)]
        return state

    def load(self, windows: Iterable[Sequence[Batch]], meter: Callable[[str, int | None], Meter]) -> int:
        count = 0
        with self._shelf.lock, meter("insert_many", None) as told:
            state = self._to_write()
            for window in windows:
                state = self._inserted(state, window, keep=False)
                count += (number := sum(batch.count for batch in window))
                told.advance(number)
            self._shelf.state = state
        return count

    # -- what is maintained

    def catch_up(self) -> None: ...

    def required_labels(self, model: Model) -> Sequence[str]:
        return ()

    def label(self, model: Model, index: str | None = None) -> str:
        return model.name if index is None else f"{model.name}.{index}"

    def missing_fields(self, model: Model, *, eventual: bool = False) -> Mapping[str, Collection[str] | None]:
        return {}

    def describe(self, label: str) -> PendingBuild:
        return PendingBuild(label, "building", 0, 0)

    def build(self, most: int, labels: Collection[str] | None) -> BuildStep | None:
        return None

    def violations(self, most: int) -> tuple[DuplicateValue, ...]:
        return ()

    def freeze(self, meter: Meter) -> None:
        with self._shelf.lock:
            frozen = self._clock() if self.state.frozen is None else self.state.frozen
            self._shelf.state = attrs.evolve(self.state, frozen=frozen)

    def unfreeze(self) -> None:
        with self._shelf.lock:
            self._shelf.state = attrs.evolve(self.state, frozen=None)

    def status(self) -> Status:
        items = []
        for model in self.state.models.values():
            items.append(ObjectStatus(model.name, "class" if model.aggregate is None else "aggregate", "ready", True))
            items += [ObjectStatus(f"{model.name}.{index.name}", "index", "ready", True) for index in model.indexes]
        return Status(1, tuple(items), frozen=Catalogue(frozen=self.state.frozen).frozen_since)

    def check(self, meter: Meter) -> CheckReport:
        state = self.state
        check = ConsistencyCheck(
            {model: state.duties(model) for model in state.models.values()}, Holding(state), state.last, meter
        )
        return check.report(check.findings(()))

    eventual = ()

    def repair(self, meter: Meter) -> RepairReport:
        return RepairReport((), (), self.check(meter).entities, 0.0)

    def with_stored_fields(self, model: Model) -> Model:
        return model

    def widen(self, aggregate: AggregateMaintenance, groups: Mapping[Key, Delta]) -> None:
        with self._shelf.lock:
            state, decision = self._to_write(), Decision()
            for key, delta in groups.items():
                old = state.group(aggregate, key)
                new = aggregate.advance(*key, state.last + 1, old, delta, lambda *_: None)
                decision.groups[aggregate.model, key] = GroupChange(aggregate, key, old, new)
            self._shelf.state = state.after(decision, state.last + 1)


def _told(decision: Decision) -> None:
    for change in decision.entities:
        change.operation.old = change.old
        if change.operation.verb not in ("delete", "require"):
            change.operation.new = change.new


def _opened(state: State, schema: Schema) -> State:
    """Return the state with classes that are new, or have more than they had; what is maintained is made anew then."""
    known = state.models
    if all(model.name in known and known[model.name].form_hash == model.form_hash for model in schema.models):
        return state
    models = dict(known)
    for model in schema.models:
        old = models.get(model.name)
        if old is None or not state.table(old.table).items or not set(_stored(old)) - set(_stored(model)):
            models[model.name] = model
        elif set(_stored(model)) - set(_stored(old)):
            raise SchemaMismatch(model.name, ["its stored fields differ, and an engine of dicts follows no class"])
    entities = {
        (name, *key): _converted(known[name], models[name], row)
        for table in state.entities.values()
        for key, (name, row) in table.items.items()
        if known[name].aggregate is None
    }
    bare = State(models, notes=state.notes, last=state.last, frozen=state.frozen)
    if not entities:
        return bare
    inserts = [Operation("insert", models[name], row[0], row[1], row) for (name, *_), row in entities.items()]
    made = bare.after(decide(bare, inserts, bare, state.last), state.last)
    for (name, *key), row in entities.items():  # (which keep their timestamps)
        made.entities[models[name].table].items[tuple(key)] = name, row
    return made


def _stored(model: Model) -> dict[str, int]:
    """Return where the row of a class has its own properties, each with its type."""
    return {
        f"{field.property} {field.type.name} {field.optional}": at
        for at, field in enumerate(model.columns, FIRST)
        if not field.maintained
    }


def _converted(old: Model, new: Model, row: Row) -> Row:
    held = {field.property: value for field, value in zip(old.columns, row[FIRST:], strict=True)}
    return (*row[:FIRST], *(held.get(field.property, new.defaults[field.property]) for field in new.columns))


# ---------------------------------------------------------------------------------------------- queries


class DictReads:
    """Reads plans over dicts. Conditions are left to be checked by what makes entities of the rows."""

    def __init__(self, engine: DictEngine) -> None:
        self._engine = engine

    def residual(self, plan: Plan) -> tuple[AnyPredicate, ...]:
        return plan.filter

    def rows(
        self,
        bound: BoundPlan,
        layout: RowLayout,
        *,
        after: Position | None = None,
        limit: int | None = None,
        spending: BudgetMeter | None = None,
        within: Any = None,
    ) -> Iterator[list[Row]]:
        state = self._engine.state if within is None else within
        rows = _Reading(state, bound, layout).rows(after, spending)
        rows = rows if limit is None or (spending is not None and bound.plan.sorted) else islice(rows, limit)
        return iter(lambda: list(islice(rows, _CHUNK)), [])

    def find(self, bound: BoundPlan, layout: RowLayout) -> Row | None:
        return next(_Reading(self._engine.state, bound, layout).rows(None, None), None)

    def divide(self, bound: BoundPlan, parts: int) -> list[KeyPosition]:
        keys = list(_Reading(self._engine.state, bound, RowLayout(places=True)).places())
        return list(dict.fromkeys(keys[part * len(keys) // parts] for part in range(1, parts))) if keys else []

    def explain(self, bound: BoundPlan, layout: RowLayout, limit: int | None = None) -> DatabasePlan:
        return DatabasePlan()

    def ordered(self, key: Sequence[str]) -> Any:
        return key

    def in_one_state(self, read: Callable[[Any], Iterator[T]]) -> Iterator[T]:
        yield from read(self._engine.state)


class _Reading:
    """One read of a plan in one state."""

    def __init__(self, state: State, bound: BoundPlan, layout: RowLayout) -> None:
        self._state, self._bound, self._layout, self._plan = state, bound, layout, bound.plan
        self._model = state.models[bound.plan.model.name]
        index = bound.plan.index
        if index is None:
            self._table = state.table(self._model.table)
        else:
            found = [one for one in state.duties(self._model)[0][0].indexes if one.model.name == index.name]
            self._table = state.index(found[0])
        self._sorting = [_sorted_by(self._plan, step) for step in self._plan.sort]

    def places(self) -> Iterator[tuple[str, ...]]:
        """Yield the places between the bounds, range by range."""
        walk = SkipScan.of(self._bound) if self._plan.by_partition else None
        for one in self._bound.ranges:
            for place in self._table.between(one):
                if walk is not None and not walk.holds(place[0]):
                    continue
                if self._plan.index is not None or self._table.items[place][0] == self._model.name:
                    yield place

    def rows(self, after: Position | None, spending: BudgetMeter | None) -> Iterator[Row]:
        """Yield what the layout says of each row, in the order of the plan, those after a position."""
        plan = self._plan
        if plan.sorted:
            found = []
            for place in self.places():
                if spending is not None:
                    spending.row()
                found.append((*[value(self._row(place)) for value in self._sorting], *place))
            order = cmp_to_key(self._compared)
            found.sort(key=order)
            if after is not None:
                found = [one for one in found if self._compared(one, after) > 0]
            ordered = iter(found)
        else:
            merged = sorted(self._merge_key(place) for place in self.places())
            if after is not None:
                last = self._merge_key(after)
                merged = [key for key in merged if (key < last if plan.descending else key > last)]
            ordered = (key[-1] for key in (reversed(merged) if plan.descending else merged))
        for position in ordered:
            if spending is not None:
                spending.check_time()
            yield self._laid_out(position)

    def _merge_key(self, place: Sequence[str]) -> tuple[Any, ...]:
        front = self._bound.range_of(place).front if self._plan.merged else ("", "")
        rows = place[1][len(front[1]) :], tuple(place[2:])
        return place[0][len(front[0]) :], Descending(rows) if self._plan.turned else rows, front, tuple(place)

    def _compared(self, a: Sequence[Any], b: Sequence[Any]) -> int:
        for at, step in enumerate(self._plan.sort):
            if a[at] != b[at]:
                first = a[at] is None or (b[at] is not None and a[at] < b[at])
                return -1 if first is not step.descending else 1
        if a[-2:] == b[-2:]:
            return 0
        return -1 if (tuple(a[-2:]) < tuple(b[-2:])) is not self._plan.descending else 1

    def _entity(self, place: Sequence[str]) -> Row:
        """Return the entity of a place; of a group, with its packed state."""
        name, row = self._state.table(self._model.table).items[tuple(place[-2:])]
        assert name == self._model.name
        return row if self._model.aggregate is not None else self._state.whole_row(self._model, row)

    def _row(self, place: Sequence[str]) -> Mapping[str, Any]:
        """Return the stored values of a place by field, and what it is."""
        values: dict[str, Any] = {"": place}
        if self._plan.index is not None and self._plan.covering:
            columns = index_columns(self._model, self._model.index(self._plan.index.name))
            entry = self._table.items[tuple(place)]
            return values | {field.name: value for field, value in zip(columns, entry[4:], strict=True)}
        entity = self._entity(place)
        return values | {name: entity[at] for name, at in self._model.position.items()}

    def _laid_out(self, position: Sequence[Any]) -> Row:
        layout = self._layout
        place = position[len(self._plan.sort) :]
        front = tuple(position) if layout.places else ()
        if layout.fields is None:
            entity = self._entity(place)
            return (*front, *(entity if self._model.aggregate is None or layout.state else entity[:-1]))
        row = self._row(place)
        state = (self._entity(place)[-1],) if layout.state else ()
        return (*front, *(row[name] for name in layout.fields), *state)


def _sorted_by(plan: Plan, step: Order[Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that gives the value to sort by."""
    attr: Attr[Any, Any] = step.attr
    layout = layout_of(plan.path, [attr], covering=plan.covering)
    read = tuples(plan.path, layout, [attr], covering=plan.covering)
    kind = SCALARS[Decimal] if step.wide else attr.type

    def value(row: Mapping[str, Any]) -> Any:
        found = read(((*row[""], *(row[name] for name in layout.fields or ())),), ())[0][0]
        return None if found is None else store_sortable(kind, Decimal(found) if step.wide else found)

    return value


# ---------------------------------------------------------------------------------------------- check


class Holding:
    """What a state holds, as the check reads it."""

    def __init__(self, state: State) -> None:
        self._state = state

    def with_stored_fields(self, model: Model) -> Model:
        return model

    def _of(self, model: Model) -> Iterator[Row]:
        for name, row in self._state.table(model.table).items.values():
            if name == model.name:
                yield row

    def count(self, model: Model) -> int:
        return sum(1 for _ in self._of(model))

    def rows(self, model: Model) -> Iterable[Row]:
        return (self._state.whole_row(model, row) for row in self._of(model))

    def row(self, model: Model, partition: str, row: str) -> Row | None:
        return self._state.row(model, (partition, row))

    def groups(self, model: Model) -> Iterable[tuple[Row, bytes]]:
        return ((row[:-1], row[-1]) for row in self._of(model))

    def values(self, model: Model) -> Iterable[tuple[Any, ...]]:
        for (name, key, slot), counts in self._state.values.items():
            if name == model.name:
                yield from ((*key, slot, value, count) for value, count in counts.items())

    def index_rows(self, index: IndexMaintenance) -> Iterable[IndexRow]:
        return self._state.index(index).items.values()

    def index_row(self, index: IndexMaintenance, key: tuple[str, str, str, str]) -> IndexRow | None:
        return self._state.index(index).items.get(key)

    def is_noted(self, index: IndexMaintenance, key: tuple[str, str, str, str]) -> bool:
        return False

    def notes(self, index: IndexMaintenance) -> Iterable[IndexRow]:
        return ()

    def holder(self, index: IndexMaintenance, partition: str, row: str) -> tuple[Any, ...] | None:
        return self._state.holder(index, partition, row)

    def unknown(self, model: Model) -> None:
        return None
