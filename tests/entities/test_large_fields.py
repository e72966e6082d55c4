"""Fields with ``large=True``: of which types they can be, and what they cannot be in."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import tablemapper as tm


@attrs.define
class Page:
    text: str


class Doc(tm.Entity, table="Docs"):
    id: tm.Field[str]
    body: tm.Field[str] = tm.field(large=True)
    page: tm.Field[Page | None] = tm.field(default=None, large=True)
    words: tm.Field[list[str]] = tm.field(factory=list, large=True)

    key = tm.Key[str](partition="{id}")


def declared(body: dict[str, Any], /, **fields: tuple[Any, Any]) -> Any:
    """Declare a class with a key over ``id`` and some fields."""
    annotations = {"id": tm.Field[str]} | {name: tm.Field[kind] for name, (kind, _) in fields.items()}
    options = {name: option for name, (_, option) in fields.items()}
    names = {"__annotations__": annotations, "__module__": __name__, "key": tm.Key(partition="{id}")}
    return type(tm.Entity)("Note", (tm.Entity,), names | options | body, table="Notes")


LARGE = tm.field(large=True)


@pytest.mark.parametrize(
    ("kind", "name"), [(int, "int"), (bool, "bool"), (tm.Extra, "extra"), (float | None, "float")], ids=str
)
def test_other_types_are_refused(kind: Any, name: str) -> None:
    with pytest.raises(tm.InvalidModel, match=rf"n: large=True is for texts, bytes and nested values, not {name}$"):
        declared({}, n=(kind, LARGE))


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"key": tm.Key(partition="{body}")}, "body is large, and cannot be in key"),
        ({"by_body": tm.Index(partition="all", row="{body}")}, "body is large, and cannot be in by_body"),
        (
            {"by_id": tm.Index(partition="all", row="{id}", include=("body",))},
            "body is large, and cannot be in by_id",
        ),
        (
            {"by_id": tm.Index(partition="all", row="{id}", include="all")},
            "body is large, and cannot be in by_id; name the fields that it includes: include=('id',)",
        ),
    ],
    ids=["key", "row", "include", "include all"],
)
def test_a_key_and_an_index_hold_no_large_value(body: dict[str, Any], fault: str) -> None:
    with pytest.raises(tm.InvalidModel) as caught:
        declared(body, body=(str, LARGE))
    assert list(caught.value.faults) == [fault]


def test_an_index_over_something_nested_in_a_large_value_is_refused() -> None:
    with pytest.raises(tm.InvalidModel, match="page is large, and cannot be in by_text"):
        declared({"by_text": tm.Index(partition="all", row="{page.text}")}, page=(Page, LARGE))
    with pytest.raises(tm.InvalidModel, match="words is large, and cannot be in by_word"):
        declared({"by_word": tm.Index(partition="{words}")}, words=(list[str], LARGE))


def test_an_index_that_a_base_lends_is_judged() -> None:
    with pytest.raises(tm.InvalidModel, match="body is large, and cannot be in by_body"):

        class Base(tm.Entity):
            id: tm.Field[str]
            body: tm.Field[str] = tm.field(large=True)
            by_body = tm.Index[str](partition="all", row="{body}")


def test_groups_and_measures_are_not_over_large_values() -> None:
    with pytest.raises(tm.InvalidModel) as caught:

        class Total(tm.Aggregate, of=Doc, table="Totals"):
            body: tm.Field[str] = tm.group_by(Doc.body)
            count: tm.Field[int] = tm.count(Doc.page)
            last: tm.Field[str | None] = tm.max(Doc.body)
            word: tm.Field[str] = tm.group_by(Doc.words.each())
            key = tm.Key[str, str](partition="{body}", row="{word}")

    assert list(caught.value.faults) == [
        "body: body is large, and cannot be in a group",
        "count: page is large, and cannot be in a measure",
        "last: body is large, and cannot be in a measure",
        "word: words is large, and cannot be in a group",
    ]


def test_orders_and_totals_of_queries_are_not_over_large_values() -> None:
    with tm.open(":memory:", models=[Doc]) as store:
        query = store.query(Doc).allow_scan()
        for call, role in (
            (lambda: query.order_by(Doc.body.desc()), "an order"),
            (lambda: query.group_by(Doc.body), "a group"),
            (lambda: query.max(Doc.body), "a measure"),
            (lambda: query.group_by(Doc.id).min(Doc.body), "a measure"),
        ):
            with pytest.raises(tm.InvalidQuery, match=f"^body is large, and cannot be in {role}$"):
                call()  # type: ignore[no-untyped-call]


def test_the_option_is_true_or_false() -> None:
    options: Any = {"large": 1}
    with pytest.raises(tm.InvalidModel, match=r"body: large=: expected True or False, got 1"):
        declared({}, body=(str, tm.field(**options)))


def test_the_name_of_a_property_leaves_room_for_those_of_pieces() -> None:
    declared({}, body=(str, tm.field(large=True, name="b" * 248)))
    with pytest.raises(tm.InvalidModel, match="which may have 248 characters then"):
        declared({}, body=(str, tm.field(large=True, name="b" * 249)))


def test_a_large_value_may_be_as_large_as_an_entity() -> None:
    with tm.open(":memory:", models=[Doc]) as store:
        store.insert(Doc("a", "x" * 40_000))
        with pytest.raises(tm.EntityTooLarge, match=r"bytes, but an entity may have 1,048,576$"):
            store.insert(Doc("b", "x" * 530_000))
