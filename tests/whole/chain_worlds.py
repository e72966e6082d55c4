"""Random classes of a program, as data: what a chain of migrations leads from and to."""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs

import tablemapper as tm

from .chain_totals import (
    GROUPED,
    NUMBERS,
    Condition,
    Total,
    conditions,
    enrich,
    fulfils,
    measure,
    measured_type,
    predicate,
    total_class,
)

START = datetime(2024, 3, 30, 20, tzinfo=UTC)
"""Some hours before the clocks of Oslo change."""
Grade = enum.Enum("Grade", {"NEW": "new", "USED": "used"})


@attrs.frozen
class Box:
    """A nested value."""

    wide: int
    names: list[str] = attrs.field(factory=list)


TYPES: dict[str, Any] = {
    "str": str, "optstr": str | None, "digits": str, "int": int, "optint": int | None, "decimal": Decimal, "float": float,
    "list": list[str], "time": datetime, "extra": tm.Extra, "code": str, "optcode": str | None,
    "flag": bool, "raw": bytes, "day": date, "wild": int, "exact": Decimal, "big": str, "box": Box | None, "grade": Grade,
    "real": float, "optreal": float | None, "optexact": Decimal | None, "span": timedelta, "path": tuple[str, ...],
}  # fmt: skip
RARE = ["flag", "raw", "day", "wild", "exact", "big", "box", "grade", "real", "optreal", "optexact", "span", "path"]
"""Kinds that no step knows: they are only stored, measured, renamed, copied and dropped."""
OPTIONAL = ("optstr", "optint", "optcode", "box", "optreal", "optexact")
EXACT = ["0", "-0", "0.00", "9.90", "1E+40", "-1E-40", "123456789012345678901234.5"]
REAL = [0.0, -0.0, 0.1, -2.5, 1e308, -1e308, 5e-324, math.inf, -math.inf]
VALUES: dict[str, Callable[[random.Random], Any]] = {
    "str": lambda draw: draw.choice(["m1", "m2", "m3", "", "a b", "x/y", "é", "M1"]),
    "optstr": lambda draw: draw.choice([None, "m1", "m2", "zz", "", "M1"]),
    "digits": lambda draw: str(draw.randrange(20)),
    "int": lambda draw: draw.choice([draw.randrange(-5, 20)] * 9 + [2**40]),
    "optint": lambda draw: draw.choice([None, 0, 1, 2, 3, -9]),
    "decimal": lambda draw: Decimal(draw.randrange(20)),
    "float": lambda draw: draw.choice([float(draw.randrange(20)), -0.0]),
    "list": lambda draw: [draw.choice("abc") for _ in range(draw.randrange(3))],
    "time": lambda draw: START + timedelta(minutes=20 * draw.randrange(30)),
    "extra": lambda draw: tm.Extra(
        {one: draw.choice([1, "t", 2.5, 0, "", False]) for one in draw.sample(UNDECLARED, draw.randrange(3))}
    ),
    "code": lambda draw: f"c{draw.randrange(15)}",
    "optcode": lambda draw: draw.choice([None, f"c{draw.randrange(15)}"]),
    "flag": lambda draw: draw.random() < 0.5,
    "raw": lambda draw: draw.choice([b"", b"\0", b"\xff" * 9]),
    "day": lambda draw: draw.choice([date.min, date.max, date(2024, 2, 29)]),
    "wild": lambda draw: draw.choice([0, 1, -(2**63), 2**63 - 1]),
    "exact": lambda draw: Decimal(draw.choice(EXACT)),
    "big": lambda draw: draw.choice(["", "x", "é" * 3000]),
    "box": lambda draw: draw.choice([None, Box(0), Box(2**40, ["", "a"])]),
    "grade": lambda draw: draw.choice([*Grade]),
    "real": lambda draw: draw.choice(REAL),
    "optreal": lambda draw: draw.choice([None, None, *REAL]),
    "optexact": lambda draw: draw.choice([None, None, *map(Decimal, EXACT)]),
    "span": lambda draw: draw.choice([timedelta(), timedelta(microseconds=-1), timedelta(days=40_000)]),
    "path": lambda draw: draw.choice([(), ("",), ("a", "b/c"), ("a", "a")]),
}
DEFAULTS: list[tuple[str, Any]] = [
    ("int", 7), ("int", 0), ("str", ""), ("flag", False), ("raw", b""), ("exact", Decimal("0.00")), ("big", "x" * 2000),
    ("grade", Grade.USED), ("optint", 0), ("optint", 5), ("optstr", ""), ("optstr", "m1"), ("real", -0.0), ("path", ()),
    ("optreal", 0.0), ("span", timedelta()), ("wild", -(2**63)), ("optexact", Decimal("1E+40")),
]  # fmt: skip
"""Kinds with defaults that a later version adds."""
UNDECLARED = ["u1", "u2", "u3"]
Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]
"""Entities of a class, by the values of its key."""


@attrs.define
class Index:
    """An index over one field."""

    field: str
    unique: bool = False
    spec: str = ""
    """How the field stands in it: ``""``, ``"desc"``, ``"fold"``, ``"hash"``."""
    where: Condition | None = None

    def rename(self, of: Callable[[str], str]) -> Index:
        """Return the index over fields with other names."""
        where = self.where and (of(self.where[0]), *self.where[1:])
        return attrs.evolve(self, field=of(self.field), where=where)

    def slots(self, row: Row) -> list[Any]:
        """Return what an entity has its rows under."""
        value = row.get(self.field)
        values = dict.fromkeys(map(self.slot, value if isinstance(value, list) else [value]))
        return [one for one in values if one is not None] if fulfils(row, self.where) else []

    def slot(self, value: Any) -> Any:
        return value.casefold() if self.spec == "fold" and value is not None else value


@attrs.define
class Shape:
    """An entity class."""

    name: str
    table: str
    fields: dict[str, str]
    """Their kinds, by name."""
    ident: list[str]
    """The fields of the key."""
    partition: Any
    row: Any
    type: str | None = None
    """What its rows say that they are, for other programs."""
    defaults: Row = attrs.field(factory=dict)
    indexes: dict[str, Index] = attrs.field(factory=dict)
    totals: list[Total] = attrs.field(factory=list)
    keeps: tuple[str, list[tuple[str, str, str]]] | None = None
    """The class of which fields are maintained, and these as measures."""

    def ident_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[field] for field in self.ident)

    def default(self, field: str) -> Any:
        """Return what a field is where nobody gave it a value; NOTHING if it must have one."""
        kind = self.fields[field]
        if field in self.defaults:
            return self.defaults[field]
        return {"list": [], "extra": tm.Extra()}.get(kind, None if kind in OPTIONAL else attrs.NOTHING)

    def missing(self, field: str) -> Any:
        """Return what a field is where an entity has no value; NOTHING if it must have one."""
        return None if self.fields[field] in OPTIONAL else self.default(field)

    def rename(self, field: str, to: str) -> None:
        """Give a field another name, wherever it stands in the class."""

        def of(name: str) -> str:
            return to if name == field else name

        def text(template: Any) -> Any:
            if isinstance(template, tuple):
                return tuple(map(text, template))
            return template.replace(f"{{{field}}}", f"{{{to}}}").replace(f"{{{field}:", f"{{{to}:")

        self.fields = {of(name): kind for name, kind in self.fields.items()}
        self.ident = list(map(of, self.ident))
        self.partition, self.row = text(self.partition), text(self.row)
        self.defaults = {of(name): value for name, value in self.defaults.items()}
        self.indexes = {name: index.rename(of) for name, index in self.indexes.items()}
        for total in self.totals:
            total.rename(of)

    @property
    def asked(self) -> set[str]:
        """The fields that conditions of its indexes read."""
        return {index.where[0] for index in self.indexes.values() if index.where}

    @property
    def used(self) -> set[str]:
        """The fields that something is made of."""
        found = {*self.ident, *(index.field for index in self.indexes.values()), *self.asked}
        return found.union(*[total.used for total in self.totals])


World = dict[str, Shape]


def kept_of(world: World, name: str) -> set[str]:
    """Return the fields of a class that fields of other classes are maintained from."""
    measures = [shape.keeps[1] for shape in world.values() if shape.keeps is not None and shape.keeps[0] == name]
    return {field or "shelf" for some in measures for _, _, field in some} | ({"shelf"} if measures else set())


class Classes:
    """The classes of a world.

    Raises:
        InvalidModel: there can be no such classes.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.by_name: dict[str, Any] = {}
        self.totals: dict[tuple[str, str], Any] = {}
        for shape in sorted(world.values(), key=lambda shape: shape.keeps is not None):
            self.by_name[shape.name] = cls = self._entity(shape)
            for total in shape.totals:
                self.totals[shape.name, total.name] = total_class(cls, total, shape.fields, TYPES)
        self.models = [*self.by_name.values(), *self.totals.values()]
        self.form = tm.schema_form(self.models)

    def _entity(self, shape: Shape) -> Any:
        annotations: dict[str, Any] = {}
        body: dict[str, Any] = {"__module__": __name__, "__annotations__": annotations}
        for field in sorted(shape.fields, key=lambda field: shape.default(field) is not attrs.NOTHING):
            annotations[field] = tm.Field[TYPES[shape.fields[field]]]
            given = shape.default(field)
            if isinstance(given, list | dict):
                body[field] = tm.field(factory=type(given))
            elif given is not attrs.NOTHING:
                body[field] = tm.field(default=given)
        if shape.keeps is not None:
            source = self.by_name[shape.keeps[0]]
            for name, verb, field in shape.keeps[1]:
                annotations[name] = tm.Field[
                    measured_type(verb, self.world[shape.keeps[0]].fields.get(field, ""), TYPES)
                ]
                body[name] = measure(verb, source, field, of=source)
        body["key"] = tm.Key(partition=shape.partition, row=shape.row)
        for name, index in shape.indexes.items():
            body[name] = declared(index)
        return type(tm.Entity)(shape.name, (tm.Entity,), body, table=shape.table, type=shape.type)

    def make(self, name: str, row: Row) -> Any:
        return self.by_name[name](**{field: deepcopy(row[field]) for field in self.world[name].fields})


def declared(index: Index) -> Any:
    """Return an index as it stands in a class."""
    where, spec = index.where, index.spec and f":{index.spec}"
    options: dict[str, Any] = {} if where is None else {"where": lambda entity: predicate(entity, where)}
    return tm.Index(partition=f"{{{index.field}{spec}}}", unique=index.unique, **options)


class Draw(random.Random):
    """Draws, and gives names that nothing has yet.

    Attributes:
        more: draws what aggregates have more: so what is drawn besides does not depend on it.
        wide: draws fields of rare kinds, steps that lead back by a function of the entity, and what tidies a store, likewise.
        late: draws how a store ends.
        odd: draws how fields stand in keys and indexes, conditions of indexes, what rows say of their class, and classes that end.
        dropped: aggregates that were dropped, each with the name that its class had then.
    """

    count = 0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.more = random.Random(f"the aggregates of {seed}")
        self.wide = random.Random(f"the rest of {seed}")
        self.odd = random.Random(f"the forms of {seed}")
        self.late = random.Random(f"the end of {seed}")
        self.dropped: list[tuple[str, Total]] = []

    def name(self, start: str) -> str:
        self.count += 1
        return f"{start}{self.count}"


def random_world(draw: Draw) -> World:
    """Return classes of a first version."""
    world: World = {}
    for name in draw.sample(["Part", "Bin"], draw.choice([1, 2, 2])):
        fields = {"shelf": "str", "num": "int"}
        pool = {
            "price": "digits", "maker": "optstr", "tags": "list", "at": "time", "size": "int", "load": "optint",
            "cost": "decimal", "width": "float",
        }  # fmt: skip
        fields |= {field: pool[field] for field in draw.sample([*pool], draw.randrange(2, 6))}
        fields |= {field: field for field in draw.wide.sample(RARE, draw.wide.randrange(4))}
        fields |= {"more": "extra"} if draw.random() < 0.25 else {}
        fields |= {"code": draw.choice(["code", "optcode"])} if draw.random() < 0.5 else {}
        shared = draw.random() < 0.4
        ident = ["shelf", "num"]
        shape = Shape(name, f"{name}s", fields, ident, *templates(draw, fields, ident, name[0] if shared else ""))
        if draw.odd.random() < 0.25:
            shape.type = draw.name("type")
        if shared and draw.random() < 0.4:
            shape.table = "Shared"
        world[name] = shape
        decorate(draw, shape, 3)
        if "code" in fields and draw.random() < 0.5:
            shape.indexes[draw.name("unique")] = enriched(draw, shape, Index("code", unique=True))
    if draw.random() < 0.6:  # one whose keys are those of another
        of = world[draw.choice([*world])]
        fields = {"shelf": "str", "num": "int", "pieces": "int"}
        world["Stock"] = Shape("Stock", "Stocks", fields, ["shelf", "num"], of.partition, of.row)
        decorate(draw, world["Stock"], 2)
    if draw.random() < 0.3:
        measures = [("parts", "count", ""), ("most", "max", "num"), ("total", "sum", "num")][: draw.randrange(1, 4)]
        shape = Shape("Shelf", "Shelves", {"shelf": "str", "title": "str"}, ["shelf"], "{shelf}", "info")
        shape.keeps = draw.choice([*world]), measures
        if draw.random() < 0.5:
            shape.indexes["by_parts"] = Index("parts")
        world["Shelf"] = shape
    return world


def templates(draw: Draw, kinds: dict[str, str], ident: list[str], prefix: str) -> tuple[Any, Any]:
    """Return the templates of a key; with a prefix, its rows are none of another class."""
    slots = {field: _slots(draw, field, kinds[field]) for field in ident}
    first, *others = draw.sample(ident, len(ident))
    head, *rest = slots[first]
    shard = f"{{{first}:shard({draw.choice([4, 8])})}}"
    partition = draw.choice([head, shard, "all", ("x", head)])
    rows = slots[first] if partition in (shard, "all") else rest
    rows = [*rows, *[slot for field in others for slot in slots[field]]]
    if prefix:
        return partition, f"{prefix}-{rows[0]}" if len(rows) == 1 else (prefix, *rows)
    return partition, rows[0] if len(rows) == 1 else tuple(rows)


def _slots(draw: Draw, field: str, kind: str) -> list[str]:
    """Return the slots of a key that together tell the values of a field apart."""
    form = spec(draw, kind) if draw.odd.random() < 0.4 else ""
    if form == "fold":
        return [f"{{{field}:fold}}", f"{{{field}}}"]
    return [f"{{{field}:{form}}}" if form else f"{{{field}}}"]


def decorate(draw: Draw, shape: Shape, most: int) -> None:
    for _ in range(draw.randrange(most)):
        add_index(draw, shape)
    for _ in range(draw.randrange(most)):
        add_total(draw, shape)


def add_index(draw: Draw, shape: Shape) -> None:
    field = draw.choice(
        [field for field, kind in shape.fields.items() if kind not in ("extra", "float", "big", "box", "path")]
    )
    shape.indexes[draw.name("index")] = enriched(draw, shape, Index(field))


DESCENDING = ("int", "optint", "decimal", "time", "flag", "day", "wild", "span", "exact", "optexact", "real")
"""Kinds that can stand in a template from the greatest on."""
FOLDED = ("str", "optstr", "digits", "code", "optcode")


def spec(draw: Draw, kind: str) -> str:
    """Return how a field of some kind may stand in a template."""
    return draw.odd.choice(["", "", "", *["desc"] * (kind in DESCENDING), *["fold"] * (kind in FOLDED), "hash"])


def enriched(draw: Draw, shape: Shape, index: Index) -> Index:
    """Return an index, maybe with a condition, and over another form of its field."""
    if draw.odd.random() < 0.5 and shape.fields[index.field] != "list":
        index.spec = spec(draw, shape.fields[index.field])
    if draw.odd.random() < 0.35 and (some := conditions(shape.fields)):
        index.where = draw.odd.choice(some)
    return index


def add_total(draw: Draw, shape: Shape) -> None:
    group = draw.choice([field for field, kind in shape.fields.items() if kind in GROUPED])
    groups = [(group, "", "group")]
    times = [field for field, kind in shape.fields.items() if kind == "time"]
    if times and draw.random() < 0.6:
        groups.append((times[0], draw.choice(["zone", "utc"]), "day"))
    numbers = [field for field, kind in shape.fields.items() if kind in NUMBERS]
    measures = [("count", "count", "")]
    for field in draw.sample(numbers, min(len(numbers), draw.randrange(3))):
        verbs = ["sum", "min", "max", *["avg"] * ("float" in str(TYPES[shape.fields[field]]))]
        measures.append((draw.name("measure"), draw.choice(verbs), field))
    total = Total(name := draw.name("Total"), name, groups, measures)
    if draw.random() < 0.35 and len(groups) == 1:
        total.table, total.row = shape.table, f"total{name}"
    elif draw.more.random() < 0.2:  # (aggregates of a class that share a table)
        total.table, total.row = f"{shape.table}Totals", f"total{name}"
    enrich(draw.more, total, shape.fields, draw.name)
    shape.totals.append(total)
