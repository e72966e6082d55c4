"""Commands that show what is in a store; they only read."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from ..errors import InvalidQuery
from ..interchange.json import field_values, to_dict, to_json
from ..interchange.parsing import condition, field, key, orders
from ..query.partitions import Partition
from ..viewer.cells import escaped
from .app import Json, Models, StoreArgument, find_class
from .output import Exit, fitting, json_text, note, show, table
from .store_reader import open_for_reading

Where = Annotated[
    tuple[str, ...],
    Parameter(
        negative="",
        consume_multiple=False,
        help="a condition, such as 'price<8' or 'name startswith A'; may be repeated",
    ),
]
Order = Annotated[
    str,
    Parameter(
        allow_leading_hyphen=True, help="fields to order by, with a minus for the greatest first, such as -price,name"
    ),
]
Fields = Annotated[str, Parameter(help="the fields to show, such as name,price")]
InPartition = Annotated[
    str, Parameter(name="--partition", help="only entities with this PartitionKey, as it is stored")
]
Limit = Annotated[int, Parameter(help="how many rows are shown at most")]
Scan = Annotated[bool, Parameter(negative="", help="read the whole table where no key and no index bounds the query")]
Explain = Annotated[
    bool, Parameter(negative="", help="show how the query is answered, and what it costs, instead of rows")
]
Format = Literal["table", "json", "jsonl", "csv", "markdown"]


def show_rows(
    place: StoreArgument,
    name: Annotated[str, Parameter(name="CLASS", help="the name of the class")],
    /,
    *,
    where: Where = (),
    order: Order | None = None,
    fields: Fields | None = None,
    partition: InPartition | None = None,
    limit: Limit = 50,
    scan: Scan = False,
    explain: Explain = False,
    format: Format = "table",
    models: Models | None = None,
    json: Json = False,
) -> Exit:
    """Show entities of a class, or rows of an aggregate, without the models if need be."""
    if limit < 1:
        raise InvalidQuery(f"--limit {limit}: expected 1 or more")
    with open_for_reading(place, models) as store:
        cls = find_class(store, name)
        query: Any = store.query(cls)
        if where:
            query = query.where(*(condition(cls, text) for text in where))
        if partition is not None:
            query = query.where(Partition(partition, {}, cls))
        if order is not None:
            query = query.order_by(*orders(cls, order))
        if scan or not (
            where or order or partition is not None
        ):  # the first rows of a class are few, whatever the class holds
            query = query.allow_scan()
        if explain:
            explanation = query.explain()
            return show({"ok": True, "explain": explanation.to_dict()}, str(explanation), json=json)
        names = None if fields is None else [field(cls, path.strip()).label for path in fields.split(",")]
        entities = iter(query.limit(limit + 1))
        if format in ("jsonl", "csv") and not json:
            return _streamed(islice(entities, limit), cls, names, format)
        row_of = _members if json or format == "json" else _row
        rows = [row_of(entity, names) for entity in entities]
    has_more = len(rows) > limit
    if json or format == "json":
        return show({"ok": True, "rows": rows[:limit], "more": has_more}, json=True)
    ending = f"{limit:,} shown, there are more: --limit" if has_more else f"{len(rows):,} shown"
    columns = _columns(cls, names)
    cells = [[_cell(row[name]) for name in columns] for row in rows[:limit]]
    if format == "markdown":
        return show(None, _markdown(columns, cells), json=False)
    return show(None, table("", columns, cells, cut=True), ending, json=False)


def get(
    place: StoreArgument,
    name: Annotated[str, Parameter(name="CLASS", help="the name of the class")],
    /,
    *values: Annotated[str, Parameter(allow_leading_hyphen=True, help="the values of the key")],
    models: Models | None = None,
    json: Json = False,
) -> Exit:
    """Show one entity by the values of its key; end with 1 if there is none."""
    with open_for_reading(place, models) as store:
        cls = find_class(store, name)
        entity = store.get(key(cls, values))
    if entity is None:
        if json:
            return show({"ok": False, "entity": None}, json=True, ok=False)
        note(f"there is no {name} {' '.join(values)}")
        return Exit.FINDINGS
    return entity_table(to_dict(entity, etag=True), json=json)


def entity_table(properties: Mapping[str, Any], *, json: bool) -> Exit:
    """Print the properties of one entity."""
    rows = zip(properties, map(_cell, properties.values()), strict=True)
    return show({"ok": True, "entity": properties}, table("", ("property", "value"), rows), json=json)


def _columns(cls: type[Any], names: list[str] | None) -> list[str]:
    return [field.property for field in cls.__declaration__.fields] if names is None else names


def _members(entity: Any, names: list[str] | None) -> dict[str, Any]:
    """Return an entity as a JSON object: with its undeclared properties, or what some paths lead to."""
    return to_dict(entity) if names is None else _row(entity, names)


def _row(entity: Any, names: list[str] | None) -> dict[str, Any]:
    """Return a value for each column of a class, or what some paths lead to."""
    row = field_values(entity)
    if names is None:
        return row
    properties = {field.name: field.property for field in type(entity).__declaration__.fields}
    return {path: _within(row, [properties[path.partition(".")[0]], *path.split(".")[1:]]) for path in names}


def _within(value: Any, path: Iterable[str]) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _markdown(columns: list[str], rows: Iterable[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *([escaped(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join([f"| {' | '.join(line)} |" for line in lines])


def _streamed(entities: Iterator[Any], cls: type[Any], names: list[str] | None, format: str) -> Exit:
    """Write rows as they are read."""
    if format == "jsonl":
        for entity in entities:
            line = to_json(entity) if names is None else msgspec.json.encode(_row(entity, names))
            sys.stdout.write(json_text(line) + "\n")
        return Exit.OK
    writer = csv.writer(sys.stdout, lineterminator="\n")
    columns, is_lossy = _columns(cls, names), False
    rows = (_row(entity, names) for entity in entities)
    for cells in chain(
        [columns], (["" if row[name] is None else _cell(row[name]) for name in columns] for row in rows)
    ):
        writer.writerow(cells)
        is_lossy = is_lossy or fitting("".join(cells)) != "".join(cells)
    if is_lossy:
        note(f"{sys.stdout.encoding} lacks some characters, which stand as \\u…; with PYTHONIOENCODING=utf-8 none does")
    return Exit.OK
