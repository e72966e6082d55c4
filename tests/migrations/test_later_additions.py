"""Going back where later versions added something without a script."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm

from ..classes import entity
from ..stores import sound_store
from .shapes import FIELDS, changed, contents, made, migrate, part, script, step, totals

FIRST = part()
MORE = part(changed(FIELDS, more=int | None), by_maker=tm.Index[str](partition="{maker}"))
"""The first class, and an addition that needs no script."""
OTHER = part(name="Other", table="Others")
RENAMED = part(name="Renamed", table="Others")
BARE = part(changed(FIELDS, more=int | None, tags=None), by_maker=tm.Index[str](partition="{maker}"))
ONE = script([RENAMED, MORE], lambda m: m.rename_class(OTHER, RENAMED), "one", None, [OTHER, FIRST])
TWO = script([RENAMED, BARE], lambda m: m.drop(MORE.tags), "two", "one", [RENAMED, MORE])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=[OTHER, FIRST], durability="relaxed") as store:
        store.insert_many(
            cls("a", at, price=str(at), maker="m", tags=["x"]) for cls in (OTHER, FIRST) for at in range(9)
        )
    return tmp_path / "s.db"


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
def test_going_back_over_two_scripts_leads_before_an_addition_between_them(path: Path, *, at_once: bool) -> None:
    with tm.open(path, models=[OTHER, FIRST]) as store:
        before = contents(store, [OTHER, FIRST])
    for _ in range(2):
        assert migrate(path, ONE, TWO).applied == ("one", "two")
        with pytest.raises(tm.SchemaMismatch, match="the migration two replaced this form"):
            tm.open(path, models=[OTHER, FIRST])
        with tm.open(path, models=[RENAMED, BARE]) as store:
            assert store.check().ok
        if not at_once:
            assert migrate(path, ONE, TWO, to="one").ok
            with tm.open(path, models=[RENAMED, MORE]) as store:
                assert {one.tags[0] for one in store.query(MORE.by_maker("m"))} == {"x"}
        assert migrate(path, ONE, TWO, to="").ok
        with sound_store(path, models=[OTHER, FIRST]) as store:
            assert contents(store, [OTHER, FIRST]) == before


PRICED = part(changed(FIELDS, price=Decimal))
COUNTED = part(changed(FIELDS, price=Decimal), by_price=tm.Index[Decimal](partition="{price}"))
COUNTS = totals(COUNTED, "maker")


def text(price: Decimal) -> str:
    """Return a price as text; only the script can tell."""
    return str(price)


def to_decimal(back: Any) -> Any:
    return script([PRICED], lambda m: m.convert(FIRST.price, PRICED.price, Decimal, back=back), "first", None, [FIRST])


@pytest.mark.parametrize(("back", "copied"), [(text, 9), (str, 0)], ids=["copied", "switched"])
def test_an_index_and_an_aggregate_that_a_later_version_added_end_with_the_script(
    path: Path, back: Any, copied: int
) -> None:
    with tm.open(path, models=[FIRST]) as store:
        before = contents(store, [FIRST])
    for _ in range(2):
        assert migrate(path, to_decimal(back)).ok
        with sound_store(path, models=[COUNTED, COUNTS], durability="relaxed") as store:
            store.upsert(
                store[COUNTED.key("a", 1)]
            )  # it does not know the script, so it ends what only that keeps in step
            assert [one.number for one in store.query(COUNTED.by_price(Decimal(3)))] == [3]
            assert store[COUNTS.key("a")].parts == 9
        assert migrate(path, to_decimal(back), to="").entities == copied
        with sound_store(path, models=[FIRST], migrations=[to_decimal(back)], durability="relaxed") as store:
            assert contents(store, [FIRST]) == before
            store.delete(FIRST.key("a", 8))
            store.upsert(FIRST("a", 8, price="8", maker="m", tags=["x"]))


def test_a_field_that_a_later_version_added_keeps_all_scripts_from_being_undone_and_a_new_script_leads_on(
    path: Path,
) -> None:
    """(A field has values that nothing else tells.)"""
    again = script([RENAMED, PRICED], lambda m: m.convert(FIRST.price, PRICED.price, Decimal, back=text), "two", "one",
                   [RENAMED, FIRST])  # fmt: skip
    one = script([RENAMED, FIRST], lambda m: m.rename_class(OTHER, RENAMED), "one", None, [OTHER, FIRST])
    twice = part(name="Twice", table="Twice")
    three = script([twice, PRICED], lambda m: m.rename_class(RENAMED, twice), "three", "two", [RENAMED, PRICED])
    noted = part(changed(FIELDS, price=Decimal, note=str | None))
    scripts = [one, again, three]
    assert migrate(path, *scripts).ok
    with tm.open(path, models=[twice, noted], durability="relaxed") as store:
        store.merge(noted.key("a", 1), note="n")
    for to in ("one", ""):
        before = tm.status(path)
        with pytest.raises(
            tm.InvalidMigration, match=r"Part\.note: the field is in the store, a later version added it, "
        ):
            migrate(path, *scripts, to=to)
        assert tm.status(path) == before
    with tm.open(path, models=[twice, noted]) as store:
        assert store[noted.key("a", 1)].note == "n"
    priced = part()
    steps = step("convert", noted.price, priced.price, str), step("drop", noted.note)
    four = made([twice, priced], [twice, noted], *steps, name="four", after="three")
    assert migrate(path, *scripts, four).ok
    with sound_store(path, models=[twice, priced]) as store:
        assert store[priced.key("a", 1)].price == "1"


def test_a_version_that_went_on_before_a_script_opens_again_whatever_others_have_written(path: Path) -> None:
    wide = part(changed(FIELDS, price=str | None, more=int | None))
    slim = part(changed(FIELDS, price=str | None, more=int | None, tags=None))
    one = script([RENAMED, wide], lambda m: m.rename_class(OTHER, RENAMED), "one", None, [OTHER, FIRST])
    two = script([RENAMED, slim], lambda m: m.drop(wide.tags), "two", "one", [RENAMED, wide])
    assert migrate(path, one, two).ok
    with tm.open(path, models=[RENAMED, slim], durability="relaxed") as store:
        store.merge(slim.key("a", 1), price=None, more=1)
    assert migrate(path, one, two, to="").ok
    with tm.open(path, models=[OTHER, FIRST]) as store:
        assert store[FIRST.key("a", 2)].price == "2"
        with pytest.raises(tm.SchemaMismatch, match="price is None, which this version does not know"):
            store.get(FIRST.key("a", 1))
    with sound_store(path, models=[OTHER, wide]) as store:
        assert store[wide.key("a", 1)].more == 1


def test_a_program_that_was_refused_is_told_to_open_the_store_again_once_the_script_is_undone(path: Path) -> None:
    with tm.open(path, models=[OTHER, FIRST]) as running:
        assert migrate(path, ONE, TWO).ok
        with pytest.raises(tm.SchemaMismatch, match="the migration two replaced this form"):
            running.get(FIRST.key("a", 1))
        assert migrate(path, ONE, TWO, to="one").ok
        with pytest.raises(tm.SchemaMismatch, match="was undone; open the store again"):
            running.get(FIRST.key("a", 1))
        assert migrate(path, ONE, TWO, to="").ok
        assert running[FIRST.key("a", 1)].tags == ["x"]


def test_a_version_that_an_undoing_gave_back_ends_with_the_next_script(path: Path) -> None:
    firm = part(
        changed(FIELDS, more=int | None, maker=None, firm=str | None), by_maker=tm.Index[str](partition="{firm}")
    )
    rename = script([RENAMED, firm], lambda m: m.rename(MORE.maker, firm.firm), "two", "one", [RENAMED, MORE])
    for scripts in ([ONE, TWO], [ONE, TWO], [ONE, rename]):
        assert migrate(path, *scripts).ok
        with pytest.raises(tm.SchemaMismatch, match="the migration two replaced this form"):
            tm.open(path, models=[FIRST])
        assert migrate(path, *scripts, to="one").ok
    with tm.open(path, models=[FIRST]) as store:
        assert store[FIRST.key("a", 1)].maker == "m"


def test_a_version_opens_only_over_the_script_that_it_knows(path: Path) -> None:
    """(A script that was undone may be edited.)"""
    one = to_decimal(text)
    assert migrate(path, one).ok
    tm.open(path, models=[COUNTED]).close()
    assert migrate(path, one, to="").ok
    with pytest.raises(tm.SchemaMismatch, match="the undoing of first replaced this form"):
        tm.open(path, models=[COUNTED])
    counted = part(changed(FIELDS, price=int))
    other = script([counted], lambda m: m.convert(FIRST.price, counted.price, int, back=str), "first", None, [FIRST])
    assert migrate(path, other).ok
    with pytest.raises(tm.SchemaMismatch, match="the undoing of first replaced this form"):
        tm.open(path, models=[COUNTED])


@pytest.mark.parametrize("back", [text, str], ids=["copied", "switched"])
def test_a_version_opens_over_a_script_that_was_undone_and_edited_and_makes_the_same_classes(
    path: Path, back: Any
) -> None:
    """(A function had a fault: the script is undone, mended and done again.)"""
    assert migrate(path, to_decimal(back)).ok
    with tm.open(path, models=[COUNTED, COUNTS]) as running:
        assert running[COUNTED.key("a", 7)].price == 7
        assert migrate(path, to_decimal(back), to="").ok
        mended = script(
            [PRICED], lambda m: m.convert(FIRST.price, PRICED.price, lambda price: Decimal(price) * 2, back=text), "first", None,
            [FIRST],
        )  # fmt: skip
        assert migrate(path, mended).entities == 9
        with pytest.raises(tm.SchemaMismatch, match="was undone; open the store again"):
            running.get(COUNTED.key("a", 7))
    for _ in range(2):
        with sound_store(path, models=[COUNTED, COUNTS]) as store:
            assert store[COUNTED.key("a", 7)].price == 14
            assert [one.number for one in store.query(COUNTED.by_price(Decimal(6)))] == [3]
            assert store[COUNTS.key("a")].parts == 9


def test_a_version_that_went_on_beside_an_undone_script_opens_again_once_that_was_edited_and_done_again(
    path: Path,
) -> None:
    key = tm.Key[int, str](partition="{number}", row="{shelf}")
    keyed, counted = part(key=key), part(key=key, by_maker=tm.Index[str](partition="{maker}"))
    one = script([keyed], lambda m: m.rekey(FIRST, keyed), "first", None, [FIRST])
    assert migrate(path, one).ok
    tm.open(path, models=[counted]).close()
    assert migrate(path, one, to="").ok
    with tm.open(path, models=[counted], durability="relaxed") as running:  # both go on
        running.merge(counted.key(1, "a"), maker="n")
        edited = script([keyed], lambda m: m.rekey(FIRST, keyed) or None, "first", None, [FIRST])
        assert migrate(path, edited).entities == 9
        with pytest.raises(tm.SchemaMismatch, match="was undone; open the store again"):
            running.get(counted.key(1, "a"))
    with sound_store(path, models=[counted]) as store:
        assert [one.number for one in store.query(counted.by_maker("n"))] == [1]


def test_a_field_that_a_later_version_keeps_of_the_class_refuses_the_undoing(path: Path) -> None:
    first = to_decimal(text)
    assert migrate(path, first).ok
    members = {"shelf": str, "parts": (int, tm.count(of=PRICED))}
    shelf = entity("Shelf", "Shelves", members, tm.Key(partition="{shelf}", row="shelf"))
    with tm.open(path, models=[PRICED, shelf], durability="relaxed") as store:
        store.insert(shelf("a"))
        before = tm.status(path)
        with pytest.raises(tm.InvalidMigration, match=r"Shelf\.parts: it is maintained from what is migrated, a later ver.*"
                           r"write a new script .* m\.drop\(old\.Shelf\.parts\)"):  # fmt: skip
            migrate(path, first, to="")
        assert tm.status(path) == before
        assert store[shelf.key("a")].parts == 9


def test_a_version_with_an_index_that_was_dropped_for_good_stays_refused_once_a_later_script_is_undone(
    path: Path,
) -> None:
    with_index = part(by_maker=tm.Index[str](partition="{maker}"))
    bare, slim = part(), part(changed(FIELDS, tags=None))
    tm.open(path, models=[with_index]).close()
    drop = script([bare], lambda m: m.drop(with_index.by_maker), "one", None, [with_index])
    two = script([slim], lambda m: m.drop(bare.tags), "two", "one", [bare])
    assert migrate(path, drop, contract=True).ok
    for _ in range(2):
        assert migrate(path, drop, two).ok
        assert migrate(path, drop, two, to="one").ok
        with pytest.raises(tm.SchemaMismatch, match="by_maker was dropped by one"):
            tm.open(path, models=[with_index])


def test_going_back_over_two_scripts_works_where_the_later_one_drops_what_was_added_between(path: Path) -> None:
    more = part(changed(FIELDS, more=int | None))
    one = script([RENAMED, more], lambda m: m.rename_class(OTHER, RENAMED), "one", None, [OTHER, FIRST])
    steps = (
        step("convert", more.price, FIRST.price, lambda price: f"{price}!", back=lambda price: price[:-1]),
        step("drop", more.more),
    )
    two = made([RENAMED, FIRST], [RENAMED, more], *steps, name="two", after="one")

    def forth() -> None:
        assert migrate(path, one, two).ok
        with sound_store(path, models=[RENAMED, FIRST], durability="relaxed") as store:
            store.upsert(store[FIRST.key("a", 2)])  # (it does not know the script, so the version before ends)

    for _ in range(2):
        forth()
        assert migrate(path, one, two, to="").ok
        with sound_store(path, models=[OTHER, FIRST]) as store:
            assert store[FIRST.key("a", 1)].price == "1"
    for _ in range(2):  # and where nobody opens it between
        forth()
        assert migrate(path, one, two, to="one").entities == 9
    assert migrate(path, one, two, to="").ok
    tm.open(path, models=[OTHER, FIRST]).close()


# ---------------------------------------------------------------------------------------------- classes that stay as they are


def shouted(maker: str | None) -> str | None:
    return maker and maker.swapcase()


SAME = part()
FIRST_TOTALS, SAME_TOTALS = totals(FIRST, "maker"), totals(SAME, "price")


drop_totals = step("convert", FIRST.maker, SAME.maker, shouted, back=shouted), step("drop", FIRST_TOTALS)


DROPPED = made(SAME, [FIRST, FIRST_TOTALS], *drop_totals)
PRICES = script([PRICED], lambda m: m.convert(SAME.price, PRICED.price, Decimal), "second", "first", [SAME])


@pytest.mark.parametrize("count", [9, 0])
@pytest.mark.parametrize("contract", [True, False])
def test_an_aggregate_that_a_script_drops_does_not_come_back_by_a_version_that_only_it_tells_apart(
    place: Path, count: int, *, contract: bool
) -> None:
    with tm.open(place, models=[FIRST, FIRST_TOTALS]) as store:
        store.insert_many(FIRST("a", at, price="1", maker="m", tags=[]) for at in range(count))
    for last in (False, True):
        assert migrate(place, DROPPED, contract=contract and last).ok
        with pytest.raises(tm.SchemaMismatch, match="Totals was dropped by first; declare it under another"):
            tm.open(place, models=[FIRST, FIRST_TOTALS])
        assert [(one.where, one.state) for one in tm.status(place).objects] == [
            ("Part", "ready"),
            ("Totals", "dropped"),
        ]
        if not last:
            assert migrate(place, DROPPED, to="").ok
            with sound_store(place, models=[FIRST, FIRST_TOTALS]) as store:
                assert sum(group.parts for group in store.query(FIRST_TOTALS).allow_scan()) == count
    with sound_store(place, models=[SAME, SAME_TOTALS]) as store:  # another definition
        assert sum(group.parts for group in store.query(SAME_TOTALS).allow_scan()) == count
    with pytest.raises(tm.InvalidMigration, match="Totals is maintained from what is migrated"):
        migrate(place, DROPPED, PRICES)


def test_the_next_script_runs_after_a_version_with_a_dropped_aggregate_was_refused(path: Path) -> None:
    with tm.open(path, models=[FIRST, FIRST_TOTALS]):
        pass
    assert migrate(path, DROPPED).ok
    for _ in range(2):
        with pytest.raises(tm.SchemaMismatch, match="Totals was dropped by first"):
            tm.open(path, models=[FIRST, FIRST_TOTALS])
    assert migrate(path, DROPPED, PRICES).ok


SHELVED = part(changed(FIELDS, maker=str, shelf=str), by_maker=tm.Index[str](partition="{maker}"))
LOOSE = part(FIELDS)
SIZED = part(changed(FIELDS, size=int), name="Other", table="Others")


fill_sizes = step("drop", SHELVED.by_maker), step("fill", SIZED.size, lambda other: other.number)


def test_a_field_that_can_be_none_by_now_is_no_hindrance_where_the_class_is_not_copied(place: Path) -> None:
    sizes = made([LOOSE, SIZED], [SHELVED, OTHER], *fill_sizes, name="sizes")
    with tm.open(place, models=[SHELVED, OTHER]) as store:
        store.insert(SHELVED("a", 1, price="1", maker="m", tags=[]))
        store.insert(OTHER("a", 1, price="1", maker=None, tags=[]))
    migrate(place, sizes)
    with tm.open(place, models=[LOOSE, SIZED]) as store:
        store.insert(LOOSE("a", 2, price="2", maker=None, tags=[]))
        after = contents(store, [LOOSE, SIZED])
    for _ in range(2):
        assert migrate(place, sizes, to="").ok
        assert migrate(place, sizes).applied == ("sizes",)
    with sound_store(place, models=[LOOSE, SIZED]) as store:
        assert contents(store, [LOOSE, SIZED]) == after


def test_a_field_that_can_be_none_by_now_is_told_before_its_class_is_copied(place: Path) -> None:
    with tm.open(place, models=[SHELVED]) as store:
        store.insert(SHELVED("a", 1, price="1", maker="m", tags=[]))
    loose = part(FIELDS, by_maker=tm.Index[str](partition="{maker}"))
    with tm.open(place, models=[loose]) as store:
        store.insert(loose("a", 2, price="2", maker=None, tags=[]))
    before = tm.status(place)
    priced = script([PRICED], lambda m: (m.convert(SHELVED.price, PRICED.price, Decimal), m.drop(SHELVED.by_maker)), "one", None, [SHELVED])  # fmt: skip
    with pytest.raises(
        tm.InvalidMigration, match=r"Part.maker: the field is another one in the store: str \| None, and str in"
    ):
        migrate(place, priced)
    assert tm.status(place) == before


def test_an_aggregate_that_the_next_script_ended_early_comes_back_when_both_are_undone(place: Path) -> None:
    drop = script([FIRST], lambda m: m.drop(FIRST_TOTALS), "first", None, [FIRST, FIRST_TOTALS])
    shout = script(
        [SAME], lambda m: m.convert(FIRST.maker, SAME.maker, shouted, back=shouted), "second", "first", [FIRST]
    )
    with tm.open(place, models=[FIRST, FIRST_TOTALS]) as store:
        store.insert(FIRST("a", 1, price="1", maker="m", tags=[]))
    for _ in range(2):
        assert migrate(place, drop, shout).ok
        assert migrate(place, drop, shout, to="").ok
        with sound_store(place, models=[FIRST, FIRST_TOTALS]) as store:
            assert store[FIRST_TOTALS.key("a")].most == "m"
