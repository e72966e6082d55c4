"""Derived rows of an entity: index rows and groups; the rows that a write touches; its class as source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from textwrap import dedent
from typing import Any

from ..entities.declaration import declaration_of
from ..entities.entity import Record, stored_row
from ..entities.json import to_dict
from ..entities.key_and_indexes import IndexModel
from ..errors import InvalidQuery, TableMapperError
from ..guidance.advisor import advise
from ..limits import MAX_OPERATIONS, MAX_PROPERTIES
from ..query.parsing import condition
from ..schema.maintenance import Groups, Maintenance, maintenance
from ..schema.model import compile_schema, model_of
from ..scripts.source.classes import Shape
from ..scripts.source.lines import imports_of
from ..store.store import Store
from .cells import plain_text

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
        where = list(_conditions(index.model, entity))
        where = (
            where if sum(map(len, where)) <= _LONG and _can_be_asked(type(entity), where) else []
        )  # (a URL has 8 kB)
        entries += [{"index": index.model.name, "key": list(row[:2]), "where": where} for row in rows]
    return entries


def _can_be_asked(cls: type[Record], conditions: list[str]) -> bool:
    """Return whether a query can say conditions: none compares a sum with more than 64 bits."""
    with suppress(InvalidQuery):
        return bool([condition(cls, text) for text in conditions])
    return False


def _conditions(index: IndexModel, entity: Record) -> Iterator[str]:
    """Yield equalities of the fields in an index's partition."""
    properties = {field.name: field.property for field in declaration_of(type(entity)).fields}
    for field in dict.fromkeys(slot.field for slot in index.partition.slots if not slot.buckets):
        name, *path = field.split(".")
        value: Any = to_dict(entity).get(properties[name])
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        is_list = isinstance(value, list)
        text = plain_text(value[0] if is_list and value else value)
        yield f"{field} contains {text}" if is_list else f"{field}=={text}"


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
