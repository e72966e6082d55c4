"""A program maintains an index or an aggregate over nested values whose class, or some of whose members, it does not know."""

from __future__ import annotations

import enum
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

import tablemapper as tm

from ...classes import aggregate, entity
from ...stores import sound_store


class Kind(enum.Enum):
    HOUSE = "house"
    FLAT = "flat"


class Place(msgspec.Struct):
    country: str
    since: date | None = None


class Before:
    @attrs.define
    class Home:
        city: str


class After:
    @attrs.define
    class Home:
        city: str
        floor: int = 3
        rent: Decimal = Decimal("1.50")
        built: datetime = datetime(2020, 1, 1, tzinfo=UTC)
        kind: Kind = Kind.FLAT
        place: Place | None = None
        rooms: dict[str, int] = attrs.field(factory=dict)


KEY = tm.Key[str, int](partition="{shop}", row="{number}")


def shop(home: Any, name: str = "Shop", **indexes: Any) -> Any:
    fields = {"shop": str, "number": int}
    if home is None:
        return entity(name, "Shops", fields, KEY, **indexes)
    return entity(name, "Shops", {**fields, "home": home | None}, KEY, home=tm.field(default=None), **indexes)


def indexes() -> dict[str, Any]:
    return {
        "by_city": tm.Index(partition="{home.city}"),
        "by_floor": tm.Index(partition="{home.floor}", row="{home.built}"),
        "by_rent": tm.Index(partition="{home.rent}"),
        "by_kind": tm.Index(partition="{home.kind}"),
        "by_place": tm.Index(partition="{home.place.country}", row="{home.place.since}"),
        "by_rooms": tm.Index(partition="{home.rooms.bath}"),
        "upstairs": tm.Index(partition="{shop}", where=lambda s: s.home.at(lambda home: home.floor) > 5),
    }


def floors(of: Any) -> Any:
    floor = of.home.at(lambda home: home.floor)
    members = {"shop": (str, tm.group_by(of.shop)), "floors": (int | None, tm.sum(floor))}
    return aggregate("Floors", of, members, tm.Key[str](partition="{shop}"))


FULL = After.Home("Rome", 9, Decimal("2.50"), kind=Kind.HOUSE, place=Place("it", date(2000, 1, 2)), rooms={"bath": 2})


@pytest.mark.parametrize("known", [None, Before.Home], ids=["a field", "members"])
def test_an_older_program_maintains_what_is_over_nested_values_that_it_does_not_know(
    tmp_path: Path, known: Any
) -> None:
    old, new = shop(known), shop(After.Home, **indexes())
    totals = floors(new)
    with tm.open(tmp_path / "s.db", models=[old]) as older, tm.open(tmp_path / "s.db", models=[new, totals]) as newer:
        newer.insert_many([new("x", number, FULL) for number in range(4)])
        older.insert(old("x", 10))
        older.delete(old.key("x", 0))
        older.replace(older[old.key("x", 1)])
        older.move(older[old.key("x", 2)], old.key("x", 20))
        if known is not None:
            older.insert(old("x", 11, Before.Home("Oslo")))
            older.merge(old.key("x", 11), home=Before.Home("Bern"))
        assert newer.check().ok
        found = [len(list(newer.query(new.by_floor(floor)))) for floor in (9, 3)]
        assert found == ([3, 0] if known is None else [3, 1])
        assert newer[totals.key("x")].floors == (27 if known is None else 30)
        assert newer[new.key("x", 20)] == new("x", 20, FULL)


def test_the_old_name_of_a_class_is_written_whatever_its_new_one_has_over_nested_values(tmp_path: Path) -> None:
    old, new = shop(After.Home, **indexes()), shop(After.Home, "Store", **indexes())

    def renamed(m: tm.Migration) -> None:
        m.rename_class(old, new)

    with tm.open(tmp_path / "s.db", models=[old]) as older:
        older.insert(old("x", 1, FULL))
        scripts = [tm.migration(after=None, old=[old], new=[new])(renamed)]
        assert {step.old_version for step in tm.migrate(tmp_path / "s.db", scripts).plan} == {"writes"}
        older.insert(old("x", 2, FULL))
        older.delete(old.key("x", 1))
        with sound_store(tmp_path / "s.db", models=[new]) as newer:
            assert list(newer.query(new.by_rent(Decimal("2.50")))) == [new("x", 2, FULL)]


def test_a_member_whose_default_only_its_code_knows_stops_writes(tmp_path: Path) -> None:
    @attrs.define
    class Home:
        city: str
        floor: int = attrs.field(factory=lambda: 3)

    old, new = shop(None), shop(Home, by_floor=tm.Index(partition="{home.floor}"))
    with tm.open(tmp_path / "s.db", models=[old]) as older, tm.open(tmp_path / "s.db", models=[new]) as newer:
        newer.insert(new("x", 1, Home("Rome")))
        with pytest.raises(tm.SchemaMismatch, match="by_floor needs the version that declares it"):
            older.insert(old("x", 2))


def test_an_entity_that_an_older_program_moves_keeps_what_that_does_not_know(tmp_path: Path) -> None:
    old, new = shop(None), shop(After.Home)
    with tm.open(tmp_path / "s.db", models=[old]) as older, tm.open(tmp_path / "s.db", models=[new]) as newer:
        newer.insert(new("x", 1, FULL))
        older.move(older[old.key("x", 1)], old.key("y", 2))
        assert newer[new.key("y", 2)] == new("y", 2, FULL)
        assert newer.get(new.key("x", 1)) is None


def test_an_entity_that_is_moved_under_the_old_name_of_its_class_keeps_what_only_the_new_one_has(
    tmp_path: Path,
) -> None:
    old, new, newest = shop(None), shop(None, "Store"), shop(After.Home, "Store")

    def renamed(m: tm.Migration) -> None:
        m.rename_class(old, new)

    with tm.open(tmp_path / "s.db", models=[old]) as older:
        older.insert(old("x", 1))
        tm.migrate(tmp_path / "s.db", [tm.migration(after=None, old=[old], new=[new])(renamed)])
        with sound_store(tmp_path / "s.db", models=[newest]) as newer:
            newer.merge(newest.key("x", 1), home=FULL)
            older.move(older[old.key("x", 1)], old.key("y", 2))
            assert list(newer.query(newest).allow_scan()) == [newest("y", 2, FULL)]
            newer.move(newer[newest.key("y", 2)], newest.key("z", 3))
            assert list(older.query(old).allow_scan()) == [old("z", 3)]
