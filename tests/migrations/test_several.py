"""Several scripts, one after the other: what one leaves open, and the next one finds."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online.migration import SqliteMigrations

from ..stores import sound_store
from .shapes import FIELDS, OLD, OLD_TOTALS, changed, indexes, made, part, parts, script, step, totals

BY_MAKER = {"by_maker": tm.Index[str](partition="{maker}")}
SLIM = part(**BY_MAKER)
SHARDED = tm.Key[str, int](partition="{shelf:shard(4)}", row=("{shelf}", "{number}"))
KEYED = part(key=SHARDED, **BY_MAKER)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tm.open(tmp_path / "s.db", models=[OLD, OLD_TOTALS], durability="relaxed") as store:
        store.insert_many(parts(20, random.Random(1)))
    return tmp_path / "s.db"


def migrate(path: Path, *scripts: Any, **options: Any) -> tm.reports.MigrationReport:
    report = tm.migrate(path, scripts, **{"rest": 0, "durability": "relaxed", **options})
    assert report.ok
    return report


def sound(path: Path, *classes: Any) -> int:
    """Check a store, and return how many entities it has of the first class."""
    with tm.open(path, models=list(classes), durability="relaxed") as store:
        assert store.check().ok
        return len(list(store.query(classes[0]).allow_scan()))


def test_a_script_fills_one_class_and_copies_another(path: Path) -> None:
    box = part(name="Box", table="Boxes")
    filled = part(changed(FIELDS, rank=int), name="Box", table="Boxes")
    priced = part(changed(FIELDS, price=Decimal), **indexes())
    steps = step("fill", filled.rank, lambda e: e.number), step("convert", OLD.price, priced.price, Decimal, back=str)
    with tm.open(path, models=[box]) as store:
        store.insert(box("x", 7, price="1", maker=None, tags=[]))
    migrate(path, made([filled, priced, totals(priced, "maker")], [box, OLD, OLD_TOTALS], *steps))
    with tm.open(path, models=[filled, priced]) as store:
        assert store[filled.key("x", 7)].rank == 7
    assert sound(path, priced) == 20


def test_a_class_that_was_renamed_and_has_ended_is_not_opened_as_an_empty_one(path: Path) -> None:
    product = part(name="Product", table="Products", **indexes())
    priced = part(changed(FIELDS, price=int), name="Product", table="Products", **indexes())
    first = script([product, totals(product, "maker")], lambda m: m.rename_class(OLD, product), "first")
    second = script(
        [priced, totals(priced, "maker")], lambda m: m.convert(product.price, priced.price, int), "second",
        "first", [product, totals(product, "maker")],
    )  # fmt: skip
    migrate(path, first, second)
    with pytest.raises(tm.SchemaMismatch, match="Part: the migration first replaced this form of the class"):
        tm.open(path, models=[OLD, OLD_TOTALS])
    assert [item.where for item in tm.status(path).objects if item.kind == "class"] == ["Product"]


def test_a_class_that_has_ended_is_not_declared_anew_though_it_holds_nothing(tmp_path: Path) -> None:
    path, priced = tmp_path / "s.db", part(changed(FIELDS, price=Decimal), **indexes())
    ranked = part(changed(FIELDS, price=Decimal, rank=int), **indexes())
    first = script([priced], lambda m: m.convert(OLD.price, priced.price, Decimal), "first", None, [OLD])
    second = script([ranked], lambda m: m.fill(ranked.rank, lambda _: 1), "second", "first", [priced])
    with tm.open(path, models=[OLD]) as old:
        migrate(path, first)
        with pytest.raises(tm.SchemaMismatch, match="first replaced this form"):
            old.insert(OLD("x", 1, price="1", maker=None, tags=[]))
    with pytest.raises(tm.SchemaMismatch, match="first replaced this form"):  # an old process that starts again
        tm.open(path, models=[OLD])
    migrate(path, first, second)
    assert sound(path, ranked) == 0


def test_a_script_finds_what_the_one_before_it_declares_and_no_step_says(path: Path) -> None:
    fields = {"firm" if name == "maker" else name: kind for name, kind in FIELDS.items()}
    found = {"by_price": tm.Index[str](partition="{price}"), **indexes("firm")}
    renamed = part(fields | {"note": str | None}, **found)
    by_price = tm.Index[Decimal](partition="{price}")
    priced = part(fields | {"price": Decimal, "note": str | None}, **indexes("firm"), by_price=by_price)
    first = script([renamed, totals(renamed, "firm")], lambda m: m.rename(OLD.maker, renamed.firm), "first")
    second = script(
        [priced, totals(priced, "firm")], lambda m: m.convert(renamed.price, priced.price, Decimal, back=str), "second",
        "first", [renamed, totals(renamed, "firm")],
    )  # fmt: skip
    assert migrate(path, first, second, dry_run=True).applied == ()
    assert migrate(path, first, second).applied == ("first", "second")
    assert sound(path, priced, totals(priced, "firm")) == 20
    assert sound(path, renamed, totals(renamed, "firm")) == 20  # which never was opened while it was the newest
    assert migrate(path, first, second, to="").applied == ("second", "first")
    assert sound(path, OLD, OLD_TOTALS) == 20


@pytest.mark.parametrize("to", [None, ""], ids=["forth", "back"])
def test_a_run_that_was_killed_between_two_scripts_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str | None
) -> None:
    path, plain, noted = tmp_path / "k.db", part(), part(FIELDS | {"note": str | None})
    box, case = part(name="Box", table="Boxes"), part(name="Case", table="Cases")
    with tm.open(path, models=[plain, box]) as store:
        store.insert(plain("a", 1, price="1", maker=None, tags=[]))
    steps = (
        step("convert", noted.price, plain.price, lambda price: f"{price}!", back=lambda price: price[:-1]),
        step("drop", noted.note),
    )
    first = script([noted, case], lambda m: m.rename_class(box, case), "first", None, [plain, box])
    second = made([plain, case], [noted, case], *steps, name="second", after="first")
    if to == "":
        migrate(path, first, second)
    with monkeypatch.context() as patch:
        patch.setattr(SqliteMigrations, "take_over", interrupt)
        with pytest.raises(KeyboardInterrupt):
            migrate(path, first, second, to=to)
    migrate(path, first, second, to=to)
    with sound_store(path, models=[plain], durability="relaxed") as store:
        assert store[plain.key("a", 1)].price == ("1!" if to is None else "1")


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_script_copies_what_an_earlier_one_drops_something_of(path: Path) -> None:
    drop = step("drop", OLD.by_tag), step("drop", OLD_TOTALS)
    first = made(SLIM, [OLD, OLD_TOTALS], *drop)
    second = script([KEYED], lambda m: m.rekey(SLIM, KEYED), "second", "first", [SLIM])
    migrate(path, first)
    migrate(path, first, second)
    assert sound(path, KEYED) == 20
    assert sound(path, OLD, OLD_TOTALS) == 20
    migrate(path, first, second, to="first")
    assert sound(path, SLIM) == 20
    migrate(path, first, second, to="")
    with sound_store(path, models=[OLD, OLD_TOTALS]) as store:
        assert {one.shelf for one in store.query(OLD_TOTALS).allow_scan()} == {"x", "y", "z"}
    migrate(path, first, second, contract=True)
    assert sound(path, KEYED) == 20
    assert [item.where for item in tm.status(path).objects if item.state == "ready"] == ["Part", "Part.by_maker"]


def test_a_script_knows_an_index_by_the_name_that_it_has_there(path: Path) -> None:
    named = part(**BY_MAKER, tagged=tm.Index[str](partition="{tags}"))
    keyed = part(key=SHARDED, **BY_MAKER, tagged=tm.Index[str](partition="{tags}"))
    assert sound(path, named) == 20
    first = script(
        [keyed, totals(keyed, "maker")], lambda m: m.rekey(named, keyed), "first", None, [named, totals(named, "maker")]
    )
    migrate(path, first)
    with sound_store(path, models=[keyed]) as store:
        assert len(list(store.query(keyed.tagged("a")))) > 2


@pytest.mark.parametrize(
    ("name", "index"),
    [("tagged", tm.Index[str](partition="{tags}")), ("by_tag", tm.Index[str, int](partition="{tags}", row="{number}"))],
    ids=["another name", "another definition"],
)
def test_an_index_that_was_dropped_and_is_declared_again_stays_at_contract(path: Path, name: str, index: Any) -> None:
    first = script([SLIM, totals(SLIM, "maker")], lambda m: m.drop(OLD.by_tag), "first")
    again = part(**BY_MAKER, **{name: index})
    migrate(path, first)
    with tm.open(path, models=[again]) as store:
        before = len(list(store.query(getattr(again, name)("a"))))
        assert before > 2
        migrate(path, first, contract=True)
        assert len(list(store.query(getattr(again, name)("a")))) == before
    with sound_store(path, models=[again]) as store:
        assert len(list(store.query(getattr(again, name)("a")))) == before


def test_a_script_is_run_again_after_the_newest_version_changed_an_aggregate(path: Path) -> None:
    slim = part(changed(FIELDS, tags=None), **BY_MAKER)
    first = script([slim, totals(slim, "maker")], lambda m: m.drop(OLD.tags), "first")
    by_price = totals(OLD, "price")
    with tm.open(path, models=[OLD, by_price]) as store:  # which has another aggregate by the same name
        assert store.check().ok
    migrate(path, first)
    assert sound(path, slim, totals(slim, "maker")) == 20


def test_keys_of_an_aggregate_in_a_table_of_its_own_are_free(path: Path) -> None:
    key = tm.Key[int, str](partition="{number}", row="{shelf}")
    box, priced = (part(changed(FIELDS, price=price), key, "Box", "Boxes") for price in (str, Decimal))
    keyed = part(key=SHARDED, **indexes())
    steps = step("convert", box.price, priced.price, Decimal, back=str), step("rekey", OLD, keyed)
    first = made([priced, keyed, totals(keyed, "maker")], [box, OLD, OLD_TOTALS], *steps)
    with tm.open(path, models=[box, OLD, OLD_TOTALS]) as store:
        store.insert(box("", 7, price="1", maker=None, tags=[]))
    migrate(path, first)
    assert sound(path, priced) == 1


def test_an_old_version_does_not_bring_back_an_aggregate_that_was_dropped(path: Path) -> None:
    first = script([OLD], lambda m: m.drop(OLD_TOTALS), "first")
    migrate(path, first)
    assert sound(path, OLD, OLD_TOTALS) == 20
    migrate(path, first, contract=True)
    with pytest.raises(
        tm.SchemaMismatch, match="Totals was dropped by first; declare it under another name, or delete"
    ):
        tm.open(path, models=[OLD, OLD_TOTALS])
    with tm.open(path, models=[OLD, totals(OLD, "price")]) as store:  # another definition is another aggregate
        assert store.check().ok
    assert sound(path, OLD) == 20


def test_the_plan_of_several_scripts_is_of_the_classes_as_each_one_finds_them(path: Path) -> None:
    product = part(name="Product", table="Products", **indexes())
    priced = part(changed(FIELDS, price=Decimal), name="Product", table="Products", **indexes())
    sized = part(changed(FIELDS, price=Decimal, tags=int), name="Product", table="Products", **BY_MAKER)
    sizes = step("drop", priced.by_tag), step("convert", priced.tags, sized.tags, len)
    shapes = [[cls, totals(cls, "maker")] for cls in (product, priced, sized)]
    scripts = [
        script(shapes[0], lambda m: m.rename_class(OLD, product), "first"),
        script(
            shapes[1], lambda m: m.convert(product.price, priced.price, Decimal, back=str), "second", "first", shapes[0]
        ),
        made(shapes[2], shapes[1], *sizes, name="third", after="second"),
    ]
    plan = migrate(path, *scripts, dry_run=True).plan
    assert [(one.migration, one.entities, one.old_version) for one in plan if "drop" not in one.text] == [
        ("first", 20, "writes"), ("second", 20, "reads"), ("third", 20, "stops"),
    ]  # fmt: skip
    assert [one.entities for one in migrate(path, *scripts).plan] == [one.entities for one in plan]


def test_a_key_of_which_only_a_type_differs_is_told_with_the_types() -> None:
    priced, other = (
        part(changed(FIELDS, price=kind), tm.Key(partition="{shelf}", row=("{number}", "{price}")))
        for kind in (str, Decimal)
    )
    (change,) = (one for one in tm.changes(tm.schema_snapshot([priced]), [other]) if "row key" in one.message)
    assert change.message.startswith('its row key was ("{number}", "{price}") (number: int, price: str) and is ')
    assert change.message.endswith("(number: int, price: Decimal)")


def test_a_version_with_an_index_that_was_dropped_stays_refused_beside_the_next_migration(path: Path) -> None:
    first = script([SLIM, totals(SLIM, "maker")], lambda m: m.drop(OLD.by_tag), "first")
    second = script(
        [KEYED, totals(KEYED, "maker")],
        lambda m: m.rekey(SLIM, KEYED),
        "second",
        "first",
        [SLIM, totals(SLIM, "maker")],
    )
    migrate(path, first, contract=True)
    for _ in range(2):
        with pytest.raises(
            tm.SchemaMismatch, match="by_tag was dropped by first; declare it under another name, or delete"
        ):
            tm.open(path, models=[OLD, OLD_TOTALS])
        migrate(path, first, second)
    assert sound(path, SLIM, totals(SLIM, "maker")) == sound(path, KEYED, totals(KEYED, "maker")) == 20
