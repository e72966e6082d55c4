"""A class of every kind of declaration, for the files and the accounts of each format: types, keys, indexes, measures.

What stands here has to stay: the files that are kept were written by it. A kind that comes later gets a class of its own.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, TypedDict
from uuid import UUID

import attrs
import msgspec

import tablemapper as tm

Owner = NewType("Owner", str)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Rank(enum.IntEnum):
    LOW = 1
    HIGH = 2


@attrs.frozen
class Size:
    width: int
    unit: str = "mm"


@dataclass(frozen=True)
class Spot:
    shelf: str
    sizes: tuple[Size, ...] = ()


class Label(msgspec.Struct, frozen=True):
    text: str
    until: date | None = None


class Page(TypedDict):
    title: str


class Stamped(tm.Entity):
    """Fields in common."""

    created: tm.Field[datetime] = tm.field(default=datetime(2026, 1, 1, tzinfo=UTC), precision="ms", kw_only=True)


class Value(Stamped, table="Values"):
    """Every type of a field."""

    owner: tm.Field[Owner]
    number: tm.Field[int] = tm.field(stored=True)
    text: tm.Field[str] = tm.field(default="", name="Text")
    small: tm.Field[tm.Int32] = tm.field(default=tm.Int32(0))
    weight: tm.Field[float] = tm.field(default=0.0)
    sold: tm.Field[bool] = tm.field(default=False)
    price: tm.Field[Decimal] = tm.field(default=Decimal(0))
    at: tm.Field[datetime | None] = tm.field(default=None)
    day: tm.Field[date | None] = tm.field(default=None)
    hour: tm.Field[time | None] = tm.field(default=None)
    span: tm.Field[timedelta] = tm.field(default=timedelta(0))
    mark: tm.Field[UUID | None] = tm.field(default=None)
    raw: tm.Field[bytes] = tm.field(default=b"")
    colour: tm.Field[Colour] = tm.field(default=Colour.RED)
    rank: tm.Field[Rank] = tm.field(default=Rank.LOW)
    side: tm.Field[Literal["left", "right"]] = tm.field(default="left")
    rating: tm.Field[Annotated[int, msgspec.Meta(ge=0, le=5)]] = tm.field(default=0)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    counts: tm.Field[dict[str, int]] = tm.field(factory=dict)
    seen: tm.Field[set[int]] = tm.field(factory=set)
    pair: tm.Field[tuple[int, str] | None] = tm.field(default=None)
    size: tm.Field[Size] = tm.field(factory=lambda: Size(1))
    spot: tm.Field[Spot | None] = tm.field(default=None)
    label: tm.Field[Label | None] = tm.field(default=None)
    page: tm.Field[Page | None] = tm.field(default=None)
    place: tm.Field[tm.GeoPoint | None] = tm.field(default=None)
    anything: tm.Field[dict[str, Any]] = tm.field(factory=dict)
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[Owner, int](partition="{owner}", row="{number:06d}")
    by_text = tm.Index[str](partition="{text:fold}", include=("price", "at"))
    by_hash = tm.Index[str](partition="{text:hash}", row="{text:prefix(2)}")
    by_mark = tm.Index[UUID](partition="{mark}", unique=True)
    by_tag = tm.Index[str, Decimal](partition="{tags}", row="{price:desc}")
    by_month = tm.Index[datetime](partition="{at:%Y-%m}", row="{at:desc}", include="all")
    by_width = tm.Index[int, str](partition="{size.width}", row="{size.unit}")
    by_count = tm.Index[int](partition="{counts[large]}")
    by_more = tm.Index[str](partition="{more[origin]}")
    by_owner = tm.Index[Owner, float](partition="{owner}", row="{weight}")
    by_rank = tm.Index[Rank](partition="{rank}", where=lambda value: value.price > Decimal(1), table="RankedValues")


class Sorted(tm.Entity, table="Sorteds"):
    """Every type in a key."""

    bucket: tm.Field[str]
    text: tm.Field[str]
    number: tm.Field[int]
    weight: tm.Field[float]
    price: tm.Field[Decimal]
    sold: tm.Field[bool]
    at: tm.Field[datetime]
    day: tm.Field[date]
    hour: tm.Field[time]
    span: tm.Field[timedelta]
    mark: tm.Field[UUID]
    raw: tm.Field[bytes]
    colour: tm.Field[Colour]
    rank: tm.Field[Rank]

    key = tm.Key[str, str, int, float, Decimal, bool, datetime, date, time, timedelta, UUID, bytes, Colour, Rank](
        partition=("{bucket:shard(4)}", "{bucket}"),
        row=(
            "{text}", "{number}", "{weight}", "{price}", "{sold}", "{at}", "{day}", "{hour}", "{span}", "{mark}", "{raw}",
            "{colour}", "{rank:desc}",
        ),
    )  # fmt: skip


class Plain(tm.Entity, table="Plains"):
    """A key as other programs write it, in text that is not escaped."""

    name: tm.Field[str]
    path: tm.Field[str]

    key = tm.Key[str, str](partition="{name:raw}", row="{path:raw}")


class Totals(tm.Aggregate, of=Value, table="Totals"):
    """Every measure."""

    owner: tm.Field[Owner] = tm.group_by(Value.owner)
    colour: tm.Field[Colour] = tm.group_by(Value.colour)
    values: tm.Field[int] = tm.count()
    marked: tm.Field[int] = tm.count(Value.mark)
    dear: tm.Field[int] = tm.count(where=Value.price > Decimal(1))
    numbers: tm.Field[int] = tm.sum(Value.number)
    weight: tm.Field[float] = tm.sum(Value.weight)
    price: tm.Field[Decimal] = tm.sum(Value.price)
    span: tm.Field[timedelta] = tm.sum(Value.span)
    mean: tm.Field[float | None] = tm.avg(Value.weight)
    mean_price: tm.Field[Decimal | None] = tm.avg(Value.price)
    mean_span: tm.Field[timedelta | None] = tm.avg(Value.span)
    cheapest: tm.Field[Decimal | None] = tm.min(Value.price)
    lightest: tm.Field[float | None] = tm.min(Value.weight)
    latest: tm.Field[datetime | None] = tm.max(Value.at)
    lowest: tm.Field[int | None] = tm.min_ever(Value.number)
    heaviest: tm.Field[float | None] = tm.max_ever(Value.weight)

    key = tm.Key[Owner, Colour](partition="{owner}", row="{colour}")
    by_values = tm.Index[int](partition="top", row="{values:desc}")


class Weeks(tm.Aggregate, of=Value, table="Weeks", where=lambda value: value.sold == True):  # noqa: E712
    """Groups by parts of times, in a zone."""

    week: tm.Field[str] = tm.group_by(Value.at.truncate("%G-W%V", "Europe/Oslo"))
    values: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="weeks", row="{week}")


class Tags(tm.Aggregate, of=Value, table="Tags"):
    """A group for each element of a list."""

    tag: tm.Field[str] = tm.group_by(Value.tags.each())
    values: tm.Field[int] = tm.count()

    key = tm.Key[str](partition="{tag}")


KINDS = [Value, Sorted, Plain, Totals, Weeks, Tags]

NOON = datetime(2026, 3, 29, 12, 30, 15, 123456, tzinfo=UTC)
MARK = UUID("0192f7c0-0000-7000-8000-000000000001")


def entities() -> list[Value | Sorted | Plain]:
    """Return what the kept files hold of these classes."""
    owner = Owner("ada / #1")
    sort = ("Åre #2", -7, -1.5, Decimal("1.50"), True, NOON, NOON.date(), NOON.time(), timedelta(-1), MARK, b"\x00\xff")
    return [
        Value(owner, 1),
        Value(
            owner, 2, "Dune", tm.Int32(-7), 0.1, True, Decimal("9.90"), NOON, NOON.date(), NOON.time(),
            timedelta(days=1, microseconds=1), MARK, b"\x00\xff", Colour.BLUE, Rank.HIGH, "right", 5, ["sea", "sand"],
            {"large": 3}, {2, 1}, (1, "one"), Size(7, "cm"), Spot("a", (Size(1), Size(2))), Label("new", NOON.date()),
            Page(title="Dune"), tm.GeoPoint(59.9, 10.7), {"a": [1, None, {"b": "c"}]},
            tm.Extra(origin="Oslo", pages=90, score=4.5, signed=True), created=NOON,
        ),
        Value(owner, 3, "DUNE", weight=0.7, price=Decimal("2E+1"), at=NOON - timedelta(days=30), colour=Colour.BLUE, sold=True),
        Value(Owner("bob"), 999_999, "日本 😀", tags=["sea"], weight=float("inf"), price=Decimal("-0.1")),
        Sorted("b1", *sort, Colour.RED, Rank.LOW),
        Sorted("b1", *sort, Colour.RED, Rank.HIGH),
        Plain("café", "x y"),
    ]  # fmt: skip
