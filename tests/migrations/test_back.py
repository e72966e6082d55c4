"""Forth and back: what undoing a migration leaves, as often as one likes, beside programs of both versions."""

from __future__ import annotations

import enum
import random
from decimal import Decimal
from operator import methodcaller as step
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

import tablemapper as tm

from ..classes import entity
from .shapes import (
    BARE,
    FIELDS,
    KEYED,
    OLD,
    OLD_TOTALS,
    PRICED,
    TO_DECIMAL,
    TO_NUMBER,
    cases,
    changed,
    contents,
    held,
    insert,
    made,
    migrate,
    opened,
    part,
    parts,
    totals,
)  # fmt: skip

NUMBER = tm.Key[int](partition="{number}")
State = enum.Enum("State", {"NEW": "new", "SOLD": "sold", "LOST": "lost"})


@pytest.fixture
def path(bare: Path) -> Path:
    return bare


def write_without_script(path: Path) -> None:
    """End the old version: a program that writes without the script cannot keep it in step."""
    with opened(path, PRICED) as store:
        store.upsert(store[PRICED.key("a", 1)])


def test_a_migration_can_be_undone_and_done_again(path: Path) -> None:
    before = held(path, BARE)
    assert migrate(path, TO_DECIMAL, TO_NUMBER).applied == ("first", "second")
    with tm.open(path, models=[KEYED]) as store:
        assert store[KEYED.key(7, "a")].price == 7
        report = migrate(path, TO_DECIMAL, TO_NUMBER, to="first")
        assert report.applied == ("second",)
        assert str(report).splitlines()[-1].startswith("undid second: ")
        assert store[KEYED.key(7, "a")].price == 7  # a key holds every field of the other one: both versions go on
    assert held(path, PRICED)[7].price == 7
    assert migrate(path, TO_DECIMAL, TO_NUMBER, to="").applied == ("first",)
    assert held(path, BARE) == before
    assert tm.status(path).history == ()
    assert migrate(path, TO_DECIMAL, TO_NUMBER).applied == ("first", "second")
    assert held(path, KEYED)[7].price == 7


def test_a_script_that_was_edited_after_it_was_undone_goes_on_where_its_last_run_ended(path: Path) -> None:
    edited = made(PRICED, BARE, step("convert", BARE.price, PRICED.price, lambda price: Decimal(price) + 1))
    migrate(path, TO_DECIMAL)
    migrate(path, TO_DECIMAL, to="")
    assert [migrate(path, edited, limit=12).entities for _ in range(2)] == [12, 12]
    report = migrate(path, edited)
    assert (report.done, report.entities) == (True, 6)
    assert held(path, PRICED)[7].price == 8


def test_a_program_that_was_refused_goes_on_once_the_migration_is_undone(path: Path) -> None:
    reads = [
        lambda store: store.get(BARE.key("a", 1)),
        lambda store: store.exists(BARE.key("a", 1)),
        lambda store: store.get_many([BARE.key("a", 1)]),
        lambda store: list(store.partition(BARE.shelf == "a")),
        lambda store: list(store.partitions(BARE)),
        lambda store: store.query(BARE).where(BARE.shelf == "a").first(),
    ]
    stores = [tm.open(path, models=[BARE]) for _ in reads]
    before = [read(store) for read, store in zip(reads, stores, strict=True)]
    for _ in range(2):
        migrate(path, TO_DECIMAL)
        write_without_script(path)
        for read, store in zip(reads, stores, strict=True):
            with pytest.raises(tm.SchemaMismatch, match="without migrations= wrote what the migration first made"):
                read(store)
        migrate(path, TO_DECIMAL, to="")
        assert [read(store) for read, store in zip(reads, stores, strict=True)] == before
    for store in stores:
        store.close()


def test_an_undoing_that_is_interrupted_goes_on(path: Path) -> None:
    migrate(path, TO_DECIMAL)
    write_without_script(path)
    report = migrate(path, TO_DECIMAL, to="", limit=10)
    assert (report.done, report.applied) == (False, ())
    with opened(path, PRICED) as store:
        store.merge(PRICED.key("a", 1), price=Decimal(100))
        with pytest.raises(tm.InvalidMigration, match="the undoing of first has not finished; run it to its end first"):
            migrate(path, TO_DECIMAL, TO_NUMBER)
        report = migrate(path, TO_DECIMAL, to="first")  # this gives it up
        assert (report.done, report.entities) == (True, 0)
        assert store[PRICED.key("a", 1)].price == 100
        assert migrate(path, TO_DECIMAL).ok
        migrate(path, TO_DECIMAL, to="", limit=10)
    assert migrate(path, TO_DECIMAL, to="").applied == ("first",)
    assert held(path, BARE)[1].price == "100"


def test_what_cannot_be_undone_is_refused_before_anything_is_done(path: Path) -> None:
    counted = part(changed(FIELDS, price=Decimal, tags=int), key=tm.Key[int, str](partition="{number}", row="{shelf}"))
    count = made(counted, KEYED, step("convert", KEYED.tags, counted.tags, len), name="third", after="second")
    migrate(path, TO_DECIMAL, TO_NUMBER, count)
    with pytest.raises(tm.InvalidMigration, match="third: it cannot be undone: convert Part.tags"):
        migrate(path, TO_DECIMAL, TO_NUMBER, count, to="")
    assert held(path, counted)


@pytest.mark.parametrize(
    ("old_kind", "new_kind", "mapping", "reversible"),
    [
        (Literal["new", "sold", "lost"], Literal["new", "sold"], {"lost": "sold"}, False),
        (Literal["new", "sold", "lost"], Literal["new", "sold", "gone"], {"lost": "gone"}, True),
        (Literal["new", "sold", "lost"], Literal["new", "sold", "gone"], {"lost": "sold", "sold": "gone"}, True),
        (State, State, {State.LOST: State.SOLD}, False),
        (State, State, {State.LOST: State.SOLD, State.SOLD: State.LOST}, True),
    ],
)
def test_a_mapping_that_makes_two_values_one_cannot_be_undone(
    tmp_path: Path, old_kind: Any, new_kind: Any, mapping: dict[Any, Any], *, reversible: bool
) -> None:
    path, values = tmp_path / "s.db", list(State) if old_kind is State else ["new", "sold", "lost"]
    old, new = part(changed(FIELDS, state=old_kind)), part(changed(FIELDS, state=new_kind))
    insert(path, *[old("a", n, price="", maker=None, tags=[], state=values[n]) for n in range(3)])
    before = held(path, old)
    one = made(new, old, step("convert", old.state, new.state, mapping))
    assert [step.reversible for step in migrate(path, one, dry_run=True).plan] == [reversible]
    migrate(path, one)
    if reversible:
        migrate(path, one, to="")
        assert held(path, old) == before
    else:
        with pytest.raises(tm.InvalidMigration, match="first: it cannot be undone: convert Part.state"):
            migrate(path, one, to="")


def test_aggregates_follow_their_class_back_and_forth(place: Path) -> None:
    insert(place, *parts(40, random.Random(3)), also=[OLD_TOTALS])
    new = part(changed(FIELDS, maker=None, firm=str | None, price=Decimal), by_firm=tm.Index[str](partition="{firm}"))
    steps = step("rename", OLD.maker, new.firm), step("convert", OLD.price, new.price, Decimal, back=str)
    one = made([new, totals(new, "firm")], [OLD, OLD_TOTALS], *steps)
    for _ in range(2):
        assert migrate(place, one).ok
        assert migrate(place, one, to="").ok
        with tm.open(place, models=[OLD, OLD_TOTALS]) as store:
            assert store.check().ok
            assert sum(group.parts for group in store.query(OLD_TOTALS).allow_scan()) == 40


@attrs.define
class Case:
    wide: int
    names: list[str] = attrs.field(factory=list)


def test_a_nested_value_changes_for_the_old_version_too(place: Path) -> None:
    before, new = (entity("Part", "Parts", {"number": int, "price": k, "box": Case | None}, NUMBER) for k in (str, int))
    to_int = made(new, before, step("convert", before.price, new.price, int, back=lambda price: f"{price:03}"))
    with opened(place, before) as old:
        old.insert_many(before(number, "007", Case(number, ["a"])) for number in range(3))
        assert migrate(place, to_int).plan[0].old_version == "reads"
        with opened(place, new, migrations=[to_int]) as store:
            store.merge(new.key(0), box=Case(2**40, ["b"]))
            store.merge(new.key(1), box=None)
            store.upsert(new(2, 8, Case(5)))
            assert store.check().ok
        assert [old[before.key(number)].box for number in range(3)] == [Case(2**40, ["b"]), None, Case(5)]
        assert old[before.key(2)].price == "008"


# ---------------------------------------------------------------------------------------------- both versions go on


def maker(name: str = "maker", **more: Any) -> Any:
    return entity("Part", "Parts", {"number": int, name: str, **more}, NUMBER)


def test_a_class_that_has_one_form_in_both_versions_stays_where_it_is_with_an_index_that_was_dropped(
    tmp_path: Path,
) -> None:
    path, stock = tmp_path / "s.db", {"number": int, "state": str}
    indexed = entity("Stock", "Stocks", stock, NUMBER, by_state=tm.Index[str](partition="{state}"))
    plain, other = (entity("Stock", "Stocks", stock, NUMBER) for _ in range(2))
    old, new = maker(), maker("firm")
    swap = step("convert", plain.state, other.state, {"new": "sold", "sold": "new"})
    scripts = [
        made(plain, indexed, step("drop", indexed.by_state)),
        made([other, new], [plain, old], swap, step("rename", old.maker, new.firm), name="second", after="first"),
    ]
    insert(path, old(1, "m"), indexed(1, "new"))
    for _ in range(2):
        assert migrate(path, *scripts).plan[-1].old_version == "writes"
        assert (held(path, new, other)[1].firm, held(path, other, new)[1].state) == ("m", "sold")
        migrate(path, *scripts, to="first")
        assert (held(path, old, plain)[1].maker, held(path, plain, old)[1].state) == ("m", "new")


def test_a_plan_says_of_an_undoing_that_the_new_version_stops_where_the_old_one_could_only_read(tmp_path: Path) -> None:
    path, old, new = tmp_path / "s.db", maker(), maker(rank=int)
    first = made(new, old, step("fill", new.rank, lambda e: e.number))
    insert(path, old(1, "m"))
    assert [step.old_version for step in migrate(path, first).plan] == ["reads"]
    for dry_run in (True, False):
        assert [step.old_version for step in migrate(path, first, to="", dry_run=dry_run).plan] == ["stops"]
    with pytest.raises(tm.SchemaMismatch, match="the undoing of first replaced this form"):
        tm.open(path, models=[new])


def test_what_was_half_built_before_a_switch_is_built_anew_after_it_is_undone(
    tmp_path: Path, never_at_once: None
) -> None:
    path, convert = tmp_path / "s.db", cases()["convert"].script
    insert(path, *[BARE("a", n, price=str(n), maker="m1", tags=["x"]) for n in range(50)])
    with tm.open(path, models=[OLD, OLD_TOTALS], build=False) as store:
        store.build(limit=20)
    assert migrate(path, convert).ok
    migrate(path, convert, to="")
    with tm.open(path, models=[OLD, OLD_TOTALS]) as store:
        assert store.check().problems == ()
        assert len(list(store.query(OLD.by_maker("m1")))) == 50


# ---------------------------------------------------------------------------------------------- a way back that stops

WIDE_KEY = tm.Key[str, int, int](partition="{shelf}", row=("{number}", "{price}"))
WIDE = part(changed(FIELDS, price=int), WIDE_KEY)
NAMED = part(changed(FIELDS, price=int, maker=None, firm=str | None), WIDE_KEY, "Named", "Names")
TO_WIDE = made(WIDE, BARE, step("rekey", BARE, WIDE), step("convert", BARE.price, WIDE.price, int, back=str))
TO_NAMED = made(
    NAMED, WIDE, step("rename_class", WIDE, NAMED), step("rename", WIDE.maker, NAMED.firm), name="second", after="first"
)


def wide(number: int, price: int) -> Any:
    return WIDE("a", number, price=price, maker="m", tags=[])


def contents_of(path: Path, cls: Any) -> list[str]:
    with opened(path, cls) as store:
        assert store.check().ok
        return contents(store, [cls])


def test_a_key_with_more_fields_ends_the_old_version_as_it_could_not_hold_what_the_new_one_writes(path: Path) -> None:
    (first, _) = migrate(path, TO_WIDE).plan
    assert first.old_version == "stops"
    with opened(path, WIDE, migrations=[TO_WIDE]) as store:
        store.insert(wide(1, 7))
        assert store.query(WIDE).where(WIDE.shelf == "a", WIDE.number == 1).count() == 2


@pytest.fixture
def collided(path: Path) -> Path:
    """A store of the new version with two pairs of entities that were one entity each."""
    migrate(path, TO_WIDE)
    insert(path, wide(1, 7), wide(2, 7))
    return path


def test_entities_that_become_one_by_an_undoing_are_all_named_and_the_store_stays_as_it_was(collided: Path) -> None:
    before = contents_of(collided, WIDE)
    rehearsed = migrate(collided, TO_WIDE, to="", dry_run=True)
    with pytest.raises(tm.MigrationStopped, match="nothing was switched") as stopped:
        migrate(collided, TO_WIDE, to="")
    faults = stopped.value.report.faults
    assert sorted(rehearsed.faults, key=str) == sorted(faults, key=str)
    assert [(fault.where, *fault.key) for fault in faults] == [("Part", "a", "a1 !a7"), ("Part", "a", "a2 !a7")]
    assert "it becomes Part ('a', 'a1'), and so does ('a', 'a1 !a1')" in str(stopped.value)
    assert contents_of(collided, WIDE) == before
    assert migrate(collided, TO_WIDE, to="first").done  # it gives the undoing up
    assert contents_of(collided, WIDE) == before


def test_an_undoing_goes_on_once_the_entities_differ_again(collided: Path) -> None:
    with pytest.raises(tm.MigrationStopped):
        migrate(collided, TO_WIDE, to="")
    with opened(collided, WIDE) as store:
        store.delete(WIDE.key("a", 1, 1))
        store.delete(WIDE.key("a", 2, 7))
    assert migrate(collided, TO_WIDE, to="").done
    found = held(collided, BARE)
    assert ([found[number].price for number in range(4)], len(found)) == (["0", "7", "2", "3"], 30)


@pytest.fixture
def halfway(collided: Path) -> Path:
    """A store that was to go back over two scripts, and stopped in the second."""
    migrate(collided, TO_WIDE, TO_NAMED)
    with opened(collided, NAMED) as store:
        store.merge(NAMED.key("a", 5, 5), firm="late")
    told = r"the undoing of first: 2 entities .* switched \(second stays undone\)"
    with pytest.raises(tm.MigrationStopped, match=told) as stopped:
        migrate(collided, TO_WIDE, TO_NAMED, to="")
    assert stopped.value.report.applied == ("second",)
    return collided


def test_a_run_back_over_two_scripts_that_stops_in_the_second_stays_at_the_version_between_them(halfway: Path) -> None:
    assert [entry.id for entry in tm.status(halfway).history] == ["first"]
    with opened(halfway, WIDE) as store:
        assert store[WIDE.key("a", 5, 5)].maker == "late"
        store.merge(WIDE.key("a", 6, 6), maker="later")
    assert len(contents_of(halfway, WIDE)) == 32
    assert held(halfway, NAMED)[6].firm == "later"  # it goes on beside it


def test_one_goes_forth_again_from_where_a_way_back_over_two_scripts_stopped(halfway: Path) -> None:
    with pytest.raises(tm.InvalidMigration, match="the undoing of first has not finished"):
        migrate(halfway, TO_WIDE, TO_NAMED)
    assert migrate(halfway, TO_WIDE, TO_NAMED, to="second").applied == ("second",)
    assert (held(halfway, NAMED)[5].firm, len(contents_of(halfway, NAMED))) == ("late", 32)


def test_one_goes_back_to_the_end_from_where_a_way_back_over_two_scripts_stopped(halfway: Path) -> None:
    with opened(halfway, WIDE) as store:
        store.delete(WIDE.key("a", 1, 7))
        store.delete(WIDE.key("a", 2, 7))
    assert migrate(halfway, TO_WIDE, TO_NAMED, to="").applied == ("first",)
    assert (held(halfway, BARE)[5].maker, len(held(halfway, BARE))) == ("late", 30)
