"""Queries that fix whole keys: the other conditions hold, and so does the order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity, grouped


class Item(tm.Entity, table="Items"):
    name: tm.Field[str]
    size: tm.Field[int]
    price: tm.Field[Decimal] = tm.field(default=Decimal(1))
    tags: tm.Field[list[str]] = tm.field(factory=list)
    place: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str](partition="{name}")


Sizes = grouped("Sizes", Item, "name", row="sizes", total=tm.sum(Item.size))


Part = entity("Part", "Items", {"name": str, "size": int}, tm.Key[str](partition="{name}", row="part"))


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Item, Sizes, Part]) as opened:
        opened.insert_many([Item("a", 3, tags=["t"]), Item("b", 1), Item("c", 2, place="hall"), Part("a", 7)])
        yield opened


# ---------------------------------------------------------------------------------------------- one key

FALSE = [
    Item.size > 5, Item.size != 3, ~(Item.size == 3), Item.size.is_in([1, 2]), Item.place == "hall",
    Item.place != "hall", ~Item.place.is_null(), Item.tags.contains("u"), Item.price > Decimal(1), Item.name > "a",
    Item.place == Item.name, (Item.size > 5) | (Item.place == "hall"),
]  # fmt: skip


@pytest.mark.parametrize("condition", FALSE, ids=range(len(FALSE)))
def test_what_else_is_asked_of_a_whole_key_holds(store: tm.Store, condition: Any) -> None:
    query = store.query(Item).where(Item.name == "a", condition)
    assert (list(query), query.first(), query.one_or_none(), query.count(), query.exists()) == (
        [], None, None, 0, False,
    )  # fmt: skip
    with pytest.raises(tm.EntityNotFound):
        query.one()
    assert query.page(5).items == []
    assert list(query.select(Item.size)) == []
    assert query.select(Item.size).first() is None
    assert (query.sum(Item.size), query.max(Item.size), query.group_by(Item.name).count()) == (None, None, {})
    assert list(query.budget(examined=10)) == []
    assert query.budget(examined=10).first() is None
    assert query.explain().filter != ()
    assert query.update(size=9) == 0
    assert query.delete() == 0
    assert store.delete_many(query) == 0
    assert store[Item.key("a")].size == 3
    opposite = store.query(Item).where(Item.name == "a", ~condition)
    assert opposite.one() == opposite.first() == store[Item.key("a")]


def test_what_else_is_asked_of_the_key_of_an_aggregate_holds(store: tm.Store) -> None:
    query = store.query(Sizes).where(Sizes.name == "a")
    assert query.where(Sizes.total > 5).first() is None
    assert list(query.where(Sizes.total > 5)) == []
    assert query.where(Sizes.total == 3).one().total == 3


def test_what_else_is_asked_of_the_keys_of_several_classes_holds(store: tm.Store) -> None:
    query = store.query(Item, Part).where(Item.name == "a")
    assert [type(one) for one in query.where(Item.size > 5)] == [Part]
    assert query.where(Item.size > 5).first() == store[Part.key("a")]
    assert query.where(Item.size > 7).first() is None


# ---------------------------------------------------------------------------------------------- several keys

SEVERAL: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "a list": (Item, lambda cls: cls.name.is_in(["c", "a", "b"])),
    "alternatives": (Item, lambda cls: (cls.name == "a") | (cls.name == "b") | (cls.name == "c")),
    "a row that is a literal": (Sizes, lambda cls: cls.name.is_in(["a", "b", "c"])),
}


@pytest.mark.needs("backward", "sorts")
@pytest.mark.parametrize(("cls", "condition"), SEVERAL.values(), ids=SEVERAL)
def test_an_order_counts_where_several_whole_keys_are_fixed(store: tm.Store, cls: Any, condition: Any) -> None:
    field = cls.size if cls is Item else cls.total
    query = store.query(cls).where(condition(cls))
    for step, names in ((field.asc(), "bca"), (field.desc(), "acb"), (cls.name.desc(), "cba"), (cls.name.asc(), "abc")):
        ordered = query.order_by(step)
        assert [one.name for one in ordered] == list(names)
        assert [one.name for page in ordered.pages(1) for one in page.items] == list(names)
        assert [one.name for one in ordered.budget(examined=10)] == list(names)
        assert ordered.first().name == names[0]
        assert ordered.select(cls.name).first() == (names[0],)
    assert (query.min(field), query.max(field)) == (1, 3)


@pytest.mark.needs("sorts")
def test_an_order_chooses_what_a_limit_deletes(store: tm.Store) -> None:
    query = store.query(Item).where(Item.name.is_in(["a", "b", "c"])).order_by(Item.size)
    assert query.limit(1).delete() == 1
    assert [item.name for item in query] == ["c", "a"]
    assert query.limit(1).update(size=9) == 1
    assert [item.name for item in query] == ["a", "c"]


class Lesson(tm.Entity, table="Lessons"):
    room: tm.Field[str]
    hour: tm.Field[int]
    topic: tm.Field[str]

    key = tm.Key[str, int](partition="{room}", row="{hour}")


@pytest.mark.needs("backward", "sorts")
def test_an_order_counts_where_the_row_is_fixed_and_partitions_are_several() -> None:
    with tm.open(":memory:", models=[Lesson]) as store:
        store.insert_many([Lesson("a", 1, "z"), Lesson("b", 1, "x"), Lesson("c", 1, "y"), Lesson("a", 2, "w")])
        first = store.query(Lesson).where(Lesson.room.is_in(["a", "b", "c"]), Lesson.hour == 1)
        assert [lesson.topic for lesson in first.order_by(Lesson.topic)] == ["x", "y", "z"]
        assert [lesson.room for lesson in first.order_by(Lesson.hour, Lesson.room.desc())] == ["c", "b", "a"]
        merged = store.query(Lesson).where(Lesson.room.is_in(["a", "b"])).order_by(Lesson.hour, Lesson.topic)
        assert [lesson.topic for lesson in merged] == ["x", "z", "w"]
