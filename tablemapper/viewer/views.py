"""Page data: for templates, and the same for programs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import attrs

from ..engines.status import ObjectStatus, Status
from ..entities.aggregates import Aggregate
from ..entities.declaration import Declaration, declaration_of
from ..entities.entity import Record, info, key_of, stored_row
from ..entities.fields import FieldModel
from ..entities.key import KeyOf
from ..errors import CorruptStore, InvalidQuery, NotReady, QueryStopped, StoreError, TableMapperError, safe_repr
from ..expressions.tree import Order
from ..guidance.workload import Workload
from ..interchange.json import field_values, to_dict
from ..interchange.parsing import key as parsed_key
from ..limits import MAX_ENTITY, entity_size
from ..pieces import property_of
from ..planning.cost import bytes_text
from ..query.partitions import Partition
from ..query.salvage import UnreadableRow, tolerant
from ..schema.model import model_of
from ..schema.rows import properties
from ..store.store import Store
from .cells import LONG, Cell, cell, cells
from .derived_rows import class_source, groups, index_rows, touched, warnings
from .snippets import entity_writes

MAX_COUNTED = 10_000
_MOST_CLASSES, _MOST_OBJECTS = 200, 2_000
_ROWS, _MOST_ROWS = 50, 200
_MAX_VALUE = 64 * 1024  # characters of a value on the page of its entity
SECONDS, EXAMINED = 2.0, 100_000  # what a question may use


_FOLDERS = re.compile(r"(?<![\w.])/(?:[^/\n:'\"]+/)+")


def public_text(error: TableMapperError) -> str:
    """Return the public text of an error: of a path, only the name of the file."""
    text = f"{type(error).__name__}: {error}"
    return _FOLDERS.sub("", text) if isinstance(error, StoreError) else text


class NotFound(Exception):
    """The error of a name or key that does not exist; its text says what there is, its partition where to look on."""

    def __init__(self, text: str, partition: str | None = None) -> None:
        super().__init__(text)
        self.partition = partition


@attrs.frozen
class PageRequest:
    """A request for a page."""

    store: Store
    params: Mapping[str, str]
    name: str = ""
    """The class."""
    query_items: Sequence[tuple[str, str]] = ()
    """All parameters, those that are there several times too."""
    cache: Any = None
    """What was made for other requests (`tablemapper.viewer.store_pages`)."""
    shrink: int = 1
    """How many times fewer rows, or shorter values, are to be shown than is usual: the page was too large."""
    workload: Workload | None = None

    def size(self, name: str, default: int, most: int) -> int:
        """Return a parameter that is a number of rows from 1 on, at most so large; fewer if the page was too large.

        Raises:
            InvalidQuery: it is none.
        """
        return max(1, self.number(name, default, most, least=1) // self.shrink)

    def number(self, name: str, default: int, most: int, *, least: int) -> int:
        """Return a parameter that is a number, at most so large.

        Raises:
            InvalidQuery: it is none.
        """
        text = self.params.get(name, str(default))
        if not (text.isascii() and text.isdigit() and (text.strip("0") or not least)):
            raise InvalidQuery(f"{name}={safe_repr(text)}: expected a number from {least} to {most}")
        return most if len(text) > 9 else min(int(text), most)

    def all_params(self, name: str) -> list[str]:
        """Return all values of a parameter."""
        return [value for key, value in self.query_items if key == name]

    @property
    def cls(self) -> type[Any]:
        """The class.

        Raises:
            Missing: the store has none of this name.
        """
        cls = self.store.classes.get(self.name)
        if cls is None:
            if (reason := self.store.uncompiled.get(self.name)) is not None:
                raise NotFound(f"{self.name} cannot be read without its class: {reason}")
            raise NotFound(
                f"no class {safe_repr(self.name)} in this store; there are {', '.join(self.store.classes) or 'none'}"
            )
        return cls


@attrs.frozen
class PageResponse:
    """A page: the name of its template, what that shows, and what a program gets."""

    template: str
    shows: Mapping[str, Any]
    json: Mapping[str, Any]
    code: int = 200
    moving: bool = False
    """Whether something is in progress, so that the next load shows more."""
    read: datetime | None = None
    """When it was read, if not for this request."""


# ------------------------------------------------------------------------------------------------------------ overview


def overview(ask: PageRequest) -> PageResponse:
    """The classes of the store, a page at a time if there are many."""
    state = ask.store.status()
    items = {item.where: item for item in state.objects}
    all_classes, names = ask.store.classes, page_of_classes(ask)
    until = time.monotonic() + SECONDS
    classes = [_class_row(ask.store, name, all_classes[name], items, until) for name in names]
    warned = warnings(ask.store)
    undeclared = _undeclared(state)
    aggregates = sum(issubclass(cls, Aggregate) for cls in all_classes.values())
    indexes = sum(len(declaration_of(cls).indexes) for cls in all_classes.values())
    json = {
        "generation": state.generation, "format": state.format, "bytes": state.bytes, "warnings": warned,
        "undeclared": [item.where for item in undeclared], "uncompiled": dict(ask.store.uncompiled),
        "classes": [
            {name: value for name, value in listed_class.items() if name not in ("key", "of")}
            for listed_class in classes
        ],
        "next": following(ask), **_status(state),
    }  # fmt: skip
    unreadable = [(name, *reason.split("\n", 1)) for name, reason in ask.store.uncompiled.items()]
    shows = {
        "state": state, "classes": classes, "next": following(ask), "moving": _moving(state), "warnings": warned,
        "number": {"entity classes": len(all_classes) - aggregates, "aggregates": aggregates, "indexes": indexes},
        "undeclared": undeclared, "uncompiled": unreadable,
        "size": None if state.bytes is None else bytes_text(state.bytes),
    }  # fmt: skip
    return PageResponse("overview.html", shows, json, moving=_busy(state))


def page_of_classes(ask: PageRequest) -> list[str]:
    """Return the names of the classes that a page shows."""
    names = list(ask.store.classes)
    skip = ask.number("skip", 0, len(names), least=0)
    return names[skip : skip + max(1, _MOST_CLASSES // ask.shrink)]


def following(ask: PageRequest) -> int | None:
    """Return how many classes are skipped by the page after this one; None if it is the last one."""
    number = len(ask.store.classes)
    skip = ask.number("skip", 0, number, least=0) + len(page_of_classes(ask))
    return skip if skip < number else None


def _undeclared(state: Status) -> list[ObjectStatus]:
    return [item for item in state.objects if not item.declared and item.state != "dropped"]


def _class_row(
    store: Store, name: str, cls: type[Any], items: Mapping[str, ObjectStatus], until: float
) -> dict[str, Any]:
    """Return the row of a class in the overview; it is counted only until some moment."""
    declaration = declaration_of(cls)
    number, at_least = _count(store, cls) if time.monotonic() < until else (None, True)
    indexes = [
        {"name": index.name, "table": index.table, "state": _state(items.get(f"{name}.{index.name}"))}
        for index in declaration.indexes
    ]
    kind = "aggregate" if issubclass(cls, Aggregate) else "entities"
    of = None if declaration.of is None else declaration.of.__name__
    return {
        "name": name, "kind": kind, "table": declaration.table, "entities": number, "at_least": at_least, "indexes": indexes,
        "key": _key(declaration), "of": of,
    }  # fmt: skip


def _count(store: Store, cls: type[Any]) -> tuple[int | None, bool]:
    """Return the number of entities of a class, up to a limit, and whether there can be more; None if unknown."""
    query = store.query(cls).allow_scan().limit(MAX_COUNTED).budget(timeout=SECONDS / 4, examined=EXAMINED)
    try:
        number = query.count()
    except (NotReady, QueryStopped):
        return None, True
    return number, number >= MAX_COUNTED


def _state(item: ObjectStatus | None) -> str:
    if item is None:
        return "ready"
    return f"{item.state} {_percent(item)} %" if item.state in ("building", "copying") else item.state


def _percent(item: ObjectStatus) -> int:
    return 100 * item.done // max(item.done, item.total, 1)


def _key(declaration: Declaration) -> list[str]:
    return [_template(template) for template in declaration.templates]


def _template(template: Any) -> str:
    return template.text if isinstance(template.text, str) else " ".join(map(str, template.text))


# -------------------------------------------------------------------------------------------------------------- status


def status(ask: PageRequest) -> PageResponse:
    """The builds, copies and migrations of a store."""
    state = ask.store.status()
    objects = sorted(state.objects, key=lambda item: item.state == "ready")[: max(1, _MOST_OBJECTS // ask.shrink)]
    shows = {"state": state, "objects": objects, "moving": _moving(state)}
    return PageResponse("status.html", shows, _status(state), moving=_busy(state))


def _status(state: Status) -> dict[str, Any]:
    return {
        "objects": [attrs.asdict(item) for item in state.objects],
        "history": [
            attrs.asdict(migration) | {"started": migration.started.isoformat()} for migration in state.history
        ],
        "frozen": None if state.frozen is None else state.frozen.isoformat(),
    }


def _moving(state: Status) -> list[tuple[ObjectStatus, int]]:
    return [(item, _percent(item)) for item in state.objects if item.state in ("building", "copying", "dropping")]


def _busy(state: Status) -> bool:
    return bool(_moving(state)) or any(migration.state == "running" for migration in state.history)


# --------------------------------------------------------------------------------------------------------------- class


def class_page(ask: PageRequest) -> PageResponse:
    """The fields, the key and the indexes of a class."""
    declaration = declaration_of(ask.cls)
    state = ask.store.status()
    items = {item.where: item for item in state.objects}
    fields = [
        {
            "name": field.name, "property": field.property, "type": _type(field), "default": _default(field),
            "rule": "" if field.constraint is None else str(field.constraint), "in_key": field.name in declaration.key_fields,
            "kept": "" if field.measure is None else field.measure.kind,
        }
        for field in declaration.fields
    ]  # fmt: skip
    indexes = [
        {
            "name": index.name, "table": index.table, "key": [_template(index.partition), _template(index.row)],
            "state": _state(items.get(f"{declaration.name}.{index.name}")), "unique": index.unique, "partial": index.where is not None,
            "each": index.fan_out, "include": ["all"] if index.include_all else [included.name for included in index.include],
        }
        for index in declaration.indexes
    ]  # fmt: skip
    classes = ask.store.classes.items()
    aggregates = [
        name for name, cls in classes if issubclass(cls, Aggregate) and declaration_of(cls).of is declaration.cls
    ]
    json = {
        "name": declaration.name, "table": declaration.table, "key": _key(declaration), "fields": fields, "indexes": indexes,
        "aggregates": aggregates, "write": touched(ask.store, ask.cls), "example": _example(ask.store, ask.cls),
        "source": class_source(ask.cls),
        "undeclared": [item.where for item in _undeclared(state) if item.where.startswith(f"{declaration.name}.")],
    }  # fmt: skip
    return PageResponse("class.html", json, json)


def _example(store: Store, cls: type[Any]) -> dict[str, list[str]]:
    """Return the keys of the first entity, in the table and in each index."""
    with suppress(NotReady, CorruptStore):
        if (first := store.query(cls).allow_scan().first()) is not None:
            key = key_of(first)
            rows = {entry["index"]: entry["key"] for entry in reversed(index_rows(store, first))}
            return {"key": [key.partition, key.row], **rows}
    return {}


def _type(field: Any) -> str:
    return f"{field.type.name}{' | None' if field.optional else ''}"


def _default(field: Any) -> str:
    if field.factory is not None:
        return "made anew" if field.on_write is None else "made at each write"
    return "" if field.default is attrs.NOTHING else safe_repr(field.default)


# ------------------------------------------------------------------------------------------------------------ entities


@attrs.frozen
class Row:
    """One entity in a table."""

    partition: str
    row: str
    cells: list[Cell]
    fault: str = ""
    """Why its values cannot be read."""


def entities(ask: PageRequest) -> PageResponse:
    """The entities of a class, in the order of their keys, a page at a time."""
    cls, partition = ask.cls, ask.params.get("partition", "")
    size = ask.size("size", _ROWS, _MOST_ROWS)
    query: Any = ask.store.query(cls).allow_scan().budget(timeout=SECONDS, examined=EXAMINED)
    if partition:
        query = query.where(Partition(partition, {}, cls))
    page = tolerant(query).page(size, ask.params.get("after"))
    shows = {
        "rows": [row_of(row) for row in page.items], "next": page.token, "size": size, "partition": partition,
        "key_fields": declaration_of(cls).arguments,
    }  # fmt: skip
    return PageResponse(
        "entities.html",
        shows | columns(cls),
        {"entities": [plain_row(row) for row in page.items], "next": page.token},
    )


@attrs.frozen
class ShownColumn:
    """One column of a table of entities."""

    name: str
    type: str
    number: bool
    order: str
    """The order that its head asks for; empty if its values have none."""
    sort: str
    """``ascending`` or ``descending``, if the rows come by it."""


def fields_of(cls: type[Any], names: Sequence[str] = ()) -> list[FieldModel]:
    """Return the fields of a class, or some of them in the order in which they are named."""
    declaration = declaration_of(cls)
    return [declaration.field(name) for name in names] if names else list(declaration.fields)


def columns(cls: type[Any], names: Sequence[str] = (), orders: Sequence[Order[Any]] = ()) -> dict[str, Any]:
    """Return the columns of a class's table; a head asks for the other direction where the rows come by it already."""
    first = orders[0] if orders else None
    listed_columns = []
    for field in fields_of(cls, names):
        descending = None if first is None or first.attr.label != field.name else first.descending
        sort = "" if descending is None else "descending" if descending else "ascending"
        order = "" if not field.type.sortable else f"-{field.name}" if sort == "ascending" else field.name
        type_name = _type(field)
        number = type_name.split(" ")[0] in ("int", "Int32", "float", "Decimal")
        listed_columns.append(ShownColumn(field.name, type_name, number, order, sort))
    return {"columns": listed_columns}


def row_of(entity: Record | UnreadableRow, names: Sequence[str] = ()) -> Row:
    """Return the row of an entity in a table, with all fields or some."""
    if isinstance(entity, UnreadableRow):
        return Row(entity.partition, entity.row, [], entity.fault)
    key = key_of(entity)
    return Row(key.partition, key.row, cells(entity, fields_of(type(entity), names)))


def plain_row(entity: Record | UnreadableRow, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return an entity for a program, with all that it holds or some fields."""
    if isinstance(entity, UnreadableRow):
        return {"PartitionKey": entity.partition, "RowKey": entity.row, "fault": entity.fault}
    key = key_of(entity)
    values = chosen_values(entity, names) if names else to_dict(entity)
    return {"PartitionKey": key.partition, "RowKey": key.row, **values}


def chosen_values(entity: Record, names: Sequence[str]) -> dict[str, Any]:
    """Return some fields of an entity for a program, by their properties."""
    values = field_values(entity)
    return {field.property: values[field.property] for field in fields_of(type(entity), names)}


# -------------------------------------------------------------------------------------------------------------- entity


def entity(ask: PageRequest) -> PageResponse:
    """One entity, whole."""
    cls, typed_values = ask.cls, ask.all_params("key")
    key: KeyOf[Any] = KeyOf(cls, ask.params.get("p", ""), ask.params.get("r", ""))
    key = parsed_key(cls, typed_values) if typed_values else key
    try:
        entity: Any = ask.store.get(key)
    except CorruptStore as error:
        if not ask.store.exists(key):
            raise
        return _unreadable(key, str(error))
    if entity is None:
        text = f"no {safe_repr(ask.name)} has the key {safe_repr(key.partition)} / {safe_repr(key.row)}"
        raise NotFound(text, key.partition)
    of, size = info(entity), _size(entity)
    plain, most, values = to_dict(entity, etag=True), max(LONG, _MAX_VALUE // ask.shrink), field_values(entity)
    fields = [
        {
            "name": field.name, "property": field.property, "edm": field.type.edm, "size": size.get(field.property),
            "cell": cell(getattr(entity, field.name), values[field.property], most=most),
        }
        for field in declaration_of(cls).fields
    ]  # fmt: skip
    total = size.get("")
    derived = {"indexes": index_rows(ask.store, entity), "groups": groups(ask.store, entity)}
    shows: dict[str, Any] = {"key": key, "fault": "", "info": of, "fields": fields, "size": total, "most": MAX_ENTITY}
    shows |= {"writes": entity_writes(entity), **derived}
    json = {"entity": {"PartitionKey": key.partition, "RowKey": key.row, **plain}, "size": total, **derived}
    return PageResponse("entity.html", shows, json)


def _unreadable(key: KeyOf[Any], fault: str) -> PageResponse:
    """Return the page of an entity that is there, and whose values cannot be read."""
    shows: dict[str, Any] = {
        "key": key, "fault": fault, "info": None, "size": None, "fields": [], "indexes": [], "groups": [], "writes": {},
    }  # fmt: skip
    return PageResponse("entity.html", shows, {"entity": plain_row(UnreadableRow(key.partition, key.row, fault))})


def _size(entity: Record) -> dict[str, int]:
    """Return the bytes of each property, and of the whole entity under the empty name, as Azure counts them."""
    model, row = model_of(type(entity)), stored_row(entity)
    try:
        values = list(properties(model.declaration, model.columns, row))
        bare = entity_size(row[0], row[1], ())
        sizes: dict[str, int] = {}
        for name, edm, value in values:
            size, property = entity_size(row[0], row[1], [(name, edm, value)]) - bare, property_of(name)
            sizes[property] = sizes.get(property, 0) + size
        return sizes | {"": entity_size(row[0], row[1], values)}
    except (TableMapperError, ValueError, TypeError):
        return {}


PAGES: Mapping[str, Callable[[PageRequest], PageResponse]] = {
    "/": overview,
    "/status": status,
    "/class/{name:path}": class_page,
    "/entities/{name:path}": entities,
    "/entity/{name:path}": entity,
}
"""Each page by its path."""
