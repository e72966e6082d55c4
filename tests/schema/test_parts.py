"""A part of an entity is set, added to and removed by `merge` and ``update``: an entry, a property, a member."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, TypedDict

import attrs
import msgspec
import pytest

import tablemapper as tm
from tablemapper.values.extra import Int32Value


@attrs.frozen
class Geo:
    lat: float
    note: str | None = None


def _named(home: Any, attribute: Any, city: str) -> None:
    if city == "":
        raise ValueError("a city has a name")


@attrs.frozen
class Home:
    city: str = attrs.field(validator=_named)
    geo: Geo | None = None
    rooms: dict[str, int] = attrs.field(factory=dict)


@dataclasses.dataclass
class Box:
    size: int = 0


class Tag(msgspec.Struct, rename="camel"):
    short_name: str = ""


class Plan(TypedDict, total=False):
    name: str
    days: int


class Device(tm.Entity, table="Devices"):
    id: tm.Field[str]
    more: tm.Field[tm.Extra] = tm.field(factory=tm.Extra)
    hours: tm.Field[dict[str, int]] = tm.field(factory=dict)
    costs: tm.Field[dict[str, Decimal] | None] = tm.field(default=None)
    homes: tm.Field[dict[str, Home]] = tm.field(factory=dict)
    home: tm.Field[Home | None] = tm.field(default=None)
    box: tm.Field[Box] = tm.field(factory=Box)
    tag: tm.Field[Tag] = tm.field(factory=Tag)
    plan: tm.Field[Plan] = tm.field(factory=lambda: Plan())
    place: tm.Field[tm.GeoPoint | None] = tm.field(default=None)
    total: tm.Field[int] = tm.field(default=0)
    name: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str](partition="{id}")
    by_city = tm.Index[str](partition="{home.city}")


KEY = Device.key("d")
CITY = Device.home.at(lambda h: h.city)  # type: ignore[union-attr]


@pytest.fixture
def store() -> Iterator[tm.Store]:
    with tm.open(":memory:", models=[Device]) as opened:
        opened.insert(Device("d", tm.Extra(size=6, color="red"), {"04": 4}, home=Home("Bergen", Geo(60.0))))
        yield opened
        assert opened.check().ok


def merged(store: tm.Store, *assignments: tm.Assignment[Device]) -> Device:
    store.merge(KEY, *assignments)
    return store[KEY]


def test_an_undeclared_property_is_set_and_removed(store: tm.Store) -> None:
    assert merged(store, Device.more["battery"].set(80), Device.more["size"].set("big")).more == {
        "battery": 80, "color": "red", "size": "big",
    }  # fmt: skip
    assert merged(store, Device.more["size"].remove(), Device.more["none"].remove()).more == {
        "battery": 80, "color": "red",
    }  # fmt: skip
    assert merged(store, Device.more["battery"].set(None)).more == {"color": "red"}
    assert type(merged(store, Device.more["n"].set(Int32Value(3))).more["n"]) is Int32Value


def test_a_number_among_undeclared_properties_is_added_to_and_keeps_its_type(store: tm.Store) -> None:
    store.merge(KEY, Device.more["small"].set(Int32Value(3)), Device.more["x"].set(1.5))
    more = merged(store, Device.more["small"].add(4), Device.more["x"].add(0.5), Device.more["new"].add(2)).more
    assert (more["small"], type(more["small"]), more["x"], more["new"]) == (7, Int32Value, 2.0, 2)
    for wrong, message in [
        (Device.more["color"].add(1), r"more.color = Device.more.color \+ 1: 1 cannot be added to the str 'red'"),
        (Device.more["x"].add(1), "1 cannot be added to the float 2.0"),
    ]:
        with pytest.raises(tm.InvalidEntity, match=message):
            store.merge(KEY, wrong)
    with pytest.raises(tm.InvalidQuery, match=r"more.x.add\(…\): any cannot be added to"):
        Device.more["x"].add("a")


def test_an_entry_is_added_to_from_nothing(store: tm.Store) -> None:
    device = merged(store, Device.hours["05"].add(1), Device.hours["04"].add(1), Device.costs["a"].add(Decimal("0.10")))
    assert device.hours == {"04": 5, "05": 1}
    assert device.costs == {"a": Decimal("0.10")}
    assert merged(store, Device.costs["a"].add(Decimal("0.20"))).costs == {"a": Decimal("0.30")}
    assert merged(store, Device.hours["04"].remove(), Device.costs["b"].remove()).hours == {"05": 1}


def test_members_of_every_kind_of_class_are_set(store: tm.Store) -> None:
    store.merge(KEY, place=tm.GeoPoint(1.0, 2.0))
    device = merged(
        store,
        CITY.set("Oslo"),
        Device.home.at(lambda h: h.geo.lat).set(59.9),  # type: ignore[union-attr]
        Device.home.at(lambda h: h.rooms["hall"]).set(3),  # type: ignore[union-attr]
        Device.box.at(lambda b: b.size).set(7),
        Device.tag.at(lambda t: t.short_name).set("x"),
        Device.plan.at(lambda p: p["days"]).add(3),
        Device.place.at(lambda p: p.latitude).set(9.0),  # type: ignore[union-attr]
    )
    assert device.home == Home("Oslo", Geo(59.9), {"hall": 3})
    assert (device.box, device.tag, device.plan) == (Box(7), Tag("x"), {"days": 3})
    assert device.place == tm.GeoPoint(9.0, 2.0)
    assert [one.id for one in store.query(Device.by_city("Oslo"))] == ["d"]
    assert list(store.query(Device.by_city("Bergen"))) == []


def test_what_a_part_is_set_to_can_be_calculated_from_the_entity_as_it_was(store: tm.Store) -> None:
    device = merged(
        store,
        Device.hours["04"].set(Device.hours["04"] * 10),
        Device.hours["06"].set(Device.hours["04"] + 1),
        Device.total.set(Device.hours["04"]),
    )
    assert (device.hours, device.total) == ({"04": 40, "06": 5}, 4)


def test_a_field_is_removed_where_it_may_be_missing(store: tm.Store) -> None:
    assert merged(store, Device.home.remove()).home is None
    with pytest.raises(tm.InvalidEntity, match="total: it cannot be removed, as it is not optional"):
        store.merge(KEY, Device.total.remove())


def test_parts_are_changed_by_query(store: tm.Store) -> None:
    store.insert(Device("e"))
    found = store.query(Device).allow_scan()
    assert found.update(Device.hours["05"].add(1), Device.more["seen"].set(True)) == 2
    assert store[KEY].hours == {"04": 4, "05": 1}
    assert store[Device.key("e")].more == {"seen": True}
    assert found.where(Device.more["seen"] == True).update(Device.more["seen"].remove(), resume="x") == 2  # noqa: E712
    assert store[KEY].more == {"size": 6, "color": "red"}


def test_parts_are_changed_in_a_transaction(store: tm.Store) -> None:
    with store.transaction() as tx:
        tx.merge(KEY, Device.hours["05"].add(2), Device.more["color"].remove())
        assert tx[KEY].hours == {"04": 4, "05": 2}
    assert store[KEY].more == {"size": 6}


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ([Device.hours["05"].set("x")], r"hours.05: expected int, got str 'x'"),  # type: ignore[arg-type]
        ([CITY.set(3)], "home.city: expected str, got int 3"),  # type: ignore[arg-type]
        ([CITY.set(None)], "home.city = None"),  # type: ignore[arg-type]
        ([CITY.set("")], "a city has a name"),
        ([Device.more["a"].set([1])], "more.a: expected one of Azure's types"),
        ([Device.more["not a name"].set(1)], 'more.*"not a name"|is no name|not a name'),
        ([Device.hours["05"].set(Device.name)], "hours.05: Device.name is str, but the field is int"),  # type: ignore[arg-type]
        ([CITY.remove()], "home.city: city cannot be removed"),
        ([Device.homes["x"].at(lambda h: h.city).set("Oslo")], "the value that contains city is missing; set the whole value"),
        ([Device.place.at(lambda p: p.latitude).set(1.0)], "the value that contains latitude is missing"),  # type: ignore[union-attr]
        ([Device.hours["05"].set(1), Device.hours["05"].add(1)], "hours.05: it is assigned twice"),
        ([Device.hours["05"].set(1), Device.hours.set({})], "hours: it is assigned twice, as hours.05 is, too"),
        ([CITY.set("x"), Device.home.set(None)], "home: it is assigned twice, as home.city is, too"),
        ([Device.hours["05"].set(2**70)], "does not fit in 64 bits"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_to_a_part_is_refused_and_nothing_is_written(
    store: tm.Store, assignments: list[tm.Assignment[Device]], message: str
) -> None:
    before = store[KEY]
    with pytest.raises(tm.InvalidEntity, match=message):
        store.merge(KEY, *assignments, Device.total.set(99))
    assert store[KEY] == before
    assert tm.info(store[KEY]).etag == tm.info(before).etag


def test_the_key_and_unknown_parts_have_no_parts_to_set() -> None:
    with pytest.raises(tm.InvalidQuery, match='Home has no field "town"'):
        Device.home.at(lambda h: h.town)  # type: ignore[union-attr, attr-defined]
    with pytest.raises(tm.InvalidQuery, match="no nested values"):
        Device.name["x"]  # type: ignore[index]
