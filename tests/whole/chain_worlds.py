"""Random classes of a program, as data: what a chain of migrations leads from and to."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from decimal import Decimal
from typing import Any

import attrs

import tablemapper as tm

from .conditions import Compare, Operand
from .kinds import (
    BOX,
    DATE,
    DECIMAL,
    EXTRA,
    FLOAT,
    HIERARCHY,
    INT,
    KINDS,
    LOCAL,
    MOMENT,
    STR,
    UTC,
    Color,
    Kind,
    inf,
    kind_of,
)
from .models import Component, Field, Measure, Model, Record, Slot, Template, compiled
from .models import Index as ModelIndex
from .oracle import Row, clean, index_rows

START = datetime.datetime(2024, 3, 30, 20, tzinfo=UTC)
"""Some hours before the clocks of Oslo change."""
UNDECLARED = ["u1", "u2", "u3"]


def _may_lack(field: Field) -> Field:
    return attrs.evolve(field, optional=True, default=True)


_EXACT = Field("exact", DECIMAL, pool=tuple(map(Decimal, ("0", "-0", "0.00", "9.90", "1E+40", "-1E-40", "123456789012345678901234.5"))))  # fmt: skip
_REAL = Field("real", FLOAT, pool=(0.0, -0.0, 0.1, -2.5, 1e308, -1e308, 5e-324, inf, -inf))
_TEXT = Field("str", STR, pool=("m1", "m2", "m3", "", "a b", "x/y", "é", "M1"))
_CODE = Field("code", STR, pool=tuple(f"c{number}" for number in range(15)))
_EXTRAS = [
    {},
    *[{name: one} for name in UNDECLARED for one in (1, "t", 2.5, 0, "", False)],
    dict.fromkeys(UNDECLARED[:2], "t"),
]
FORMS: dict[str, Field] = {
    "str": _TEXT, "code": _CODE, "exact": _EXACT, "real": _REAL,
    "optstr": _may_lack(attrs.evolve(_TEXT, pool=("m1", "m2", "zz", "", "M1"))),
    "optcode": _may_lack(_CODE), "optreal": _may_lack(_REAL), "optexact": _may_lack(_EXACT),
    "digits": Field("digits", STR, pool=tuple(map(str, range(20)))),
    "int": Field("int", INT, pool=(*range(-5, 20), 2**40)),
    "optint": Field("optint", INT, optional=True, default=True, pool=(0, 1, 2, 3, -9)),
    "decimal": Field("decimal", DECIMAL, pool=tuple(map(Decimal, range(20)))),
    "float": Field("float", FLOAT, pool=(*map(float, range(20)), -0.0)),
    "list": Field("list", kind_of("list[str]"), default=True, pool=([], [], ["a"], ["b", "c"], ["a", "a"], ["c", "b"])),
    "time": Field("time", MOMENT, pool=tuple(START + datetime.timedelta(minutes=20 * number) for number in range(30))),
    "extra": Field("extra", EXTRA, default=True, pool=tuple(map(tm.Extra, _EXTRAS))),
    "flag": Field("flag", kind_of("bool"), pool=(False, True)),
    "raw": Field("raw", kind_of("bytes"), pool=(b"", b"\0", b"\xff" * 9)),
    "day": Field("day", DATE, pool=(datetime.date.min, datetime.date.max, datetime.date(2024, 2, 29))),
    "wild": Field("wild", INT, pool=(0, 1, -(2**63), 2**63 - 1)),
    "big": Field("big", STR, pool=("", "x", "é" * 3000)),
    "box": Field("box", BOX, optional=True, default=True, pool=BOX.pool),
    "grade": Field("grade", kind_of("Color"), pool=tuple(Color)),
    "span": Field("span", kind_of("datetime.timedelta"), pool=tuple(datetime.timedelta(*one) for one in ((), (0, 0, -1), (40_000,)))),
    "path": Field("path", HIERARCHY, pool=((), ("",), ("a", "b/c"), ("a", "a"))),
}  # fmt: skip
"""Forms of fields, by name."""
EXOTIC = [f"any{number}" for number, kind in enumerate(KINDS) if kind is not EXTRA]
"""Those of every kind that there is, with all its values."""
FORMS |= {f"any{number}": Field("any", kind, pool=kind.pool) for number, kind in enumerate(KINDS) if kind is not EXTRA}
RARE = ["flag", "raw", "day", "wild", "exact", "big", "box", "grade", "real", "optreal", "optexact", "span", "path"]
"""Forms that no step knows, as it knows none of the exotic ones: they are only stored, indexed, measured, renamed, copied and dropped."""
OPTIONAL = tuple(name for name, field in FORMS.items() if field.optional)
NUMBERS = tuple(name for name, field in FORMS.items() if field.kind.summed)
"""Forms that are measured."""
GROUPED = (
    *("str", "optstr", "int", "digits", "optint", "flag", "day", "grade", "wild"),
    *[name for name in EXOTIC if FORMS[name].kind.specs and not FORMS[name].kind.element],
)
"""Forms that are grouped by."""
DEFAULTS: list[tuple[str, Any]] = [
    ("int", 7), ("int", 0), ("str", ""), ("flag", False), ("raw", b""), ("exact", Decimal("0.00")), ("big", "x" * 2000),
    ("grade", Color.BLUE), ("optint", 0), ("optint", 5), ("optstr", ""), ("optstr", "m1"), ("real", -0.0), ("path", ()),
    ("optreal", 0.0), ("span", datetime.timedelta()), ("wild", -(2**63)), ("optexact", Decimal("1E+40")),
]  # fmt: skip
"""Forms with defaults that a later version adds."""
Rows = dict[tuple[Any, ...], Row]
"""Entities of a class, by the values of its key."""


def random_value(draw: random.Random, form: str) -> Any:
    """Return a value of a field of some form."""
    field = FORMS[form]
    return None if field.optional and draw.random() < 0.3 else clean(draw.choice(field.pool), field.kind)


def conditions(forms: Mapping[str, str]) -> list[Compare]:
    """Return conditions of fields, in which values are compared that are least or empty, too."""
    compared = {"int": (3, 0), "optint": (3, 0), **dict.fromkeys(("str", "optstr", "digits"), ("m1", ""))}
    return [
        Compare(Operand(field, FORMS[form].kind), sign, value)
        for field, form in forms.items()
        for value in compared.get(form, ())
        for sign in (">", "!=")
    ]


def _renamed(condition: Compare | None, of: Callable[[str], str]) -> Compare | None:
    return condition and attrs.evolve(condition, left=attrs.evolve(condition.left, field=of(condition.left.field)))


@attrs.define
class Index:
    """An index over one field."""

    field: str
    unique: bool = False
    spec: str = ""
    """How the field stands in it: ``""``, ``"desc"``, ``"fold"``, ``"hash"``."""
    where: Compare | None = None

    def rename(self, of: Callable[[str], str]) -> Index:
        """Return the index over fields with other names."""
        return attrs.evolve(self, field=of(self.field), where=_renamed(self.where, of))

    def declared(self, name: str) -> ModelIndex:
        """Return it as it stands in a class."""
        return ModelIndex(name, ((Slot(self.field, self.spec),),), (("",),), where=self.where, unique=self.unique)


CUTS: dict[str, tuple[Kind, str]] = {
    "utc": (DATE, "date"), "zone": (DATE, "date Europe/Oslo"), "month": (STR, "%Y-%m Europe/Oslo"), "hour": (LOCAL, "floor 60"),
    "each": (STR, "each"),
}  # fmt: skip
"""What is left of a time, or of a list, to group by."""


@attrs.define
class Total:
    """An aggregate."""

    name: str
    table: str
    groups: list[tuple[str, str, str]]
    """Field, part of it (``""`` for all of it), name."""
    measures: list[tuple[str, str, str]]
    """Name, verb, field (``""`` for the number of entities)."""
    row: str = ""
    """The row key begins with it, where others have their rows in the table, too."""
    where: Compare | None = None
    only: dict[str, Compare] = attrs.field(factory=dict)
    """The conditions of single measures."""
    indexes: dict[str, str] = attrs.field(factory=dict)
    """Each over a group or a measure."""

    def rename(self, of: Callable[[str], str]) -> None:
        """Give the fields that it reads other names."""
        self.groups = [(of(field), part, name) for field, part, name in self.groups]
        self.measures = [(name, verb, of(field)) for name, verb, field in self.measures]
        self.where = _renamed(self.where, of)
        self.only = {name: _renamed(one, of) for name, one in self.only.items()}  # type: ignore[misc]

    @property
    def asked(self) -> set[str]:
        """The fields that its conditions read."""
        return {one.left.field for one in [*self.only.values(), *([self.where] if self.where else [])]}

    @property
    def used(self) -> set[str]:
        """The fields that it reads."""
        return {field for field, *_ in self.groups} | {field for *_, field in self.measures} | self.asked

    def record(self, of: Shape) -> Record:
        """Return it as the class that it is."""
        fields, measures = [], dict[str, Measure]()
        for field, part, name in self.groups:
            kind, cut = CUTS.get(part, (of.kind(field), ""))
            fields.append(Field(name, kind.uncut or kind))  # (a field of an aggregate cuts nothing)
            measures[name] = Measure("group_by", Operand(field, kind, cut=cut))
        for name, verb, field in self.measures:
            only = self.only.get(name)
            measures[name] = Measure(verb, Operand(field, of.kind(field)) if field else None, only)
            fields.append(measured(name, verb, FORMS[of.fields[field]] if field else None, may_lack=only is not None))
        first, *rest = [((Slot(name)),) for *_, name in self.groups]
        row: Template = (*([(self.row,)] if self.row else []), *rest) or (("",),)
        indexes = tuple(ModelIndex(name, ((Slot(over),),), (("",),)) for name, over in self.indexes.items())
        return Record(self.name, self.table, tuple(fields), (first,), row, indexes, of.name, self.where, measures)


def measured(name: str, verb: str, of: Field | None, *, may_lack: bool = False) -> Field:
    """Return the field of a measure; ``may_lack``: no entity need have a value."""
    if of is None or verb == "count":
        return Field(name, INT)
    whole = of.kind.annotation in ("int", "tm.Int32")
    kind = FLOAT if verb == "avg" and whole else INT if verb == "sum" and whole else of.kind.uncut or of.kind
    return Field(name, kind, optional=verb != "sum" or may_lack or of.optional)


def enrich(draw: random.Random, total: Total, kinds: Mapping[str, str], name: Callable[[str], str]) -> None:
    """Add what aggregates may have besides a group and plain measures; ``name`` gives names that nothing has."""
    texts = [field for field, kind in kinds.items() if kind in ("str", "optstr", "int", "digits")]
    others = [field for field in texts if field not in [one for one, *_ in total.groups]]
    if others and not total.row and draw.random() < 0.4:
        total.groups.append((draw.choice(others), "", "also"))
    total.groups = [
        (f, draw.choice([p, p, "month", "hour"]) if kinds[f] == "time" else p, n) for f, p, n in total.groups
    ]
    if "list" in kinds.values() and len(total.groups) == 1 and draw.random() < 0.3:
        total.groups = [(next(field for field, kind in kinds.items() if kind == "list"), "each", "group")]
    add_measures(draw, total, kinds, name)
    if draw.random() < 0.3:
        total.where = draw.choice(conditions(kinds))
    for measure, verb, _ in total.measures:
        if not verb.endswith("ever") and draw.random() < 0.2:
            total.only[measure] = draw.choice(conditions(kinds))
    if draw.random() < 0.3:
        total.indexes[name("over")] = draw.choice([total.groups[0][2], "count"])


def add_measures(draw: random.Random, total: Total, kinds: Mapping[str, str], name: Callable[[str], str]) -> None:
    numbers = [field for field, kind in kinds.items() if kind in NUMBERS]
    for field in draw.sample(numbers, min(len(numbers), draw.randrange(1, 3))):
        verbs = ["avg", "count", "max_ever", "min_ever", "sum", "max"]
        total.measures.append((name("measure"), draw.choice(verbs), field))


@attrs.define
class Shape:
    """An entity class."""

    name: str
    table: str
    fields: dict[str, str]
    """Their forms, by name."""
    ident: list[str]
    """The fields of the key."""
    partition: Template
    row: Template
    type: str | None = None
    """What its rows say that they are, for other programs."""
    defaults: Row = attrs.field(factory=dict)
    indexes: dict[str, Index] = attrs.field(factory=dict)
    totals: list[Total] = attrs.field(factory=list)
    keeps: tuple[str, list[tuple[str, str, str]]] | None = None
    """The class of which fields are maintained, and these as measures."""

    def kind(self, field: str) -> Kind:
        return FORMS[self.fields[field]].kind

    def ident_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[field] for field in self.ident)

    def default(self, field: str) -> Any:
        """Return what a field is where nobody gave it a value; NOTHING if it must have one."""
        if field in self.defaults:
            return self.defaults[field]
        form = FORMS[self.fields[field]]
        return form.missing if form.default else attrs.NOTHING

    def missing(self, field: str) -> Any:
        """Return what a field is where an entity has no value; NOTHING if it must have one."""
        return None if self.fields[field] in OPTIONAL else self.default(field)

    def rename(self, field: str, to: str) -> None:
        """Give a field another name, wherever it stands in the class."""

        def of(name: str) -> str:
            return to if name == field else name

        def renamed(component: Component) -> Component:
            return tuple(
                attrs.evolve(part, field=of(part.field)) if isinstance(part, Slot) else part for part in component
            )

        self.fields = {of(name): kind for name, kind in self.fields.items()}
        self.ident = list(map(of, self.ident))
        self.partition, self.row = tuple(map(renamed, self.partition)), tuple(map(renamed, self.row))
        self.defaults = {of(name): value for name, value in self.defaults.items()}
        self.indexes = {name: index.rename(of) for name, index in self.indexes.items()}
        for total in self.totals:
            total.rename(of)

    @property
    def asked(self) -> set[str]:
        """The fields that conditions of its indexes read."""
        return {index.where.left.field for index in self.indexes.values() if index.where}

    @property
    def used(self) -> set[str]:
        """The fields that something is made of."""
        found = {*self.ident, *(index.field for index in self.indexes.values()), *self.asked}
        return found.union(*[total.used for total in self.totals])

    def record(self, world: World) -> Record:
        """Return it as the class that it is."""
        fields = []
        for name, form in self.fields.items():
            given = self.default(name) is not attrs.NOTHING
            standard = (self.defaults[name],) if name in self.defaults else ()
            fields.append(attrs.evolve(FORMS[form], name=name, default=given, standard=standard))
        over, measures = None, dict[str, Measure]()
        if self.keeps is not None:
            source = world[self.keeps[0]]
            over = source.name
            for name, verb, field in self.keeps[1]:
                measures[name] = Measure(verb, Operand(field, source.kind(field)) if field else None)
                fields.append(measured(name, verb, FORMS[source.fields[field]] if field else None))
        indexes = tuple(index.declared(name) for name, index in self.indexes.items())
        return Record(
            self.name, self.table, tuple(fields), self.partition, self.row, indexes, measures=measures, over=over,
            stored_type=self.type,
        )  # fmt: skip


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
        shapes = sorted(world.values(), key=lambda shape: shape.keeps is not None)
        totals = [(shape, total) for shape in shapes for total in shape.totals]
        self.model = Model((*[one.record(world) for one in shapes], *[total.record(shape) for shape, total in totals]))
        self.names = compiled(self.model.source())
        self.by_name: dict[str, Any] = {shape.name: self.names[shape.name] for shape in shapes}
        self.totals: dict[tuple[str, str], Any] = {
            (one.name, total.name): self.names[total.name] for one, total in totals
        }
        self.models = [*self.by_name.values(), *self.totals.values()]
        self.form = tm.schema_snapshot(self.models)

    def make(self, name: str, row: Row) -> Any:
        return self.by_name[name](**{field: deepcopy(row[field]) for field in self.world[name].fields})

    def held(self, name: str, index: str, row: Row) -> set[Any]:
        """Return what an entity has its rows of an index under."""
        record = self.model.record(name)
        (declared,) = [one for one in record.indexes if one.name == index]
        return index_rows(record, declared, row)


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
        fields |= {field: field for field in draw.odd.sample(EXOTIC, draw.odd.randrange(3))}
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
        shape = Shape(
            "Shelf", "Shelves", {"shelf": "str", "title": "str"}, ["shelf"], ((Slot("shelf"),),), (("info",),)
        )
        shape.keeps = draw.choice([*world]), measures
        if draw.random() < 0.5:
            shape.indexes["by_parts"] = Index("parts")
        world["Shelf"] = shape
    return world


def templates(draw: Draw, kinds: dict[str, str], ident: list[str], prefix: str) -> tuple[Template, Template]:
    """Return the templates of a key; with a prefix, its rows are none of another class."""
    slots = {field: _slots(draw, field, kinds[field]) for field in ident}
    first, *others = draw.sample(ident, len(ident))
    head, *rest = slots[first]
    shard: Component = (Slot(first, f"shard({draw.choice([4, 8])})"),)
    choices: list[Template] = [(head,), (shard,), (("all",),), (("x",), head)]
    partition = draw.choice(choices)
    rows = slots[first] if partition[0] in (shard, ("all",)) else rest
    rows = [*rows, *[slot for field in others for slot in slots[field]]]
    if prefix:
        return partition, ((f"{prefix}-", *rows[0]),) if len(rows) == 1 else ((prefix,), *rows)
    return partition, tuple(rows)


def _slots(draw: Draw, field: str, kind: str) -> list[Component]:
    """Return the slots of a key that together tell the values of a field apart."""
    form = spec(draw, kind) if draw.odd.random() < 0.4 else ""
    return [(Slot(field, form),), *([(Slot(field),)] if form == "fold" else [])]


def decorate(draw: Draw, shape: Shape, most: int) -> None:
    for _ in range(draw.randrange(most)):
        add_index(draw, shape)
    for _ in range(draw.randrange(most)):
        add_total(draw, shape)


def add_index(draw: Draw, shape: Shape) -> None:
    fields = [one for one, form in shape.fields.items() if form not in ("extra", "float", "big", "path")]
    field = draw.choice([one for one in fields if shape.kind(one).specs or shape.kind(one).element])
    shape.indexes[draw.name("index")] = enriched(draw, shape, Index(field))


def spec(draw: Draw, form: str) -> str:
    """Return how a field of some form may stand in a template."""
    ways = [one for one in ("desc", "fold") if one in FORMS[form].kind.specs]
    return draw.odd.choice(["", "", "", *ways, "hash"])


def enriched(draw: Draw, shape: Shape, index: Index) -> Index:
    """Return an index, maybe with a condition, and over another form of its field."""
    if draw.odd.random() < 0.5 and not shape.kind(index.field).element:
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
        verbs = ["sum", "min", "max", *["avg"] * (shape.kind(field) is FLOAT)]
        measures.append((draw.name("measure"), draw.choice(verbs), field))
    total = Total(name := draw.name("Total"), name, groups, measures)
    if draw.random() < 0.35 and len(groups) == 1:
        total.table, total.row = shape.table, f"total{name}"
    elif draw.more.random() < 0.2:  # (aggregates of a class that share a table)
        total.table, total.row = f"{shape.table}Totals", f"total{name}"
    enrich(draw.more, total, shape.fields, draw.name)
    shape.totals.append(total)
