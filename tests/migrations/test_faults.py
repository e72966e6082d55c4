"""What stands in the way of a migration: entities, scripts, other processes, the disk. Nothing is switched, and nothing is lost."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import tablemapper as tm

from ..classes import entity
from ..stores import sound_store
from .shapes import FIELDS, OLD, OLD_TOTALS, begun, changed, migrate, part, parts, script

PRICED = part(changed(FIELDS, price=Decimal))
SAME = part()
BARE = entity("Bare", "Bares", {"number": int}, tm.Key[int](partition="{number}"))
ALONE = part()  # as old, without its indexes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=[ALONE], durability="relaxed") as store:
        store.insert_many(ALONE("a", number, price=str(number), maker=None, tags=[]) for number in range(30))
    return tmp_path / "s.db"


def alone(new: list[Any], function: Any, name: str = "first", after: str | None = None) -> Any:
    return script(new, function, name, after, old=[ALONE])


TO_DECIMAL = alone([PRICED], lambda m: m.convert(ALONE.price, PRICED.price, Decimal, back=str))


def test_entities_that_do_not_convert_are_listed_and_mended(path: Path) -> None:
    with tm.open(path, models=[ALONE], durability="relaxed") as store:
        for number in (3, 17):
            store.merge(ALONE.key("a", number), price="cheap")
        with pytest.raises(
            tm.MigrationStopped, match="first: 2 entities cannot be converted; .* nothing was switched"
        ) as stopped:
            migrate(path, TO_DECIMAL)
        assert [(one.where, one.key) for one in stopped.value.faults] == [("Part", ("a", "a3")), ("Part", ("a", "b17"))]
        assert stopped.value.report.entities >= 30
        assert store.check().ok
        store.merge(ALONE.key("a", 3), price="3")
        store.delete(ALONE.key("a", 17))
        assert migrate(path, TO_DECIMAL).ok
    with sound_store(path, models=[PRICED]) as store:
        assert sorted(int(one.price) for one in store.query(PRICED).allow_scan()) == [n for n in range(30) if n != 17]


def test_a_fault_of_many_entities_is_one_line_that_names_the_field(path: Path) -> None:
    with tm.open(path, models=[ALONE], durability="relaxed") as store:
        store.merge(ALONE.key("a", 3), price="cheap")

    def decimal(price: str) -> Decimal:
        return Decimal(price) if price == "cheap" else Decimal(price.number)  # type: ignore[attr-defined]

    step = alone([PRICED], lambda m: m.convert(ALONE.price, PRICED.price, decimal))
    report = migrate(path, step, dry_run=True)
    assert len(report.faults) == 30
    lines = [
        "Part ('a', 'a0'), ('a', 'a1'), ('a', 'a2'), ('a', 'a4'), ('a', 'a5') and 24 more: "
        "price: AttributeError: 'str' object has no attribute 'number'",
        "Part ('a', 'a3'): price: InvalidOperation: [<class 'decimal.ConversionSyntax'>]",
    ]
    assert str(report).split("\n")[-2:] == lines
    with pytest.raises(tm.MigrationStopped) as stopped:
        migrate(path, step)
    assert str(stopped.value).split("\n")[1:] == [f"  - {line}" for line in lines]


@pytest.mark.parametrize(
    ("function", "detail"),
    [
        (lambda e: BARE(e.number // 29), r"it becomes Bare \('a0', ''\), and so does \('a', '"),
        (lambda e: BARE(e.number) if e.number else e, "the function gave Part, but the script's new Bare is expected"),
        (lambda e: [BARE(1_000), BARE(1_000)] if not e.number else BARE(e.number), "two of the entities .* have one key"),
        (lambda e: BARE(10 // e.number), "ZeroDivisionError: "),
        (lambda e: 5, "the function gave int"),
        (lambda e: BARE(str(e.number)), "InvalidEntity: .*expected int"),
    ],
)  # fmt: skip
def test_what_a_function_must_not_give_is_a_fault_of_its_entity(path: Path, function: Any, detail: str) -> None:
    one = alone([BARE], lambda m: m.rewrite(ALONE, function, into=[BARE]))
    report = migrate(path, one, dry_run=True)
    assert report.faults
    with pytest.raises(tm.MigrationStopped, match=detail) as stopped:
        migrate(path, one)
    assert {fault.key for fault in stopped.value.faults} == {fault.key for fault in report.faults}
    with sound_store(path, models=[ALONE]) as store:
        assert len(list(store.query(ALONE).allow_scan())) == 30


def test_a_value_that_is_to_be_unique_and_is_not_is_a_fault(path: Path) -> None:
    unique = part(by_price=tm.Index[str](partition="{price}", unique=True))
    with pytest.raises(
        tm.MigrationStopped, match="Part.by_price: Part.* cannot have 'same', which .* holds"
    ) as stopped:
        migrate(path, alone([unique], lambda m: m.rewrite(ALONE, lambda e: unique(e.shelf, e.number, price="same" if e.number > 27 else e.price, maker=None, tags=[]), into=[unique])))  # fmt: skip
    assert len(stopped.value.faults) == 1


def test_a_key_that_two_entities_swap_is_no_fault(path: Path) -> None:
    by_price = part(key=tm.Key[str](partition="{price}"))
    one = alone([by_price], lambda m: m.rekey(ALONE, by_price))
    with tm.open(path, models=[ALONE], durability="relaxed") as store:
        engine = begun(path, one)
        engine.step(30)
        with store.transaction() as tx:
            tx.merge(ALONE.key("a", 1), price="2")
            tx.merge(ALONE.key("a", 2), price="1")
        while not engine.step(20).switched:
            assert len(engine.faults) < 3
        assert engine.faults == {}, "what was in the way of another is no fault any more"
        engine.close()
    with tm.open(path, models=[by_price]) as store:
        assert store[by_price.key("1")].number == 2
        assert len(list(store.query(by_price).allow_scan())) == 30


# ---------------------------------------------------------------------------------------------- scripts that do not fit


def refused(path: Path, match: str, *scripts: Any, **options: Any) -> None:
    before = path.read_bytes()
    with pytest.raises(tm.InvalidMigration, match=match):
        migrate(path, *scripts, **options)
    assert path.read_bytes() == before
    with tm.open(path, models=[ALONE]) as store:
        assert store.check().ok


def test_old_shapes_that_are_not_those_of_the_store_are_refused_with_the_difference(path: Path) -> None:
    other = part(changed(FIELDS, price=int, size=int))
    new = part(changed(FIELDS, price=int))
    refused(
        path, r"(?s)Part.price: the field is another one in the store: str, and int in old.*Part.size: the field is not in the store",
        script([new], lambda m: m.drop(other.size), old=[other]),
    )  # fmt: skip
    slim, bare = part(changed(FIELDS, tags=None)), part(changed(FIELDS, tags=None, price=int))
    refused(
        path, r"Part.tags: the field is in the store, and not in old: name it there, and in new or in m.drop",
        script([bare], lambda m: m.convert(slim.price, bare.price, int), old=[slim]),
    )  # fmt: skip
    larger = part(changed(FIELDS, size=int | None))
    keyed = part(key=tm.Key[int, str](partition="{number}", row="{shelf}"))
    refused(path, r'Part: its partition is "\{shelf\}" in the store, and "\{number\}" in old', script([larger], lambda m: m.rekey(keyed, larger), old=[keyed]))  # fmt: skip


def test_what_hangs_together_with_a_class_has_to_be_named(place: Path) -> None:
    with tm.open(place, models=[OLD, OLD_TOTALS]) as store:
        store.insert_many(parts(3, random.Random(1)))
    with pytest.raises(tm.InvalidMigration, match="Totals is maintained from what is migrated: name it in old="):
        migrate(place, script([PRICED], lambda m: m.convert(OLD.price, PRICED.price, Decimal), old=[OLD]))


def test_a_script_that_was_edited_after_it_ran_is_refused(path: Path) -> None:
    migrate(path, TO_DECIMAL)
    edited = alone([PRICED], lambda m: m.convert(ALONE.price, PRICED.price, lambda text: Decimal(text) * 2, back=str))
    with pytest.raises(tm.InvalidMigration, match="first was edited after it ran over this store: restore its text"):
        migrate(path, edited)


def test_a_script_that_was_edited_while_it_ran_begins_anew(path: Path) -> None:
    migrate(path, TO_DECIMAL, limit=10)
    edited = alone([PRICED], lambda m: m.convert(ALONE.price, PRICED.price, lambda text: Decimal(text) * 2, back=str))
    assert migrate(path, edited).entities == 30
    with sound_store(path, models=[PRICED]) as store:
        assert store[PRICED.key("a", 4)].price == 8


def test_an_edited_script_knows_nothing_of_what_was_copied_before(path: Path) -> None:
    migrate(path, TO_DECIMAL, limit=10)
    edited = alone([PRICED], lambda m: m.convert(ALONE.price, PRICED.price, lambda text: Decimal(text) * 2, back=str))
    with tm.open(path, models=[ALONE], durability="relaxed") as store:
        store.merge(ALONE.key("a", 3), price="cheap")  # which was copied
    with pytest.raises(tm.MigrationStopped) as stopped:
        migrate(path, edited)
    assert [fault.key for fault in stopped.value.faults] == [("a", "a3")]


def test_a_history_that_the_scripts_lack_is_refused(path: Path) -> None:
    second = script(
        [SAME], lambda m: m.convert(PRICED.price, SAME.price, str, back=Decimal), "second", "first", [PRICED]
    )
    third = script([PRICED], lambda m: m.convert(SAME.price, PRICED.price, Decimal), "third", "first", [SAME])
    migrate(path, TO_DECIMAL, second)
    with pytest.raises(tm.InvalidMigration, match="second ran over this store, and is not among the scripts"):
        migrate(path, TO_DECIMAL, third)
    with pytest.raises(
        tm.InvalidMigration, match="no script is called 'fourth': there are first, second; '' undoes all"
    ):
        migrate(path, TO_DECIMAL, second, to="fourth")
    with pytest.raises(tm.InvalidMigration, match="no script is called 'fourth': there are none"):
        migrate(path, to="fourth")
    # Once every store is past the first ones, they may be deleted.
    assert migrate(path, script([PRICED], lambda m: m.convert(SAME.price, PRICED.price, Decimal), "third", None, [SAME])).applied == ("third",)  # fmt: skip


def test_a_store_that_was_made_later_is_past_the_scripts(place: Path, tmp_path: Path) -> None:
    tm.open(place, models=[PRICED]).close()
    report = migrate(place, TO_DECIMAL)
    assert (report.done, report.applied) == (True, ())
    assert [one.state for one in tm.status(place).history] == ["switched"]
    with pytest.raises(tm.StoreError):
        migrate(tmp_path / "none.db", TO_DECIMAL)


def test_a_script_that_leaves_nothing_is_not_taken_for_done(path: Path) -> None:
    other = part(changed(FIELDS, price=int))
    refused(path, "Part.price: the field is another one", script([], lambda m: m.drop(other), old=[other]))


def test_another_migration_waits_for_the_one_that_is_under_way(path: Path) -> None:
    migrate(path, TO_DECIMAL, limit=10)
    other = alone([SAME], lambda m: m.convert(ALONE.price, SAME.price, str.upper), "other")
    with pytest.raises(tm.InvalidMigration, match="first"):
        migrate(path, other)
    assert migrate(path, TO_DECIMAL).ok


def test_nobody_changes_what_is_being_migrated(path: Path) -> None:
    migrate(path, TO_DECIMAL, limit=10)
    for models in ([part(changed(FIELDS, size=int | None))], [part(by_maker=tm.Index[str](partition="{maker}"))]):
        with pytest.raises(tm.SchemaMismatch, match="first is under way"):
            tm.open(path, models=models)
    with sound_store(path, models=[ALONE, BARE]) as store:
        store.insert(BARE(1))
    assert migrate(path, TO_DECIMAL).ok


def test_a_run_that_was_killed_before_it_cleared_up_leaves_nothing_that_a_later_one_meets(path: Path) -> None:
    change = alone([BARE], lambda m: m.rewrite(ALONE, lambda e: BARE(int(e.price)), into=[BARE],
                                               back=lambda e: ALONE("a", e.number, price=str(e.number), maker=None, tags=[])))  # fmt: skip
    for back in (False, True):
        engine = begun(path, change, back=back)
        while not engine.step(100).switched:
            pass
        engine._file.close()  # before it clears what it has noted
    with tm.open(path, models=[ALONE], durability="relaxed") as store:
        store.merge(ALONE.key("a", 1), price="5")
        store.merge(ALONE.key("a", 5), price="none")
        begun(path, change).close()
        with pytest.raises(tm.MigrationStopped, match="1 entity cannot"):
            migrate(path, change)
        store.merge(ALONE.key("a", 5), price="1")
    assert migrate(path, change).ok
    with tm.open(path, models=[BARE]) as store:
        assert sorted(one.number for one in store.query(BARE).allow_scan()) == list(range(30))


def test_an_entity_whose_new_key_is_one_of_a_more_special_class_is_a_fault(path: Path) -> None:
    chief = entity("Chief", "Staff", {"shelf": str}, tm.Key[str](partition="{shelf}", row="chief"))
    staff = entity("Staff", "Staff", {"shelf": str, "name": str}, tm.Key[str, str](partition="{shelf}", row="{name}"))
    one = alone(
        [staff, chief],
        lambda m: m.rewrite(ALONE, lambda e: staff(e.shelf, "chief" if e.price == "7" else e.price), into=[staff]),
    )
    with pytest.raises(
        tm.MigrationStopped, match=r"it becomes Staff \('a', 'chief'\), which is a key of Chief"
    ) as stopped:
        migrate(path, one)
    assert [fault.key for fault in stopped.value.faults] == [("a", "a7")]


def box(**fields: Any) -> Any:
    return entity("Box", "Boxes", {"number": int, **fields}, tm.Key[int](partition="{number}"))


def test_a_fill_that_gives_none_leaves_an_optional_field_empty_and_is_a_fault_of_any_other(tmp_path: Path) -> None:
    path, before, optional, required = tmp_path / "b.db", box(), box(rank=str | None), box(rank=str)
    with tm.open(path, models=[before], durability="relaxed") as store:
        store.insert_many(before(number) for number in range(3))
    with pytest.raises(
        tm.MigrationStopped, match="InvalidEntity: Box: rank: None, but a value of type str is required"
    ):
        migrate(path, script([required], lambda m: m.fill(required.rank, lambda _: None), "first", None, [before]))
    odd = script([optional], lambda m: m.fill(optional.rank, lambda e: "odd" if e.number % 2 else None), "first", None, [before])  # fmt: skip
    assert migrate(path, odd).ok
    with tm.open(path, models=[optional]) as store:
        assert [one.rank for one in store.query(optional).allow_scan().order_by(optional.number)] == [None, "odd", None]


def test_a_fill_keeps_what_an_entity_has_as_an_undeclared_property_if_the_field_takes_it(tmp_path: Path) -> None:
    path, before = tmp_path / "b.db", box(more=tm.Extra)
    new = box(rank=Annotated[int, msgspec.Meta(ge=0)], more=tm.Extra)
    extras = [{}, {"rank": 7}, {"rank": 8, "size": 1}, {"rank": "9"}, {"rank": -1}]
    with tm.open(path, models=[before], durability="relaxed") as store:
        store.insert_many(before(number, tm.Extra(extra)) for number, extra in enumerate(extras))
    fill = script([new], lambda m: m.fill(new.rank, lambda e: abs(int(e.more.get("rank", 0)))), "first", None, [before])
    assert migrate(path, fill).ok
    with tm.open(path, models=[new]) as store:
        found = sorted(store.query(new).allow_scan(), key=lambda one: one.number)
        assert [one.rank for one in found] == [0, 7, 8, 9, 1]
        assert found[2].more == {"size": 1}
    migrate(path, fill, to="")
    with tm.open(path, models=[before]) as store:
        found = sorted(store.query(before).allow_scan(), key=lambda one: one.number)
        assert [one.more for one in found] == extras
