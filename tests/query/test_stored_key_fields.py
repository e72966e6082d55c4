"""Key fields that are stored as properties too: an index that keeps no properties still gives them, from the key."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

import tablemapper as tm


class Color(Enum):
    RED = "r"
    BLUE = "b"


class Part(tm.Entity, table="Parts"):
    name: tm.Field[str] = tm.field(stored=True)
    number: tm.Field[int] = tm.field(stored=True)
    at: tm.Field[datetime] = tm.field(stored=True)
    day: tm.Field[date] = tm.field(stored=True)
    hour: tm.Field[time] = tm.field(stored=True)
    span: tm.Field[timedelta] = tm.field(stored=True)
    weight: tm.Field[float] = tm.field(stored=True)
    price: tm.Field[Decimal] = tm.field(stored=True)
    id: tm.Field[UUID] = tm.field(stored=True)
    color: tm.Field[Color] = tm.field(stored=True)
    large: tm.Field[bool] = tm.field(stored=True)
    kind: tm.Field[str] = tm.field(default="box")

    key = tm.Key[str, int, datetime, date, time, timedelta, float, Decimal, UUID, Color, bool](
        partition=("{name}", "{number}", "{at}", "{day}", "{hour}"),
        row=("{span}", "{weight}", "{price}", "{id}", "{color}", "{large}"),
    )
    by_kind = tm.Index[str](partition="{kind}")
    by_number = tm.Index[int](partition="{kind:shard(2)}", row="{number}")
    by_color = tm.Index[str, Color](partition="{kind}", row="{color}", include=("at", "color"))


AT = datetime(2026, 3, 1, tzinfo=UTC)
PARTS = [
    Part("a", 7, AT, date(2026, 3, 1), time(9), timedelta(days=1), 1.5, Decimal("1.50"), UUID(int=1), Color.RED, True),
    Part("", 0, AT - timedelta(days=1), date(1, 1, 1), time(), timedelta(), 0.0, Decimal(0), UUID(int=0), Color.BLUE, False),
]  # fmt: skip
FIELDS = ["name", "number", "at", "day", "hour", "span", "weight", "price", "id", "color", "large"]


@pytest.fixture(scope="module")
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Part]) as opened:
        opened.insert_many(PARTS)
        yield opened


@pytest.mark.needs("backward", "sorts", when=lambda name: name != "color")
@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("index", ["by_kind", "by_number", "by_color"])
def test_an_index_gives_a_stored_key_field(store: tm.Store, index: str, name: str) -> None:
    attr: Any = getattr(Part, name)
    query = store.query(getattr(Part, index)())
    values = {part.name: getattr(part, name) for part in PARTS}
    assert dict(query.select(Part.name, attr)) == values
    assert {repr(value) for (value,) in query.select(attr)} == {repr(value) for value in values.values()}
    assert query.group_by(attr).count() == dict.fromkeys(values.values(), 1)
    if name != "color":
        assert (query.min(attr), query.max(attr)) == (values[""], values["a"])
        assert [part.name for part in query.order_by(attr.desc())] == ["a", ""]
        assert query.where(attr > values[""]).count() == 1
    if name == "span":
        assert query.sum(attr) == timedelta(days=1)
    one = query.where(attr == values["a"], Part.name == "a")
    assert (one.count(), one.exists(), one.select(Part.kind).first()) == (1, True, ("box",))
    assert list(one) == PARTS[:1]
    assert query.where(attr.is_in([values["a"]])).select(attr).first() == (values["a"],)


def test_what_an_index_finds_by_a_stored_key_field_is_written(store: tm.Store) -> None:
    with tm.open(":memory:", models=[Part]) as own:
        own.insert_many([Part(*(getattr(part, name) for name in FIELDS)) for part in PARTS])
        assert own.query(Part).where(Part.kind == "box", Part.number > 5).update(kind="bag") == 1
        assert own.query(Part).where(Part.kind == "bag", Part.day < date(2027, 1, 1)).delete() == 1
        assert own.query(Part.by_number()).select(Part.number).one() == (0,)


class Box(tm.Entity, table="Boxes"):
    number: tm.Field[int]
    id: tm.Field[UUID]
    kind: tm.Field[str]

    key = tm.Key[int, UUID](partition="{number}", row="{id}")
    by_kind = tm.Index[str](partition="{kind}", include="all")
    by_name = tm.Index[str](partition="{kind}", include=("id",), table="BoxNames")


@pytest.mark.needs("fresh")
@pytest.mark.parametrize("index", ["by_kind", "by_name"])
def test_an_index_that_includes_a_key_field_gives_it_from_the_key(index: str) -> None:
    with tm.open(":memory:", models=[Box]) as store:
        store.insert(Box(7, UUID(int=1), "a"))
        query = store.query(getattr(Box, index)("a"))
        assert query.select(Box.id, Box.number).explain().covering
        assert list(query.select(Box.id, Box.number)) == [(UUID(int=1), 7)]
        assert query.where(Box.number > 5).count() == 1
        assert query.max(Box.id) == UUID(int=1)
