"""The statistics of a class: one pass over each of its tables, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, timedelta
from typing import Any

from ....datetime_types import Builtin
from ....entities.key_and_indexes import IndexModel
from ....limits import MAX_VALUE
from ....progress import Meter
from ....schema.model import Model
from ....schema.rows import Row
from ...statistics import IndexStatistics, PartitionCount, Sizes, Statistics, partitions_of, recent_since, time_of
from ..driver.functions import SqlFunction
from ..driver.snapshots import Snapshot
from ..sql.ddl import quoted, rows_of
from ..sql.schema import SqliteSchema
from ..sql.sizes import entity_bytes, index_bytes

_SECOND = 1_000_000


def read_statistics(
    sqlite: SqliteSchema, snapshot: Snapshot, model: Model, recent: timedelta, top: int, meter: Meter
) -> Statistics:
    """Return the statistics of a class in one state of the file."""
    moment = Builtin.datetime.now(UTC)
    since = recent_since(moment, recent)
    statements = sqlite.statements[model]
    size, sizes = entity_bytes(statements, "t"), Sizes()
    source = rows_of(statements.table, statements.name)
    counts = _Counts(
        snapshot,
        f'SELECT t."PartitionKey", count(*), sum({(count := SqlFunction(sizes.add)).sql(size)}), '
        f'count(DISTINCT t."Timestamp") FILTER (WHERE t."Timestamp" >= ?), max(t."Timestamp") '
        f'FROM {source} GROUP BY t."PartitionKey" ORDER BY t."PartitionKey"',
        (since,),
        meter,
    )
    partitions, entities, total = partitions_of(counts, model.declaration.partition, top)
    del count  # (the connection calls it no more)
    writes, busiest = _moments(snapshot, source, since) if counts.newest >= since else (0, 0)
    largest = None
    if sizes.most > MAX_VALUE:
        largest = snapshot.get(
            f'SELECT t."PartitionKey", t."RowKey" FROM {source} AND {size} = ? LIMIT 1', (sizes.most,)
        )
    indexes = {
        index.name: _index(sqlite, snapshot, model, index, top, meter)
        for index in model.indexes
        if sqlite.label(model, index.name) not in sqlite.unready
    }
    return Statistics(
        model=model.name, at=moment, entities=entities, bytes=total, total_bytes=total + sum(index_statistics.bytes for index_statistics in indexes.values()),
        sizes=sizes.quantiles(total), largest_key=largest and (largest[0], largest[1]), partitions=partitions, writes=writes,
        busiest=busiest, newest=time_of(counts.newest), indexes=indexes, recent=recent,
    )  # fmt: skip


class _Counts:
    """The partitions that a statement counts, in the order of their keys."""

    def __init__(self, snapshot: Snapshot, sql: str, args: Sequence[Any], meter: Meter) -> None:
        self._chunks = snapshot.stream(sql, args)
        self._meter = meter
        self.newest = 0

    def __iter__(self) -> Iterator[PartitionCount]:
        for chunk in self._chunks:
            for row in chunk:
                partition = PartitionCount(*row)
                self.newest = max(self.newest, partition.newest)
                yield partition
            self._meter.advance(sum(row[1] for row in chunk))


def _moments(snapshot: Snapshot, source: str, since: int) -> tuple[int, int]:
    """Return how many distinct times there are since a time, and the most of them in one second."""
    distinct = f'SELECT DISTINCT t."Timestamp" AS moment FROM {source} AND t."Timestamp" >= ?'
    seconds = f"SELECT count(*) AS n FROM ({distinct}) GROUP BY moment / {_SECOND}"
    totals = snapshot.get(f"SELECT total(n), max(n) FROM ({seconds})", (since,))
    return (0, 0) if totals is None else (int(totals[0]), totals[1] or 0)


def _index(
    sqlite: SqliteSchema, snapshot: Snapshot, model: Model, index: IndexModel, top: int, meter: Meter
) -> IndexStatistics:
    table = sqlite.indexes[index]
    counts = _Counts(
        snapshot,
        f'SELECT i."PartitionKey", count(*), sum({index_bytes(table, "i")}) FROM {quoted(table.name)} i '
        'GROUP BY i."PartitionKey" ORDER BY i."PartitionKey"',
        (),
        meter,
    )
    partitions, rows, size = partitions_of(counts, index.partition, top)
    most: Row | None = None
    if index.fan_out is not None:
        most = snapshot.get(
            f'SELECT count(*), "_pk", "_rk" FROM {quoted(table.name)} GROUP BY "_pk", "_rk" ORDER BY 1 DESC, 2, 3 LIMIT 1'
        )
    return IndexStatistics(rows, size, partitions, *((0, None) if most is None else (most[0], (most[1], most[2]))))
