"""What a migration dropped comes back when it is undone, and what it filled goes."""

from __future__ import annotations

import random
from decimal import Decimal
from operator import methodcaller as step
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online.migration import SqliteMigrations

from ..classes import aggregate, entity
from .shapes import held, insert, made, migrate, opened

KEY = tm.Key[str, int](partition="{shelf}", row="{number}")
FIELDS = {
    "shelf": str, "number": int, "size": int, "flag": bool, "text": str, "note": str | None, "grade": str | None,
    "price": str, "maker": str | None,
}  # fmt: skip
GONE = ("size", "flag", "text", "note", "grade")


def box(*without: str, key: Any = KEY, name: str = "Box", **fields: Any) -> Any:
    kinds = {name: kind for name, kind in FIELDS.items() if name not in without} | fields
    graded = {"grade": tm.field(default="plain", kw_only=True)} if "grade" in kinds else {}
    return entity(name, "Boxes", kinds, key, **graded)


OLD = box()
LONG = "long " * 400  # which is stored beside its row


def old(number: int) -> Any:
    """Return an entity; every third value of what is dropped is a falsy one, or long."""
    at = number % 3
    return OLD(
        "a", number, size=(0, -1, 7)[at], flag=bool(at), text=("", "x", LONG)[at], note=(None, "", "n")[at],
        grade=(None, "", "fine")[at], price=str(number), maker=(None, "m")[number % 2],
    )  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    insert(tmp_path / "s.db", *map(old, range(12)))
    return tmp_path / "s.db"


def values(one: Any) -> tuple[Any, ...]:
    return tuple(getattr(one, name) for name in FIELDS)


def as_they_were(path: Path, *without: int) -> bool:
    """Return whether the entities of the old version, some aside, are those that the store began with."""
    found = {number: values(one) for number, one in held(path, OLD).items() if number not in without}
    return found == {number: values(old(number)) for number in range(12) if number not in without}


def drops(new: Any, *names: str, of: Any = OLD) -> Any:
    return made(new, of, *[step("drop", getattr(of, name)) for name in names])


@pytest.mark.parametrize("names", [("note",), ("grade",), ("size",), ("flag", "text"), GONE], ids="-".join)
def test_what_was_dropped_comes_back_as_it_was_as_often_as_one_likes(path: Path, names: tuple[str, ...]) -> None:
    new = box(*names)
    first = drops(new, *names)
    assert all(step.reversible for step in migrate(path, first, dry_run=True).plan)
    for _ in range(3):
        assert migrate(path, first).applied == ("first",)
        assert len(held(path, new)) == 12
        assert migrate(path, first, to="").applied == ("first",)
        assert as_they_were(path)


def test_an_index_and_an_aggregate_come_back_with_the_field_that_they_are_of(path: Path) -> None:
    def classes(*without: str) -> list[Any]:
        indexes = {} if without else {"by_size": tm.Index[int](partition="{size}")}
        cls = entity(
            "Box", "Boxes", {n: kind for n, kind in FIELDS.items() if n not in (*without, "grade")}, KEY, **indexes
        )
        sizes = tm.count() if without else tm.sum(cls.size)
        members = {"shelf": (str, tm.group_by(cls.shelf)), "sizes": (int, sizes)}
        return [cls, aggregate("Sizes", cls, members, tm.Key[str](partition="{shelf}"))]

    (before, sizes), (new, _) = classes(), classes("size")
    path = path.with_name("other.db")
    given = {"flag": False, "text": "", "note": None, "price": "", "maker": None}
    insert(path, *[before("a", n, size=n, **given) for n in range(5)], also=[sizes])
    first = made(new, [before, sizes], step("drop", sizes), step("drop", before.size))
    migrate(path, first)
    with opened(path, new) as store:
        store.delete(new.key("a", 4))
    migrate(path, first, to="")
    with opened(path, before, sizes) as store:
        assert store[sizes.key("a")].sizes == 6
        assert [one.number for one in store.query(before.by_size(3))] == [3]
        assert store.check().ok


def test_a_drop_beside_a_function_that_only_the_script_knows_is_undone(path: Path) -> None:
    new = box("note", "price", price=int)
    first = made(
        new, OLD, step("drop", OLD.note), step("convert", OLD.price, new.price, int, back=lambda price: f"{price}")
    )
    migrate(path, first)
    with tm.open(path, models=[new], migrations=[first]) as store:
        store.merge(new.key("a", 2), price=70)
    migrate(path, first, to="")
    found = held(path, OLD)
    assert (found[2].price, found[2].note, found[5].note, found[4].note) == ("70", "n", "n", "")


def test_a_way_back_that_raises_is_told_with_the_entity_before_anything_is_written(path: Path) -> None:
    new = box("size", "price", price=int)
    first = made(
        new, OLD, step("drop", OLD.size), step("convert", OLD.price, new.price, int, back=lambda price: {3: "3"}[price])
    )
    migrate(path, first)
    with pytest.raises(
        tm.MigrationStopped, match=r"11 entities cannot go back.*\n  - Box \('a', 'a0'\): price: KeyError: 0"
    ):
        migrate(path, first, to="")
    assert len(held(path, new)) == 12


@pytest.mark.parametrize("names", [("note", "grade"), ("note", "grade", "size")], ids="-".join)
def test_what_the_new_version_wrote_meanwhile_stays(path: Path, names: tuple[str, ...]) -> None:
    new = box(*names)
    first = drops(new, *names)
    migrate(path, first)
    with opened(path, new) as store:
        store.merge(new.key("a", 2), price="changed")
        kept = store[new.key("a", 5)]
        kept.maker = "changed"
        store.replace(kept)
        store.delete(new.key("a", 8))
        if "size" not in names:
            store.insert(new("a", 50, size=0, flag=False, text="", price="new", maker=None))
    migrate(path, first, to="")
    found = held(path, OLD)
    for number in (2, 5):
        assert [getattr(found[number], one) for one in GONE] == [getattr(old(number), one) for one in GONE]
    assert (found[2].price, found[5].maker) == ("changed", "changed")
    assert 8 not in found
    if "size" not in names:
        assert (found[50].note, found[50].grade, found[50].price) == (None, None, "new")
    with opened(path, OLD) as store:
        store.merge(OLD.key("a", 2), note="later", size=70)
    migrate(path, first)
    assert held(path, new)[2].price == "changed"
    migrate(path, first, to="")
    assert (held(path, OLD)[2].note, held(path, OLD)[2].size) == ("later", 70)


def test_an_entity_without_a_value_for_a_required_field_is_named_before_anything_is_written(path: Path) -> None:
    new = box("size", "text")
    first = drops(new, "size", "text")
    migrate(path, first)
    with opened(path, new) as store:
        store.insert_many(new("b", number, flag=False, note=None, price="", maker=None) for number in range(30))
    before = path.read_bytes()
    with pytest.raises(tm.MigrationStopped) as stopped:
        migrate(path, first, to="")
    assert str(stopped.value).startswith(
        "the undoing of first: 30 entities cannot go back, and nothing was written for that\n"
        "  - Box ('b', 'a0'), ('b', 'a1'), ('b', 'a2'), ('b', 'a3'), ('b', 'a4') and 25 more: it came after the migration, so it "
        "has no value of text and size: delete it, or"
    )
    report = migrate(path, first, to="", dry_run=True)
    assert not report.ok
    for faults in (stopped.value.faults, report.faults):
        assert [fault.key[0] for fault in faults] == ["b"] * 30
    assert path.read_bytes() == before
    with opened(path, new) as store:
        store.query(new).where(new.shelf == "b").delete()
    assert migrate(path, first, to="").ok
    assert as_they_were(path)


def test_an_entity_that_comes_while_the_drop_is_undone_stops_the_switch(path: Path) -> None:
    new = box("size")
    first = drops(new, "size")
    migrate(path, first)
    assert not migrate(path, first, to="", limit=4).done
    with opened(path, new) as store:
        store.insert(new("b", 1, flag=False, text="", note=None, price="", maker=None))
        store.merge(new.key("a", 1), price="changed")
        with pytest.raises(tm.MigrationStopped, match=r"Box \('b', 'a1'\): it came after the migration"):
            migrate(path, first, to="")
        store.delete(new.key("b", 1))
    assert migrate(path, first, to="").ok
    found = held(path, OLD)
    assert (found[1].size, found[1].price) == (-1, "changed")


MANY = box("size", "note", "maker", "price", firm=str | None, price=Decimal, rank=int,
           key=tm.Key[int, str](partition="{number}", row="{shelf}"))  # fmt: skip


def test_a_drop_beside_other_steps_is_undone_with_them(path: Path) -> None:
    first = made(
        MANY, OLD, step("drop", OLD.size), step("drop", OLD.note), step("rename", OLD.maker, MANY.firm),
        step("convert", OLD.price, MANY.price, lambda text: Decimal(text), back=lambda price: f"{price}"),
        step("fill", MANY.rank, lambda one: one.number * 2), step("rekey", OLD, MANY),
    )  # fmt: skip
    for price in ("70", "71"):
        migrate(path, first)
        with opened(path, MANY) as store:
            store.merge(MANY.key(7, "a"), price=Decimal(price))
        assert held(path, MANY)[4].rank == 8
        assert migrate(path, first, to="").ok
        assert held(path, OLD)[7].price == price
        assert as_they_were(path, 7)


def test_a_class_that_was_renamed_with_a_drop_gets_the_field_back(path: Path) -> None:
    new = box("size", name="Crate")
    first = made(new, OLD, step("rename_class", OLD, new), step("drop", OLD.size))
    migrate(path, first)
    assert len(held(path, new)) == 12
    migrate(path, first, to="")
    assert as_they_were(path)


@pytest.mark.parametrize("name", ["note", "size"])
def test_a_drop_is_undone_behind_a_later_migration_that_ended_its_old_version(path: Path, name: str) -> None:
    new = box(name)
    renamed = box(name, "maker", firm=str | None)
    last = box(name, "maker", "price", firm=str | None, price=Decimal)
    scripts = [
        drops(new, name),
        made(renamed, new, step("rename", new.maker, renamed.firm), name="second", after="first"),
        made(
            last, renamed, step("convert", renamed.price, last.price, Decimal, back=str), name="third", after="second"
        ),
    ]
    for _ in range(2):
        migrate(path, *scripts)
        with opened(path, last) as store:
            store.merge(last.key("a", 2), price=Decimal(3))
            if name == "note":
                store.upsert(last("a", 50, size=0, flag=False, text="", price=Decimal(5), firm=None))
        assert migrate(path, *scripts, to="").applied == ("third", "second", "first")
        found = held(path, OLD)
        assert found[2].price == "3"
        if name == "note":
            assert (found[50].note, found[50].price) == (None, "5")
        assert as_they_were(path, 2, *[50] * (name == "note"))


def test_the_old_version_reads_and_writes_beside_the_new_one_until_that_is_contracted(path: Path) -> None:
    new = box("note", "grade")
    first = drops(new, "note", "grade")
    with opened(path, OLD) as before:
        migrate(path, first)
        with opened(path, new) as store:
            before.merge(OLD.key("a", 2), note="again", price="1")
            store.merge(new.key("a", 2), maker="firm")
            before.insert(old(20))
            assert (store[new.key("a", 2)].price, store[new.key("a", 20)].price) == ("1", "20")
            assert (before[OLD.key("a", 2)].note, before[OLD.key("a", 2)].maker) == ("again", "firm")
            migrate(path, first, to="")
            assert (before[OLD.key("a", 2)].note, before[OLD.key("a", 20)].grade) == ("again", "fine")
            migrate(path, first, contract=True)
            with pytest.raises(tm.SchemaMismatch, match="first"):
                before.merge(OLD.key("a", 2), note="late")
    with pytest.raises(tm.InvalidMigration, match="first: it was contracted: the old tables are gone"):
        migrate(path, first, to="")


def test_nothing_of_a_drop_is_left_once_it_is_contracted(path: Path) -> None:
    new = box("size")
    first = drops(new, "size")
    for to in (None, "", None):
        migrate(path, first, to=to)
    migrate(path, first, contract=True)
    engine = SqliteMigrations.open(path)
    assert not [name for (name,) in engine._file.read("SELECT name FROM sqlite_schema") if "before" in name]
    assert engine._file.read("SELECT 1 FROM tablemapper_catalogue WHERE name = 'former'") == []
    engine.close()


def test_a_field_of_the_key_cannot_come_back(path: Path) -> None:
    new = box("number", key=tm.Key[str, str](partition="{shelf}", row="{price}"))
    first = made(new, OLD, step("rekey", OLD, new), step("drop", OLD.number))
    assert not any(step.reversible for step in migrate(path, first).plan if "drop" in step.text)
    with pytest.raises(tm.InvalidMigration, match="first: it cannot be undone: drop Box.number"):
        migrate(path, first, to="")


@pytest.mark.parametrize("name", ["note", "size"])
def test_a_class_with_undeclared_properties_gets_a_field_back(place: Path, name: str) -> None:
    before, new = box(more=tm.Extra), box(name, more=tm.Extra)
    given = {"flag": True, "text": "", "price": "", "maker": None}
    with opened(place, before) as store:
        store.insert_many(before("a", n, **given, size=n, note=str(n), more=tm.Extra(color="red")) for n in range(3))
    first = drops(new, name, of=before)
    migrate(place, first)
    value = "late" if name == "note" else 9
    with opened(place, new) as store:
        store.merge(new.key("a", 1), more=tm.Extra(color="blue"))
        rest = {one: other for one, other in {"size": 3, "note": "3"}.items() if one != name}
        store.insert(new("a", 3, **given, **rest, more=tm.Extra({name: value})))  # which it does not declare
    migrate(place, first, to="")
    found = held(place, before)
    assert [(one.size, one.note, dict(one.more)) for one in found.values()] == [
        (0, "0", {"color": "red"}), (1, "1", {"color": "blue"}), (2, "2", {"color": "red"}),
        (3, "late", {}) if name == "note" else (9, "3", {}),
    ]  # fmt: skip


def test_what_was_filled_does_not_stay_among_the_undeclared_properties_if_nobody_changed_it(place: Path) -> None:
    kinds = {"shelf": str, "number": int, "note": str | None}
    before = entity("Box", "Boxes", {**kinds, "more": tm.Extra}, KEY)
    new = entity("Box", "Boxes", {**kinds, "rank": int, "label": str, "color": str | None, "more": tm.Extra}, KEY,
                 color=tm.field(default=None, kw_only=True))  # fmt: skip
    extras = [{}, {"rank": 70}, {"label": 5}, {"color": "red", "size": 1}, {}, {}]
    with opened(place, before) as store:
        store.insert_many(before("a", n, note=None, more=tm.Extra(one)) for n, one in enumerate(extras))
    first = made(
        new,
        before,
        step("fill", new.rank, lambda one: 0 if one.note is None else one.number),
        step("fill", new.label, lambda one: str(one.more.get("label", f"{one.number} {one.rank}"))),
        step("fill", new.color, lambda one: one.more.get("color")),
    )
    migrate(place, first)
    with opened(place, new) as store:
        filled = [(one.rank, one.label, one.color) for one in store.query(new).allow_scan()]
        assert filled[1:4] == [(70, "1 70", None), (0, "5", None), (0, "3 0", "red")]
        store.merge(new.key("a", 4), rank=9)
        store.merge(new.key("a", 5), color="blue")
        store.insert(new("a", 6, note=None, rank=0, label="6 0", color=None, more=tm.Extra()))
    migrate(place, first, to="")
    found = [dict(one.more) for _, one in sorted(held(place, before).items())]
    assert found[:4] == extras[:4]
    assert found[4] == {"rank": 9, "label": "4 0"}  # (of this rank the fill would make another label)
    assert found[5] == {"color": "blue"}
    assert found[6] == {"rank": 0, "label": "6 0"}


@pytest.mark.parametrize("seed", range(3))
def test_a_drop_is_undone_beside_those_who_write(path: Path, seed: int) -> None:
    draw = random.Random(seed)
    names = [("size",), ("note",), ("size", "note", "text")][seed]
    new = box(*names)
    first = drops(new, *names)
    expected = {number: old(number) for number in range(12)}
    for _ in range(2):
        migrate(path, first)
        with opened(path, new) as store:
            store.compact()
            while not (report := migrate(path, first, to="", limit=draw.randrange(1, 4))).done:
                assert report.faults == ()
                number = draw.choice(list(expected))
                if draw.random() < 0.2:
                    store.delete(new.key("a", number))
                    del expected[number]
                else:
                    kept = store[new.key("a", number)]
                    kept.price = expected[number].price = str(draw.randrange(1000))
                    store.replace(kept)
        found = held(path, OLD)
        assert {n: values(one) for n, one in found.items()} == {n: values(one) for n, one in expected.items()}


def test_classes_of_one_table_get_their_fields_back(tmp_path: Path) -> None:
    def pair(**fields: Any) -> list[Any]:
        return [
            entity(name, "Things", {"id": int, **fields, "text": str}, tm.Key[int](partition="{id}", row=name.lower()))
            for name in ("Book", "Note")
        ]

    path, before, after = tmp_path / "s.db", pair(size=int), pair()

    signs = dict(zip(before, (1, -1), strict=True))
    first = made(after, before, *[step("drop", cls.size) for cls in before])
    insert(path, *[cls(n, size=n * sign, text="x" * 900 * n) for n in range(3) for cls, sign in signs.items()])
    migrate(path, first)
    migrate(path, first, to="")
    with tm.open(path, models=before) as store:
        for cls, sign in signs.items():
            assert [(one.size, len(one.text)) for one in store.query(cls).allow_scan()] == [
                (n * sign, 900 * n) for n in range(3)
            ]
        assert store.check().ok
