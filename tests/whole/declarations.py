"""Random declarations: models of the search, with everything on top that can be declared and the oracle does not know.

What stands here has no answers to compare with. It is for properties about declarations: scripts that are written for them.
"""

from __future__ import annotations

import dataclasses
import random
import typing
from typing import Any, NamedTuple, NewType, NotRequired, TypedDict

import attrs
import msgspec

from .kinds import Color, Decimal, Home, datetime, tm
from .models import Model, compiled
from .random_models import random_model, with_levels, with_maintained, with_undeclared

Sku = NewType("Sku", str)
Code = NewType("Code", Sku)


class Cat(msgspec.Struct, tag="cat"):
    lives: int = 9


class Dog(msgspec.Struct, tag="Dog"):
    name: str
    tricks: list[str] = []


class Bird(msgspec.Struct, tag_field="kind", tag=3):
    at: datetime.date | None = None


class Row(msgspec.Struct, array_like=True):
    first: int
    last: Decimal = Decimal("1.50")


class Named(msgspec.Struct, rename="camel", omit_defaults=True):
    zip_code: str
    is_open: bool = True
    class_: int = 0


class Kebab(msgspec.Struct, rename="kebab"):
    street_name: str
    house_number: tm.Int32 = 3


@dataclasses.dataclass
class Plain:
    day: datetime.date
    size: float = 1.5
    many: dict[str, int] = dataclasses.field(default_factory=dict)


class Typed(TypedDict):
    city: str
    home: NotRequired[Home]


class Whole(TypedDict):
    city: str


class Pair(NamedTuple):
    left: int
    right: str = "r"


@attrs.define
class Tree:
    name: str
    color: Color = Color.RED
    children: list[Tree] = attrs.field(factory=list)
    starts: list[int] = attrs.field(factory=lambda: [1])


NEW_YEAR = datetime.date(2020, 1, 2)


@attrs.define
class Deep:
    home: Home | None
    point: tm.GeoPoint | None = None
    pets: list[Cat | Dog] = attrs.field(factory=list)
    moods: set[str] = attrs.field(factory=set)
    day: datetime.date = NEW_YEAR
    prices: dict[str, Decimal] = attrs.field(factory=dict)


TYPES: dict[str, tuple[str, ...]] = {
    "tm.GeoPoint": (".latitude", ".longitude"), "set[str]": ("",), "set[int]": ("",), "frozenset[str]": ("",),
    "tuple[str, ...]": ("",), "tuple[int, ...]": ("",), "tuple[int, str]": (), "list[tm.Int32]": ("",), "list[Color]": ("",),
    'list[Literal["x", "y"]]': ("",), "list[datetime.date]": ("",), "list[list[int]]": (), "list[Any]": (), "dict[str, Any]": (),
    "list[int | None]": (), "dict[str, Home]": ("[a].city",), "list[Home]": (), "dict[str, float]": ("[a]", "[b]"),
    "dict[str, list[int]]": (), "dict[str, Color]": ("[a]",), "Sku": ("",), "Code": ("",), "list[Sku]": ("",),
    "Annotated[str, msgspec.Meta(min_length=1)]": ("",), "Annotated[int, msgspec.Meta(ge=-10, lt=100)]": ("",),
    "Annotated[list[str], msgspec.Meta(max_length=9)]": ("",), "list[Annotated[int, msgspec.Meta(ge=-10)]]": (),
    "Dog | Cat": (), "Cat | Dog": (), "list[Dog | Cat]": (), "dict[str, Dog | Cat | None]": (), "Bird": (".at",), "Row": (),
    "Named": (".zip_code", ".is_open"), "Kebab": (".street_name", ".house_number"), "Plain": (".day", ".size"), "Typed": (".city", ".home.city"),
    "Whole": (".city",), "Pair": (), "Tree": (".name", ".color"), "list[Tree]": (), "Deep": (".home.city", ".point.latitude", ".day"),
    "Home": (".city", ".floor"), "Color": ("",), "datetime.time": ("",), "Decimal": ("",), "bytes": ("",), "float": ("",),
}  # fmt: skip
"""Types, each with what an index can be over: itself, or parts of it."""
PROPERTIES = ("class", "_x", "tm", "dt", "str", "Price", "key", "naïve", "list", "property_x", "replace", "ﬁ", "a_b")
VALUES = {
    "Home": 'Home("x")',
    "tm.GeoPoint": "tm.GeoPoint(1.5, 2.5)",
    "set[str]": '{"a"}',
    "list[Color]": "[Color.RED]",
}


@attrs.frozen
class Declaration:
    """Classes, and the source that they were made by."""

    source: str
    models: list[Any]


def declaration(rng: random.Random) -> Declaration:
    """Return any classes that belong together; the library accepts them."""
    while True:
        model = random_model(rng, local=rng.random() < 0.3)
        for more in (with_levels, with_maintained, with_undeclared, _with_everything):
            if rng.random() < (0.9 if more is _with_everything else 0.35):
                model = more(rng, model)
        scope = compiled(model.source(), {**globals(), "Annotated": typing.Annotated, "Any": Any})
        models = [scope[record.name] for record in model.records]
        try:
            tm.schema_snapshot(models)
        except tm.InvalidModel:  # such as two classes whose keys can be equal
            continue
        return Declaration(model.source(), models)


def _with_everything(rng: random.Random, model: Model) -> Model:
    """Return a model whose classes of entities have some more fields, and indexes over them; aggregates measure some."""
    records = list(model.records)
    added: list[str] = []
    for at, record in enumerate(records):
        if record.of is None:
            lines, parts = _lines(rng, record.name)
            added = parts if not at else added
            records[at] = attrs.evolve(
                record, lines=tuple(lines), stored_type=rng.choice((None, None, record.name.lower()))
            )
        elif record.of == records[0].name and added and rng.random() < 0.5:
            line = f"    zs: tm.Field[int] = tm.count({rng.choice(added)}, name={rng.choice(PROPERTIES)!r})"
            records[at] = attrs.evolve(record, lines=(line,))
    return attrs.evolve(model, records=tuple(records))


def _lines(rng: random.Random, owner: str) -> tuple[list[str], list[str]]:
    """Return lines of a class body, and what an aggregate can count."""
    fields, indexes, parts = [], [], []
    properties = rng.sample(PROPERTIES, len(PROPERTIES))
    for number in range(rng.choice((1, 2, 3, 4))):
        name, kind = f"z{number}", rng.choice(list(TYPES))
        optional = rng.random() < 0.4
        options = ["kw_only=True"]
        if optional:
            options.append("default=None")
        if rng.random() < 0.3:
            options.append(f'name="{properties.pop()}"')
        if kind == "datetime.time" and rng.random() < 0.5:
            options.append(f'precision="{rng.choice(("s", "ms", "us"))}"')
        if kind == "float" and rng.random() < 0.5:
            options.append("validator=attrs.validators.optional(attrs.validators.lt(1e9))")
        fields.append(f"    {name}: tm.Field[{kind}{' | None' if optional else ''}] = tm.field({', '.join(options)})")
        parts.append(f"{owner}.{name}")
        if TYPES[kind] and rng.random() < 0.7:
            part = rng.choice(TYPES[kind])
            given = [f'partition="{{{name}{part}}}"']
            if rng.random() < 0.3:
                given.append(f'table="Tables{owner}{number}"')
            if kind in VALUES and rng.random() < 0.5:
                given.append(f"where=lambda p: p.{name} != {VALUES[kind]}")
            elif not part and kind in ("Sku", "Decimal", "float") and rng.random() < 0.5:
                given.append(f"where=lambda p: p.{name}.is_in([])")
            indexes.append(f"    by_{name} = tm.Index({', '.join(given)})")
        if kind == "Deep":
            parts.append(f"{owner}.{name}.at(lambda d: d.home){'.at(lambda h: h.city)'}")
        if kind == "tm.GeoPoint":
            parts.append(f"{owner}.{name}.at(lambda d: d.latitude)")
    return [*fields, *indexes], parts
