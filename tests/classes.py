"""Classes that several tests use, and functions that make entity classes and aggregates at run time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum, IntEnum
from typing import Any

import tablemapper as tm


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Other(tm.Entity, table="Others"):
    """A class that has nothing to do with others."""

    name: tm.Field[str]

    key = tm.Key[str](partition="{name}")


class Loose(tm.Entity, table="Looses"):
    """A class with undeclared properties."""

    name: tm.Field[str]
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str](partition="{name}")


class Span(tm.Entity, table="Spans"):
    p: tm.Field[str]
    number: tm.Field[int]
    time: tm.Field[timedelta]

    key = tm.Key[str, int](partition="{p}", row="{number}")


class Whole(tm.Aggregate, of=Span, table="Wholes"):
    p: tm.Field[str] = tm.group_by(Span.p)
    time: tm.Field[timedelta] = tm.sum(Span.time)

    key = tm.Key[str](partition="{p}")


def entity(name: str, table: str, members: Mapping[str, Any], key: Any, /, **body: Any) -> Any:
    """Return an entity class: each field by its type, or by its type and its options.

    Indexes are in its body, and maybe ``type=``.
    """
    options = {"type": body.pop("type")} if "type" in body else {}
    return _class(tm.Entity, name, members, {"key": key, **body}, table=table, **options)


def aggregate(name: str, of: Any, members: Mapping[str, Any], key: Any, table: str = "", /, **body: Any) -> Any:
    """Return an aggregate: each field by its type and its measure; indexes are in its body, and maybe ``where=``."""
    options = {"where": body.pop("where")} if "where" in body else {}
    return _class(tm.Aggregate, name, members, {"key": key, **body}, of=of, table=table or name, **options)


def _class(base: Any, name: str, members: Mapping[str, Any], body: dict[str, Any], **options: Any) -> Any:
    kinds = {field: one[0] if isinstance(one, tuple) else one for field, one in members.items()}
    given = {field: one[1] for field, one in members.items() if isinstance(one, tuple)}
    annotations = {field: tm.Field[kind] for field, kind in kinds.items()}
    return type(base)(
        name, (base,), {"__annotations__": annotations, "__module__": __name__, **given, **body}, **options
    )
