"""What stands on each page: data for its template, and the same for programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs

from ..engines.status import ObjectStatus, Status
from ..entities.aggregates import Aggregate
from ..entities.declaration import Declaration, declaration_of
from ..entities.entity import Record, info, key_of, stored_row
from ..entities.json import field_values, to_dict
from ..entities.key import KeyOf
from ..errors import CorruptStore, InvalidQuery, NotReady, QueryStopped, StoreError, TableMapperError, safe_repr
from ..guidance.workload import Workload
from ..limits import MAX_ENTITY, entity_size
from ..planning.cost import bytes_text
from ..query.partitions import Partition
from ..query.salvage import UnreadableRow, tolerant
from ..schema.model import model_of
from ..schema.rows import properties
from ..store.store import Store
from .cells import LONG, Cell, cell, cells
from .derived_rows import class_source, groups, index_rows, touched, warnings

COUNTED = 10_000
_ROWS, _MOST_ROWS = 50, 200
_WHOLE = 64 * 1024  # characters of a value on the page of its entity
SECONDS, EXAMINED = 2.0, 100_000  # what a question may use


_FOLDERS = re.compile(r"(?<![\w.])/(?:[^/\n:'\"]+/)+")


def told(error: TableMapperError) -> str:
    """Return what is said of an error: nothing of a path but the name of the file."""
    text = f"{type(error).__name__}: {error}"
    return _FOLDERS.sub("", text) if isinstance(error, StoreError) else text


class NotFound(Exception):
    """There is nothing of this name or key; its text says what there is."""


@attrs.frozen
class PageRequest:
    """A request for a page."""

    store: Store
    params: Mapping[str, str]
    name: str = ""
    """The class."""
    several: Sequence[tuple[str, str]] = ()
    """All parameters, those that are there several times too."""
    kept: Any = None
    """What was made for other requests (`tablemapper.viewer.store_pages`)."""
    shrink: int = 1
    """How many times fewer rows, or shorter values, are to be shown than is usual: the page was too large."""
    workload: Workload | None = None

    def number(self, name: str, default: int, most: int) -> int:
        """Return a parameter that is a number from 1 on, at most so large.

        Raises:
            InvalidQuery: it is none.
        """
        text = self.params.get(name, str(default))
        if not (text.isascii() and text.isdigit() and text.strip("0")):
            raise InvalidQuery(f"{name}={safe_repr(text)}: expected a number from 1 to {most}")
        return max(1, (most if len(text) > 9 else min(int(text), most)) // self.shrink)

    def every(self, name: str) -> list[str]:
        """Return all values of a parameter."""
        return [value for key, value in self.several if key == name]

    @property
    def cls(self) -> type[Any]:
        """The class.

        Raises:
            Missing: the store has none of this name.
        """
        found = self.store.classes.get(self.name)
        if found is None:
            if (told := self.store.uncompiled.get(self.name)) is not None:
                raise NotFound(f"{self.name} cannot be read without its class: {told}")
            raise NotFound(
                f"no class {safe_repr(self.name)} in this store; there are {', '.join(self.store.classes) or 'none'}"
            )
        return found


@attrs.frozen
class PageResponse:
    """A page: the name of its template, what that shows, and what a program gets."""

    template: str
    shows: Mapping[str, Any]
    json: Mapping[str, Any]
    code: int = 200
    moving: bool = False
    """Whether something is in progress, so that the next load shows more."""


# ------------------------------------------------------------------------------------------------------------ overview


def overview(ask: PageRequest) -> PageResponse:
    """All classes of the store."""
    state = ask.store.status()
    items = {item.where: item for item in state.objects}
    classes = [_listed(ask.store, name, cls, items) for name, cls in ask.store.classes.items()]
    warned = warnings(ask.store)
    gone = _undeclared(state)
    json = {
        "generation": state.generation,
        "format": state.format,
        "bytes": state.bytes,
        "warnings": warned,
        "undeclared": [item.where for item in gone],
        "uncompiled": dict(ask.store.uncompiled),
        "classes": [{name: value for name, value in one.items() if name not in ("key", "of")} for one in classes],
        **_status(state),
    }
    return PageResponse(
        "overview.html",
        {
            "state": state,
            "classes": classes,
            "moving": _moving(state),
            "warnings": warned,
            "undeclared": gone,
            "uncompiled": _why(ask.store),
            "size": None if state.bytes is None else bytes_text(state.bytes),
        },
        json,
        moving=_busy(state),
    )


def _undeclared(state: Status) -> list[ObjectStatus]:
    return [item for item in state.objects if not item.declared and item.state != "dropped"]


def _why(store: Store) -> list[tuple[str, str, str]]:
    """Return what only the code can read: its name, why, and its form."""
    return [(name, *told.split("\n", 1)) for name, told in store.uncompiled.items()]  # type: ignore[misc]


def _listed(store: Store, name: str, cls: type[Any], items: Mapping[str, ObjectStatus]) -> dict[str, Any]:
    made = declaration_of(cls)
    number, at_least = _count(store, cls)
    indexes = [
        {"name": one.name, "table": one.table, "state": _state(items.get(f"{name}.{one.name}"))} for one in made.indexes
    ]
    kind = "aggregate" if issubclass(cls, Aggregate) else "entities"
    of = None if made.of is None else made.of.__name__
    return {
        "name": name, "kind": kind, "table": made.table, "entities": number, "at_least": at_least, "indexes": indexes,
        "key": _key(made), "of": of,
    }  # fmt: skip


def _count(store: Store, cls: type[Any]) -> tuple[int | None, bool]:
    """Return how many entities a class has, up to a limit, and whether there can be more; None if that is not known."""
    query = store.query(cls).allow_scan().limit(COUNTED).budget(timeout=SECONDS / 4, examined=EXAMINED)
    try:
        number = query.count()
    except (NotReady, QueryStopped):
        return None, True
    return number, number >= COUNTED


def _state(item: ObjectStatus | None) -> str:
    if item is None:
        return "ready"
    return f"{item.state} {_percent(item)} %" if item.state in ("building", "copying") else item.state


def _percent(item: ObjectStatus) -> int:
    return 100 * item.done // max(item.done, item.total, 1)


def _key(made: Declaration) -> list[str]:
    return [_template(one) for one in made.templates]


def _template(template: Any) -> str:
    return template.text if isinstance(template.text, str) else " ".join(map(str, template.text))


# -------------------------------------------------------------------------------------------------------------- status


def status(ask: PageRequest) -> PageResponse:
    """What is built and copied, and the migrations."""
    state = ask.store.status()
    return PageResponse("status.html", {"state": state, "moving": _moving(state)}, _status(state), moving=_busy(state))


def _status(state: Status) -> dict[str, Any]:
    return {
        "objects": [attrs.asdict(one) for one in state.objects],
        "history": [attrs.asdict(one) | {"started": one.started.isoformat()} for one in state.history],
        "frozen": None if state.frozen is None else state.frozen.isoformat(),
    }


def _moving(state: Status) -> list[tuple[ObjectStatus, int]]:
    return [(item, _percent(item)) for item in state.objects if item.state in ("building", "copying", "dropping")]


def _busy(state: Status) -> bool:
    return bool(_moving(state)) or any(one.state == "running" for one in state.history)


# --------------------------------------------------------------------------------------------------------------- class


def class_page(ask: PageRequest) -> PageResponse:
    """The fields, the key and the indexes of a class."""
    made = declaration_of(ask.cls)
    state = ask.store.status()
    items = {item.where: item for item in state.objects}
    fields = [
        {
            "name": one.name, "property": one.property, "type": _type(one), "default": _default(one),
            "rule": "" if one.constraint is None else str(one.constraint), "in_key": one.name in made.key_fields,
            "kept": "" if one.measure is None else one.measure.kind,
        }
        for one in made.fields
    ]  # fmt: skip
    indexes = [
        {
            "name": one.name, "table": one.table, "key": [_template(one.partition), _template(one.row)],
            "state": _state(items.get(f"{made.name}.{one.name}")), "unique": one.unique, "partial": one.where is not None,
            "each": one.fan_out, "include": ["all"] if one.include_all else [field.name for field in one.include],
        }
        for one in made.indexes
    ]  # fmt: skip
    known = ask.store.classes.items()
    aggregates = [name for name, cls in known if issubclass(cls, Aggregate) and declaration_of(cls).of is made.cls]
    json = {
        "name": made.name, "table": made.table, "key": _key(made), "fields": fields, "indexes": indexes,
        "aggregates": aggregates, "write": touched(ask.store, ask.cls), "example": _example(ask.store, ask.cls),
        "source": class_source(ask.cls),
        "undeclared": [one.where for one in _undeclared(state) if one.where.startswith(f"{made.name}.")],
    }  # fmt: skip
    return PageResponse("class.html", json, json)


def _example(store: Store, cls: type[Any]) -> dict[str, list[str]]:
    """Return the keys of the first entity, in the table and in each index."""
    with suppress(NotReady, CorruptStore):
        if (first := store.query(cls).allow_scan().first()) is not None:
            key = key_of(first)
            rows = {one["index"]: one["key"] for one in reversed(index_rows(store, first))}
            return {"key": [key.partition, key.row], **rows}
    return {}


def _type(field: Any) -> str:
    return f"{field.type.name}{' | None' if field.optional else ''}"


def _default(field: Any) -> str:
    if field.factory is not None:
        return "made anew"
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
    size = ask.number("size", _ROWS, _MOST_ROWS)
    query: Any = ask.store.query(cls).allow_scan().budget(timeout=SECONDS, examined=EXAMINED)
    if partition:
        query = query.where(Partition(partition, {}, cls))
    page = tolerant(query).page(size, ask.params.get("after"))
    shows = {"rows": [row_of(one) for one in page.items], "next": page.token, "size": size, "partition": partition}
    return PageResponse(
        "entities.html",
        shows | columns(cls),
        {"entities": [plain_row(one) for one in page.items], "next": page.token},
    )


def columns(cls: type[Any]) -> dict[str, Any]:
    """Return the columns of a class's table."""
    return {"columns": [(one.name, _type(one)) for one in declaration_of(cls).fields]}


def row_of(one: Record | UnreadableRow) -> Row:
    """Return the row of an entity in a table."""
    if isinstance(one, UnreadableRow):
        return Row(one.partition, one.row, [], one.fault)
    key = key_of(one)
    return Row(key.partition, key.row, cells(one))


def plain_row(one: Record | UnreadableRow) -> dict[str, Any]:
    """Return an entity for a program."""
    if isinstance(one, UnreadableRow):
        return {"PartitionKey": one.partition, "RowKey": one.row, "fault": one.fault}
    key = key_of(one)
    return {"PartitionKey": key.partition, "RowKey": key.row, **to_dict(one)}


# -------------------------------------------------------------------------------------------------------------- entity


def entity(ask: PageRequest) -> PageResponse:
    """One entity, whole."""
    cls = ask.cls
    key: KeyOf[Any] = KeyOf(cls, ask.params.get("p", ""), ask.params.get("r", ""))
    try:
        found: Any = ask.store.get(key)
    except CorruptStore as error:
        if not ask.store.exists(key):
            raise
        return _unreadable(key, str(error))
    if found is None:
        raise NotFound(f"no {safe_repr(ask.name)} has the key {safe_repr(key.partition)} / {safe_repr(key.row)}")
    of, size = info(found), _size(found)
    plain, most, values = to_dict(found, etag=True), max(LONG, _WHOLE // ask.shrink), field_values(found)
    fields = [
        {
            "name": one.name, "property": one.property, "edm": one.type.edm, "size": size.get(one.property),
            "cell": cell(getattr(found, one.name), values[one.property], most=most),
        }
        for one in declaration_of(cls).fields
    ]  # fmt: skip
    total = size.get("")
    kept = {"indexes": index_rows(ask.store, found), "groups": groups(ask.store, found)}
    shows = {"key": key, "fault": "", "info": of, "fields": fields, "size": total, "most": MAX_ENTITY, **kept}
    json = {"entity": {"PartitionKey": key.partition, "RowKey": key.row, **plain}, "size": total, **kept}
    return PageResponse("entity.html", shows, json)


def _unreadable(key: KeyOf[Any], fault: str) -> PageResponse:
    """Return the page of an entity that is there, and whose values cannot be read."""
    shows: dict[str, Any] = {
        "key": key,
        "fault": fault,
        "info": None,
        "size": None,
        "fields": [],
        "indexes": [],
        "groups": [],
    }
    return PageResponse("entity.html", shows, {"entity": plain_row(UnreadableRow(key.partition, key.row, fault))})


def _size(found: Record) -> dict[str, int]:
    """Return the bytes of each property, and of the whole entity under the empty name, as Azure counts them."""
    model, row = model_of(type(found)), stored_row(found)
    try:
        stored = list(properties(model.declaration, model.columns, row))
        bare = entity_size(row[0], row[1], ())
        sizes = {name: entity_size(row[0], row[1], [(name, edm, value)]) - bare for name, edm, value in stored}
        return sizes | {"": entity_size(row[0], row[1], stored)}
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
