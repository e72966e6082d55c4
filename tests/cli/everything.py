"""A module of models with all that the documentation shows, in one: every command is run over it."""

from __future__ import annotations

import datetime as dt
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, NewType, TypeVar
from uuid import UUID

import attrs
import msgspec
from msgspec import Meta

import tablemapper as tm
from tablemapper import Entity, Record  # noqa: F401  names that a module imports are no models of its own

from ..classes import Other

T = TypeVar("T")
Tenant = NewType("Tenant", str)
Texts = list[str]
Maybe = T | None
Pair = namedtuple("Pair", "a b")


class Kind(Enum):
    BIG = "big"
    SMALL = "small"


@attrs.frozen
class Size:
    width: int
    unit: str = "mm"


@dataclass(frozen=True)
class Spot:
    shelf: str
    level: int


class Label(msgspec.Struct, frozen=True):
    text: str


class Money:
    """A type of one's own, by hooks."""

    def __init__(self, amount: Decimal, currency: str) -> None:
        self.amount, self.currency = amount, currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and (self.amount, self.currency) == (other.amount, other.currency)

    __hash__ = None  # type: ignore[assignment]


tm.converter().register_unstructure_hook(Money, lambda m: [str(m.amount), m.currency])
tm.converter().register_structure_hook(Money, lambda form, _: Money(Decimal(form[0]), form[1]))


class Code:
    """A type of one's own, registered as a scalar."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


tm.register(Code, str, store=lambda code: code.text, load=Code)


class Greets:
    """A mixin with methods alone."""

    def greeting(self) -> str:
        return "hello"


class Stamped(tm.Entity):
    """Lends its fields; it has no table."""

    created: tm.Field[dt.datetime] = tm.field(default=dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC), kw_only=True)


class Owned(Stamped):
    """A base class of a base class."""

    owner: tm.Field[str | None] = tm.field(default=None, kw_only=True)


class Part(Owned, Greets, table="Parts"):
    """Has a field of every kind."""

    most: ClassVar[int] = 7

    bin: tm.Field[Tenant]
    number: tm.Field[int]
    name: tm.Field[str] = tm.field(default="", name="Name")
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)  # (amid the others: what it holds is of any number)
    small: tm.Field[tm.Int32 | None] = tm.field(default=None)
    price: tm.Field[Decimal | None] = tm.field(default=None)
    weight: tm.Field[float | None] = tm.field(default=None)
    sold: tm.Field[bool] = tm.field(default=False)
    day: tm.Field[dt.date | None] = tm.field(default=None)
    hour: tm.Field[dt.time | None] = tm.field(default=None)
    span: tm.Field[dt.timedelta | None] = tm.field(default=None)
    mark: tm.Field[UUID | None] = tm.field(default=None)
    raw: tm.Field[bytes | None] = tm.field(default=None)
    kind: tm.Field[Kind] = tm.field(default=Kind.SMALL)
    color: tm.Field[Literal["red", "blue"]] = tm.field(default="red")
    rating: tm.Field[Annotated[int, Meta(ge=0, le=5)]] = tm.field(default=0)
    alias: tm.Field[Maybe[int]] = tm.field(default=None)
    tags: tm.Field[Texts] = tm.field(factory=list)
    counts: tm.Field[dict[str, int]] = tm.field(factory=dict)
    seen: tm.Field[frozenset[int]] = tm.field(default=frozenset())
    pair: tm.Field[tuple[int, str] | None] = tm.field(default=None)
    anything: tm.Field[dict[str, Any]] = tm.field(factory=dict)
    size: tm.Field[Size] = tm.field(factory=lambda: Size(1))
    spot: tm.Field[Spot | None] = tm.field(default=None)
    label: tm.Field[Label | None] = tm.field(default=None)
    code: tm.Field[Code | None] = tm.field(default=None)
    at: tm.Field[tm.GeoPoint | None] = tm.field(default=None)

    key = tm.Key[Tenant, int](partition="{bin}", row="{number}")
    by_color = tm.Index[Literal["red", "blue"]](partition="{color}", include=("price",))
    by_tag = tm.Index[str](partition="{tags}")
    by_code = tm.Index[Code](partition="{code}")
    by_name = tm.Index[str](partition="{name:fold}", unique=True, where=lambda part: part.name != "")


class Colors(tm.Aggregate, of=Part, table="Colors"):
    color: tm.Field[Literal["red", "blue"]] = tm.group_by(Part.color)
    parts: tm.Field[int] = tm.count()
    worth: tm.Field[Decimal | None] = tm.sum(Part.price)
    heaviest: tm.Field[float | None] = tm.max(Part.weight)

    key = tm.Key[Literal["red", "blue"]](partition="{color}")


class Bin(Stamped, table="Bins"):
    """Has fields that the store maintains."""

    bin: tm.Field[Tenant]
    room: tm.Field[str] = tm.field(default="hall")
    parts: tm.Field[int] = tm.count(of=Part)
    dearest: tm.Field[Decimal | None] = tm.max(Part.price, of=Part)

    key = tm.Key[Tenant](partition="{bin}")


class Bill(tm.Entity, table="Papers", type="bill"):
    """Shares its table, and has a value of a type of one's own."""

    year: tm.Field[int]
    number: tm.Field[int]
    total: tm.Field[Money] = tm.field(factory=lambda: Money(Decimal("9.50"), "NOK"))

    key = tm.Key[int, int](partition="{year}", row=("bill", "{number}"))


class Note(tm.Entity, table="Papers", type="note"):
    year: tm.Field[int]
    number: tm.Field[int]
    text: tm.Field[str] = tm.field(default="")

    key = tm.Key[int, int](partition="{year}", row=("note", "{number}"))


SCRIPTED = [Part, Colors, Bin, Note, Other]  # (a script cannot name what converts Money)
WITH_BASE = [Note, Stamped]

EVIL = "\x1b]0;owned\x07\x9b2J\u202egpj\u2066\r\n\u2028日本▪"


def entities() -> list[tm.Entity]:
    """Return some of each class: the second part has a value in every field, and texts that do harm in a terminal."""
    return [
        Part(Tenant("a"), 1),
        Part(
            Tenant("a"), 2, EVIL, tm.Extra(one=1, text="free", when=dt.datetime(2026, 1, 2, tzinfo=dt.UTC), big=2**40),
            tm.Int32(3), Decimal("7.50"), 1.5, True, dt.date(2026, 3, 1), dt.time(9), dt.timedelta(minutes=1), UUID(int=1),
            b"\x00\xff", Kind.BIG, "blue", 5, 4, ["x", "[y\x1b"], {"k": 1}, frozenset({1}), (1, "two"), {"z": [None, 1.5]},
            Size(2), Spot("s", 1), Label("l"), Code("c\x1b"), tm.GeoPoint(latitude=59.9, longitude=10.75), owner="ann",
        ),
        Part(Tenant("a"), 3, more=tm.Extra(two="2")),
        Bin(Tenant("a")),
        Bill(2026, 1),
        Note(2026, 1, "free"),
        Other("x"),
    ]  # fmt: skip
