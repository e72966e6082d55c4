"""The check: what the tables hold is read whole, a request for a thousand rows, and then compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ...schema.check import Stored
from ...schema.maintenance import IndexMaintenance, IndexRow
from ...schema.model import Model
from ...schema.rows import Row
from .names import BASE_ROW, HIDDEN, index_prefix, row_key_of
from .reads import Source, rows_of
from .rows import read_value
from .service import PARTITION, ROW, Entity

__all__ = ["held"]


def held(source: Source) -> Stored:
    """Return what the tables of an engine hold."""
    return _Held(source)


class _Held:
    """See `schema.check.Stored`."""

    def __init__(self, source: Source) -> None:
        self._classes = source.classes
        self._rows: dict[Model, dict[tuple[str, str], Row]] = {model: {} for model in self._classes.models}
        self._indexes: dict[IndexMaintenance, dict[tuple[str, str, str, str], IndexRow]] = {}
        tables: dict[str, list[Model]] = {}
        for model in self._classes.models:
            tables.setdefault(model.table, []).append(model)
            self._indexes |= {index: {} for index in self._classes.maintained(model).indexes}
        for table, models in tables.items():
            for entity in rows_of(source, table):
                self._take(entity, models)

    def _take(self, entity: Entity, models: list[Model]) -> None:
        partition, row = entity[PARTITION], entity[ROW]
        if HIDDEN[0] <= row < HIDDEN[1]:
            for index, rows in self._indexes.items():
                if index.owner in models and row.startswith(index_prefix(index.label)):
                    entry = _entry(index, entity)
                    rows[entry[0], entry[1], entry[2], entry[3]] = entry
            return
        for model in models:
            if self._classes.claims(model, partition, row):
                self._rows[model][partition, row] = self._classes.codec(model).row(entity)

    def whole(self, model: Model) -> Model:
        return self._classes.stored(model)

    def rows(self, model: Model) -> Iterable[Row]:
        return [row[:-1] for row in self._rows[model].values()]

    def row(self, model: Model, partition: str, row: str) -> Row | None:
        return self._rows[model].get((partition, row))

    def groups(self, model: Model) -> Iterable[tuple[Row, bytes]]:
        return [(row[:-1], row[-1].state or b"") for row in self._rows[model].values()]

    def values(self, model: Model) -> Iterator[tuple[object, ...]]:
        for key, row in self._rows[model].items():
            for slot, value, count in msgspec.msgpack.decode(row[-1].values) if row[-1].values else ():
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
        return next((key[2:] for key in self._indexes[index] if key[:2] == (partition, row)), None)

    def index_count(self, index: IndexMaintenance) -> int:
        return len(self._indexes[index])


def _entry(index: IndexMaintenance, entity: Entity) -> IndexRow:
    partition, base = entity[PARTITION], entity[BASE_ROW]
    row = row_key_of(index.label, entity[ROW], base, unique=index.model.unique)
    columns = [field for field in index.model.include if field.name in index.owner.position]
    return (partition, row, partition, base, *[read_value(field, entity) for field in columns])
