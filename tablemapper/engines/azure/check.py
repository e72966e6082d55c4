"""The check: what the tables hold is read whole, a request for a thousand rows, and then compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeAlias

from ...entities.etag import Stamp
from ...entities.fields import FieldModel
from ...errors import CorruptStore
from ...evolution.newer_versions import unknown_value
from ...schema.maintenance import AggregateMaintenance, IndexMaintenance, IndexRow, index_columns
from ...schema.model import Model
from ...schema.rows import UNREADABLE, Row
from ..check import CheckFinding, Problem
from .catalogue.open_classes import OpenClasses
from .cross_partition.marks import counted
from .cross_partition.outbox import intent_of
from .cross_partition.value_counts import ValueCounts
from .reading.scans import Runs, is_index_row, outer_places, rows_of
from .reading.spilled_rows import SpilledRows
from .tables.entity_json import foreign_pieces
from .tables.reserved_names import (
    BASE_PARTITION,
    BASE_ROW,
    CLAIM,
    HIDDEN,
    HIDDEN_PREFIX,
    INTENTS,
    NEXT_OP,
    index_prefix,
    is_known,
    is_page,
    row_key_of,
)
from .tables.service import PARTITION, ROW, Entity

Group: TypeAlias = tuple[AggregateMaintenance, tuple[str, str]]


def held(source: Runs, classes: OpenClasses) -> AzureCheckView:
    """Return what the tables of an engine hold."""
    return AzureCheckView(source, classes)


class AzureCheckView:
    """See `engines.check.Stored`.

    Attributes:
        classes: what is maintained.
        intents: what writes have still to do elsewhere, each with the table that it lies in.
    """

    def __init__(self, source: Runs, classes: OpenClasses) -> None:
        self.classes = classes
        self._rows: dict[Model, SpilledRows[Row]] = {model: SpilledRows() for model in self.classes.models}
        # (An index that the program does not declare is of the class with all that is stored.)
        self._by_stored = {self.classes.stored(model): model for model in self.classes.models}
        self.intents: list[tuple[str, Entity]] = []
        self.damaged: list[CheckFinding] = []
        self._foreign: dict[str, tuple[int, tuple[str, str]]] = {}
        self._stale: dict[str, tuple[int, tuple[str, str]]] = {}
        self._unread = set[tuple[Model, tuple[str, str]]]()
        self._pages = SpilledRows[Entity]()
        self._indexes: dict[IndexMaintenance, SpilledRows[IndexRow]] = {}
        self._included: dict[IndexMaintenance, list[FieldModel]] = {}
        tables: dict[str, list[Model]] = {}
        for model in self.classes.models:
            tables.setdefault(model.table, []).append(model)
            self._indexes |= {index: SpilledRows() for index in self.classes.maintained(model).indexes}
        for table, models in tables.items():
            for entity in rows_of(source, table):
                self._take(entity, table, models)
        for duties in self.classes.outer.values():
            for index in duties.indexes:
                for entity in rows_of(source, index.model.table):
                    if BASE_ROW not in entity or BASE_PARTITION not in entity:
                        self._take_foreign(index.model.table, entity)
                    else:
                        self._reading(index.label, entity, partial(self._take_outer, index, entity))

    def foreign(self) -> Iterator[str]:
        """Yield what to say of what other programs left: how many rows have it, and the key of one."""
        kinds = (
            (self._foreign, "that no class claims"),
            (self._stale, "with pieces of an older value, which are not read, and which the next write removes"),
        )
        for counts, text in kinds:
            for label, (count, key) in counts.items():
                yield f"{label}: {count:,} row{'s' if count > 1 else ''} {text}, as {key}"

    def _take_foreign(self, table: str, entity: Entity) -> None:
        key = entity[PARTITION], entity[ROW]
        if key != (CLAIM, CLAIM):
            _count(self._foreign, table, key)

    def _reading(self, where: str, entity: Entity, take: Callable[[], object]) -> None:
        """Take over what can be read; note what cannot."""
        try:
            take()
        except UNREADABLE as error:
            problem = Problem("damaged", where, (entity[PARTITION], entity[ROW]), str(error))
            self.damaged.append(CheckFinding(problem))

    def _take_outer(self, index: IndexMaintenance, entity: Entity) -> None:
        if not is_index_row(entity, remote=True):
            raise CorruptStore(f"{BASE_PARTITION} and {BASE_ROW}, the key of its entity, are not both texts")
        places = list(outer_places(index, entity))
        if len(places) > 1:  # (a unique value that is being passed on)
            row = self._rows[self._owner(index)].get((places[1][2], places[1][3]))
            places = (
                places[1:]
                if row is not None and row[-1].ops.get(self.classes.marks.of[index].name) == entity[NEXT_OP]
                else places[:1]
            )
        columns = [] if index.model.unique else self._columns(index)
        codec = self.classes.codec(index.owner)
        entry = (*places[0], *[codec.value(field, entity) for field in columns])
        if index.model.unique:  # (which holds keys alone)
            row = self._rows[self._owner(index)].get((entry[2], entry[3]))
            index_rows = (
                []
                if row is None
                else [
                    index_row
                    for index_row in index.rows_of(row, self.with_stored_fields(index.owner))
                    if index_row[:4] == entry
                ]
            )
            entry = index_rows[0] if index_rows else entry
        self._indexes[index][entry[0], entry[1], entry[2], entry[3]] = entry

    def _columns(self, index: IndexMaintenance) -> list[FieldModel]:
        """Return the properties that the rows of an index hold, with the types that the catalogue has."""
        if (columns := self._included.get(index)) is None:
            stored_fields = {field.name: field for field in self.classes.stored(index.owner).columns}
            columns = [stored_fields[field.name] for field in index_columns(index.owner, index.model)]
            self._included[index] = columns
        return columns

    def _owner(self, index: IndexMaintenance) -> Model:
        return self._by_stored.get(index.owner, index.owner)

    def _take(self, entity: Entity, table: str, models: list[Model]) -> None:
        partition, row = entity[PARTITION], entity[ROW]
        if HIDDEN[0] <= row < HIDDEN[1]:
            if not is_known(entity):
                self._take_foreign(table, entity)
                return
            if row.startswith(INTENTS[0]):
                self._reading(table, entity, partial(self._take_intent, table, entity))
            elif is_page(row):
                self._pages[table, partition, row] = entity
            for index, rows in self._indexes.items():
                if self._owner(index) in models and row.startswith(index_prefix(index.label)):
                    self._reading(index.label, entity, partial(self._take_local, index, rows, entity))
            return
        if HIDDEN_PREFIX in entity:
            return
        for model in models:
            if self.classes.is_of(model, entity):
                self._reading(model.name, entity, partial(self._take_entity, model, entity))
                return
        self._take_foreign(table, entity)

    def _take_intent(self, table: str, entity: Entity) -> None:
        intent_of(entity)
        self.intents.append((table, entity))

    def _take_local(self, index: IndexMaintenance, rows: SpilledRows[IndexRow], entity: Entity) -> None:
        codec, base = self.classes.codec(index.owner), entity[BASE_ROW]
        partition, row = entity[PARTITION], row_key_of(index.label, entity[ROW], base, unique=index.model.unique)
        entry = (partition, row, partition, base, *[codec.value(field, entity) for field in self._columns(index)])
        rows[entry[0], entry[1], entry[2], entry[3]] = entry

    def _take_entity(self, model: Model, entity: Entity) -> None:
        key = entity[PARTITION], entity[ROW]
        self._rows[model][key] = self.classes.codec(model).row(entity)
        for piece in foreign_pieces(entity):
            _count(self._stale, f"{model.name}: {piece}", key)

    def is_counted(self, model: Model, row: Row) -> bool:
        """Return whether an entity is in what is maintained from it: one that another program wrote is not."""
        duties = self.classes.maintained(model)
        return model.aggregate is not None or counted(row) is not None or not duties.parts

    def wrong(self, findings: Iterable[CheckFinding]) -> dict[Group, Stamp | None]:
        """Return the groups in other partitions that are not what they should be, each with its ETag, if it is there.

        Those that a write has still to change are not among them, unless that cannot read them.
        """
        awaited = {
            (delta.label, delta.partition, delta.row)
            for intent, state in (intent_of(entity) for _, entity in self.intents)
            if state in ("P", "C")
            for delta in intent.deltas
        }
        wrong: dict[Group, Stamp | None] = {}
        for finding in findings:
            aggregate, key = finding.of, finding.problem.key[:2]
            if not isinstance(aggregate, AggregateMaintenance) or aggregate not in self.classes.outer_aggregates:
                continue
            is_unread = finding.problem.kind == "damaged" or (aggregate.model, key) in self._unread
            if is_unread or (self.classes.marks.name_of(aggregate), *key) not in awaited:
                row = self._rows[aggregate.model].get(key)
                wrong[aggregate, key] = None if row is None else row[2]
        return wrong

    def with_stored_fields(self, model: Model) -> Model:
        return self.classes.stored(model)

    def unknown(self, model: Model) -> Callable[[Row], str | None] | None:
        return unknown_value(self.classes.followed.get(model))

    def count(self, model: Model) -> int:
        return len(self._rows[model])

    def rows(self, model: Model) -> Iterable[Row]:
        return self._rows[model].values()

    def row(self, model: Model, partition: str, row: str) -> Row | None:
        return self._rows[model].get((partition, row))

    def groups(self, model: Model) -> Iterable[tuple[Row, bytes]]:
        return ((row[:-1], row[-1].state or b"") for row in self._rows[model].values())

    def values(self, model: Model) -> Iterator[tuple[object, ...]]:
        for (partition, row_key), row in self._rows[model].items():
            key = partition, row_key
            try:
                values = ValueCounts(key, row[-1].values)
                for page, number in values.pages.items():
                    values.take(number, self._pages.get((model.table, key[0], page)))
            except CorruptStore:  # (so they are missing)
                self._unread.add((model, key))
                continue
            for slot, of_slot in values.counts().items():
                for value, count in of_slot.items():
                    yield (*key, slot, value, count)

    def index_rows(self, index: IndexMaintenance) -> Iterable[IndexRow]:
        return self._indexes[index].values()

    def index_row(self, index: IndexMaintenance, key: tuple[str, str, str, str]) -> IndexRow | None:
        return self._indexes[index].get(key)

    def is_noted(self, index: IndexMaintenance, key: tuple[str, str, str, str]) -> bool:
        return False

    def notes(self, index: IndexMaintenance) -> Iterable[IndexRow]:
        return ()

    def holder(self, index: IndexMaintenance, partition: str, row: str) -> tuple[str, str] | None:
        key = self._indexes[index].first_behind(partition, row)
        return None if key is None else (key[2], key[3])


def _count(counts: dict[str, tuple[int, tuple[str, str]]], label: str, key: tuple[str, str]) -> None:
    """Count a row under a label, with the key of the first one."""
    count, first = counts.get(label, (0, key))
    counts[label] = count + 1, first
