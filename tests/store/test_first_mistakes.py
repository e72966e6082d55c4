"""Mistakes that are made in the first hours: each message says what to write."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar

import pytest

import tablemapper as tm

from ..classes import grouped


class Item(tm.Entity, table="Items"):
    group: tm.Field[str]
    number: tm.Field[int]
    tags: tm.Field[list[str]] = tm.field(factory=list)
    pair: tm.Field[tuple[int, ...]] = tm.field(default=())
    share: tm.Field[float] = tm.field(default=0.0)
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)

    key = tm.Key[str, int](partition="{group}", row="{number}")


Total = grouped("Total", Item, "group", "Totals", n=tm.count())
KEY = Item.key("a", 1)
MISTAKES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda s: s.get(Item, ("a", 1)), tm.InvalidEntity, "expected Item.key('a', 1), got"),
    (lambda s: s.insert([Item("a", 1)]), tm.InvalidEntity, "; store.insert_many, upsert_many, replace_many and delete_many take several"),
    (lambda s: s.upsert((Item("a", 1),)), tm.InvalidEntity, "; store.insert_many, upsert_many, replace_many and delete_many take several"),
    (lambda s: s[KEY], tm.EntityNotFound, "there is no such entity; .get(key) returns None"),
    (lambda s: s[Total.key("a")], tm.EntityNotFound, "there is no such group; store.group(key) returns an empty one"),
    (lambda s: s.delete(KEY), tm.EntityNotFound, "; if it may be missing, ask .exists(key) before, or catch EntityNotFound"),
    (lambda s: s.merge(KEY, share=1.0), tm.EntityNotFound, "; if it may be missing, .upsert(entity, merge=True) inserts it then"),
    (lambda s: s.replace(Item("a", 1), if_match="*"), tm.EntityNotFound, "; if it may be missing, .upsert(entity) inserts it then"),
    (lambda s: Item("a", "1"), tm.InvalidEntity, "number: expected int, got str '1'; use int('1')"),
    (lambda s: Item("a", 1, share="0.5"), tm.InvalidEntity, "share: expected float, got str '0.5'; use float('0.5')"),
    (lambda s: Item("a", 1, ("x",)), tm.InvalidEntity, "tags: expected list[str], got tuple ('x',); use list(…)"),
    (lambda s: Item("a", 1, pair=[1]), tm.InvalidEntity, "got list [1]; use tuple(…)"),
    (lambda s: Item.key("a", "1"), tm.InvalidEntity, "number: expected int, got str '1'; use int('1')"),
    (lambda s: tm.open(":memory:", models=Item), tm.InvalidModel, "; write models=[Item]"),
    (lambda s: tm.open(":memory:", models=["Item"]), tm.InvalidModel, "; name the class itself: models=[Item]"),
    (lambda s: tm.open(":memory:", models=[Item], timout=3), TypeError, 'open: timout= is not an option; did you mean "timeout"?'),
    (lambda s: tm.open_async(":memory:", models=[Item], timout=3), TypeError, 'open_async: timout= is not an option; did you mean "timeout"?'),
    (lambda s: tm.open(":memory:", models=[Item], pool_pre_ping=1), TypeError, "pool_pre_ping= is not an option (models, read_only, "),
    (lambda s: s.insert_columns(Item, [{"group": "a"}]), tm.InvalidEntity, "; write store.insert_many(tm.from_dict(Item, row) for row in rows)"),
    (lambda s: dict(Item("a", 1)), TypeError, "are no mappings; write tm.to_dict(entity)"),
    (lambda s: Item("a", 1)["number"], TypeError, "are no mappings; write entity.number, or tm.to_dict(entity)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "said"), MISTAKES)
def test_a_mistake_says_what_to_write(call: Callable[[Any], Any], error: type[Exception], said: str) -> None:
    with tm.open(":memory:", models=[Item, Total]) as store, pytest.raises(error, match=re.escape(said)):
        call(store)


def test_a_value_that_no_plain_call_converts_gets_no_remedy() -> None:
    build: Any = Item
    for value in ("one", b"1", None, [1]):
        with pytest.raises(tm.InvalidEntity) as caught:
            build("a", value)
        assert "; use " not in str(caught.value)


def test_a_lazy_frame_is_collected_first() -> None:
    polars = pytest.importorskip("polars")
    with (
        tm.open(":memory:", models=[Item]) as store,
        pytest.raises(tm.InvalidEntity, match=r"write frame\.collect\(\)$"),
    ):
        store.insert_columns(Item, polars.DataFrame({"group": ["a"], "number": [1]}).lazy())


def test_the_name_of_a_table_is_shown_where_it_is_no_text() -> None:
    wrong: Any = True
    with pytest.raises(tm.InvalidModel, match='the name of a table is text, as in table="Things"'):

        class Thing(tm.Entity, table=wrong):
            name: tm.Field[str]
            key = tm.Key[str](partition="{name}")


def test_a_model_of_pydantic_is_told_to_become_a_class_that_is_stored() -> None:
    pydantic = pytest.importorskip("pydantic")
    address = pydantic.create_model("Address", city=(str, ...))
    with pytest.raises(tm.InvalidModel, match="Address is a model of pydantic.*make it an attrs class") as caught:
        type(tm.Entity)(
            "Person", (tm.Entity,), {"__annotations__": {"name": tm.Field[str], "home": tm.Field[address]},
            "key": tm.Key[str](partition="{name}")}, table="People",
        )  # fmt: skip
    assert len(str(caught.value)) < 250


class Stamped:
    created: datetime


class Helped:
    limit: ClassVar[int] = 5
    shown: ClassVar[str]
    _hidden: int
    name: str  # (of the entity)
    size: int = 3

    def title(self) -> str:
        return self.name.title()


def test_an_annotation_of_a_plain_class_is_no_field_and_says_so() -> None:
    with pytest.raises(tm.InvalidModel) as caught:

        class Wrong(Stamped, tm.Entity, table="Wrong"):
            name: tm.Field[str]
            key = tm.Key[str](partition="{name}")

    assert caught.value.faults == (
        "Stamped.created: an annotation of a class that is no entity gives no field; write created: tm.Field[…] in class "
        "Stamped(tm.Entity), or ClassVar if it is none",
    )

    class Right(Helped, tm.Entity, table="Right"):
        name: tm.Field[str]
        key = tm.Key[str](partition="{name}")

    assert Right("a").title() == "A"

    class Lender(Stamped, tm.Entity):  # (a class without a table may still lack what its mixin is about)
        created: tm.Field[datetime]
