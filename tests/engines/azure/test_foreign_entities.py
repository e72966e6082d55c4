"""Entities that other programs write into the tables of a store: in nothing maintained, until they are written here or repaired."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.reserved_names import OP
from tablemapper.engines.azure.tables.service import GroupTransaction, RowChange
from tablemapper.schema.model import compile_schema

from .memory import Memory
from .place import AzurePlace


class Part(tm.Entity, table="Parts"):
    """With all that can be maintained: in the partition, elsewhere, unique."""

    bin: tm.Field[str]
    id: tm.Field[str]
    color: tm.Field[str]
    code: tm.Field[str | None] = tm.field(default=None)
    size: tm.Field[int] = tm.field(default=1)

    key = tm.Key[str, str](partition="{bin}", row=("part", "{id}"))
    by_color = tm.Index[str, str](partition="{color}", row="{id}")
    by_code = tm.Index[str](partition="{code}", unique=True)
    by_size = tm.Index[str, int](partition="{bin}", row="{size}")


class Bin(tm.Aggregate, of=Part, table="Parts"):
    bin: tm.Field[str] = tm.group_by(Part.bin)
    parts: tm.Field[int] = tm.count()
    most: tm.Field[int | None] = tm.max(Part.size)

    key = tm.Key[str](partition="{bin}", row="total")


class Color(tm.Aggregate, of=Part, table="Colors"):
    color: tm.Field[str] = tm.group_by(Part.color)
    parts: tm.Field[int] = tm.count()
    most: tm.Field[int | None] = tm.max(Part.size)

    key = tm.Key[str](partition="{color}")


MODELS = [Part, Bin, Color]


class World:
    def __init__(self) -> None:
        self.memory = Memory()
        self.store = tm.Store(AzurePlace(memory=self.memory).open(compile_schema(MODELS)))
        self.store.insert(Part("a", "ours", "red", "1", 5))

    def foreign(self, name: str, **members: Any) -> None:
        """Write an entity as another program does: with the types of that."""
        body = {"color": "red", "size": "3", "size@odata.type": "Edm.Int64", **members}
        row = Part.key("a", name).row
        self.memory.send(GroupTransaction("Parts", "a", (RowChange("upsert", row, body),)))

    def groups(self) -> dict[str, tuple[int, int | None]]:
        store = self.store
        groups = {one.bin: (one.parts, one.most) for one in store.query(Bin).allow_scan()}
        return groups | {one.color: (one.parts, one.most) for one in store.query(Color).allow_scan()}

    def expected(self) -> dict[str, tuple[int, int | None]]:
        """Return what groups are if each entity that has our token is counted once."""
        sizes: dict[str, list[int]] = {}
        for (_, row), stored in self.memory.tables["Parts"].items():
            if row.startswith("part") and OP in stored.typed:
                for group in ("a", stored.typed["color"][1]):
                    sizes.setdefault(group, []).append(int(stored.typed["size"][1]))
        return {group: (len(each), max(each)) for group, each in sizes.items()}


VERBS: dict[str, Any] = {
    "merge": lambda store, key: store.merge(key, color="blue"),
    "merge of nothing maintained": lambda store, key: store.merge(key, code=None),
    "replace": lambda store, key: store.replace(store[key].replace(size=9)),
    "upsert": lambda store, key: store.upsert(Part("a", "foreign", "green", "7", 2)),
    "delete": lambda store, key: store.delete(key),
    "delete what was read": lambda store, key: store.delete(store[key]),
    "update": lambda store, key: store.query(Part).where(Part.bin == "a", Part.id == "foreign").update(size=7),
    "delete by query": lambda store, key: store.query(Part).where(Part.bin == "a", Part.id == "foreign").delete(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_what_was_never_added_is_never_taken_away(verb: str) -> None:
    world = World()
    store = world.store
    world.foreign("foreign", code="2")
    key = Part.key("a", "foreign")
    assert world.groups() == world.expected() == {"a": (1, 5), "red": (1, 5)}
    VERBS[verb](store, key)
    assert world.groups() == world.expected()
    assert store.check().ok, str(store.check())
    VERBS[verb](store, key) if "delete" not in verb else store.insert(Part("a", "foreign", "red", "2", 8))
    store.delete(Part.key("a", "ours"))
    assert world.groups() == world.expected()
    assert store.check().ok, str(store.check())


class Moment(tm.Entity, table="Moments"):
    name: tm.Field[str]
    at: tm.Field[datetime | None] = tm.field(default=None, name="At")
    n: tm.Field[int] = tm.field(default=0)
    more: tm.Field[tm.Extra | None] = tm.field(default=None)

    key = tm.Key[str](partition="{name}")


FINE = {
    "At": "2026-01-02T03:04:05.1234567Z",
    "then": "9999-12-31T23:59:59.9999999Z",
    "even": "2026-01-02T03:04:05.1234560Z",
}
TOUCHES: dict[str, Callable[[tm.Store, Any], Any]] = {
    "merge": lambda store, key: store.merge(key, n=2),
    "replace": lambda store, key: store.replace(store[key].replace(n=2)),
    "update": lambda store, key: store.update(key, lambda one: one.replace(n=2)),
    "update by query": lambda store, key: store.query(Moment).where(Moment.name == "x").update(n=2),
    "twice": lambda store, key: _written_twice(store, store[key]),
}


def _written_twice(store: tm.Store, moment: Moment) -> None:
    for n in (1, 2):
        moment.n = n
        store.replace(moment)


@pytest.mark.parametrize("verb", TOUCHES)
def test_a_write_leaves_times_alone_that_others_wrote_finer(verb: str) -> None:
    memory = Memory()
    store = tm.Store(AzurePlace(memory=memory).open(compile_schema([Moment])))
    types = {f"{name}@odata.type": "Edm.DateTime" for name in FINE}
    memory.send(GroupTransaction("Moments", "x", (RowChange("upsert", Moment.key("x").row, {**FINE, **types}),)))

    def kept() -> dict[str, Any]:
        ((row, stored),) = [(key, one) for key, one in memory.tables["Moments"].items() if key[0] == "x"]
        assert row
        return {name: stored.typed[name][1] for name in FINE if name in stored.typed}

    before = kept()
    key = Moment.key("x")
    TOUCHES[verb](store, key)
    assert kept() == before
    found = store[key]
    assert found.n == 2
    assert found.at == datetime(2026, 1, 2, 3, 4, 5, 123_456, tzinfo=UTC)
    assert found.more is not None
    store.replace(found.replace(at=datetime(2027, 1, 1, tzinfo=UTC), more=tm.Extra({**found.more, "then": found.at})))
    assert kept() == before | {"At": "2027-01-01T00:00:00Z", "then": "2026-01-02T03:04:05.123456Z"}


def test_a_repair_writes_what_others_wrote() -> None:
    world = World()
    store = world.store
    for number, members in enumerate(({}, {"code": "2"}, {"color": "blue", "extra": "kept"})):
        world.foreign(f"f{number}", **members)
    assert not store.check().ok
    report = store.repair()
    assert report.ok, str(report)
    assert world.groups() == world.expected() == {"a": (4, 5), "red": (3, 5), "blue": (1, 3)}
    assert [one.id for one in store.query(Part.by_code("2"))] == ["f1"]
    assert world.memory.tables["Parts"]["a", Part.key("a", "f2").row].typed["extra"] == ("String", "kept")
    store.merge(Part.key("a", "f2"), color="red", size=8)
    store.delete(Part.key("a", "f0"))
    assert store.check().ok
    assert world.groups() == {"a": (3, 8), "red": (3, 8)}


def test_a_value_that_two_have_is_left_and_harms_nothing() -> None:
    world = World()
    world.foreign("f", code="1")
    report = world.store.repair()
    (left,) = report.remaining
    assert (left.kind, left.detail) == ("uncounted", "its value '1' of Part.by_code is that of ('a', 'part !ours')")
    assert world.store.query(Part.by_code("1")).one().id == "ours"
    with pytest.raises(tm.UniqueViolation):
        world.store.merge(Part.key("a", "f"), size=2)
    world.store.merge(Part.key("a", "f"), code=None)
    assert world.store.repair().ok
    assert world.store.check().ok
    assert world.groups() == world.expected()


def test_in_any_order_of_writes_each_entity_is_counted_once() -> None:
    for order in itertools.permutations(["merge", "foreign", "repair", "replace"]):
        world = World()
        world.foreign("foreign")
        for step in order:
            if step == "foreign":
                world.foreign("other", color="blue")
            elif step == "repair":
                assert world.store.repair().ok
            else:
                VERBS[step](world.store, Part.key("a", "foreign"))
        assert world.store.repair().ok
        assert world.groups() == world.expected(), order
        assert world.store.check().ok


def test_a_check_says_which_entities_are_in_nothing_maintained() -> None:
    world = World()
    world.foreign("f", code="2")
    report = world.store.check()
    assert not report.ok
    assert report.entities == 2
    (problem,) = report.problems
    assert (problem.kind, problem.where, problem.key) == ("uncounted", "Part", ("a", Part.key("a", "f").row))
    assert problem.detail == (
        "another program wrote it, so no index and no aggregate has it; repair() adds it, and so does each write here"
    )
    repaired = world.store.repair()
    assert repaired.ok
    assert problem in repaired.repaired


def test_what_a_repair_or_a_build_adds_stays_as_it_was_but_for_marks() -> None:
    """Types that no field of ours is stored as, numbers in other widths, times with seven digits."""
    members = {
        "color": "red", "size": 3, "code": "9", "when": "2024-01-01T00:00:00.1234567Z", "when@odata.type": "Edm.DateTime",
        "id16": "C9DA6455-213D-42C9-9A79-3E9149A57833", "id16@odata.type": "Edm.Guid", "wide": "7", "wide@odata.type": "Edm.Int64",
        "ratio": 1.0, "flag": True, "blob": "AAE=", "blob@odata.type": "Edm.Binary",
    }  # fmt: skip

    class Shade(tm.Aggregate, of=Part, table="Shades"):
        color: tm.Field[str] = tm.group_by(Part.color)
        parts: tm.Field[int] = tm.count()

        key = tm.Key[str](partition="{color}")

    for way in ("repair", "build"):
        world = World()
        row = Part.key("a", "f").row
        world.memory.send(GroupTransaction("Parts", "a", (RowChange("insert", row, members),)))
        before = dict(world.memory.tables["Parts"]["a", row].typed)
        if way == "repair":
            assert world.store.repair().ok
        else:
            newer = tm.open(AzurePlace(memory=world.memory), models=[*MODELS, Shade])
            assert newer.group(Shade.key("red")).parts == 2
        after = world.memory.tables["Parts"]["a", row].typed
        assert {name: value for name, value in after.items() if not name.startswith("_tm_")} == before
        assert OP in after
        assert world.groups() == world.expected() == {"a": (2, 5), "red": (2, 5)}
        assert world.store.check().ok, way


def test_a_build_leaves_out_what_an_other_unique_index_refuses() -> None:
    class Shade(tm.Aggregate, of=Part, table="Shades"):
        color: tm.Field[str] = tm.group_by(Part.color)
        parts: tm.Field[int] = tm.count()

        key = tm.Key[str](partition="{color}")

    world = World()
    world.foreign("f", code="1")
    newer = tm.open(AzurePlace(memory=world.memory), models=[*MODELS, Shade])
    assert newer.group(Shade.key("red")).parts == 1
    assert [one.kind for one in newer.check().problems] == ["uncounted"]
    newer.merge(Part.key("a", "f"), code=None)
    assert newer.group(Shade.key("red")).parts == 2
    assert newer.check().ok


def test_a_foreign_change_costs_a_stale_etag_its_condition() -> None:
    world = World()
    store, key = world.store, Part.key("a", "ours")
    changes: list[dict[str, Any]] = [{"size": "8", "size@odata.type": "Edm.Int64"}, {"remark": "new"}]
    for members in changes:
        entity = store[key]
        world.memory.send(GroupTransaction("Parts", "a", (RowChange("merge", key.row, members),)))
        with pytest.raises(tm.PreconditionFailed):
            store.replace(entity.replace(color="blue"))
        with pytest.raises(tm.PreconditionFailed):
            store.delete(entity)
    assert store[key].size == 8


def test_what_cannot_be_added_is_left_out_of_all_that_a_repair_makes_right() -> None:
    """Its value is taken, so it stays in nothing: neither in its group, which is wrong, nor in an index that still has it."""
    world = World()
    store, row = world.store, Part.key("a", "taken").row
    store.insert(Part("a", "taken", "red", "2", 3))
    world.foreign("taken", code="1")
    world.memory.send(GroupTransaction("Parts", "a", (RowChange("merge", "total", {"parts": 9}),)))
    report = store.repair()
    assert [(one.kind, one.key) for one in report.remaining] == [("uncounted", ("a", row))]
    assert world.groups() == world.expected() == {"a": (1, 5), "red": (1, 5)}
    assert [one.id for one in store.query(Part).where(Part.bin == "a").order_by(Part.size)] == ["ours"]
