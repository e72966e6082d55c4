"""Scripts that join classes or resolve duplicates; their plans and dry runs; what several runs of them do."""

from __future__ import annotations

import random
from decimal import Decimal
from operator import methodcaller as step
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online.migration import SqliteMigrations
from tablemapper.migrations import runner

from ..classes import entity
from .shapes import (
    BARE,
    FIELDS,
    KEY,
    KEYED,
    PRICED,
    TO_DECIMAL,
    TO_NUMBER,
    begin,
    changed,
    contents,
    held,
    insert,
    made,
    migrate,
    opened,
    part,
    texts,
)  # fmt: skip

WITHOUT = part(
    {**changed(FIELDS, tags=None), "price": Decimal}, key=tm.Key[int, str](partition="{number}", row="{shelf}")
)
STOCK = entity("Stock", "Stocks", {"shelf": str, "number": int, "pieces": int}, KEY)
BOTH = part(changed(FIELDS, tags=None, pieces=int))


def started(path: Path, script: Any, count: int = 1) -> list[Any]:
    """Return runs that have begun a script."""
    engines = [SqliteMigrations.open(path, durability="relaxed") for _ in range(count)]
    for engine in engines:
        engine.look()
        begin(engine, script)
    return engines


def test_two_runners_share_the_work(bare: Path) -> None:
    engines, read, draw = started(bare, TO_DECIMAL, 2), [0, 0], random.Random(1)
    for _ in range(100):
        at = draw.randrange(2)
        copied = engines[at].step(4)
        read[at] += copied.entities
        if copied.switched:
            assert engines[1 - at].step(4).switched
            break
    assert sum(read) == 30
    assert all(read)
    for engine in engines:
        engine.close()
    assert len(held(bare, PRICED)) == 30


@pytest.mark.parametrize("instead", ["nothing", "another script", "one before it"])
def test_a_migration_that_has_not_switched_is_given_up_for_what_is_wanted_instead(bare: Path, instead: str) -> None:
    assert not migrate(bare, TO_DECIMAL, limit=10).done
    (engine,) = started(bare, TO_DECIMAL)
    slim = part(changed(FIELDS, tags=None))
    other = made(slim, BARE, step("drop", BARE.tags), name="other")
    scripts, to, new = {
        "nothing": ([TO_DECIMAL], "", BARE),
        "another script": ([other], "other", slim),
        "one before it": ([other, made([], [], after="other")], "other", slim),
    }[instead]
    assert migrate(bare, *scripts, to=to).ok
    with pytest.raises(tm.InvalidMigration, match="first: another run gave it up while this one copied"):
        engine.step(10)
    engine.close()
    assert [one.id for one in tm.status(bare).history] == ([] if instead == "nothing" else ["other"])
    assert len(held(bare, new)) == 30


# ---------------------------------------------------------------------------------------------- plans


def test_a_run_ends_behind_the_script_that_it_is_told(bare: Path) -> None:
    chain = [TO_DECIMAL, TO_NUMBER, made(WITHOUT, KEYED, step("drop", KEYED.tags), name="third", after="second")]
    assert migrate(bare, *chain, to="second").applied == ("first", "second")
    assert migrate(bare, *chain, dry_run=True).ok
    assert migrate(bare, *chain).applied == ("third",)
    assert str(migrate(bare, *chain)) == "nothing to migrate"


def test_a_plan_says_what_is_done_to_whom(bare: Path) -> None:
    assert str(migrate(bare, TO_DECIMAL, TO_NUMBER, dry_run=True)).splitlines() == [
        "first    convert Part.price, str to Decimal   30 entities   reversible   old version: reads",
        "second   rekey Part                           30 entities   reversible   old version: reads and writes",
    ]


def test_a_plan_counts_what_an_earlier_script_makes(bare: Path) -> None:
    small, larger = (
        entity("Bare", "Bares", {"number": int, **more}, tm.Key[int](partition="{number}")) for more in ({}, {"size": int})
    )  # fmt: skip
    one = made(small, BARE, step("rewrite", BARE, lambda e: small(e.number), into=[small]))
    two = made(larger, small, step("fill", larger.size, lambda _: 1), name="second", after="first")
    plan = migrate(bare, one, two, dry_run=True).plan
    assert [(step.old_version, step.entities) for step in plan] == [("stops", 30), ("reads", 30)]
    assert "30 entities" in str(plan[1].cells)


# ---------------------------------------------------------------------------------------------- several classes


def joined(one: Any, stock: Any) -> Any:
    if one is None:
        return BOTH(stock.shelf, stock.number, price="0", maker=None, pieces=stock.pieces) if stock.pieces else None
    return BOTH(one.shelf, one.number, price=one.price, maker=one.maker, pieces=0 if stock is None else stock.pieces)


@pytest.mark.parametrize("seed", range(3))
def test_two_classes_are_joined_by_their_keys_beside_writers(bare: Path, seed: int) -> None:
    draw = random.Random(seed)
    with opened(bare, BARE, STOCK) as store:
        store.insert_many(STOCK("a", number, pieces=number % 3) for number in range(10, 50))
        (engine,) = started(bare, made(BOTH, [BARE, STOCK], step("join", BARE, STOCK, joined, into=[BOTH])))
        left = 30
        while True:
            a, b = ({(one.shelf, one.number): one for one in store.query(cls).allow_scan()} for cls in (BARE, STOCK))
            if engine.step(5).switched:
                break
            left -= 1
            number = draw.randrange(60)
            if left > 0 and draw.random() < 0.5:
                store.upsert(STOCK("a", number, pieces=draw.randrange(3)))
            elif left > 0 and store.exists(BARE.key("a", number)):
                store.delete(BARE.key("a", number))
        engine.close()
    expected = [joined(a.get(at), b.get(at)) for at in a.keys() | b.keys()]
    with opened(bare, BOTH) as store:
        assert contents(store, [BOTH]) == texts(one for one in expected if one is not None)
        assert store.check().ok


def test_entities_of_one_class_move_into_another_that_is_there(bare: Path) -> None:
    new = part()
    insert(bare, STOCK("b", 100, pieces=5), also=[BARE])
    moving = step("rewrite", STOCK, lambda e: new(e.shelf, e.number, price="1", maker="moved", tags=[]), into=[new])
    with pytest.raises(tm.InvalidMigration, match="Part shares a table with what is migrated: name it in old="):
        migrate(bare, made(new, STOCK, moving))
    assert migrate(bare, made(new, [BARE, STOCK], moving)).entities == 31
    assert (len(held(bare, new)), held(bare, new)[100].maker) == (31, "moved")


def test_classes_that_share_a_table_are_copied_together(place: Path) -> None:
    def pair(pages: Any) -> tuple[Any, Any]:
        kinds = {"Book": {"pages": pages}, "Note": {"text": str}}
        book, note = (
            entity(name, "Things", {"number": int, **kind}, tm.Key[int](partition="{number}", row=name.lower()))
            for name, kind in kinds.items()
        )
        return book, note

    (book, note), (new_book, new_note) = pair(str), pair(int)
    insert(place, *[book(n, pages=str(n * 10)) for n in range(9)], *[note(n, text="x" * 600) for n in range(9)])
    to_int = step("convert", book.pages, new_book.pages, int)
    with pytest.raises(tm.InvalidMigration, match="Note shares a table with what is migrated: name it in old="):
        migrate(place, made(new_book, book, to_int))
    with tm.open(place, models=[note]) as store:
        assert migrate(place, made([new_book, new_note], [book, note], to_int)).entities == 18
        assert store[note.key(3)].text == "x" * 600  # Note is what it was, so a program that has it open goes on
        store.insert(note(100, text="new"))
        with pytest.raises(tm.SchemaMismatch):
            tm.open(place, models=[book])
    assert held(place, new_book, new_note)[3].pages == 30


# ---------------------------------------------------------------------------------------------- duplicates


@pytest.fixture
def shared(bare: Path) -> Path:
    """A store where two or three parts have each maker."""
    with opened(bare, BARE) as store:
        store.query(BARE).allow_scan().update(lambda e: e.replace(maker=f"m{e.number % 12}"))
    return bare


BY_MAKER = {"by_maker": tm.Index[str](partition="{maker}", unique=True)}
UNIQUE, COPIED = part(**BY_MAKER), part({**FIELDS, "price": Decimal}, **BY_MAKER)


def resolving(function: Any) -> Any:
    return made(UNIQUE, BARE, step("resolve", UNIQUE.by_maker, function))


def not_resolved(path: Path, patch: pytest.MonkeyPatch, script: Any) -> None:
    """Run a script as if it were killed before it resolved anything."""
    with patch.context() as context:
        context.setattr(runner, "resolve", lambda *_: ())
        migrate(path, script)


@pytest.mark.parametrize("new", [COPIED, UNIQUE], ids=["copied", "only built"])
def test_values_that_are_held_twice_are_resolved(shared: Path, new: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def apart(holders: list[Any]) -> list[Any]:
        assert [one.number for one in holders] == sorted(one.number for one in holders)
        for one in holders[1:2]:
            one.maker = f"{one.maker} {one.number}"
        return holders[:2]

    convert = [step("convert", BARE.price, new.price, Decimal, back=str)] * (new is COPIED)
    one = made(new, BARE, *convert, step("resolve", new.by_maker, apart))
    not_resolved(shared, monkeypatch, one)
    with pytest.raises(tm.UniqueViolation):
        tm.open(shared, models=[new])
    assert migrate(shared, one).ok
    assert len(held(shared, new)) == len({e.maker for e in held(shared, new).values()}) == 24
    with opened(shared, new) as store:
        assert [e.number for e in store.query(new.by_maker("m3 15"))] == [15]


@pytest.mark.parametrize("killed", [False, True])
def test_values_are_resolved_before_the_next_script_begins(
    shared: Path, monkeypatch: pytest.MonkeyPatch, *, killed: bool
) -> None:
    first = resolving(lambda holders: holders[:1])
    second = made(COPIED, UNIQUE, step("convert", UNIQUE.price, COPIED.price, Decimal), name="second", after="first")
    assert migrate(shared, first, second, dry_run=True).ok
    if killed:
        not_resolved(shared, monkeypatch, first)
    assert migrate(shared, first, second).applied == (("second",) if killed else ("first", "second"))
    assert sorted(e.maker for e in held(shared, COPIED).values()) == sorted(f"m{n}" for n in range(12))


def test_values_that_stay_the_same_are_faults(shared: Path) -> None:
    with pytest.raises(tm.MigrationStopped, match="Part .*: it still has .*'m0'") as stopped:
        migrate(shared, resolving(lambda holders: holders))
    assert len(stopped.value.faults) == 12


@pytest.mark.parametrize("resolved", [False, True])
def test_a_dry_run_finds_values_that_are_held_twice(shared: Path, *, resolved: bool) -> None:
    before = shared.read_bytes()
    apart = resolving(lambda holders: holders if holders[0].number == 3 else holders[:1])
    report = migrate(shared, apart if resolved else made(UNIQUE, BARE), dry_run=True)
    assert shared.read_bytes() == before
    assert not report.ok
    if resolved:
        assert [(fault.where, fault.key) for fault in report.faults] == [("Part", ("a", "b27"))]
    else:
        assert len(report.faults) == 18
    assert "of Part.by_maker, as ('a', '" in report.faults[0].detail


def test_a_dry_run_that_has_no_room_for_a_copy_says_how_much_is_needed(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(tm.StoreFull, match=r"needed, and 1,000 are free; .* TMPDIR") as full:
        migrate(bare, TO_DECIMAL, dry_run=True)
    assert f"{bare.stat().st_size:,} bytes are needed" in str(full.value)
