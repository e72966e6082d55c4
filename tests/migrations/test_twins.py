"""Both versions live: the old one goes on after the switch, on tables that are kept in step with the new ones."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

import tablemapper as tm

from ..classes import aggregate, entity
from .shapes import migrate, script

Old = enum.Enum("Old", {"NEW": "new", "USED": "used", "WORN": "worn"})
New = enum.Enum("New", {"FRESH": "fresh", "USED": "used", "WORN": "worn"})
GRADES = {Old.NEW: New.FRESH, Old.USED: New.USED, Old.WORN: New.WORN}


@attrs.define
class Size:
    wide: int
    high: int = 1


def part(name: str = "Part", table: str = "Parts", *, grade: Any = Old, maker: str = "maker", shards: int = 8,
         **fields: Any) -> Any:  # fmt: skip
    kinds = {
        "id": str, "number": int, "grade": grade, maker: str | None, "tags": list[str], "text": str, "size": Size | None,
        "weight": str, **fields
    }  # fmt: skip
    return entity(
        name, table, kinds, tm.Key[str, int](partition=f"{{id:shard({shards})}}", row=("{id}", "{number}")),
        by_maker=tm.Index[str](partition=f"{{{maker}}}", include=("text",)), by_grade=tm.Index[grade](partition="{grade}"),
        by_tag=tm.Index[str](partition="{tags}"), by_text=tm.Index[str](partition="{text:hash}", unique=True),
    )  # fmt: skip


def totals(of: Any, maker: str = "maker") -> Any:
    members = {
        "id": (str, tm.group_by(of.id)),
        "parts": (int, tm.count()),
        "most": (str | None, tm.max(getattr(of, maker))),
    }
    return aggregate("Totals", of, members, tm.Key[str](partition="{id}"))


def counts(of: Any) -> Any:
    members = {"grade": (Old, tm.group_by(of.grade)), "parts": (int, tm.count())}
    return aggregate("Counts", of, members, tm.Key[Old](partition="{grade}"))


OLD = part(note=str | None)
RENAMED = part("Piece", "Pieces", note=str | None)
REKEYED = part(shards=16, note=str | None)
CONVERTED = part(grade=New, note=str | None)
WEIGHED = part(note=str | None, weight=int)
FIRM = part(maker="firm", note=str | None)
ALL = part("Piece", "Pieces", grade=New, maker="firm", shards=16)


def everything(m: tm.Migration) -> None:
    m.rename_class(OLD, ALL)
    m.rekey(OLD, ALL)
    m.rename(OLD.maker, ALL.firm)
    m.convert(OLD.grade, ALL.grade, GRADES)
    m.drop(OLD.note)


STEPS: dict[str, tuple[Any, Callable[[tm.Migration], None]]] = {
    "rename": (FIRM, lambda m: m.rename(OLD.maker, FIRM.firm)),
    "rename_class": (RENAMED, lambda m: m.rename_class(OLD, RENAMED)),
    "rekey": (REKEYED, lambda m: m.rekey(OLD, REKEYED)),
    "convert by a mapping": (CONVERTED, lambda m: m.convert(OLD.grade, CONVERTED.grade, GRADES)),
    "everything": (ALL, everything),
}


BACK = {"convert with a way back": (WEIGHED, lambda m: m.convert(OLD.weight, WEIGHED.weight, int, back=str))}


@pytest.fixture(params=STEPS)
def step(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    draw = random.Random(3)
    with tm.open(tmp_path / "s.db", models=[OLD, totals(OLD)], durability="relaxed") as store:
        store.insert_many(one(OLD, f"i{number % 5}", number, draw) for number in range(30))
    yield tmp_path / "s.db"


def one(cls: Any, id: str, number: int, draw: random.Random) -> Any:
    names = cls.__annotations__
    grades = New if cls in (CONVERTED, ALL) else Old
    values = {
        "grade": draw.choice(list(grades)),
        "tags": [draw.choice("abc") for _ in range(draw.randrange(3))],
        "text": f"{id} {number} {draw.random()}" + "x" * draw.choice([0, 900]),
        "size": draw.choice([None, Size(draw.randrange(9))]),
        "weight": draw.randrange(99) if cls is WEIGHED else str(draw.randrange(99)),
        "firm" if "firm" in names else "maker": draw.choice([None, "m1", "m2"]),
    }
    if "note" in names:
        values["note"] = draw.choice([None, "n"])
    return cls(id, number, **values)


def common(e: Any) -> tuple[Any, ...]:
    """Return what both versions know of an entity."""
    grade = "new" if e.grade.value == "fresh" else e.grade.value
    return (e.id, e.number, grade, e.firm if hasattr(e, "firm") else e.maker, e.tags, e.text, e.size, str(e.weight))


def contents(store: tm.Store, cls: Any) -> list[tuple[Any, ...]]:
    return sorted((common(e) for e in store.query(cls).allow_scan()), key=lambda row: row[:2])


def write(store: tm.Store, cls: Any, draw: random.Random) -> None:
    id, number = f"i{draw.randrange(5)}", draw.randrange(40)
    new = one(cls, id, number, draw)
    key = cls.key(id, number)
    verb = draw.choice(["upsert", "merge", "replace", "delete", "several", "many", "atomic", "columns", "query"])
    if verb == "upsert":
        store.upsert(new)
    elif verb == "merge" and store.exists(key):
        store.merge(key, grade=new.grade, text=new.text)
    elif verb == "replace" and (held := store.get(key)) is not None:
        held.tags = new.tags
        held.size = new.size
        store.replace(held)
    elif verb == "delete" and store.exists(key):
        store.delete(key)
    elif verb == "several":
        with store.transaction(across_partitions=True) as tx:
            for at in range(number, number + 3):
                tx.upsert(one(cls, f"i{at % 5}", at, draw))
    elif verb in ("many", "atomic", "columns"):
        first = draw.randrange(100, 100_000)
        several = [one(cls, id, at, draw) for at in range(first, first + 3)]
        if verb == "columns":
            names = [field.name for field in cls.__declaration__.parameters]
            store.insert_columns(cls, {name: [getattr(part, name) for part in several] for name in names})
        else:
            store.insert_many(several, atomic=verb == "atomic")
    elif verb == "query":
        store.query(cls).where(cls.number < draw.randrange(6)).allow_scan().delete()


def of(step: str) -> tuple[Any, Any, Any]:
    new, function = (STEPS | BACK)[step]
    aggregate = totals(new, "firm" if hasattr(new, "firm") else "maker")
    return new, aggregate, script([new, aggregate], function, "first", None, [OLD, totals(OLD)])


def same(old: tm.Store, store: tm.Store, new: Any) -> None:
    assert contents(old, OLD) == contents(store, new)
    assert old.check().ok
    assert store.check().ok


def test_both_versions_write_and_each_finds_what_the_other_wrote(path: Path, step: str) -> None:
    new, aggregate, first = of(step)
    draw = random.Random(7)
    old_totals = totals(OLD)
    with tm.open(path, models=[OLD, old_totals], durability="relaxed") as old:
        write(old, OLD, draw)
        assert migrate(path, first, dry_run=True).plan[0].old_version == "writes"
        migrate(path, first)
        with tm.open(path, models=[new, aggregate], durability="relaxed") as store:
            same(old, store, new)
            for _ in range(30):
                side = draw.randrange(2)
                write((old, store)[side], (OLD, new)[side], draw)
                assert contents(old, OLD) == contents(store, new)
            same(old, store, new)
            firm = new.firm if hasattr(new, "firm") else new.maker
            for maker in ("m1", "m2"):  # by its index
                mine = old.query(OLD).where(OLD.maker == maker)
                assert sorted(map(common, mine)) == sorted(map(common, store.query(new).where(firm == maker)))
            assert {t.id: (t.parts, t.most) for t in old.query(old_totals).allow_scan()} == {
                t.id: (t.parts, t.most) for t in store.query(aggregate).allow_scan()
            }
    with tm.open(path, models=[OLD, old_totals], durability="relaxed") as old:  # it can be started anew
        write(old, OLD, draw)
    migrate(path, first, contract=True)
    with pytest.raises(tm.SchemaMismatch, match="first"):
        tm.open(path, models=[OLD, old_totals])
    with tm.open(path, models=[new, aggregate]) as store:
        assert store.check().ok


def test_a_migration_is_undone_and_done_again_without_a_copy_and_both_versions_go_on(path: Path, step: str) -> None:
    new, aggregate, first = of(step)
    draw = random.Random(11)
    migrate(path, first)
    with (
        tm.open(path, models=[OLD, totals(OLD)], durability="relaxed") as old,
        tm.open(path, models=[new, aggregate], durability="relaxed") as store,
    ):
        for to in ["", "first", "", "first"] if step != "everything" else []:
            write(old, OLD, draw)
            write(store, new, draw)
            report = migrate(path, first, to=to)
            assert (report.applied, report.entities) == (("first",), 0)
            for _ in range(3):
                write(old, OLD, draw)
                write(store, new, draw)
            same(old, store, new)
    migrate(path, first, contract=True)
    with tm.open(path, models=[new, aggregate]) as store:
        assert store.check().ok


def test_the_next_migration_of_a_class_ends_the_version_before_the_last(path: Path) -> None:
    new, aggregate, first = of("rekey")
    last = part("Piece", "Pieces", shards=16, note=str | None)
    second = script([last, totals(last)], lambda m: m.rename_class(new, last), "second", "first", [new, aggregate])
    draw = random.Random(5)
    with tm.open(path, models=[OLD, totals(OLD)], durability="relaxed") as old:
        migrate(path, first)
        with tm.open(path, models=[new, aggregate], durability="relaxed") as store:
            migrate(path, first, second, limit=10)
            write(old, OLD, draw)  # which is copied, too
            write(store, new, draw)
            migrate(path, first, second)
            write(store, new, draw)
            with pytest.raises(tm.SchemaMismatch, match="second replaced this form"):
                list(old.query(OLD).allow_scan())
            with tm.open(path, models=[last, totals(last)], durability="relaxed") as third:
                write(third, last, draw)
                assert contents(third, last) == contents(store, new)
                assert third.check().ok
                assert store.check().ok
    assert migrate(path, first, second, to="").applied == ("second", "first")
    with tm.open(path, models=[OLD, totals(OLD)]) as old:
        assert old.check().ok


def test_a_version_of_which_a_class_goes_on_is_told_what_ended_its_other_class(tmp_path: Path) -> None:
    def classes(name: str, shards: int) -> list[Any]:
        tag = entity("Tag", "Tags", {"id": str}, tm.Key[str](partition=f"{{id:shard({shards})}}", row="{id}"))
        return [entity("Box", "Boxes", {"id": str}, tm.Key[str](partition=f"{name}-{{id}}", row="1")), tag]

    first, second, third = classes("a", 4), classes("b", 4), classes("c", 8)

    def both(m: tm.Migration) -> None:
        m.rekey(second[0], third[0])
        m.rekey(second[1], third[1])

    with tm.open(tmp_path / "s.db", models=first):
        pass
    scripts = [
        script(second, lambda m: m.rekey(first[0], second[0]), "one", None, first),
        script(third, both, "two", "one", second),
    ]
    migrate(tmp_path / "s.db", *scripts)
    with pytest.raises(tm.SchemaMismatch, match="Box: the migration two replaced this form of the class on") as caught:
        tm.open(tmp_path / "s.db", models=first)
    assert "Tag" not in str(caught.value)


def test_a_field_that_is_filled_lets_the_old_version_read_and_refuses_its_writes(path: Path) -> None:
    filled = part(note=str | None, rank=int)
    aggregate = totals(filled)
    first = script(
        [filled, aggregate], lambda m: m.fill(filled.rank, lambda e: e.number), "first", None, [OLD, totals(OLD)]
    )
    draw = random.Random(2)
    with tm.open(path, models=[OLD, totals(OLD)], durability="relaxed") as old:
        assert [step.old_version for step in migrate(path, first, dry_run=True).plan] == ["reads"]
        migrate(path, first)
        before = contents(old, OLD)
        for attempt in (
            lambda: old.upsert(one(OLD, "i1", 1, draw)),
            lambda: old.insert(one(OLD, "i1", 1000, draw)),
            lambda: old.insert_many([one(OLD, "i1", 1001, draw)], atomic=True),
            lambda: old.query(OLD).allow_scan().delete(),
        ):
            with pytest.raises(
                tm.SchemaMismatch, match="this version can only read it: fill Part.rank; nothing was written"
            ):
                attempt()
        assert contents(old, OLD) == before
        with tm.open(path, models=[filled, aggregate], durability="relaxed") as store:
            store.merge(filled.key("i1", 1), maker="m9")
            store.delete(filled.key("i2", 2))
            same(old, store, filled)
            assert old[OLD.key("i1", 1)].maker == "m9"
        with tm.open(path, models=[OLD, totals(OLD)], durability="relaxed") as again:
            assert contents(again, OLD) == contents(old, OLD)
    assert migrate(path, first, to="").entities == 0
    with tm.open(path, models=[OLD, totals(OLD)]) as old:
        write(old, OLD, draw)
        assert old.check().ok
        assert old[OLD.key("i1", 1)].maker == "m9"


def test_what_a_later_version_adds_stays_when_the_old_one_writes(path: Path) -> None:
    _, _, first = of("rekey")
    later = part(shards=16, note=str | None, color=str | None)
    draw = random.Random(4)
    migrate(path, first)
    with (
        tm.open(path, models=[OLD, totals(OLD)], durability="relaxed") as old,
        tm.open(path, models=[later, totals(later)], durability="relaxed") as store,
    ):
        store.merge(later.key("i1", 1), color="red")
        old.merge(OLD.key("i1", 1), maker="m9")
        assert (store[later.key("i1", 1)].color, store[later.key("i1", 1)].maker) == ("red", "m9")
        for _ in range(8):
            write(old, OLD, draw)
        same(old, store, later)


def test_nothing_can_be_added_to_what_the_old_version_was(path: Path) -> None:
    for step in ("rekey", "rename_class"):
        _, _, first = of(step)
        migrate(path, first)
        more = part(note=str | None, color=str | None)
        with pytest.raises(tm.SchemaMismatch):
            tm.open(path, models=[more, totals(more)])
        with tm.open(path, models=[OLD, totals(OLD)]) as old:
            assert old.check().ok
        migrate(path, first, to="")


def test_a_later_version_that_lets_a_field_hold_more_ends_the_old_one(path: Path) -> None:
    _, _, first = of("rekey")
    wider = enum.Enum("Old", {"NEW": "new", "USED": "used", "WORN": "worn", "LOST": "lost"})
    migrate(path, first)
    with tm.open(path, models=[OLD, totals(OLD)]) as old:
        later = part(grade=wider, shards=16, note=str | None)
        with tm.open(path, models=[later, totals(later)]) as store:
            store.merge(later.key("i1", 1), grade=wider["LOST"])
            with pytest.raises(tm.SchemaMismatch, match="migration first replaced this form"):
                old.get(OLD.key("i1", 1))
            assert store.check().ok


PRICED, DEAR = ({"price": kind, "load": load, "made": made} for kind, load, made in (
    (str, str | None, str), (Decimal, int | None, date)
))  # fmt: skip


def test_a_conversion_that_has_its_way_back_lets_the_old_version_read_what_the_new_one_writes(path: Path) -> None:
    before, after = part("Priced", "Priceds", **PRICED), part("Priced", "Priceds", maker="firm", **DEAR)
    draw = random.Random(9)

    def function(m: tm.Migration) -> None:
        m.rename(before.maker, after.firm)
        m.convert(before.price, after.price, Decimal, back=str)
        m.convert(before.load, after.load, int, back=str)
        m.convert(before.made, after.made, date.fromisoformat, back=date.isoformat)

    first = script([after], function, "first", None, [before])

    def seen(e: Any) -> tuple[Any, ...]:
        return (*common(e), str(e.price), None if e.load is None else str(e.load), str(e.made))

    with tm.open(path, models=[before], durability="relaxed") as old:
        for number in range(20):
            text = f"t{number}"
            old.insert(
                before(f"i{number % 3}", number, draw.choice(list(Old)), "m1", ["a"], text, None, "1", price=f"{number}.50",
                       load=draw.choice([None, "7"]), made="2026-01-02")
            )  # fmt: skip
        assert {step.old_version for step in migrate(path, first, dry_run=True).plan} == {"reads"}
        migrate(path, first)
        with tm.open(path, models=[after], durability="relaxed") as store:
            for number in range(12):
                key = after.key(f"i{number % 3}", number)
                if number % 3:
                    store.merge(key, price=Decimal("2.25"), load=draw.choice([None, 9]), made=date(2025, 1, number))
                else:
                    store.delete(key)
            assert sorted(map(seen, old.query(before).allow_scan()), key=repr) == sorted(
                map(seen, store.query(after).allow_scan()), key=repr
            )
            with pytest.raises(
                tm.SchemaMismatch, match="first has changed this class, and this version can only read it"
            ):
                old.merge(before.key("i1", 1), price="3.00")
            assert old[before.key("i1", 1)].price == "2.25"
            assert store.check().ok
            assert old.check().ok
            assert migrate(path, first, to="").entities == 0
            old.merge(before.key("i1", 1), price="3.00")
            with pytest.raises(tm.SchemaMismatch, match="first replaced this form"):
                store.get(after.key("i1", 1))
    assert migrate(path, first).entities == 16
    with tm.open(path, models=[after]) as store:
        assert store[after.key("i1", 1)].price == Decimal("3.00")


def test_without_a_way_back_the_old_version_stops(path: Path) -> None:
    before, after = part("Priced", "Priceds", **PRICED), part("Priced", "Priceds", **{**PRICED, "price": Decimal})
    with tm.open(path, models=[before]):
        pass
    for back, old_version in ((None, "stops"), (lambda price: f"{price}", "reads")):
        first = script(
            [after],
            lambda m, back=back: m.convert(before.price, after.price, Decimal, back=back),
            "first",
            None,
            [before],
        )
        assert [step.old_version for step in migrate(path, first, dry_run=True).plan] == [old_version]


def test_an_entity_whose_key_would_be_too_long_for_the_new_version_is_refused(path: Path) -> None:
    fields = {"id": str, "number": int}
    before = entity("Long", "Longs", fields, tm.Key[str, int](partition="{id}", row="{number}"))
    after = entity("Long", "Longs", fields, tm.Key[str, int](partition="{id}", row=("{id}", "{number}")))
    first = script([after], lambda m: m.rekey(before, after), "first", None, [before])
    with tm.open(path, models=[before]) as old:
        migrate(path, first)
        with pytest.raises(tm.InvalidEntity, match=r"as Long: .* a key may have 512"):
            old.insert(before("x" * 512, 1))
        assert old.query(before).allow_scan().count() == 0


def test_all_entities_go_at_once_on_both_sides(path: Path) -> None:
    new, aggregate, first = of("rename_class")
    migrate(path, first)
    with (
        tm.open(path, models=[OLD, totals(OLD)], durability="relaxed") as old,
        tm.open(path, models=[new, aggregate], durability="relaxed") as store,
    ):
        assert old.clear(OLD) == 30
        assert contents(store, new) == []
        same(old, store, new)


LOOSE = {"id": str, "number": int, "name": str, "grade": Old}


def loose(key: Any, grade: Any = Old, **body: Any) -> Any:
    return entity("Loose", "Looses", {**LOOSE, "grade": grade}, key, **body)


PLAIN = tm.Key[str, int](partition="{id}", row="{number}")


@pytest.mark.parametrize(
    ("before", "after", "function"),
    [
        pytest.param(
            loose(PLAIN), loose(tm.Key[str, str, int](partition="{name}", row=("{id}", "{number}"))),
            lambda m, a, b: m.rekey(a, b), id="the new key holds more",
        ),
        pytest.param(
            loose(tm.Key[str, str, int](partition="{name}", row=("{id}", "{number}"))), loose(PLAIN),
            lambda m, a, b: m.rekey(a, b), id="the old key holds more",
        ),
        pytest.param(
            loose(PLAIN), loose(tm.Key[str, int](partition="{id:fold}", row="{number}")),
            lambda m, a, b: m.rekey(a, b), id="a key holds less of a value",
        ),
        pytest.param(
            loose(PLAIN, by_name=tm.Index[str](partition="{name}", unique=True)), loose(PLAIN, New),
            lambda m, a, b: m.convert(a.grade, b.grade, GRADES), id="values had to differ",
        ),
        pytest.param(
            loose(PLAIN), loose(PLAIN, New),
            lambda m, a, b: m.convert(a.grade, b.grade, {**GRADES, Old.NEW: New.USED}), id="two values become one",
        ),
        pytest.param(
            loose(PLAIN), loose(tm.Key[str, int](partition="{id:shard(4)}", row=("{id}", "{number}"))),
            lambda m, a, b: (m.rekey(a, b), m.convert(a.name, b.name, {"a": "b"})), id="a value becomes one that others are",
        ),
        pytest.param(
            loose(PLAIN), entity("Loose", "Looses", {"id": str, "number": int, "grade": Old}, PLAIN),
            lambda m, a, b: m.drop(a.name), id="a field goes that always has a value",
        ),
    ],
)  # fmt: skip
def test_where_the_versions_cannot_be_kept_in_step_the_old_one_stops(
    tmp_path: Path, before: Any, after: Any, function: Callable[[tm.Migration, Any, Any], object]
) -> None:
    def steps(m: tm.Migration) -> None:
        if before.__declaration__.indexes and not after.__declaration__.indexes:
            m.drop(before.by_name)
        function(m, before, after)

    first = script([after], steps, "first", None, [before])
    with tm.open(tmp_path / "s.db", models=[before], durability="relaxed") as old:
        assert {step.old_version for step in migrate(tmp_path / "s.db", first, dry_run=True).plan} == {"stops"}
        migrate(tmp_path / "s.db", first)
        with pytest.raises(tm.SchemaMismatch, match="first replaced this form"):
            list(old.query(before).allow_scan())


def test_a_class_stops_with_the_one_that_its_fields_are_maintained_from(tmp_path: Path) -> None:
    def classes(shards: int) -> list[Any]:
        worker = entity(
            "Worker", "Workers", {"shop": str, "number": int},
            tm.Key[str, int](partition=f"{{shop:shard({shards})}}", row=("{shop}", "{number}")),
        )  # fmt: skip
        shop = entity(
            "Shop", "Shops", {"shop": str, "workers": int}, tm.Key[str](partition="{shop}"), workers=tm.count(of=worker),
            by_workers=tm.Index[int](partition="{workers}"),
        )  # fmt: skip
        return [worker, shop]

    old, new = classes(8), classes(16)
    first = script(
        new, lambda m: m.rewrite(old[0], lambda e: new[0](e.shop, e.number), into=[new[0]]), "first", None, old
    )
    with tm.open(tmp_path / "s.db", models=old, durability="relaxed") as store:
        store.insert(old[0]("a", 1))
        assert {step.old_version for step in migrate(tmp_path / "s.db", first, dry_run=True).plan} == {"stops"}
        migrate(tmp_path / "s.db", first)
        with pytest.raises(tm.SchemaMismatch, match="first replaced this form"):
            store.get(old[0].key("a", 1))
        with pytest.raises(tm.SchemaMismatch, match="first replaced this form"):
            list(store.query(old[1]).allow_scan())
    with tm.open(tmp_path / "s.db", models=new) as store:
        assert store.check().ok


def test_the_status_of_an_old_version_is_of_what_it_finds(path: Path) -> None:
    counted = [OLD, counts(OLD)]
    with tm.open(path, models=[OLD], durability="relaxed") as store:
        store.insert_many(one(OLD, "i9", number, random.Random(number)) for number in range(1_000, 2_100))
    with tm.open(path, models=counted, durability="relaxed") as store:
        store._engine.disable("Counts")  # type: ignore[attr-defined]
    first = script(
        [RENAMED, counts(RENAMED), totals(RENAMED)], lambda m: m.rename_class(OLD, RENAMED), "first", None, [*counted, totals(OLD)]
    )  # fmt: skip
    migrate(path, first)
    with tm.open(path, models=counted, build=False) as old:
        assert [old.status()[where].state for where in ("Part", "Part.by_tag", "Counts")] == [
            "ready",
            "ready",
            "disabled",
        ]
        with pytest.raises(tm.NotReady, match="nothing is built for an older version"):
            list(old.query(counted[1]).allow_scan())
    with tm.open(path, models=[RENAMED, counts(RENAMED)]) as store:
        assert store.status()["Counts"].state == "ready"
        with pytest.raises(KeyError):
            store.status()["Part"]


PIECES: list[tuple[Any, dict[str, Any], Any, Any]] = [
    (datetime, {"precision": "ms"}, (("{device}", "{at:%Y-%m-%d}"), "{at:%H:%M:%S.%L}"), ("{device}", "{at}")),
    (datetime, {"precision": "s"}, (("{device}", "{at:%Y-%m}"), "{at:%d %H:%M:%S}"), ("{device}", ("k", "{at:desc}"))),
    (datetime, {}, ("{at:%Y-%m-%d}", ("{device}", "{at:%H:%M:%S.%f}")), ("{device}", ("{at:%Y}", "{at:%m-%d %H:%M:%S.%f}"))),
    (date, {}, ("{at:%Y}", ("{at:%m-%d}", "{device}")), ("{at:%Y-%m}", ("{at:%d}", "{device}"))),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options", "was", "now"), PIECES)
def test_both_versions_write_whose_keys_hold_a_time_in_pieces(
    tmp_path: Path, kind: Any, options: Any, was: Any, now: Any
) -> None:
    def row(key: Any) -> Any:
        fields = {"device": str, "at": (kind, tm.field(**options)), "n": (int, tm.field(default=0))}
        return entity("Row", "Mains", fields, tm.Key(partition=key[0], row=key[1]))

    old, new = row(was), row(now)
    step = {"ms": 1000, "s": 1_000_000}.get(options.get("precision"), 1)
    start = datetime(2024, 12, 31, 23, 59, 59, 999_000 if step < 1_000_000 else 0, UTC)
    times = [start + timedelta(days=n, microseconds=n * step) for n in range(6)]
    times = times if kind is datetime else [time.date() for time in times]
    with tm.open(tmp_path / "s.db", models=[old], durability="relaxed") as before:
        before.insert_many(old("a", at) for at in times[:4])
        report = migrate(tmp_path / "s.db", script([new], lambda m: m.rekey(old, new), old=[old]))
        assert [step.old_version for step in report.plan] == ["writes"]
        with tm.open(tmp_path / "s.db", models=[new], durability="relaxed") as after:
            before.insert(old("a", times[4]))
            before.merge(old.key(device="a", at=times[0]), n=7)
            after.insert(new("a", times[5]))
            after.delete(new.key(device="a", at=times[1]))
            expected = [("a", at, 7 if at == times[0] else 0) for at in times if at != times[1]]
            for store, cls in ((before, old), (after, new)):
                assert sorted((one.device, one.at, one.n) for one in store.query(cls).allow_scan()) == expected
                assert store.check().ok
