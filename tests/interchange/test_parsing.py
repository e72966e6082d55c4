"""Conditions, orders and keys as a person types them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.interchange.parsing import condition, key, orders


class Color(Enum):
    RED = "r"
    BLUE = "b"


@attrs.frozen
class Home:
    city: str
    floor: int = 0


class Part(tm.Entity, table="Parts"):
    kind: tm.Field[str]
    number: tm.Field[int]
    price: tm.Field[Decimal | None] = tm.field(default=None)
    weight: tm.Field[float] = tm.field(default=1.0)
    color: tm.Field[Color] = tm.field(default=Color.RED)
    sold: tm.Field[bool] = tm.field(default=False)
    day: tm.Field[date | None] = tm.field(default=None)
    at: tm.Field[datetime | None] = tm.field(default=None)
    home: tm.Field[Home | None] = tm.field(default=None)
    tags: tm.Field[list[str]] = tm.field(factory=list)
    sizes: tm.Field[list[int]] = tm.field(factory=list)
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, int](partition="{kind}", row="{number}")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("number<8", Part.number < 8), ("number >= 8", Part.number >= 8), ("  number==-8", Part.number == -8),
        ("kind==8", Part.kind == "8"), ("kind==", Part.kind == ""), ('kind=="a b"', Part.kind == "a b"),
        ("kind==a == b", Part.kind == "a == b"), ('kind!="', Part.kind != '"'), ("kind==null", Part.kind == "null"),
        ("kind startswith bo", Part.kind.startswith("bo")), ("kind contains is null", Part.kind.contains("is null")),
        ("price<8.5", Part.price < Decimal("8.5")), ("price is null", Part.price.is_null()),
        ("price is  not null", Part.price.is_not_null()), ("weight>1", Part.weight > 1.0),
        ("color==RED", Part.color == Color.RED), ("color==b", Part.color == Color.BLUE),
        ("sold==true", Part.sold == True),  # noqa: E712
        ("day>=2026-01-31", Part.day >= date(2026, 1, 31)),
        ("at<2026-01-31T10:00:00Z", Part.at < datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("at<2026-01-31", Part.at < datetime(2026, 1, 31, tzinfo=UTC)),
        ("at >= 2026-01-31 ", Part.at >= datetime(2026, 1, 31, tzinfo=UTC)),
        ("kind==rock and roll", Part.kind == "rock and roll"),
        ('kind=="a and number==3"', Part.kind == "a and number==3"),
        ("home.city==Oslo", Part.home.at(lambda home: home.city) == "Oslo"),
        ("home.floor>2", Part.home.at(lambda home: home.floor) > 2), ("tags contains a", Part.tags.contains("a")),
        ("sizes contains 3", Part.sizes.contains(3)), ("number in 1,2", Part.number.is_in([1, 2])),
        ("kind in [\"a,b\", \"c\"]", Part.kind.is_in(["a,b", "c"])), ("kind in a, b", Part.kind.is_in(["a", "b"])),
        ("more.color==blue", Part.more["color"] == "blue"), ("more.n==3", Part.more["n"] == 3),
    ],
)  # fmt: skip
def test_a_text_is_the_condition_that_it_says(text: str, meant: tm.Predicate[Part]) -> None:
    assert repr(condition(Part, text)) == repr(meant)


@pytest.mark.parametrize(
    ("read", "fault"),
    [
        (lambda: condition(Part, "number"), "expected a field, an operator and a value, as in price<8"),
        (lambda: condition(Part, "number=8"), "the operators are ==, !=, <="),
        (
            lambda: condition(Part, "at.date()==2026-01-31"),
            "say a range: at>=2026-01-31T00:00:00Z and at<2026-02-01T00",
        ),
        (lambda: condition(Part, "size<8"), "Part has no field 'size'; it has at, color"),
        (lambda: condition(Part, "number<many"), "Part.number: 'many' is no int"),
        (lambda: condition(Part, "number<"), "Part.number: '' is no int"),
        (
            lambda: condition(Part, "at==2026-01-31"),
            "'2026-01-31' is no datetime, such as 2026-01-31T10:00:00Z; a day is a range, >=2026-01-31 and <2026-02-01",
        ),
        (lambda: condition(Part, "kind==a and number == 3"), "give each condition by itself, or write a value that is"),
        (
            lambda: condition(Part, "kind == a or price is null"),
            "with all of it from 'a or price is null' as its value",
        ),
        (lambda: condition(Part, "color==green"), "Part.color: 'green' is no"),
        (lambda: condition(Part, "home.street==x"), "street"),
        (lambda: orders(Part, "price,size"), "Part has no field 'size'"),
        (lambda: key(Part, ["books"]), "the key of Part is kind, number: expected 2 values, got 1"),
        (lambda: key(Part, ["books", "x"]), "Part.number: 'x' is no int"),
    ],
)
def test_what_cannot_be_read_says_what_was_expected(read: Callable[[], object], fault: str) -> None:
    with pytest.raises(tm.InvalidQuery, match=re.escape(fault)):
        read()


def test_orders_and_keys_are_those_that_a_program_writes() -> None:
    assert repr(orders(Part, "-price, number")) == repr([Part.price.desc(), Part.number.asc()])
    assert key(Part, ["8", "8"]) == Part.key("8", 8)
    found: Any = key(Part, ["", "-1"])
    assert found == Part.key("", -1)
