"""What needs no step, in a script with other steps: it is taken over with them."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm

from ..classes import entity
from ..stores import sound_store
from .shapes import made, migrate, script, step

KEY = tm.Key[str, int](partition="{shelf}", row="{number}")


class Before:
    @attrs.define
    class Home:
        city: str

    class Color(enum.Enum):
        RED = "red"


class After:
    @attrs.define
    class Home:
        city: str
        floor: int = 7

    class Color(enum.Enum):
        RED = "red"
        BLUE = "blue"


def thing(table: str, types: Any, price: Any, color: Any) -> Any:
    members = {
        "shelf": str, "number": int, "price": price, "home": types.Home, "other": types.Home | None,
        "homes": list[types.Home], "color": types.Color, "text": color,
    }  # fmt: skip
    return entity("Thing", table, members, KEY)


@pytest.mark.parametrize("table", ["Things", "Goods"])
def test_values_of_a_wider_class_are_read_with_that(tmp_path: Path, table: str) -> None:
    old, new = thing("Things", Before, int, Before.Color), thing(table, After, float, str)

    def steps(m: tm.Migration) -> None:
        m.convert(old.price, new.price, float)
        if table != "Things":
            m.rename_class(old, new)

    with tm.open(tmp_path / "s.db", models=[old]) as store:
        homes = [Before.Home("Rome"), None, [Before.Home("Bern")]]
        store.insert(old("x", 1, 5, *homes, Before.Color.RED, Before.Color.RED))
    assert migrate(tmp_path / "s.db", script([new], steps, "one", None, [old]), dry_run=True).ok
    assert migrate(tmp_path / "s.db", script([new], steps, "one", None, [old])).ok
    with tm.open(tmp_path / "s.db", models=[new]) as store:
        after = [After.Home("Rome"), None, [After.Home("Bern")]]
        assert list(store.query(new).allow_scan()) == [new("x", 1, 5.0, *after, After.Color.RED, "red")]


def test_a_type_name_that_comes_with_a_rename_is_given_to_the_rows(tmp_path: Path) -> None:
    Thing = entity("Thing", "Things", {"shelf": str, "number": int, "price": int}, KEY)
    old = Thing

    class Thing(tm.Entity, table="Things", type="thing"):  # type: ignore[no-redef]
        shelf: tm.Field[str]
        number: tm.Field[int]
        cost: tm.Field[int]

        key = KEY

    new: Any = Thing
    rename = step("rename", old.price, new.cost)
    with tm.open(tmp_path / "s.db", models=[old]) as older:
        older.insert(old("x", 1, 5))
        assert migrate(tmp_path / "s.db", made(new, old, rename, name="one")).ok
        with tm.open(tmp_path / "s.db", models=[new]) as newer:
            older.insert(old("x", 2, 6))
            newer.insert(new("x", 3, 7))
            assert [one.cost for one in newer.query(new).allow_scan()] == [5, 6, 7]
            assert newer.check().ok
            assert older.check().ok
    for _ in range(2):
        assert migrate(tmp_path / "s.db", made(new, old, rename, name="one"), to="").ok
        assert migrate(tmp_path / "s.db", made(new, old, rename, name="one")).ok
    with tm.open(tmp_path / "s.db", models=[new]) as store:
        assert store.check().ok


def test_a_rename_is_undone_though_a_nested_class_has_grown(tmp_path: Path) -> None:
    def home(types: Any, **fields: Any) -> Any:
        return entity("Thing", "Things", {"shelf": str, "number": int, "home": types.Home, **fields}, KEY)

    old, new = home(Before, price=int), home(After, cost=int)
    rename = step("rename", old.price, new.cost)
    with tm.open(tmp_path / "s.db", models=[old]) as store:
        store.insert(old("x", 1, Before.Home("Rome"), 5))
    for _ in range(2):
        assert migrate(tmp_path / "s.db", made(new, old, rename, name="one")).ok
        with tm.open(tmp_path / "s.db", models=[new]) as store:
            assert store[new.key("x", 1)] == new("x", 1, After.Home("Rome"), 5)
        assert migrate(tmp_path / "s.db", made(new, old, rename, name="one"), to="").ok
        with sound_store(tmp_path / "s.db", models=[old]) as store:
            assert store[old.key("x", 1)] == old("x", 1, Before.Home("Rome"), 5)


def test_an_optional_field_that_a_copy_adds_is_none_in_entities_of_the_older_version(place: Path) -> None:
    Part = entity("Part", "Parts", {"number": int}, tm.Key[int](partition="all", row="{number}"))
    old, old_part = [Part], Part

    class Part(tm.Entity, table="Parts"):  # type: ignore[no-redef]
        number: tm.Field[int]
        colour: tm.Field[str | None] = tm.field(default="yellow")
        key = tm.Key[int](partition="parts", row="{number}")

        by_colour = tm.Index(partition="{colour}")

    copied = script([Part], lambda m: m.rekey(old_part, Part), "copied", old=old)
    with tm.open(place, models=old) as store:
        store.insert(old_part(1))
    tm.migrate(place, [copied], rest=0)
    with tm.open(place, models=old, migrations=[copied]) as store, tm.open(place, models=[Part]) as later:
        store.insert(old_part(2))
        assert [later[Part.key(number)].colour for number in (1, 2)] == [None, None]
        assert later.query(Part.by_colour("yellow")).count() == 0


def test_an_index_that_has_the_name_of_a_former_one_is_no_hindrance_to_a_script_that_copies_its_class(
    tmp_path: Path,
) -> None:
    def part(partition: str, **indexes: str) -> Any:
        key = tm.Key(partition=partition, row="{number}")
        by = {name: tm.Index(partition=text) for name, text in indexes.items()}
        return entity("Part", "Parts", {"number": int, "name": str}, key, **by)

    first = part("all", by_name="{name}", by_any_case="{name:fold}")
    second, third = (part(partition, by_name="{name:fold}") for partition in ("all", "parts"))
    copied = script([third], lambda m: m.rekey(second, third), "copied", old=[second])
    with tm.open(tmp_path / "s.db", models=[first]) as store:
        store.insert(first(1, "Ace"))
    with tm.open(tmp_path / "s.db", models=[second]) as store:
        assert store.query(second.by_name("ACE")).count() == 1
    assert tm.migrate(tmp_path / "s.db", [copied], rest=0).ok
    with sound_store(tmp_path / "s.db", models=[third]) as store:
        assert store.query(third.by_name("ACE")).count() == 1
    assert tm.migrate(tmp_path / "s.db", [copied], to="", rest=0).ok
    with sound_store(tmp_path / "s.db", models=[second]) as store:
        assert store.query(second.by_name("ACE")).count() == 1
