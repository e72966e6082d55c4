"""Predicates written down and read again."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablemapper as tm
from tablemapper.expressions.predicates import attribute, dump, load
from tablemapper.expressions.tree import Predicate

from ..classes import Color, Level


@attrs.define
class Address:
    city: str
    moved: datetime | None = None
    notes: dict[str, dict[str, int]] = attrs.field(factory=dict)


class Thing(tm.Entity, table="Things"):
    name: tm.Field[str]
    count: tm.Field[int]
    small: tm.Field[tm.Int32]
    size: tm.Field[float]
    on: tm.Field[bool]
    at: tm.Field[datetime]
    day: tm.Field[date]
    hour: tm.Field[time]
    took: tm.Field[timedelta]
    price: tm.Field[Decimal]
    id: tm.Field[UUID]
    data: tm.Field[bytes]
    color: tm.Field[Color]
    level: tm.Field[Level]
    kind: tm.Field[Literal["a", "b"]]
    tags: tm.Field[list[str]]
    spans: tm.Field[list[timedelta]]
    home: tm.Field[Address]
    more: tm.Field[tm.Extra]
    note: tm.Field[str | None]

    key = tm.Key[str](partition="{name}")


def read(form: Any) -> Predicate[Any]:
    return load(form, lambda name: getattr(Thing, name))


PREDICATES: list[Any] = [
    Thing.name == "x", Thing.count >= Thing.small, Thing.count < 3, Thing.small <= 4, Thing.size > 1.5,
    Thing.size == float("inf"), Thing.size >= float("-inf"),
    Thing.on == True,  # noqa: E712
    Thing.at == datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    Thing.at.date() == date(2026, 1, 2),
    Thing.at.truncate("%Y-%m %H:%M") == "2026-01 10:11",
    Thing.at.date("Europe/Oslo") == date(2026, 1, 2),
    Thing.at.truncate("%G-W%V", "America/St_Johns") == "2026-W01",
    Thing.at.truncate('"%H".(x)', "Etc/GMT+3") == "2026-W01",
    Thing.at.floor(timedelta(minutes=15)) <= datetime(2026, 1, 2, 3, 15, tzinfo=UTC),
    Thing.at.floor(timedelta(days=1)) == Thing.at.floor(timedelta(microseconds=1)),
    Thing.home.at(lambda home: home.moved).date("Europe/Oslo") == date(2026, 1, 1),
    Thing.home.at(lambda home: home.moved).floor(timedelta(hours=6)) == datetime(2026, 1, 1, tzinfo=UTC),
    Thing.home.at(lambda home: home.notes["date()"]["x.floor(timedelta(hours=1))"]) == 3,
    Thing.day > date(2026, 1, 2), Thing.hour != time(1, 2, 3), Thing.took < timedelta(days=-1, microseconds=7),
    Thing.price == Decimal("1.50"), Thing.id == UUID(int=7), Thing.data == b"\x00\xff", Thing.color == Color.RED,
    Thing.level > Level.LOW, Thing.kind == "a", Thing.tags.contains("x"), Thing.spans.contains(timedelta(1)),
    Thing.home == Address("Rome", datetime(2026, 1, 1, tzinfo=UTC)),
    Thing.home.at(lambda home: home.city).startswith("R"),
    Thing.home.at(lambda home: home.moved).date() == date(2026, 1, 1),
    Thing.home.at(lambda home: home.notes["a.b"]["c"]) == 3, Thing.home.at(lambda home: home.notes["a"]["b.c"]) == 3,
    Thing.home.at(lambda home: home.notes["date()"]["x[1]"]) == 3, Thing.more["color"] == "red",
    Thing.more["color"] == 3, Thing.more["at"].is_in([datetime(2026, 1, 1, tzinfo=UTC), True, 1.5, b"x"]),
    Thing.note.is_null(), Thing.note.is_not_null(), Thing.name.contains("e"), Thing.name.is_in(["a", "b"]),
    Thing.color.is_in([]), Thing.count.between(1, 5) & (Thing.name == "x"),
    (Thing.count > 1) | ~((Thing.name == "x") & (Thing.note == None)),  # noqa: E711
]  # fmt: skip


@pytest.mark.parametrize("predicate", PREDICATES, ids=lambda predicate: str(dump(predicate))[:60])
def test_a_predicate_is_read_as_it_was_written_down(predicate: Predicate[Any]) -> None:
    constants: list[Any] = []
    again: list[Any] = []
    loaded = read(dump(predicate))
    assert dump(loaded) == dump(predicate)
    # (What is joined is written down flat: its shape is that of the flat form.)
    assert read(dump(loaded)).shape(again) == loaded.shape(constants)
    assert again == constants
    assert [one.__class__ for one in again] == [one.__class__ for one in constants]
    assert {(a.source, a.type.name) for a in loaded.attributes()} == {
        (a.source, a.type.name) for a in predicate.attributes()
    }


JOINED = st.recursive(
    st.sampled_from(PREDICATES),
    lambda parts: st.one_of(
        st.tuples(parts, parts).map(lambda two: two[0] & two[1]),
        st.tuples(parts, parts).map(lambda two: two[0] | two[1]),
        parts.map(lambda one: ~one),
    ),
    max_leaves=8,
)


@given(JOINED)
def test_predicates_in_each_other_are_read_as_they_were_written_down(predicate: Predicate[Any]) -> None:
    assert dump(read(dump(predicate))) == dump(predicate)


@pytest.mark.parametrize(
    "form",
    [["~", "name", "x"], ["==", "name(", "x"], ["==", "count", "x"], ["==", "color", "green"], ["==", "home.x", 1], ["==", "price", []]],
)  # fmt: skip
def test_what_no_condition_gives_is_refused(form: Any) -> None:
    with pytest.raises((ValueError, AttributeError)):
        read(form)


def test_a_label_names_its_steps_as_a_user_writes_them() -> None:
    attr = Thing.home.at(lambda home: home.notes["a.b"]["c"])
    assert attr.label == 'home.notes["a.b"].c'
    assert attribute(attr.label, lambda name: getattr(Thing, name)).path == ("notes", "a.b", "c")
