"""Classes that several tests use, and functions that make entity classes and aggregates at run time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum, IntEnum
from typing import Any, get_args

import tablemapper as tm
from tablemapper.entities.fields import Measure


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


def grouped(name: str, of: Any, by: str, table: str = "", /, *, row: str = "", **body: Any) -> Any:
    """Return an aggregate by one field, which is the partition of its key.

    Measures that are integers, others by their type and their measure, and indexes are in its body, and maybe ``where=``.
    """
    field = of.__declaration__.field(by)
    members = {
        by: (get_args(field.annotation)[0] if field.optional else field.annotation, tm.group_by(getattr(of, by)))
    }
    for measure in [one for one, value in body.items() if isinstance(value, tuple | Measure)]:
        value = body.pop(measure)
        members[measure] = value if isinstance(value, tuple) else (int, value)
    return aggregate(name, of, members, tm.Key(partition=f"{{{by}}}", row=row), table, **body)


def _class(base: Any, name: str, members: Mapping[str, Any], body: dict[str, Any], **options: Any) -> Any:
    kinds = {field: one[0] if isinstance(one, tuple) else one for field, one in members.items()}
    given = {field: one[1] for field, one in members.items() if isinstance(one, tuple)}
    annotations = {field: tm.Field[kind] for field, kind in kinds.items()}
    return type(base)(
        name, (base,), {"__annotations__": annotations, "__module__": __name__, **given, **body}, **options
    )


Whole = grouped("Whole", Span, "p", "Wholes", time=(timedelta, tm.sum(Span.time)))
