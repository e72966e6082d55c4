"""Migrations that only the catalogue knows: the old version of a program goes on beside the new one until they are contracted."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import apsw
import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online import migration
from tablemapper.store import builds

from ..classes import aggregate, entity
from ..stores import sound_store
from .shapes import FIELDS, changed, contents, made, migrate, part, script, step, totals


def shapes(maker: str, shelf: str = "shelf") -> tuple[Any, Any]:
    """Return a class and an aggregate of it, with names for two of the fields."""
    fields = {shelf if name == "shelf" else maker if name == "maker" else name: kind for name, kind in FIELDS.items()}
    cls = part(
        fields,
        tm.Key[str, int](partition=f"{{{shelf}}}", row="{number}"),
        by_maker=tm.Index[str](partition=f"{{{maker}}}", include=("price",), where=lambda p: getattr(p, maker) != "m9"),
        by_price=tm.Index[str](partition="{price}", include=(maker, "tags")),
    )
    members = {
        "who": (str, tm.group_by(getattr(cls, maker))),
        "parts": (int, tm.count(where=getattr(cls, shelf) != "z")),
        "top": (str | None, tm.max(getattr(cls, maker))),
    }
    return cls, aggregate("Makers", cls, members, tm.Key[str](partition="{who}"))


OLD, OLD_MAKERS = shapes("maker")
NEW, NEW_MAKERS = shapes("firm", "rack")


def rename(m: tm.Migration) -> None:
    m.rename(OLD.maker, NEW.firm)
    m.rename(OLD.shelf, NEW.rack)


RENAME = script([NEW, NEW_MAKERS], rename, "first", None, [OLD, OLD_MAKERS])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=[OLD, OLD_MAKERS], durability="relaxed") as store:
        store.insert_many(OLD("xyz"[n % 3], n, price=str(n % 4), maker=f"m{n % 10}", tags=["t"]) for n in range(30))
    return tmp_path / "s.db"


def as_old(one: Any) -> tuple[Any, ...]:
    return one.shelf, one.number, one.price, one.maker, one.tags


def as_new(one: Any) -> tuple[Any, ...]:
    return one.rack, one.number, one.price, one.firm, one.tags


@pytest.mark.parametrize("seed", range(2))
def test_both_versions_read_and_write_after_a_rename(path: Path, seed: int) -> None:
    draw = random.Random(seed)
    with tm.open(path, models=[OLD, OLD_MAKERS]) as old:
        query = old.query(OLD.by_maker("m1"))
        assert len(list(query)) == 3
        report = migrate(path, RENAME)
        assert (report.applied, report.entities, report.plan[0].old_version) == (("first",), 0, "writes")
        assert len(list(query)) == 3
        with tm.open(path, models=[NEW, NEW_MAKERS]) as new, tm.open(path, models=[OLD, OLD_MAKERS]) as restarted:
            for at in range(40):
                number, maker = draw.randrange(40), f"m{draw.randrange(11)}"
                if at % 3 == 0:
                    new.upsert(NEW("x", number, price=str(at), firm=maker, tags=["n"]))
                elif at % 3 == 1:
                    old.upsert(OLD("x", number, price=str(at), maker=maker, tags=["o"]))
                else:
                    restarted.merge(OLD.key("x", number), maker=maker) if restarted.exists(
                        OLD.key("x", number)
                    ) else None
                assert old.get(OLD.key("x", number)) == restarted.get(OLD.key("x", number))
            assert [as_old(one) for one in old.query(OLD).allow_scan()] == [
                as_new(one) for one in new.query(NEW).allow_scan()
            ]
            for maker in ("m1", "m2", "m9"):
                assert [as_old(one) for one in old.query(OLD).where(OLD.maker == maker).allow_scan()] == [
                    as_new(one) for one in new.query(NEW).where(NEW.firm == maker).allow_scan()
                ]
            covered = old.query(OLD.by_price("1")).select(OLD.maker, OLD.tags)
            assert list(covered) == list(new.query(NEW.by_price("1")).select(NEW.firm, NEW.tags))
            makers = {one.who: (one.parts, one.top) for one in old.query(OLD_MAKERS).allow_scan()}
            assert makers == {one.who: (one.parts, one.top) for one in new.query(NEW_MAKERS).allow_scan()}
            for store in (old, new, restarted):
                assert store.check().ok
            old.insert_many([OLD("l", n, price="1", maker="load", tags=[]) for n in range(5)], atomic=True)
            assert len(list(new.query(NEW.by_maker("load")))) == 5
            assert old.query(OLD).where(OLD.maker == "load").count() == 5
            old.query(OLD).where(OLD.shelf == "l").update(OLD.price.set("2"))
            assert {one.price for one in new.query(NEW.by_maker("load"))} == {"2"}


def test_contract_ends_the_old_version(path: Path) -> None:
    with tm.open(path, models=[OLD, OLD_MAKERS]) as old:
        migrate(path, RENAME, contract=True)
        with pytest.raises(tm.SchemaMismatch, match="migration first replaced this form"):
            old.insert(OLD("x", 100, price="1", maker=None, tags=[]))
    with pytest.raises(tm.SchemaMismatch, match="migration first replaced this form"):
        tm.open(path, models=[OLD])
    with tm.open(path, models=[NEW, NEW_MAKERS]) as store:
        assert store.check().ok


def test_a_rename_is_undone_and_done_again(path: Path) -> None:
    third, third_makers = shapes("brand", "rack")
    second = script(
        [third, third_makers], lambda m: m.rename(NEW.firm, third.brand), "second", "first", [NEW, NEW_MAKERS]
    )
    with sound_store(path, models=[OLD, OLD_MAKERS]) as old:
        before = contents(old, [OLD])
        migrate(path, RENAME, second)
        with tm.open(path, models=[third, third_makers]) as store, tm.open(path, models=[NEW]) as between:
            assert contents(old, [OLD]) == before
            assert [one.firm for one in between.query(NEW).allow_scan()] == [
                one.brand for one in store.query(third).allow_scan()
            ]
            assert migrate(path, RENAME, second, to="").applied == ("second", "first")
            assert contents(old, [OLD]) == before
            old.insert(OLD("x", 100, price="1", maker="late", tags=[]))
            assert [one.rack for one in store.query(third).where(third.brand == "late").allow_scan()] == ["x"]
            assert old.check().ok
        assert tm.status(path).history == ()
        migrate(path, RENAME)
    with tm.open(path, models=[NEW, NEW_MAKERS]) as store:
        assert store.check().ok


def test_what_is_added_beside_a_rename_is_built(path: Path) -> None:
    new = part(
        changed(FIELDS, maker=None, firm=str | None, size=int | None), by_number=tm.Index[int](partition="{number}")
    )
    one = script([new], lambda m: m.rename(OLD.maker, new.firm), "first", None, [OLD])
    with sound_store(path, models=[OLD, OLD_MAKERS]) as old:
        migrate(path, one)
        old.insert(OLD("x", 500, price="1", maker="old", tags=[]))
        with sound_store(path, models=[new]) as store:
            assert [e.firm for e in store.query(new.by_number(500))] == ["old"]
            store.insert(new("x", 501, price="1", firm="new", tags=[], size=5))
        assert old[OLD.key("x", 501)].maker == "new"
        old.merge(OLD.key("x", 501), maker="changed")
    with tm.open(path, models=[new]) as store:
        assert (store[new.key("x", 501)].size, store[new.key("x", 501)].firm) == (5, "changed")


def test_the_old_name_is_not_given_to_another_property_before_that(path: Path) -> None:
    migrate(path, RENAME)
    fields = changed(FIELDS, shelf=None, rack=str, firm=str | None, maker=str | None)
    again = part(fields, tm.Key[str, int](partition="{rack}", row="{number}"))
    with pytest.raises(tm.SchemaMismatch, match=r'"maker" is what "firm" was called before first: contract that first'):
        tm.open(path, models=[again])
    migrate(path, RENAME, contract=True)
    with sound_store(path, models=[again]) as store:
        assert {one.maker for one in store.query(again).allow_scan()} == {None}
        assert "m1" in {one.firm for one in store.query(again).allow_scan()}
        store.insert(again(rack="x", number=700, price="1", firm="f", maker="m", tags=[]))
        assert store[again.key("x", 700)].maker == "m"


def test_what_is_dropped_goes_when_it_is_contracted(path: Path) -> None:
    other = entity("Other", "Others", {"id": int}, tm.Key[int](partition="{id}"))
    with tm.open(path, models=[other]) as store:
        store.insert(other(1))
    bare = part(
        changed(FIELDS),
        by_maker=tm.Index[str](partition="{maker}", include=("price",), where=lambda p: p.maker != "m9"),
    )
    drop = step("drop", OLD.by_price), step("drop", OLD_MAKERS), step("drop", other)
    one = made(bare, [OLD, OLD_MAKERS, other], *drop)
    with tm.open(path, models=[OLD, OLD_MAKERS]) as old:
        report = migrate(path, one)
        assert [(step.reversible, step.old_version, step.entities) for step in report.plan] == [(True, "writes", 0)] * 3
        old.insert(OLD("x", 100, price="1", maker="m1", tags=[]))
        assert old[OLD_MAKERS.key("m1")].parts == 3
        assert migrate(path, one, to="").ok
        migrate(path, one, contract=True)
        with pytest.raises(tm.SchemaMismatch, match="first"):
            old.insert(OLD("x", 101, price="1", maker="m1", tags=[]))
    with sound_store(path, models=[bare]) as store:
        assert len(list(store.query(bare.by_maker("m1")))) == 4
    assert [item.where for item in tm.status(path).objects if item.state == "ready"] == ["Part", "Part.by_maker"]


def test_a_version_whose_rename_was_undone_goes_on_when_an_earlier_migration_is_contracted(path: Path) -> None:
    other = entity("Other", "Others", {"id": int}, tm.Key[int](partition="{id}"))
    tm.open(path, models=[other]).close()
    first = script([], lambda m: m.drop(other), "first", None, [other])
    second = script([NEW, NEW_MAKERS], lambda m: rename(m), "second", "first", [OLD, OLD_MAKERS])
    migrate(path, first, second)
    with tm.open(path, models=[NEW, NEW_MAKERS]) as new:
        assert migrate(path, first, second, to="first", contract=True).contracted == ("first",)
        assert new.check().ok
        new.insert(NEW(rack="x", number=800, price="1", firm="f", tags=[]))
    with sound_store(path, models=[OLD, OLD_MAKERS]) as old:
        assert old[OLD.key("x", 800)].maker == "f"
    migrate(path, first, second, contract=True)
    with pytest.raises(tm.SchemaMismatch, match="second"):
        tm.open(path, models=[OLD, OLD_MAKERS])
    with sound_store(path, models=[NEW, NEW_MAKERS]) as store:
        assert store[NEW.key("x", 800)].firm == "f"


def test_a_class_beside_what_is_copied_has_to_be_contracted_once_it_is_dropped(path: Path) -> None:
    bare, after = part(name="Bare", table="Notes"), part(name="Later", table="Notes")
    beside = entity(
        "Beside", "Notes", {"shelf": str, "text": str}, tm.Key[str, str](partition="{shelf}", row=("n", "{text}"))
    )
    with tm.open(path, models=[bare, beside]) as store:
        store.insert(beside("x", "a"))
    first = script([bare], lambda m: m.drop(beside), "first", None, [bare, beside])
    second = script([after], lambda m: m.rename_class(bare, after), "second", "first", [bare])
    with pytest.raises(
        tm.InvalidMigration,
        match="Beside shares a table with what is migrated, and an earlier script drops it: contract",
    ):
        migrate(path, first, second)
    migrate(path, first, second, to="first", contract=True)
    assert migrate(path, first, second).ok


def test_a_total_beside_one_that_is_declared_anew_has_to_be_contracted_once_it_is_dropped(path: Path) -> None:
    def total(name: str, **measures: Any) -> Any:
        members = {"shelf": (str, tm.group_by(one.shelf)), **{field: (int, one) for field, one in measures.items()}}
        return aggregate(name, one, members, tm.Key[str](partition="{shelf}", row=name), "Both")

    one = part(name="One", table="Ones")
    first, second = total("First", parts=tm.count()), total("Second", parts=tm.count())
    another = total("Second", parts=tm.count(), numbers=tm.sum(one.number))
    with tm.open(path, models=[one, first, second]) as store:
        store.insert(one("x", 1, price="1", maker=None, tags=[]))
    scripts = [
        script([one, second], lambda m: m.drop(first), "first", None, [one, first, second]),
        script([one, another], lambda m: m.drop(second), "second", "first", [one, second]),
    ]
    with pytest.raises(tm.InvalidMigration, match="First .* an earlier script drops it: contract that one first"):
        migrate(path, *scripts)
    assert [entry.id for entry in tm.status(path).history] == ["first"]
    migrate(path, *scripts, to="first", contract=True)
    assert migrate(path, *scripts).ok
    with tm.open(path, models=[one, another]) as store:
        assert store[another.key("x")].numbers == 1


def _beside(name: str, *fields: str) -> Any:
    key = tm.Key[str, int](partition="{p}", row=(name, "{n}"))
    return entity(name, "Both", {"p": str, "n": int, **dict.fromkeys(fields, str | None)}, key)


def test_a_name_that_another_class_of_the_table_has_is_refused_unless_both_are_copied(tmp_path: Path) -> None:
    path, old, new, other = tmp_path / "s.db", _beside("A", "price"), _beside("A", "cost"), _beside("B", "cost")
    with tm.open(path, models=[old, other]) as store:
        store.insert_many([old("x", 1, price="a"), other("x", 1, cost="b")])
    alone = script([new], lambda m: m.rename(old.price, new.cost), "first", None, [old])
    with pytest.raises(tm.InvalidMigration, match=r'A\.price cannot be called "cost", as B .* name B in old= and new='):
        migrate(path, alone)
    with tm.open(path, models=[old, other]) as store:
        assert store[other.key("x", 1)].cost == "b"
    both = script([new, other], lambda m: m.rename(old.price, new.cost), "first", None, [old, other])
    assert migrate(path, both).entities == 2
    with tm.open(path, models=[new, other]) as store:
        assert (store[new.key("x", 1)].cost, store[other.key("x", 1)].cost) == ("a", "b")


@pytest.mark.parametrize("contract", [False, True])
def test_a_class_beside_one_that_was_renamed_has_no_two_fields_in_one_column(tmp_path: Path, contract: bool) -> None:
    path, old, new, other = tmp_path / "s.db", _beside("A", "price"), _beside("A", "cost"), _beside("B", "price")
    with tm.open(path, models=[old, other]) as store:
        store.insert_many([old("x", 1, price="a"), other("x", 1, price="b")])
    one = script([new, other], lambda m: m.rename(old.price, new.cost), "first", None, [old, other])
    migrate(path, one, contract=contract)
    with pytest.raises(tm.SchemaMismatch, match='B: "cost" and "price" are one property in the table Both'):
        tm.open(path, models=[new, _beside("B", "price", "cost")])
    with tm.open(path, models=[new, other]) as store:
        assert (store[new.key("x", 1)].cost, store[other.key("x", 1)].price) == ("a", "b")


def test_a_new_class_does_not_take_a_name_that_an_older_version_beside_it_uses(tmp_path: Path) -> None:
    path, old, new, third = tmp_path / "s.db", _beside("A", "price"), _beside("A", "cost"), _beside("C", "price")
    tm.open(path, models=[old]).close()
    one = script([new], lambda m: m.rename(old.price, new.cost), "first", None, [old])
    migrate(path, one)
    with pytest.raises(
        tm.SchemaMismatch, match=r'C: "price" is what "A\.cost" was called before first: contract that first'
    ):
        tm.open(path, models=[new, third])
    migrate(path, one, contract=True)
    with tm.open(path, models=[new, third]) as store:
        store.insert_many([new("x", 1, cost="a"), third("x", 1, price="c")])
        assert (store[new.key("x", 1)].cost, store[third.key("x", 1)].price) == ("a", "c")


INDEXES = {
    "none": {},
    "one": {"by": tm.Index(partition="{number}")},
    "another": {"by": tm.Index(partition="{number}", row="{shelf}")},
}


@pytest.mark.parametrize("counted", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("after", INDEXES)
@pytest.mark.parametrize("before", INDEXES)
def test_what_comes_and_goes_with_a_rename_is_built_or_dropped(
    place: Path, before: str, after: str, counted: tuple[bool, bool]
) -> None:
    def version(field: str, index: str, *, aggregate: bool) -> list[Any]:
        fields = {"shelf": str, "number": int, field: int}
        one = entity("Part", "Parts", fields, tm.Key(partition="{shelf}", row="{number}"), **INDEXES[index])
        return [one, totals(one, "shelf")] if aggregate else [one]

    old = version("price", before, aggregate=counted[0])
    new = version("cost", after, aggregate=counted[1])

    def steps(m: tm.Migration) -> None:
        m.rename(old[0].price, new[0].cost)
        if counted == (True, False):
            m.drop(old[1])
        if before != "none" and after == "none":
            m.drop(old[0].by)

    with tm.open(place, models=old) as store:
        store.insert_many(old[0]("a", number, number) for number in range(4))
    assert tm.migrate(place, [script(new, steps, old=old)]).ok
    with tm.open(place, models=new) as newer, tm.open(place, models=old) as older:
        older.insert(old[0]("b", 1, 7))
        newer.insert(new[0]("b", 2, 7))
        assert older.check().ok
        assert newer.check().ok
        assert [one.cost for one in newer.query(new[0]).allow_scan()] == [0, 1, 2, 3, 7, 7]
        if after != "none":
            assert len(list(newer.query(new[0].by(1)))) == 2
        if counted[1]:
            assert newer[new[1].key("b")].parts == 2


def counted(connection: apsw.Connection, table: str, end: str = "") -> int:
    """Return the number of rows of a table that may have got another name."""
    names = [str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema")]
    (name,) = [name for name in names if re.fullmatch(rf"{table}(_\d)?{end}", name)]
    return int(connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0])  # type: ignore[index]


def test_a_class_that_shares_its_table_goes_in_batches_however_often_that_is_killed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shelf(name: str, row: Any, **fields: Any) -> Any:
        return entity(name, "Both", {"shelf": str, **fields}, tm.Key(partition="{shelf}", row=row))

    kept, gone = shelf("Box", ("box", "{number}"), number=int), shelf("Note", ("note", "{at}"), at=int, text=str)
    with tm.open(place, models=[kept, gone], durability="relaxed") as store:
        store.insert_many([kept(f"s{n % 3}", n) for n in range(30)])
        store.insert_many([gone(f"s{n % 3}", n, "x" * 3000 * (n % 2)) for n in range(30)])
    one = script([kept], lambda m: m.drop(gone), "first", None, [kept, gone])
    assert migrate(place, one).ok
    monkeypatch.setattr(builds, "FIRST", 4)
    monkeypatch.setattr(builds, "steered", lambda most, *_: most)
    real, killed = migration.delete_class_rows, 0

    def kill(*args: Any) -> Any:
        nonlocal killed
        killed += 1
        if killed % 3 == 0:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(migration, "delete_class_rows", kill)
    with tm.open(place, models=[gone], durability="relaxed") as old, tm.open(place, models=[gone]) as reader:
        assert reader.get(gone.key("s1", 1)) is not None
        for left in (22, 14):
            with pytest.raises(KeyboardInterrupt):
                migrate(place, one, contract=True)
            with pytest.raises(tm.SchemaMismatch, match="first"):
                list(reader.query(gone).allow_scan())
            with apsw.Connection(str(place)) as connection:
                assert counted(connection, "Both") == 30 + left
            with pytest.raises(tm.SchemaMismatch, match="first"):
                old.insert(gone("s1", 99, "late"))
            with pytest.raises(tm.InvalidMigration, match="first: it was contracted"):
                migrate(place, one, to="")
            with tm.open(place, models=[kept], durability="relaxed") as store:
                assert store.check().ok
                assert len(list(store.query(kept).allow_scan())) == 30
    monkeypatch.setattr(migration, "delete_class_rows", real)
    assert migrate(place, one, contract=True).ok
    with apsw.Connection(str(place)) as connection:
        assert counted(connection, "Both") == 30
        assert counted(connection, "Both", "_big") == 0
    with tm.open(place, models=[kept]) as store:
        assert store.check().ok
        store.insert(kept("s1", 99))
    with pytest.raises(tm.SchemaMismatch, match="Note was dropped by first; declare it under another name"):
        tm.open(place, models=[kept, gone])
    anew = shelf("Note", ("note", "{at}"), at=int, title=str)
    with sound_store(place, models=[kept, anew]) as store:  # another class of this name begins with nothing
        assert list(store.query(anew).allow_scan()) == []
