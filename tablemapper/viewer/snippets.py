"""Queries and writes as Python, for a person to copy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import attrs
import msgspec

from ..entities.aggregates import Aggregate
from ..entities.declaration import declaration_of
from ..entities.entity import Record, info, key_of
from ..evolution.literals import value_source
from ..expressions.python_source import walk
from ..expressions.tree import Attr, Order, Predicate
from ..scripts.source.lines import WIDTH, call, imports_of
from ..values.extra import Extra
from .typed_conditions import parts

_LONG = 200  # characters of a value
_CALLS = {"startswith": "startswith", "contains": "contains", "in": "is_in", "is null": "is_null", "is not null": "is_not_null"}  # fmt: skip


def path_source(attr: Attr[Any, Any]) -> str:
    """Return a field, or what is nested in it, as a program names it."""
    return f"{attr.owner.__name__}.{attr.name}" + "".join([f"[{step!r}]" for step in attr.path])


def query_source(
    cls: type[Any], predicates: Sequence[Predicate[Any]], orders: Sequence[Order[Any]] = (), partition: str = ""
) -> str:
    """Return a query; a call of one of its methods can follow."""
    conditions = [_condition_source(predicate) for predicate in predicates]
    conditions += [f"tm.types.Partition({partition!r}, {{}}, {cls.__name__})"] if partition else []
    steps = [path_source(order.attr) + ".desc()" * order.descending for order in orders]
    ordered, query = f".order_by({', '.join(steps)})" if steps else "", f"store.query({cls.__name__})"
    return "\n".join(call(f"{query}.where", conditions, ordered)) if conditions else query + ordered


def with_imports(source: str) -> str:
    """Return a source below the imports that it needs."""
    lines = [*filter(None, imports_of(source)), *["import tablemapper as tm"] * bool(re.search(r"\btm\.", source))]
    return "\n".join([*lines, *[""][: len(lines)], source])


def query_writes(cls: type[Any], query: str) -> Mapping[str, str]:
    """Return the writes of all that a query finds; none for an aggregate. As it stands, the update changes nothing."""
    if issubclass(cls, Aggregate):
        return {}
    fields = _writable(cls)
    update = {"update": f"{query}.update({fields[0]}={cls.__name__}.{fields[0]})"} if fields else {}
    return {verb: with_imports(source) for verb, source in (update | {"delete": f"{query}.delete()"}).items()}


def entity_writes(entity: Record) -> Mapping[str, str]:
    """Return the writes of one entity, if it still is as it was read; as they stand, the first two change nothing.

    None for an aggregate; a replacement only if each value can be written as Python, in a few characters.
    """
    cls, etag = type(entity), info(entity).etag
    if isinstance(entity, Aggregate):
        return {}
    name, match = cls.__name__, [f"if_match={etag!r}"] if etag else []
    values = {field.name: _short(getattr(entity, field.name)) for field in declaration_of(cls).fields}
    key = _key_source(entity)
    changes = [f"{field}={values[field]}" for field in _writable(cls) if values[field]]
    sources = {"merge": call("store.merge", [key, *changes, *match])} if changes else {}
    if all(values.values()):
        written = {field.name for field in declaration_of(cls).fields if not field.read_only}
        arguments = [f"{field}={value}" for field, value in values.items() if field in written]
        whole = call(name, arguments)
        sources["replace"] = (
            call("store.replace", [*whole, *match])
            if len(whole) == 1 and len(whole[0]) < WIDTH // 2
            else [f"changed = {whole[0]}", *whole[1:], *call("store.replace", ["changed", *match])]
        )
    sources["delete"] = call("store.delete", [key, *match])
    return {verb: with_imports("\n".join(lines)) for verb, lines in sources.items()}


def _writable(cls: type[Any]) -> list[str]:
    """Return the names of the fields that a write may change: those that do not make the key, and that nobody else sets."""
    declaration = declaration_of(cls)
    return [
        field.name for field in declaration.fields if not field.read_only and field.name not in declaration.key_fields
    ]


def _key_source(entity: Record) -> str:
    cls, key = type(entity), key_of(entity)
    paths = [argument.split(".") for argument in declaration_of(cls).arguments]
    values = [_short(walk(getattr(entity, name), tuple(path))) for name, *path in paths]
    if all(values):
        return f"{cls.__name__}.key({', '.join(map(str, values))})"
    return f"tm.KeyOf({cls.__name__}, {key.partition!r}, {key.row!r})"


def _condition_source(predicate: Predicate[Any]) -> str:
    attr, op, value = parts(predicate)
    if op not in _CALLS:
        return f"{path_source(attr)} {op} {literal(value)}"
    return f"{path_source(attr)}.{_CALLS[op]}({'' if value is None else literal(value)})"


def _short(value: Any) -> str | None:
    source = literal(value)
    return None if source is None or len(source) > _LONG else source


def literal(value: Any) -> str | None:
    """Return a value as Python, with `datetime` as ``dt``; None if there is no text for it."""
    try:
        return value_source(value, _own_source)
    except ValueError:
        return None


def _own_source(value: Any) -> str | None:
    """Return a value of a class of the program as Python; None of any other."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Extra):
        return f"tm.Extra({value_source(dict(value), _own_source)})"
    arguments = [f"{name}={value_source(member, _own_source)}" for name, member in _members(value).items()]
    return f"{type(value).__name__}({', '.join(arguments)})" if arguments else None


def _members(value: Any) -> dict[str, Any]:
    """Return the arguments that make a nested value again, by name; none if it is of no class of fields."""
    kind = type(value)
    if attrs.has(kind):
        return {field.alias: getattr(value, field.name) for field in attrs.fields(kind) if field.init}
    names = kind.__struct_fields__ if isinstance(value, msgspec.Struct) else getattr(kind, "__dataclass_fields__", ())
    return {name: getattr(value, name) for name in names}
