"""What engines of several programs keep while a model changes: builds beside writers, duplicates, renames, contraction.

A store in memory is of one program, and an engine of dicts knows no catalogue: they say so.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online import apply_schema

from ..classes import entity, grouped
from ..migrations.shapes import made, step
from ..stores import sound_store
from .azure.memory import Memory
from .azure.place import AzurePlace
from .azure.test_migrating import (
    ITEMS,
    NEW,
    NEWS,
    OLD,
    OLDS,
    expected,
    later,
    names,
    new_of,
    old_of,
    opened,
    seen,
)
from .dicts import DictPlace

KEY = tm.Key[str, int](partition="{shelf}", row=("part", "{number}"))
FIELDS = {"shelf": str, "number": int, "name": str, "code": (str | None, tm.field(default=None))}
PLAIN = entity("Thing", "Things", FIELDS, KEY)
NAMED = entity("Thing", "Things", FIELDS, KEY, by_name=tm.Index[str](partition="{name}"))
NAMES = grouped("Names", NAMED, "name", things=tm.count(), most=(int | None, tm.max(NAMED.number)))
UNIQUE = entity("Thing", "Things", FIELDS, KEY, by_code=tm.Index[str](partition="{code}", row="holder", unique=True))


@pytest.fixture(params=["file", "account"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(apply_schema, "_AT_ONCE", -1)  # (else a file builds over few entities as it is opened)
    return tmp_path / "x.db" if request.param == "file" else AzurePlace(memory=Memory(), still=True)


def follow(store: tm.Store) -> None:
    """Let it be time for a program to look at the catalogue again, where it does not with each write."""
    if hasattr(store._engine, "current"):
        later(store)


# ---------------------------------------------------------------------------------------------- builds


def test_what_is_new_is_built_beside_writers_and_read_once_it_is_ready(place: Any) -> None:
    with opened(place, [PLAIN]) as old:
        old.insert_many(PLAIN("ab"[n % 2], n, f"n{n % 3}") for n in range(30))
        with sound_store(place, models=[NAMED, NAMES], build=False) as new:
            with pytest.raises(tm.NotReady, match=r"Thing\.by_name: it is being built"):
                list(new.query(NAMED.by_name("n1")))
            with pytest.raises(tm.NotReady, match="Names"):
                new.get(NAMES.key("n1"))
            assert new.query(NAMED).where(NAMED.name == "n1").allow_scan().count() == 10
            follow(old)
            for verb in ("insert", "merge", "delete"):
                report = new.build(limit=6)
                assert (report.done, report.entities) == (False, 6)
                for number in (0, 13, 29):  # (what the build has passed, and what it has not)
                    shelf = "ab"[number % 2]
                    if verb == "insert":
                        old.insert(PLAIN(shelf, 100 + number, "n1"))
                    elif verb == "merge":
                        old.merge(PLAIN.key(shelf, number), name="n9")
                    else:
                        old.delete(PLAIN.key(shelf, number))
            assert new.build().built == ("Names", "Thing.by_name")
            whole = [one.number for one in new.query(NAMED).allow_scan() if one.name == "n1"]
            assert sorted(one.number for one in new.query(NAMED.by_name("n1"))) == sorted(whole)
            assert (new[NAMES.key("n1")].things, new[NAMES.key("n1")].most) == (len(whole), 129)
            assert new.get(NAMES.key("n9")) is None
            follow(old)
            old.insert(PLAIN("c", 500, "n1"))
            assert new[NAMES.key("n1")].most == 500


def test_a_build_that_ended_early_is_continued_by_another_program(place: Any) -> None:
    with opened(place, [PLAIN]) as old:
        old.insert_many(PLAIN("a", n, f"n{n % 3}") for n in range(20))
    with opened(place, [NAMED, NAMES], build=False) as first:
        assert first.build(limit=8).entities == 8
    with sound_store(place, models=[NAMED, NAMES], build=False) as second:
        item = second.status()["Thing.by_name"]
        assert (item.state, item.done) == ("building", 8)
        assert second.build().entities == 12
        assert second[NAMES.key("n0")].things == 7


def test_values_that_are_held_twice_are_listed_until_they_differ(place: Any) -> None:
    with opened(place, [PLAIN]) as old:
        old.insert_many(PLAIN("a", n, "x", f"c{n // 2}" if n < 4 else None) for n in range(8))
    with sound_store(place, models=[UNIQUE], build=False) as store:
        report = store.build()
        assert report.done
        assert not report.ok
        assert [(one.index, one.value[0], len(one.holders)) for one in report.violations] == [
            ("Thing.by_code", "c0", 2),
            ("Thing.by_code", "c1", 2),
        ]
        with pytest.raises(tm.NotReady, match="held twice"):
            list(store.query(UNIQUE.by_code("c0")))
        with pytest.raises(tm.UniqueViolation):
            store.insert(UNIQUE("b", 0, "x", "c0"))
        store.delete(UNIQUE.key("a", 0))
        store.merge(UNIQUE.key("a", 3), code="other")
        assert store.build().ok
        found = {code: [one.number for one in store.query(UNIQUE.by_code(code))] for code in ("c0", "c1", "other")}
        assert found == {"c0": [1], "c1": [2], "other": [3]}


# ---------------------------------------------------------------------------------------------- migrations


@pytest.fixture
def filled(place: Any) -> Any:
    with opened(place, OLDS) as store:
        store.insert_many(old_of(one) for one in ITEMS)
        store.build()
    return place


def test_both_versions_read_and_write_the_same_entities_after_a_rename(filled: Any) -> None:
    rng, held = random.Random(1), {one[:2]: one for one in ITEMS}
    with opened(filled, OLDS) as old:
        report = tm.migrate(filled, [names])
        assert (report.applied, report.entities) == (("names",), 0)
        assert {step.old_version for step in report.plan} == {"writes"}
        with sound_store(filled, models=NEWS) as new, opened(filled, OLDS) as restarted:
            for number in range(60):
                store = rng.choice([old, new, restarted])
                make, maker, price = (new_of, "firm", "cost") if store is new else (old_of, "maker", "price")
                key, firm = rng.choice(sorted(held)), f"m{rng.randrange(11)}"
                one: tuple[Any, ...] = ("xyz"[number % 3], 100 + number, firm, float(rng.randrange(9)), f"d{number}")
                match rng.randrange(5):
                    case 0:
                        store.insert(make(one))
                        held[one[:2]] = one
                    case 1:
                        store.delete(make(held.pop(key)).key)
                    case 2:
                        held[key] = (*key, *one[2:])
                        store.upsert(make(held[key]))
                    case 3:
                        held[key] = (*key, firm, *held[key][3:])
                        store.merge(make(held[key]).key, **{maker: firm})
                    case _:
                        held[key] = (*key, held[key][2], one[3], held[key][4])
                        entity = store[make(held[key]).key]
                        setattr(entity, price, one[3])
                        store.replace(entity)
            assert seen(old, OLDS) == seen(restarted, OLDS) == seen(new, NEWS) == expected(list(held.values()))
            assert old.check().ok
            old.insert_many([old_of(("w", n, "load", 1.0, None)) for n in range(5)])
            assert len(list(new.query(NEW.by_maker("load")))) == 5
            old.query(OLD).where(OLD.shelf == "w").update(OLD.price.set(2.0))
            assert {one.cost for one in new.query(NEW.by_maker("load"))} == {2.0}


def test_a_rename_is_undone_done_again_and_contracted(filled: Any) -> None:
    tm.migrate(filled, [names])
    with opened(filled, NEWS) as new:
        new.insert(new_of(("x", 50, "m1", 2.0, "c50")))
        assert tm.migrate(filled, [names], to="").applied == ("names",)
        with opened(filled, OLDS) as old:
            assert old[OLD.key("x", 50)].maker == "m1"
            old.merge(OLD.key("x", 50), maker="m2")
        assert new[NEW.key("x", 50)].firm == "m2"
    assert tm.status(filled).history == ()
    assert tm.migrate(filled, [names]).ok
    with opened(filled, OLDS) as old:
        assert tm.migrate(filled, [names], contract=True).contracted == ("names",)
        follow(old)
        with pytest.raises(tm.SchemaMismatch, match="names replaced this form of the class"):
            old.insert(old_of(("x", 51, "m1", 2.0, None)))
    with pytest.raises(tm.SchemaMismatch, match="names replaced this form of the class"):
        opened(filled, OLDS)
    with pytest.raises(tm.InvalidMigration, match="it was contracted"):
        tm.migrate(filled, [names], to="")
    with sound_store(filled, models=NEWS) as new:
        assert seen(new, NEWS) == expected([*ITEMS, ("x", 50, "m2", 2.0, "c50")])
    assert [entry.id for entry in tm.status(filled).history] == ["names"]


def test_what_is_dropped_goes_when_it_is_contracted(filled: Any) -> None:
    bare = entity(
        "Part", "Parts", {"shelf": str, "number": int, "maker": str | None, "price": float, "code": str | None},
        tm.Key[str, int](partition="{shelf}", row="{number}"),
    )  # fmt: skip
    dropped = [step("drop", OLD.by_maker), step("drop", OLD.by_price), step("drop", OLD.by_code)]
    drop = made(bare, OLDS, *dropped, step("drop", OLDS[1]), step("drop", OLDS[2]), name="bare")
    with opened(filled, OLDS) as old:
        report = tm.migrate(filled, [drop])
        assert {(step.reversible, step.old_version, step.entities) for step in report.plan} == {(True, "writes", 0)}
        old.insert(old_of(("x", 90, "m1", 1.0, "c90")))
        assert [one.number for one in old.query(OLD.by_code("c90"))] == [90]
        assert tm.migrate(filled, [drop], to="").ok
        tm.migrate(filled, [drop], contract=True)
        follow(old)
        with pytest.raises(tm.SchemaMismatch, match="bare"):
            old.insert(old_of(("x", 91, "m1", 1.0, None)))
    with sound_store(filled, models=[bare]) as store:
        assert store.query(bare).allow_scan().count() == len(ITEMS) + 1
    assert [one.where for one in tm.status(filled).objects if one.state == "ready"] == ["Part"]


def test_a_store_that_is_younger_than_a_script_notes_it_as_done(place: Any) -> None:
    opened(place, NEWS).close()
    report = tm.migrate(place, [names])
    assert (report.applied, report.ok) == ((), True)
    assert [(entry.id, entry.state) for entry in tm.status(place).history] == [("names", "switched")]


def test_nothing_is_renamed_in_a_frozen_store(filled: Any) -> None:
    with opened(filled, OLDS) as store:
        store.freeze()
        with pytest.raises(tm.StoreLocked, match="frozen"):
            tm.migrate(filled, [names])
        store.unfreeze()
    assert tm.migrate(filled, [names]).applied == ("names",)


def test_an_engine_that_migrates_nothing_says_so() -> None:
    with pytest.raises(tm.InvalidMigration, match="migrations run in a file, or in an account of Azure"):
        tm.migrate(DictPlace(), [names])  # type: ignore[arg-type]
    with pytest.raises(tm.StoreError, match="a store of its own each time"):
        tm.migrate(":memory:", [names])
