"""The statistics of a class that an engine has none of: counted from the entities, read in the order of their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, timedelta
from itertools import groupby
from operator import itemgetter

from ..datetime_types import Builtin
from ..entities.key_and_indexes import IndexModel
from ..limits import MAX_VALUE, Edm, entity_size
from ..progress import Meter
from ..schema.maintenance import IndexRow, index_columns, index_maintenance
from ..schema.model import Model
from ..schema.rows import Row, properties
from .key_order import rows_by_key
from .protocol import Engine
from .statistics import IndexStatistics, PartitionCount, Sizes, Statistics, partitions_of, recent_since, time_of

_SECOND = 1_000_000


def count(engine: Engine, model: Model, recent: timedelta, top: int, meter: Meter) -> Statistics:
    """Return the statistics of a class; see `statistics.HasStatistics`.

    Each entity counts as it is when it is read, and the rows of indexes as they follow from it.
    """
    if unready := [label for label in engine.required_labels(model) if label in engine.unready]:
        raise engine.describe(unready[0]).error()
    counted_at = Builtin.datetime.now(UTC)
    entities = _Entities(engine, model, recent_since(counted_at, recent))
    partitions, number, total = partitions_of(entities.partitions(meter), model.declaration.partition, top)
    indexes = {index_rows.index.name: index_rows.statistics(top) for index_rows in entities.indexes}
    seconds = Counter(moment // _SECOND for moment in entities.moments)
    return Statistics(
        model=model.name, at=counted_at, entities=number, bytes=total, total_bytes=total + sum(index_rows.bytes for index_rows in indexes.values()),
        sizes=entities.sizes.quantiles(total), largest_key=entities.largest[1], partitions=partitions,
        writes=len(entities.moments), busiest=max(seconds.values(), default=0), newest=time_of(entities.newest), indexes=indexes,
        recent=recent,
    )  # fmt: skip


class _Entities:
    """The entities of a class, while they are counted."""

    def __init__(self, engine: Engine, model: Model, since: int) -> None:
        self._rows = rows_by_key(engine, model)
        self._model = model
        self._since = since
        self.indexes = [
            _Rows(model, index) for index in model.indexes if engine.label(model, index.name) not in engine.unready
        ]
        self.sizes = Sizes()
        self.largest: tuple[int, tuple[str, str] | None] = (MAX_VALUE, None)
        self.newest = 0
        self.moments = set[int]()

    def partitions(self, meter: Meter) -> Iterator[PartitionCount]:
        for key, rows in groupby(self._rows, itemgetter(0)):
            number = size = newest = 0
            moments = set[int]()
            for row in rows:
                number += 1
                size += self._add(row)
                newest = max(newest, row[2])
                if row[2] >= self._since:
                    moments.add(int(row[2]))
            self.newest = max(self.newest, newest)
            self.moments |= moments
            meter.advance(number)
            yield PartitionCount(key, number, size, len(moments), newest)

    def _add(self, row: Row) -> int:
        size = self.sizes.add(self._model.size(row))
        if size > self.largest[0]:
            self.largest = size, (row[0], row[1])
        for index in self.indexes:
            index.add(row)
        return size


class _Rows:
    """The rows of an index, while they are counted."""

    def __init__(self, model: Model, index: IndexModel) -> None:
        self.index = index
        self._maintenance = index_maintenance(model, index)
        self._model = model
        self._columns = index_columns(model, index)
        self._number, self._size = Counter[str](), Counter[str]()  # by partition
        self._most: tuple[int, tuple[str, str] | None] = (0, None)

    def add(self, row: Row) -> None:
        lines = self._maintenance.rows_of(row, self._model)
        for line in lines:
            self._number[line[0]] += 1
            self._size[line[0]] += self._bytes(line)
        if self.index.fan_out is not None and len(lines) > self._most[0]:
            self._most = len(lines), (row[0], row[1])

    def _bytes(self, line: IndexRow) -> int:
        keys: list[tuple[str, Edm, object]] = [("_pk", "String", line[2]), ("_rk", "String", line[3])]
        return entity_size(line[0], line[1], [*keys, *properties(None, self._columns, line[1:])])

    def statistics(self, top: int) -> IndexStatistics:
        counts = [PartitionCount(key, number, self._size[key]) for key, number in sorted(self._number.items())]
        partitions, rows, size = partitions_of(counts, self.index.partition, top)
        return IndexStatistics(rows, size, partitions, *self._most)
