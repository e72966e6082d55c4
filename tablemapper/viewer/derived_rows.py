"""Derived rows of an entity: index rows and groups; the rows that a write touches; its class as source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from textwrap import dedent
from typing import Any

from ..entities.entity import Record, stored_row
from ..entities.key_and_indexes import IndexModel
from ..errors import TableMapperError
from ..expressions.python_source import walk
from ..guidance.advisor import advise
from ..interchange.parsing import field
from ..limits import MAX_OPERATIONS, MAX_PROPERTIES
from ..schema.maintenance import Groups, Maintenance, maintenance
from ..schema.model import compile_schema, model_of
from ..scripts.source.classes import Shape
from ..scripts.source.lines import imports_of
from ..store.store import Store
from .typed_conditions import equal

_LONG = 1_000  # characters of conditions in a link


@lru_cache(maxsize=16)
def _maintenance(classes: tuple[type[Record], ...], cls: type[Record]) -> Maintenance:
    schema = compile_schema(classes)
    return maintenance(schema, schema.by_class[cls])


@lru_cache(maxsize=16)
def _warnings(classes: tuple[type[Record], ...]) -> int:
    return sum(advice.level == "warning" for advice in advise(classes)) if classes else 0


def warnings(store: Store) -> int:
    """Return the number of warnings on the declarations alone."""
    return _warnings(tuple(store.classes.values()))


def _of(store: Store, cls: Any) -> Maintenance:
    return _maintenance(tuple(store.classes.values()), cls)


def index_rows(store: Store, entity: Record) -> list[dict[str, Any]]:
    """Return the rows of an entity in each index, with the conditions that find it and others there."""
    entries = []
    for index in _of(store, type(entity)).indexes:
        rows = index.rows_of(stored_row(entity), model_of(type(entity))) or []
        where = [text or "" for text in _conditions(index.model, entity)]
        where = where if all(where) and sum(map(len, where)) <= _LONG else []  # (a URL has 8 kB)
        entries += [{"index": index.model.name, "key": list(row[:2]), "where": where} for row in rows]
    return entries


def _conditions(index: IndexModel, entity: Record) -> Iterator[str | None]:
    """Yield equalities of the fields in an index's partition; None for one that no text says."""
    for path in dict.fromkeys(slot.field for slot in index.partition.slots if not slot.buckets):
        attr = field(type(entity), path)
        value = walk(getattr(entity, attr.name), attr.path)
        element = isinstance(value, list) and bool(value)
        yield equal(attr, value[0] if element else value, element=element)


def groups(store: Store, entity: Record) -> list[dict[str, Any]]:
    """Return the groups that an entity is in: the aggregate and the key of each."""
    entries = []
    for aggregate in _of(store, type(entity)).aggregates:
        name, memberships = aggregate.model.name, Groups()
        if store.classes.get(name) is None:
            continue  # (a maintained field of another class)
        try:
            aggregate.collect((stored_row(entity),), memberships, 1)
            entries += [{"aggregate": name, "key": list(aggregate.key(group))} for group in memberships]
        except TableMapperError:
            continue
    return entries


def touched(store: Store, cls: Any) -> dict[str, int]:
    """Return the number of rows that a write of one entity touches, and of its properties, with Azure's limits."""
    maintained = _of(store, cls)
    return {
        "rows": 1 + len(maintained.indexes) + len(maintained.aggregates), "most_rows": MAX_OPERATIONS,
        "properties": len(model_of(cls).stored), "most_properties": MAX_PROPERTIES,
    }  # fmt: skip


def class_source(cls: Any) -> str:
    """Return the statement of a class with its imports, as far as a store knows it; empty if there is no source for it."""
    model = model_of(cls)
    of: Any = model.declaration.of
    forms = {model_part.name: model_part.form for model_part in ([] if of is None else [model_of(of)]) + [model]}
    try:
        lines = "\n".join(Shape("models", forms).lines())
    except (TableMapperError, ValueError, TypeError, LookupError, AssertionError):
        return ""
    bodies = re.split(r"^class \w+(?:\(\w+\))?:\n", lines, flags=re.MULTILINE)[1:]
    source = dedent("\n".join(bodies[:-1] if of is None else []) + "\n" + bodies[-1]).strip()
    source = re.sub(r"\bmodels(_entities|_types)?(_\d+)?\.", "", source)
    return "\n".join([*imports_of(source), "import tablemapper as tm", "", "", source])
