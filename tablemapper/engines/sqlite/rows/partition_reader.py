"""Whole partitions: the rows of every class in one, and the partitions of a class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....schema.model import Model
from ....schema.rows import Row
from ..file.database import File
from ..sql.ddl import quoted, type_filter, value_sql
from ..sql.schema import SqliteSchema
from ..sql.statements import Statements


def partition_rows(
    file: File, sqlite: SqliteSchema, models: Sequence[Model], partition: str
) -> Iterator[list[tuple[Model | None, Row]]]:
    """Yield every row of a partition of classes that share a table, with its class, in row order, in chunks."""
    layout = sqlite.table_of(models[0])
    columns, pickers = _union([sqlite.statements[model] for model in models])
    numbers = {layout.type_number(sqlite.names[model]): place for place, model in enumerate(models)}
    number = 't."_type"' if "_type" in layout.has else "NULL"
    typed = "EntityType" in layout.has
    columns += ', t."EntityType"' * typed
    sql = f'SELECT {number}, {columns} FROM {quoted(layout.name)} t WHERE t."PartitionKey" = ? ORDER BY t."RowKey"'

    def typed_row(kind: int | None, values: Sequence[Any]) -> tuple[Model | None, Row]:
        place = numbers.get(kind)
        if place is None:
            properties = {n: v for (n, _), v in zip(layout.properties, values[3:], strict=False) if v is not None}
            if typed and values[-1] is not None:
                properties["EntityType"] = values[-1]
            return None, (*values[:3], properties)
        model, row = models[place], tuple([values[at] for at in pickers[place]])
        if (extended := sqlite.extended.get(model)) is not None:
            extended.check_row(row)
        return model, row

    chunks = file.stream(sql, (partition,))
    return ([typed_row(kind, values) for kind, *values in chunk] for chunk in chunks)


def next_partition(file: File, sqlite: SqliteSchema, model: Model, last_row: Row) -> Row | None:
    """Return the first partition key of a class behind the last one; None if there is none."""
    table = sqlite.table_of(model)
    of_type = type_filter(table, sqlite.names[model])
    where = " AND ".join(filter(None, ['t."PartitionKey" > ?' if last_row else "", of_type]))
    where = f" WHERE {where}" if where else ""
    sql = f'SELECT t."PartitionKey" FROM {quoted(table.name)} t{where} ORDER BY t."PartitionKey" LIMIT 1'
    return file.get(sql, last_row)


def _union(statements: list[Statements]) -> tuple[str, list[list[int]]]:
    """Return a select list that holds the rows of several models, and the places of each model's own."""
    first = statements[0]
    columns = ['t."PartitionKey"', 't."RowKey"', 't."Timestamp"']
    place: dict[str, int] = {}
    for property, _ in first.table.properties:
        place[property] = len(columns)
        columns.append(value_sql(first.table, property, "t"))
    for at, class_statements in enumerate(statements):
        for field in class_statements.model.maintained:
            place[f"{at} {field.property}"] = len(columns)
            columns.append(class_statements.value(field, "t"))
    tail = []
    if first.has_big:
        tail = [len(columns)]
        columns.append('t."_big"')
    pickers = [
        [0, 1, 2, *(place[f"{at} {f.property}" if f.maintained else f.property] for f in s.model.columns), *tail]
        for at, s in enumerate(statements)
    ]
    return ", ".join(columns), pickers
