"""Of a damaged entity counts what reads no damaged value: in a build, a check, a repair and a write, on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online import repair
from tablemapper.errors import CorruptStore
from tablemapper.progress import start_meter

from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace
from ..engines.dicts import _SHELVES, DictPlace
from ..sql import run_sql


class Item(tm.Entity, table="Items"):
    p: tm.Field[str]
    r: tm.Field[str]
    name: tm.Field[str]
    num: tm.Field[int]
    day: tm.Field[date]
    tags: tm.Field[list[str]]
    code: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, str](partition="{p}", row="{r}")
    by_name = tm.Index[str, str](partition="{p}", row="{name}", include=("num",))
    by_day = tm.Index[str, date](partition="{p}", row="{day}")
    by_code = tm.Index[str, str](partition="{p}", row="{code}", unique=True)
    by_tag = tm.Index[str](partition="{tags}")


class Total(tm.Aggregate, of=Item, table="Totals"):
    p: tm.Field[str] = tm.group_by(Item.p)
    items: tm.Field[int] = tm.count()
    nums: tm.Field[int] = tm.sum(Item.num)

    key = tm.Key[str](partition="{p}")


class Daily(tm.Aggregate, of=Item, table="Daily"):
    day: tm.Field[date] = tm.group_by(Item.day)
    items: tm.Field[int] = tm.count()
    coded: tm.Field[int] = tm.count(Item.code)

    key = tm.Key[date](partition="{day}")


MODELS: list[type[tm.Record]] = [Item, Total, Daily]
READS = {"by_name": {"name", "num"}, "by_day": {"day"}, "by_code": {"code"}, "by_tag": {"tags"}}
READS |= {"Total": {"num"}, "Daily": {"day", "code"}}
"""The fields that each part of what is maintained reads beside the key."""


class Plain(tm.Entity):
    p: tm.Field[str]
    r: tm.Field[str]
    name: tm.Field[str]
    num: tm.Field[int]
    day: tm.Field[date]
    tags: tm.Field[list[str]]
    code: tm.Field[str | None] = tm.field(default=None)


def plain() -> Any:
    """Return the class before anything is maintained from it."""

    class Item(Plain, table="Items"):
        key = tm.Key[str, str](partition="{p}", row="{r}")

    return Item


DAYS = [date(2026, 1, 1), date(2026, 1, 2)]
GOOD = {"name": "n3", "num": 3, "day": DAYS[1], "tags": ["t3", "all"], "code": "c3"}
DAMAGED = Item.key("p", "r3")
DAMAGES: dict[str, tuple[str, Any, tuple[str, Any] | None]] = {
    "a text in an int": ("num", "x", ("String", "x")), "a float that equals the int": ("num", 3.0, ("Double", 3.0)),
    "a bool in an int": ("num", "true", ("Boolean", True)), "nothing in an int": ("num", None, None),
    "bytes in a text": ("name", b"\x00", ("Binary", "AA==")), "an int in a text": ("name", 5, ("Int64", "5")),
    "a time in a text": ("name", 7.5, ("DateTime", "2026-01-01T00:00:00Z")),
    "nothing in a text": ("name", None, None), "no date": ("day", "2026-13-01", ("String", "2026-13-01")),
    "a date in another form": ("day", "20260102", ("String", "20260102")),
    "no JSON": ("tags", "[1", ("String", "[1")),
    "JSON of other elements": ("tags", '["a", 5]', ("String", '["a", 5]')),
    "bytes in a unique text": ("code", b"c3", ("Binary", "YzM=")),
    "a text that is too long": ("code", "c" * 530_000, None),
}  # fmt: skip


READABLE = ("a date in another form", "a text that is too long")
"""What a read trusts: it is of the right class, and stands for a value."""


@attrs.frozen
class Place:
    """A store that tests open again and again, and damage."""

    at: Any
    memory: Memory | None = None

    def open(self, models: list[Any]) -> tm.Store:
        return tm.open(self.at, models=models)

    def damage(self, name: str) -> None:
        """Damage one value of one entity."""
        field, value, property = DAMAGES[name]
        if isinstance(self.at, Path):
            run_sql(self.at, f"UPDATE Items SET {field} = ? WHERE RowKey = 'r3'", values=(value,))
        elif self.memory is not None:
            rows = self.memory.tables["Items"]
            typed = {other: one for other, one in rows["p", "r3"].typed.items() if other != field}
            typed |= {} if property is None else {field: property}
            damaged = attrs.evolve(rows["p", "r3"], typed=typed)
            self.memory.tables["Items"] = rows | {("p", "r3"): damaged}
        else:
            items = _SHELVES[self.at.name].state.entities["Items"].items
            kept, row = items["p", "r3"]
            columns = ["name", "num", "day", "tags", "code"]
            items["p", "r3"] = (
                kept,
                (*row[:3], *[value if one == field else v for one, v in zip(columns, row[3:], strict=True)]),
            )


@pytest.fixture(params=["file", "account", "dicts", "bare"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "file":
        return Place(tmp_path / "x.db")
    if request.param == "account":
        memory = Memory()
        return Place(AzurePlace(memory=memory, still=True), memory)
    lacking = ("backward", "sorts", "across_partitions", "all_or_none_load") if request.param == "bare" else ()
    return Place(DictPlace(str(tmp_path), lacking))


def items(cls: Any = Item) -> Iterator[Any]:
    for n in range(6):
        yield cls("p", f"r{n}", f"n{n}", n, DAYS[n % 2], [f"t{n}", "all"], f"c{n}")


def counts(field: str | None) -> dict[str, Any]:
    """Return what is maintained if a value of the entity 3 cannot be read; None: all of all; "": it is not there."""
    them = {
        part: [n for n in range(6) if n != 3 or (field != "" and field not in reads)] for part, reads in READS.items()
    }
    expected: dict[str, Any] = {part: [f"r{n}" for n in them[part]] for part in READS if part.startswith("by_")}
    expected["Total"] = (len(them["Total"]), sum(them["Total"]))
    expected["Daily"] = [(len([n for n in them["Daily"] if n % 2 == day]),) * 2 for day in (0, 1)]
    return expected


def kept(store: tm.Store) -> dict[str, Any]:
    """Return what is maintained: of indexes as the engine's check reads them, and of groups."""
    store.sweep()
    found: dict[str, Any] = {name: sorted(row[3] for row in rows) for name, rows in index_rows(store).items()}
    total = store[Total.key("p")]
    found["Total"] = (total.items, total.nums)
    groups = [store[Daily.key(day)] for day in DAYS]
    found["Daily"] = [(group.items, group.coded) for group in groups]
    return {name: list(dict.fromkeys(rows)) if name == "by_tag" else rows for name, rows in found.items()}


def index_rows(store: tm.Store) -> dict[str, list[Any]]:
    engine: Any = store._engine
    if hasattr(engine, "file"):
        names = {"by_name": "ItemsByName", "by_day": "ItemsByDay", "by_code": "ItemsByCode", "by_tag": "ItemsByTag"}
        with engine.file.snapshot() as snapshot:
            return {
                name: [tuple(row) for row in snapshot.read(f"SELECT * FROM {table}", ())]
                for name, table in names.items()
            }
    if hasattr(engine, "state"):
        return {
            name.removeprefix("Item."): list(table.items) for name, table in engine.state.indexes.items() if table.items
        }
    _, _, view = engine._examined(start_meter(False, "check", total=None))
    return {index.model.name: [key for key, _ in rows.items()] for index, rows in view._indexes.items()}


def problems(store: tm.Store) -> list[tuple[str, str, tuple[Any, ...]]]:
    return [(one.kind, one.where, tuple(one.key)) for one in store.check().problems]


ONE = [("damaged", "Item", ("p", "r3"))]


@pytest.mark.parametrize("name", DAMAGES)
def test_all_engines_count_alike_what_is_damaged(place: Place, name: str) -> None:
    field, value, property = DAMAGES[name]
    if place.memory is not None and property is None and value is not None:
        pytest.skip("no service takes such a value")
    old = plain()
    with place.open([old]) as store:
        store.insert_many(items(old))
    place.damage(name)

    with place.open(MODELS) as store:  # a build goes on past it
        assert kept(store) == counts(field)
        assert problems(store) == ONE
        with nullcontext() if name in READABLE else pytest.raises(CorruptStore, match=f"{field}: "):
            store.get(DAMAGED)
        report = store.repair()  # and a repair finds nothing to do
        assert (report.repaired, [one.kind for one in report.remaining]) == (
            (),
            [] if no_repair(place) else ["damaged"],
        )
        store.delete(DAMAGED)
        assert kept(store) == counts("")
        assert problems(store) == []
        store.insert(Item("p", "r3", **GOOD))
        assert kept(store) == counts(None)

    place.damage(name)
    with place.open(MODELS) as store:  # what is maintained holds the old value, until it is repaired
        assert set(ONE) < set(problems(store))
        if no_repair(place):
            return
        assert [one.kind for one in store.repair().remaining] == ["damaged"]
        assert kept(store) == counts(field)
        assert problems(store) == ONE
        store.merge(DAMAGED, **{field: GOOD[field]})
        assert kept(store) == counts(None)
        assert problems(store) == []
        store.upsert(Item("p", "r3", **GOOD))
    place.damage(name)
    with place.open(MODELS) as store:
        store.repair()
        store.upsert(Item("p", "r3", **GOOD))
        assert kept(store) == counts(None)
        assert problems(store) == []


def no_repair(place: Place) -> bool:
    return isinstance(place.at, DictPlace)


def test_a_copy_says_which_entity_of_an_account_cannot_be_copied(tmp_path: Path) -> None:
    memory = Memory()
    place = Place(AzurePlace(memory=memory, still=True), memory)
    with place.open(MODELS) as store:
        store.insert_many(items())
    place.damage("a text in an int")
    refused = pytest.raises(
        CorruptStore, match=r"Item: .*'r3'\) cannot be read: num: 'x' of the type String .*then copy"
    )
    with place.open(MODELS) as store, tm.open(tmp_path / "x.db", models=MODELS) as target, refused:
        tm.copy(store, target)


def test_an_index_that_is_built_anew_by_a_repair_is_built_past_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "_MANY", 3)
    place = Place(tmp_path / "x.db")
    with place.open(MODELS) as store:
        store.insert_many(items())
    run_sql(tmp_path / "x.db", "DELETE FROM ItemsByName")
    place.damage("bytes in a text")
    with place.open(MODELS) as store:
        assert [one.kind for one in store.repair().remaining] == ["damaged"]
    with place.open(MODELS) as store:
        assert problems(store) == ONE
        assert len(list(store.query(Item.by_name("p")).select(Item.r))) == 5


def test_a_check_and_a_repair_tell_how_much_there_is_to_do(place: Place) -> None:
    seen: list[tm.reports.Progress] = []
    with place.open(MODELS) as store:
        store.insert_many(Item("p", f"r{n}", **GOOD | {"code": f"c{n}"}) for n in range(3))
        for verb in (store.check, store.repair):
            verb(progress=seen.append)
            assert (seen[-1].done, seen[-1].total) == (3, 3)
