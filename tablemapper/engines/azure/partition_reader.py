"""Partitions: the rows of one with their classes, and the keys of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from ...entities.etag import Stamp
from ...schema.model import Model
from ...schema.rows import Row
from .catalogue.open_classes import OpenClasses
from .reading.filters import visible
from .reading.rollup_fields import completed
from .reading.scans import Runs, partition_keys, rows_of
from .tables.entity_json import shown
from .tables.reserved_names import HIDDEN_PREFIX
from .tables.service import ETAG, MAX_PAGE, PARTITION, ROW, Comparison


def rows_with_models(
    source: Runs, classes: OpenClasses, members: Sequence[Model], table: str, partition: str
) -> Iterator[list[tuple[Model | None, Row]]]:
    """Yield every row of a partition with its model, in row order.

    Args:
        source: runs works.
        classes: as the catalogue has them.
        members: the opened classes of the table.
        table: that the partition is of.
        partition: its key.
    """
    models = [cls for cls in members if cls.name not in classes.unready]
    unready = [cls for cls in classes.models if cls.table == table and cls.name in classes.unready]
    rows = rows_of(source, table, Comparison(PARTITION, "eq", "String", partition), visible())
    while entities := list(islice(rows, MAX_PAGE)):
        for cls in models:
            if keepers := classes.keepers(cls):
                entities = source.run(completed(keepers, entities, source.timeout))
        for entity in entities:
            if HIDDEN_PREFIX in entity:
                continue
            model = next((cls for cls in models if classes.is_of(cls, entity)), None)
            if model is None and any(classes.is_of(cls, entity) for cls in unready):
                continue  # (a group that is not complete)
            if model is not None:
                yield [(model, classes.codec(model).read(entity))]
            else:
                yield [(None, (entity[PARTITION], entity[ROW], Stamp(entity[ETAG]), shown(entity)))]


def partitions_of(source: Runs, newest: Callable[[], OpenClasses], model: Model) -> Iterator[str]:
    """Yield the partition keys of a class in order: a request for each."""
    for partition, entity in partition_keys(source, model.table):
        in_partition = Comparison(PARTITION, "eq", "String", partition)
        is_of = partial(newest().is_of, model)
        if is_of(entity) or any(map(is_of, rows_of(source, model.table, in_partition, visible()))):
            yield partition
