"""The view of a partition by which a write is decided: assumed where that is possible, else read.

At first as little is read as can be, and the rest is assumed: the row that an entity was read as, or that a new one is
not there. The service checks that by ETags. When it refuses, everything is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from ....entities.entity import stored_row
from ....entities.etag import Stamp
from ....errors import CorruptStore
from ....schema.maintenance import AggregateMaintenance, IndexMaintenance
from ....schema.model import Model
from ....schema.rows import FIRST, Row
from ...protocol import Operation
from ...write_decision import Decision, Key, decide
from ..catalogue.open_classes import OpenClasses
from ..cross_partition.value_counts import Counts, ValueCounts
from ..reading.rollup_fields import RollupField
from ..tables.driver import Effects, read, side_by_side
from ..tables.entity_json import HiddenProperties, local_key
from ..tables.reserved_names import BASE_ROW
from ..tables.service import ETAG, Entity, GetEntity


class PartitionView:
    """The view of the store for a decision: `write_decision.WriteView`. What it asks besides is noted, and read."""

    def __init__(self, classes: OpenClasses, operations: Sequence[Operation], timeout: float) -> None:
        self.classes = classes
        self.timeout = timeout
        self.table: Final = operations[0].model.table
        self.partition: Final = operations[0].partition
        self.operations = operations
        self.shadows: list[Operation] = [self._shadow(operation) for operation in operations]
        self.rows: dict[tuple[Model, str], Row | None] = {}
        self.etags: dict[str, str | None] = {}
        """By row key: what the service is to find; None: nothing."""
        self.blind: set[str] = set()
        """The entities that are written whatever is there."""
        self.index_rows: dict[str, Entity | None] = {}
        """Rows of indexes."""
        self.afresh: bool = False
        """Whether everything was read."""
        self._missing: dict[str, Model | None] = {}
        self._sources: dict[tuple[Model, Key], Row | None] = {}
        """The entities of other partitions that are moved here."""
        self._missing_sources: set[tuple[Model, Key]] = set()
        self._ends: dict[tuple[Model, Key, int], ValueCounts] = {}
        """The values of groups after what is being decided, of which both ends are asked for."""

    def _shadow(self, operation: Operation) -> Operation:
        """Return an operation whose new row has all that the store has of the class."""
        extension = self.classes.followed.get(operation.model)
        if extension is None or not extension.checked or operation.verb == "require":
            return operation
        extension.check_writable()
        if operation.verb in ("delete", "build"):
            return operation
        move = operation.moved_from

        def complete(old: Row | None) -> Row:
            new = operation.new if operation.change is None else operation.change(old)
            assert new is not None
            if move is not None:
                return extension.completed(new, self._source(operation.model, move.key), moved=True)
            return extension.completed(new, old)

        return attrs.evolve(operation, change=complete)

    def _source(self, model: Model, key: Key) -> Row | None:
        """Return an entity that is moved to this partition."""
        if key[0] == self.partition:
            return self.row(model, key)
        if (model, key) not in self._sources:
            self._missing_sources.add((model, key))
        return self._sources.get((model, key))

    def _read_sources(self) -> Effects[None]:
        places = list(self._missing_sources)
        self._missing_sources.clear()
        entities = yield from side_by_side([read(GetEntity(model.table, *key), self.timeout) for model, key in places])
        for (model, key), entity in zip(places, entities, strict=True):
            self._sources[model, key] = None if entity is None else self.classes.codec(model).row(entity)

    def begin(self, *, afresh: bool = False) -> Effects[None]:
        """Assume what need not be read, and read the rest; afresh everything is read."""
        self.rows.clear()
        self.etags.clear()
        self.blind.clear()
        self.index_rows.clear()
        self.afresh = afresh
        models_by_row = {
            operation.row: operation.model for operation in self.operations if afresh or not self._assumed(operation)
        }
        yield from self._read(models_by_row)

    def _assumed(self, operation: Operation) -> bool:
        """Assume the row of an operation, if that is possible."""
        model, place = operation.model, (operation.model, operation.row)
        etag, old = operation.etag, operation.old
        if etag is None and operation.entity is not None and operation.change is None:
            # (Whatever is there is to be written: that it is what was read, is likely. A request that comes late is refused.)
            last_row = stored_row(operation.entity)
            if last_row is not None and last_row[:2] == operation.key:
                old, etag = last_row, last_row[2]
        if operation.verb == "insert":
            self.rows[place], self.etags[operation.row] = None, None
            return True
        if not self.classes.claims(model, *operation.key):  # (a row of another class, which is not to be written blind)
            return False
        if old is not None and self._is_whole(model, old) and etag is not None and etag == old[2]:
            self.rows[place], self.etags[operation.row] = old, old[2].etag
            return True
        if (
            operation.change is not None
            or operation.has_ended is not None
            or self.classes.needs_row(model)
            or model.aggregate is not None
        ):
            return False
        if operation.verb == "upsert":
            self.rows[place], self.etags[operation.row] = None, None
            self.blind.add(operation.row)
            return True
        if etag is None or isinstance(etag, Stamp):
            columns = len(self.classes.stored(model).columns)
            self.rows[place] = (*operation.key, 0 if etag is None else etag, *([None] * columns), HiddenProperties())
            self.etags[operation.row] = "*" if etag is None else etag.etag
            return True
        return False

    def _is_whole(self, model: Model, row: Row) -> bool:
        hidden = len(row) == self.classes.codec(model).width and isinstance(row[-1], HiddenProperties)
        return hidden and isinstance(row[2], Stamp)

    def _read(self, models_by_row: Mapping[str, Model | None]) -> Effects[None]:
        """Read rows of the partition: entities and groups of a model, or others."""
        works = [read(GetEntity(self.table, self.partition, row), self.timeout) for row in models_by_row]
        keeper_rows = [(row, keeper) for row, model in models_by_row.items() for keeper in self._keepers(row, model)]
        works += [read(GetEntity(keeper.table, self.partition, row), self.timeout) for row, keeper in keeper_rows]
        entities = yield from side_by_side(works)
        fields: dict[str, Entity] = {}
        for (row, keeper), group in zip(keeper_rows, entities[len(models_by_row) :], strict=True):
            fields.setdefault(row, {}).update(keeper.members(group))
        carried = {operation.row: operation.old for operation in self.operations if operation.old is not None}
        for (row, model), entity in zip(models_by_row.items(), entities, strict=False):
            if model is None:
                self.index_rows[row] = entity
                continue
            self.etags[row] = None if entity is None else entity[ETAG]
            is_of_class = entity is not None and self.classes.claims(model, self.partition, row)
            full_entity = None if not is_of_class or entity is None else {**entity, **fields.get(row, {})}
            row_read = None if full_entity is None else self.classes.codec(model).row(full_entity)
            if row_read is not None and (old := carried.get(row)) is not None and same_write(model, old, row_read):
                row_read = (*row_read[:2], old[2], *row_read[FIRST:])  # (what moved its ETag changed nothing)
            self.rows[model, row] = row_read

    def _keepers(self, row: str, model: Model | None) -> Sequence[RollupField]:
        """Return where the maintained fields of an entity are, if a caller gets them with what a change makes of it."""
        is_shown = any(operation.row == row and operation.change is not None for operation in self.operations)
        return self.classes.keepers(model) if is_shown and model is not None else ()

    def decide(self, maintained_limit: int | None) -> Effects[Decision]:
        """Return what the operations change, once all is known that this depends on."""
        while True:
            self._missing.clear()
            self._ends.clear()
            try:
                decision = decide(self.classes, self.shadows, self, 0, maintained_limit)
                for aggregate, key, slot, counts in decision.values:
                    self.values(aggregate, key, {slot: counts})
                if self.afresh:
                    for index, rows in decision.changes.indexes.items():
                        for deleted_row in rows.deletes:
                            self._index_row(local_key(index, deleted_row))
            except Exception:
                if not self._missing and not self._missing_sources:
                    raise
            else:
                if not self._missing and not self._missing_sources:
                    return decision
            yield from self._read(dict(self._missing))
            yield from self._read_sources()

    # -- `write_decision.WriteView`

    def row(self, model: Model, key: Key) -> Row | None:
        if key[0] != self.partition:
            raise AssertionError(f"{model.name} {key} is in another partition")
        place = model, key[1]
        if place not in self.rows:
            self._missing[key[1]] = model
            return None
        return self.rows[place]

    def group(self, aggregate: AggregateMaintenance, key: Key) -> Row | None:
        row = self.row(aggregate.model, key)
        if row is None:
            return None
        hidden: HiddenProperties = row[-1]
        if hidden.state is None:
            raise CorruptStore(
                f"{aggregate.model.name} {key}: a row of another program has the key of the group; delete it"
            )
        return (*row[2:-1], hidden.state)

    def values(self, aggregate: AggregateMaintenance, key: Key, counts: Counts) -> ValueCounts:
        """Return how often each live value of a group is there, with the pages that changes need."""
        row = self.row(aggregate.model, key)
        values = ValueCounts(key, b"" if row is None else row[-1].values)
        for page, number in values.pages_of(counts).items():
            page_row = self._index_row(page)
            if page not in self._missing:
                values.take(number, page_row)
        return values

    def extreme(
        self,
        aggregate: AggregateMaintenance,
        key: Key,
        slot: int,
        end: Literal["min", "max"],
        change: Mapping[Any, int],
    ) -> Any:
        place = aggregate.model, key, slot
        if place not in self._ends:
            values = self.values(aggregate, key, {slot: change})
            if self._missing:
                return None
            values.add({slot: change})
            self._ends[place] = values
        return self._ends[place].end(slot, end)

    def holder(self, index: IndexMaintenance, partition: str, row: str) -> Key | None:
        if not self.afresh:
            return None
        index_row = self._index_row(local_key(index, (partition, row, partition, "")))
        return None if index_row is None else (partition, index_row[BASE_ROW])

    def _index_row(self, row: str) -> Entity | None:
        if row not in self.index_rows:
            self._missing[row] = None
            return None
        return self.index_rows[row]


def same_write(model: Model, row: Row, other: Row) -> bool:
    """Return whether two rows of an entity are of one write, and nobody has changed since what it wrote.

    Other programs keep the property that says of which write it is.
    """
    ours, theirs = row[-1], other[-1]
    if not isinstance(ours, HiddenProperties) or not isinstance(theirs, HiddenProperties) or len(row) != len(other):
        return False
    if not ours.op or (ours.op, ours.undeclared, ours.ticks) != (theirs.op, theirs.undeclared, theirs.ticks):
        return False
    maintained = {model.position[field.name] for field in model.maintained}  # (from other entities)
    return all(row[at] == other[at] for at in range(FIRST, len(row) - 1) if at not in maintained)
